"""The whole way of the bundled pairs: replayed, imported, exported."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered

from advisor.core.records import PairPoint
from advisor.formats.rows import column_types, flat, to_row
from advisor_data.bundled import bundled_pair_points
from advisor_data.files import read_points

REPLAY = ("--gpu", "replay")
PAIR = "mobilenet-train-b2+triad"
ITSELF = "sorting+sorting"
NINE_AND_UNCAPPED = 10
FIVE_AND_UNCAPPED = 6


def replayed(advisor: Advisor, *words: str) -> dict[str, Any]:
    return answered(advisor, "colocate", *words, *REPLAY)


def recorded() -> dict[tuple[Any, ...], list[PairPoint]]:
    """The bundled points of each window."""
    found: dict[tuple[Any, ...], list[PairPoint]] = {}
    for point in bundled_pair_points():
        found.setdefault(key(flat(to_row(point))), []).append(point)
    return found


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a window is found by."""
    return tuple(
        row[name] for name in ("job_1", "job_2", "mode", "share_1_percent", "share_2_percent")
    )


@pytest.mark.slow
def test_replay_of_recorded_pairs(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    done = advisor("colocate", "--pairs", f"{PAIR},{ITSELF}", *REPLAY)
    assert "REPLAY of recorded points of NVIDIA H200" in done.err
    assert "(replay of recorded points)" in done.out
    answer = replayed(advisor, "--pairs", f"{PAIR},{ITSELF}")
    assert answer["replay"] is True
    assert len(answer["points"]) == NINE_AND_UNCAPPED + FIVE_AND_UNCAPPED
    known = recorded()
    for row in answer["points"]:
        assert set(row) == {"jobs", *column_types(PairPoint)}
        row = flat(row)
        assert row["source"] == "replay"
        assert any(
            row["rate_1"] == pytest.approx(point.parts[0].rate, rel=0.01)
            and row["rate_2"] == pytest.approx(point.parts[1].rate, rel=0.01)
            and row["power_w"] == pytest.approx(point.power_w, rel=0.01)
            for point in known[key(row)]
        )
    assert not (tmp_path / "home/advisor.db").exists()


def test_pairs_that_nobody_measured_are_named(advisor: Advisor) -> None:
    answer = replayed(advisor, "--pairs", PAIR, "--splits", "15/85,50/50")
    assert [s["reason"] for s in answer["skipped"]] == ["1 window: not recorded"]
    assert [row["jobs"][0]["share_percent"] for row in answer["points"]] == [50]


def test_the_loop_of_a_replay(advisor: Advisor, tmp_path: Path) -> None:
    """What is replayed is kept nowhere until it is brought in."""
    rows = replayed(advisor, "--pairs", f"{PAIR},{ITSELF}")["points"]
    file = tmp_path / "replayed.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert answered(advisor, "data", "import", str(file))["pairs"] == {"read": 16, "new": 16}
    assert advisor("data", "export", "out.parquet", "--kind", "pairs").code == 0
    assert {to_row(p)["source"] for p in read_points(tmp_path / "out.parquet")} == {"replay"}
