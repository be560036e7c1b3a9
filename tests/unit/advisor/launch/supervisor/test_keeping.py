"""What is kept of jobs while they run, on a clock of its own."""

import json
import os
from pathlib import Path

import pytest
from ended_launches import PAIR
from scripted_jobs import GPU, Script, Watch

from advisor.core.records import Observation
from advisor.errors import StoreError
from advisor.launch import observe
from advisor.launch.folder import (
    DRAFT,
    OBSERVATIONS,
    LaunchFolder,
    create_folder,
    observation_lines,
)
from advisor.launch.observe import DRAFT_S, SURE_S, Keeper
from advisor.launch.spec import LaunchSpec


class Kept:
    """Two jobs that one joins after 10 s, and what is in their folder."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        spec = LaunchSpec(launch_id="l1", gpu="0", pairs=(PAIR,))
        self.folder = create_folder(root / "home" / "launches", spec)
        self.watch = Watch(patch, Script(ends_s=20), Script())
        patch.setattr(observe, "time", self.watch.clock)
        self.remembered: list[Observation] = []
        self.warnings: list[str] = []
        began = "2026-01-31T12:00:00.000000Z"
        self.keeper = Keeper(
            self.folder, self.watch.monitor, GPU, began, self.remembered.append,
            self.warnings.append,
        )  # fmt: skip
        self.go_on(10)
        self.watch.join(Script())
        self.go_on(0.5)

    def go_on(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.watch.go_on(0.5)
            self.keeper.look()

    def rows(self, name: str) -> list[tuple[int, str, int]]:
        """Stretch, state and length of those in a file."""
        path = self.folder.path / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [told(line) for line in lines]

    def read(self) -> list[tuple[int, str, int]]:
        """As whoever asks is told."""
        return [told(line) for line in observation_lines(self.folder)]


def told(line: str | bytes) -> tuple[int, str, int]:
    row = json.loads(line)
    return row["stretch"], row["state"], round(row["overlap_s"])


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kept:
    return Kept(monkeypatch, tmp_path)


def test_each_stretch_is_written_at_its_end(kept: Kept) -> None:
    """As a draft, since it may turn out to be of no use; the one that lasts every few seconds."""
    assert kept.rows(DRAFT)[0] == (0, "stopped", 10)
    kept.go_on(10)
    assert kept.rows(DRAFT)[:2] == [(0, "stopped", 10), (1, "finished", 10)]
    kept.go_on(10)
    number, state, overlap_s = kept.rows(DRAFT)[2]
    assert (number, state, 10 - overlap_s <= DRAFT_S) == (2, "stopped", True)
    assert (kept.rows(OBSERVATIONS), kept.remembered) == ([], [])


def test_it_is_kept_for_good_once_it_is_sure(kept: Kept) -> None:
    """Before the end of all, but for the first one, which says what came after it."""
    kept.go_on(10 + SURE_S + DRAFT_S)
    assert kept.rows(OBSERVATIONS) == [(1, "finished", 10)]
    assert [number for number, _, _ in kept.rows(DRAFT)] == [0, 2]
    assert [number for number, _, _ in kept.read()] == [1, 0, 2]


def test_a_limit_that_did_not_hold_is_told_of_the_stretch_before(kept: Kept) -> None:
    """It may have been so then, too."""
    kept.go_on(15)
    kept.watch.monitor.limit_broken = True
    kept.watch.monitor.stop()
    kept.keeper.close("failed")
    rows = [json.loads(line) for line in observation_lines(kept.folder)]
    assert ["limit-broken" in row["flags"] for row in rows] == [True] * 3


def test_at_the_end_each_is_there_once(kept: Kept) -> None:
    """With what came after the first; nothing is left of the draft."""
    kept.go_on(10 + SURE_S + DRAFT_S)
    kept.watch.monitor.stop()
    kept.keeper.close("stopped")
    assert not (kept.folder.path / DRAFT).exists()
    assert [number for number, _, _ in kept.read()] == [1, 0, 2]
    assert [seen.stretch for seen in kept.remembered] == [1, 0, 2]
    assert kept.remembered[1].rest_s == pytest.approx(45.5, abs=1)
    assert kept.warnings == []


def test_a_draft_counts_where_its_supervisor_is_gone(kept: Kept) -> None:
    """Not while it lives; nor beside the same one that it had kept, if that is whole."""
    kept.go_on(10 + DRAFT_S + 1)
    with LaunchFolder(kept.folder.path).supervising():
        assert kept.read() == []
    first, *_ = (kept.folder.path / DRAFT).read_bytes().splitlines()
    final = kept.folder.path / OBSERVATIONS
    final.write_bytes(first[:-5])
    assert [number for number, _, _ in kept.read()] == [0, 1, 2]
    final.write_bytes(first.replace(b'"stopped"', b'"finished"') + b"\n")
    assert [(number, state) for number, state, _ in kept.read()][:2] == [
        (0, "finished"),
        (1, "finished"),
    ]
    assert len(kept.read()) == 3


def test_a_full_disk_costs_what_is_new(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that is reserved is not touched before the end; the draft stays where that fails."""
    kept.go_on(10)
    before = kept.rows(DRAFT)
    kept.folder.keep_reserve()

    def full(_: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    kept.go_on(SURE_S + DRAFT_S)
    assert (kept.folder.path / "reserve").exists()
    assert (kept.rows(OBSERVATIONS), kept.rows(DRAFT)[:2]) == ([], before[:2])
    kept.keeper.close("stopped")
    assert kept.warnings == ["the observation could not be written: no space left"]
    assert [number for number, _, _ in kept.read()][:2] == [0, 1]
    monkeypatch.undo()


def test_a_store_that_is_away_costs_nothing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and all are in the folder."""

    def away(_: Observation) -> None:
        raise StoreError("no database")

    monkeypatch.setattr(kept.keeper, "_remember", away)
    kept.keeper.close("stopped")
    assert len(kept.warnings) == len(kept.read()) == 2
