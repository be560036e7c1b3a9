"""`advisor models` from outside: list, show, promote, roll back, check, as text and as JSON."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered
from in_process import Api, running
from launched_pairs import CARD, GPU_MODEL, PAIR, launched
from reading import answer_of
from small_model import POWER_TREES, SPEED_TREES, free_names, save_model
from typer.testing import CliRunner, Result

from advisor.core.records import LIMIT_BROKEN, Observation
from advisor.errors import ModelError
from advisor_api.launches.reconciler import DriftWatch
from advisor_cli.app import app
from advisor_data import open_store
from advisor_models import registry
from advisor_models.registry import Registry

FIGURES = {"oracle_energy_efficiency_percent": 99.46, "rate_mean_error_percent": 5.93}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    bundled = save_model(tmp_path / "bundled", version="20260101-bundle", figures=FIGURES)
    monkeypatch.setattr(registry, "BUNDLED", bundled)
    made = Registry(tmp_path / "home/models")
    for version in ("20260201-first", "20260301-second"):
        with free_names():
            made.add(save_model(tmp_path / version, version=version, figures=FIGURES))
    return tmp_path / "home"


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["models", *words])


def answer(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return answer_of(done.stdout)


@pytest.mark.usefixtures("home")
def test_list() -> None:
    head, *lines = [line.split() for line in run("list").stdout.splitlines()]
    assert "oracle" in head
    assert [line[0] for line in lines] == ["*", "20260201-first", "20260301-second"]
    assert lines[0][1:3] == ["bundled", "20260101-bundle"]
    assert all({"99.46", "5.93", "64", "ok", "Card", "2026-01-31"} <= set(line) for line in lines)
    rows = answer("list")["models"]
    assert [(row["model"], row["champion"], row["error"]) for row in rows] == [
        ("bundled", True, None), ("20260201-first", False, None), ("20260301-second", False, None)
    ]  # fmt: skip
    assert (rows[0]["version"], rows[1]["figures"]) == ("20260101-bundle", FIGURES)


def test_a_damaged_model_is_a_line_of_the_list_and_fails_the_check(home: Path) -> None:
    good = ["bundled: ok", "20260201-first: ok", "20260301-second: ok"]
    assert run("check").stdout.splitlines() == good
    (home / "models/versions/20260201-first" / SPEED_TREES).write_bytes(b"other")
    done = run("list")
    assert (done.exit_code, "SHA-256" in done.stdout) == (0, True)
    done = run("check", "--json")
    assert done.exit_code == ModelError.exit_code
    errors = {row["model"]: row["error"] for row in json.loads(done.stdout)["models"]}
    assert {row["model"]: row["error"] for row in answer("list")["models"]} == errors
    assert [name for name, error in errors.items() if error] == ["20260201-first"]
    assert run("check", "20260301-second").exit_code == 0


@pytest.mark.usefixtures("home")
def test_show() -> None:
    text = run("show").stdout
    for part in (
        "bundled: 20260101-bundle, the champion",
        "extra-trees, 5 trees",
        "64 pairs (640 points) of 2 jobs on 1 card: Card",
        "oracle_throughput_per_watt_percent",
        "predicts speed (50 features), power (32 features)",
    ):
        assert part in text
    found = answer("show", "20260201-first")
    assert (found["model"], found["champion"]) == ("20260201-first", False)
    manifest, power = found["manifest"], found["manifest"]["heads"][1]
    assert (manifest["version"], power["name"], power["unit"], power["intervals"]["split"]) == (
        "20260201-first", "power", "W", {"low": -0.1, "high": 0.05}
    )  # fmt: skip
    assert set(manifest["files"]) == {SPEED_TREES, POWER_TREES}


@pytest.mark.usefixtures("home")
def test_promote_and_roll_back(tmp_path: Path) -> None:
    first, second = "20260201-first", "20260301-second"
    assert f"{first} is the champion now; it was bundled" in run("promote", first).stdout
    assert run("promote", first).stdout == f"{first} is the champion already\n"
    assert answer("promote", second) == {"champion": second, "replaced": first}
    assert answer("rollback") == {"champion": first, "replaced": second}
    assert "bundled is the champion now" in run("rollback").stdout
    folder = save_model(tmp_path / "fresh", version="20260401-third")
    with free_names():
        assert answer("promote", str(folder))["champion"] == "20260401-third"


def test_without_any_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "none")
    (row,) = answer("list")["models"]
    assert "advisor train" in row["error"]
    assert run("check").exit_code == ModelError.exit_code


# `advisor drift`, and advice for jobs that drift and cards that are known.


KNOWN_CARD = "GPU-11223918-e141-5352-1571-e918124ad11a"
"""One that drew 8 % less than others: in the bundled references."""

DRIFTED = launched([1.0] * 20 + [0.8] * 8)


def keep(folder: Path, observations: Iterable[Observation]) -> None:
    with open_store(None, folder / "home") as store:
        store.add(observations)


def test_keys_of_the_json_stay(advisor: Advisor, tmp_path: Path) -> None:
    keep(tmp_path, DRIFTED)
    report = answered(advisor, "drift")
    assert (report.keys() - {"drifts"}, report["observations"]) == (
        {"observations", "cards", "outdated_checks"}, 28
    )  # fmt: skip
    (one,) = report["drifts"]
    assert one.keys() == {
        "job", "gpu_model", "gpu_uuid", "quantity", "ratio", "since", "observations", "software",
    }  # fmt: skip
    assert (one["job"], one["quantity"], one["gpu_uuid"]) == (PAIR[0], "rate", CARD)
    assert (one["ratio"], one["observations"]) == (pytest.approx(0.8, rel=0.02), 8)
    out = advisor("drift").out
    assert "28 launched pairs compared" in out
    row = next(line for line in out.splitlines() if line.startswith(PAIR[0]))
    assert {"80", CARD} <= set(row.split())


def test_nothing_launched_is_said(advisor: Advisor) -> None:
    said = advisor("drift")
    assert (said.code, said.out) == (0, "there is no launched pair to compare: advisor launch\n")


def test_advice_warns_and_follows(advisor: Advisor, tmp_path: Path) -> None:
    """Only launches since the drift count: the job is expected a fifth slower at their split."""
    words = ("recommend", *PAIR, "--gpu-model", GPU_MODEL, "--all")
    before = answered(advisor, *words)
    keep(tmp_path, DRIFTED)
    after = answered(advisor, *words)
    (warning,) = set(after["warnings"]) - set(before["warnings"])
    assert f"rate of {PAIR[0]} on card {CARD} has drifted: 20 % less" in warning
    assert [drift["job"] for drift in after["drifts"]] == [PAIR[0]]
    assert after["measured"]["launches"] == 8
    then, now = (
        [job["speed"]["value"] for o in answer["candidates"] if o["split"] == "50/50"
         for job in o["jobs"]]
        for answer in (before, after)
    )  # fmt: skip
    assert now == pytest.approx([0.8 * then[0], then[1]], rel=0.03)


def test_launches_that_failed_a_cross_check_are_no_drift(advisor: Advisor, tmp_path: Path) -> None:
    """Something else drew power, so theirs says nothing of the job or of the card."""
    usual, lower = (found := launched(powers=[1.0] * 20 + [0.8] * 8))[:20], found[20:]
    keep(tmp_path, (*usual, *(replace(seen, flags=(LIMIT_BROKEN,)) for seen in lower)))
    report = answered(advisor, "drift")
    assert (report["observations"], report["drifts"]) == (20, [])
    keep(tmp_path, (replace(seen, launch_id=f"{seen.launch_id}-profiled") for seen in lower))
    assert {drift["quantity"] for drift in answered(advisor, "drift")["drifts"]} == {"power"}


def test_forged_copies_of_launches_are_no_drift(advisor: Advisor, tmp_path: Path) -> None:
    """Who may write makes no job drift by sending what others saw again, half as fast."""
    forged = [replace(one, launch_id="forged", written_by="a") for one in DRIFTED[-8:]]
    keep(tmp_path, [*launched([1.0] * 28), *forged])
    report = answered(advisor, "drift")
    assert (report["observations"], report["drifts"]) == (28, [])


def test_card_of_the_references_is_known(advisor: Advisor) -> None:
    words = ("recommend", *PAIR, "--gpu-model", GPU_MODEL, "--all")
    usual, there = answered(advisor, *words), answered(advisor, *words, "--gpu-uuid", KNOWN_CARD)
    assert usual["card"] is None
    card = there["card"]
    assert set(card) == {"gpu_uuid", "power_factor", "references", "observations"}
    assert card["power_factor"]["high"] < 0.98
    assert any("less than others of its model" in text for text in there["warnings"])
    for then, now in zip(usual["candidates"], there["candidates"], strict=True):
        assert now["power_w"]["value"] <= then["power_w"]["value"]
        assert [job["speed"] for job in now["jobs"]] == [job["speed"] for job in then["jobs"]]


def test_launches_teach_what_a_card_draws(advisor: Advisor, tmp_path: Path) -> None:
    """Pairs that drew less at the expected rates, on a card that nobody ran a job alone on."""
    words = ("recommend", *PAIR, "--gpu-model", GPU_MODEL, "--gpu-uuid", CARD)
    assert f"nothing is known of what the card {CARD} draws" in advisor(*words).err
    pairs = [PAIR, ("llm-decode", "sorting"), ("mobilenet-infer", "sorting")]
    keep(tmp_path, [one for pair in pairs for one in launched([], [0.9] * 3, pair=pair)])
    card = answered(advisor, *words)["card"]
    assert card["power_factor"]["value"] < 0.97
    (known,) = answered(advisor, "drift")["cards"]
    assert known == card


def test_queue_is_not_on_one_card(advisor: Advisor) -> None:
    said = advisor("place", *PAIR, "--gpus", "4", "--gpu-uuid", CARD)
    assert said.code != 0
    assert "4 GPUs are not the one GPU" in said.err


@pytest.fixture
def api(tmp_path: Path) -> Iterable[Api]:
    with running(tmp_path / "home") as api:
        yield api


def test_service_records_shows_and_warns(api: Api) -> None:
    service = api.service
    asked = {"jobs": [{"job": name} for name in PAIR], "gpu_model": GPU_MODEL}
    before = api.post("/v1/recommendations", asked)
    service.store.add(DRIFTED)
    watch = DriftWatch(service, gauge_of(service))
    watch.look()
    assert [drift["job"] for drift in api.post("/v1/recommendations", asked)["drifts"]] == [PAIR[0]]
    assert 'drifting_test{quantity="rate"} 1.0' in service.metrics.text().decode()
    watch.look()
    DriftWatch(service, gauge_of(service, "again")).look()
    assert entries(service) == [("advisor", "begun")], "the next service does not repeat it"
    service.store.delete(DRIFTED[20:])
    watch.look()
    assert entries(service) == [("advisor", "done"), ("advisor", "begun")]
    assert api.post("/v1/recommendations", asked)["warnings"] == before["warnings"]


def gauge_of(service: Any, name: str = "test") -> Any:
    from prometheus_client import Gauge

    return Gauge(f"drifting_{name}", "for a test", ("quantity",), registry=service.metrics.registry)


def entries(service: Any) -> list[tuple[str, str]]:
    found = [asdict(entry) for entry in service.state.audit_log() if entry.action == "drift"]
    return [(entry["who"], entry["outcome"]) for entry in found]
