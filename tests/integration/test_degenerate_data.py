"""Points whose power betrays wrong results, through the commands that show, keep and learn."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from advisor.core.records import DEGENERATE, UNREAD, PairPoint, SoloPoint
from advisor_cli.app import app
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.files import read_points, write_points
from advisor_training.rows import read_measured

P = TypeVar("P", bound=SoloPoint | PairPoint)

PAIR = ("gemm", "vit-train")
BAD_SHARES = {20, 30, 40, 60, 70, 80}
"""Of vit-train."""


def unflagged(points: list[P]) -> list[P]:
    return [
        dataclasses.replace(p, flags=tuple(f for f in p.flags if f not in (DEGENERATE, UNREAD)))
        for p in points
    ]


@pytest.fixture
def solos() -> list[SoloPoint]:
    return unflagged([p for p in bundled_solo_points() if p.job in PAIR])


@pytest.fixture
def pairs() -> list[PairPoint]:
    return unflagged([p for p in bundled_pair_points() if p.jobs == PAIR])


def advisor(folder: Path, *arguments: str) -> str:
    home = {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_DATABASE_URL": None, "COLUMNS": "80"}
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, arguments, env=home)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_a_campaign_chooses_no_bad_split(tmp_path: Path) -> None:
    """Such as 20/80, at which vit-train computes NaN."""
    command = ("colocate", "--pairs", "+".join(PAIR), "--gpu", "replay")
    points = json.loads(advisor(tmp_path, *command, "--json"))["points"]
    assert {p["jobs"][1]["share_percent"] for p in points if DEGENERATE in p["flags"]} == BAD_SHARES
    shown = advisor(tmp_path, *command)
    (line,) = (line for line in shown.splitlines() if line.startswith(" + ".join(PAIR)))
    assert not any(f" {100 - share:g}/{share:g} " in line for share in BAD_SHARES)
    assert "6 degenerate-data" in shown


def test_points_of_an_earlier_version_are_flagged_on_their_way_in_and_out(
    tmp_path: Path, solos: list[SoloPoint], pairs: list[PairPoint]
) -> None:
    """With the solo points in the same import, before it, or after it."""
    write_points(tmp_path / "solos.jsonl", solos)
    write_points(tmp_path / "pairs.jsonl", pairs)
    advisor(tmp_path, "data", "import", "pairs.jsonl")
    advisor(tmp_path, "data", "import", "solos.jsonl")
    advisor(tmp_path, "data", "export", "out.jsonl")
    advisor(tmp_path, "data", "export", "pairs-out.jsonl", "--kind", "pairs")
    out = [p for p in read_points(tmp_path / "out.jsonl") if isinstance(p, SoloPoint)]
    bad = {p.share_percent for p in out if DEGENERATE in p.flags and p.job == PAIR[1]}
    assert bad == BAD_SHARES
    both = [p for p in read_points(tmp_path / "pairs-out.jsonl") if isinstance(p, PairPoint)]
    assert {p.shares_percent[1] for p in both if DEGENERATE in p.flags} == BAD_SHARES
    listed = json.loads(advisor(tmp_path, "jobs", "--json"))["jobs"]
    (row,) = (r for r in listed if r["job"] == PAIR[1])
    assert DEGENERATE in row["flags"]


def test_what_is_learned_has_none_of_them(
    tmp_path: Path, solos: list[SoloPoint], pairs: list[PairPoint]
) -> None:
    write_points(tmp_path / "solos.parquet", solos)
    write_points(tmp_path / "pairs.parquet", pairs)
    measured = read_measured(tmp_path / "pairs.parquet", tmp_path / "solos.parquet")
    assert {p.shares_percent[1] for p in measured.pairs} == {10, 50, 90, 100}
    assert {p.share_percent for p in measured.profiled if p.job == PAIR[1]} == {
        10, 50, 90, 100,
    }  # fmt: skip
    assert [(item.reason, item.points) for item in measured.left_out] == [
        (f"pair points flagged {DEGENERATE}", 6)
    ]
