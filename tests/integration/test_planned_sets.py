"""The script that compares a plan of sets with what they did, on a bundled campaign."""

import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.records import PairPoint, SoloPoint
from advisor.decide.limits import Limits
from advisor.formats.rows import to_row
from advisor_data.files.bundled import bundled_set_points, bundled_set_references
from advisor_profiling.reports import LEFT_OUT, alone_by_job, set_results

FOLDER = Path(__file__).parents[2] / "docs/measurements"
RUN = "sets-20"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Its functions."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return runpy.run_path(str(FOLDER / "planned_sets.py"))


@pytest.fixture
def floors(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Functions of the script that looks at those below their floors."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return runpy.run_path(str(FOLDER / "planned_floors.py"))


def campaign() -> tuple[list[PairPoint], list[SoloPoint]]:
    """Windows of sets without limits, and of their jobs alone, of one card."""
    pairs = [p for p in bundled_set_points() if p.run == RUN and p.mode == "uncapped"]
    return pairs, [p for p in bundled_set_references() if p.run == RUN]


def plan_of(
    pairs: Sequence[PairPoint], solo: Sequence[SoloPoint], *, watts: float, rates: float
) -> dict[str, Any]:
    """What a plan had promised that knew the speeds, but took watts and rates alone for others."""
    here = alone_by_job(solo, LEFT_OUT)
    planned = [
        {
            "cards": 2,
            "power_w": watts * found.power_w,
            "jobs": [
                {"job": p.job, "share_percent": p.share_percent, "speed": p.speed, "p99_ms": 1e6}
                for p in sorted(found.parts, key=lambda p: (p.job, p.share_percent, p.speed))
            ],
        }
        for found in set_results(pairs, solo)
    ]
    return {
        "alone": {job: [rates * rate, power_w] for job, (rate, power_w) in here.items()},
        "floors": dict.fromkeys(here, 0.9),
        "planned": planned,
        "by chance": planned[:3],
    }


def test_a_plan_that_promised_too_few_watts_falls_short(
    script: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a tenth of what is measured; by profiles of half the rate twice the work was done."""
    pairs, solo = campaign()
    (tmp_path / "plan.jsonl").write_text(lines(solo) + lines(pairs))
    script["show"](plan_of(pairs, solo, watts=0.9, rates=0.5), tmp_path / "plan.jsonl")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    (total,) = [row for row in rows if row[0] == "| planned" and row[1] == str(len(pairs))]
    said, host, profiles, short, _ = (float(cell.split(" [")[0]) for cell in total[2:7])
    assert 100 - said == pytest.approx(0.9 * (100 - host), abs=0.1)
    assert 100 - profiles == pytest.approx(0.5 * (100 - host), abs=0.1)
    assert short == pytest.approx(said - host, abs=0.11)
    slow = sum(part.speed < 0.9 for one in set_results(pairs, solo) for part in one.parts)
    jobs = sum(len(point.parts) for point in pairs)
    assert total[7] == f"{2 * (jobs - slow)} of {2 * jobs}"
    assert total[8] == "8 of 8 |"


def test_a_set_of_which_a_window_is_flagged_is_not_added_up(
    script: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And said so."""
    pairs, solo = campaign()
    plan = plan_of(pairs, solo, watts=1.0, rates=1.0)
    flagged = [replace(pairs[0], flags=("failed",)), *pairs[1:]]
    (tmp_path / "plan.jsonl").write_text(lines(solo) + lines(flagged))
    script["show"](plan, tmp_path / "plan.jsonl")
    out = capsys.readouterr().out
    assert "not measured, or flagged" in out
    assert f"| planned | {len(pairs) - 1} |" in out


def test_jobs_that_only_have_limits_are_named_once_more(script: Mapping[str, Any]) -> None:
    """So that they are measured alone on the whole GPU; a single one beside its copy."""

    def plan(*shares: tuple[str, float]) -> dict[str, Any]:
        jobs = [{"job": job, "share_percent": share} for job, share in shares]
        return {"planned": [{"jobs": jobs}], "by chance": []}

    named = script["of_limited"]
    assert list(named(plan(("a", 50.0), ("b", 100.0)))) == ["a+a"]
    assert list(named(plan(("a", 50.0), ("c", 26.0), ("b", 100.0)))) == ["a+c"]
    assert list(named(plan(("a", 50.0), ("a", 100.0)))) == []


def test_jobs_below_their_floors_are_those_of_the_table_of_the_plan(
    script: Mapping[str, Any], floors: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """On each card; and what a limit keeps out is not counted."""
    plan = FOLDER / "planned/h100.json"
    told, windows = json.loads(plan.read_text()), plan.with_suffix(".jsonl")
    script["show"](told, windows)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    ((kept, of_all),) = [r[7].split(" of ") for r in rows if r[:2] == ["| planned", "12"]]
    pool = floors["queue"](told["gpu_model"], told["seed"]).pools[0]
    known = list(floors["known_sets"](told, pool, windows))
    planned = floors["of_way"](known, "planned")
    assert floors["below"](planned) == f"{int(of_all) - int(kept)} of {of_all}"
    nothing = list(floors["kept"](known, Limits(max_power_w=1.0)))
    assert nothing == ["0 of 12", "0 of 0", "0 of 0", "0 of 12"]


def lines(points: Sequence[PairPoint | SoloPoint]) -> str:
    """As `advisor data export` writes them."""
    return "".join(json.dumps(to_row(point)) + "\n" for point in points)
