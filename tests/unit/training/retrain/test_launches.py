"""What launches teach a run of retraining, from the store to the list of a model's points."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic_pairs as made_up
from retraining import (
    BUNDLED_POINTS,
    FIRST_DAY,
    faster,
    few_trees,
    launched,
    points,
    registry_in,
)

from advisor.core.observations import Observation
from advisor.core.records import OBSERVED_SOURCE
from advisor_data import open_store
from advisor_training.pairs import LeftOut
from advisor_training.retrain import points as collecting
from advisor_training.retrain.points import POINTS, Collected, PointSet, collect, sift
from advisor_training.retrain.retrain import retrain

SOME = [p for p in BUNDLED_POINTS.pairs if p.mode == "mps" and sum(p.shares_percent) == 100]
GOOD = [launched(point, number) for number, point in enumerate(SOME[:9])]
BAD = replace(GOOD[0], launch_id="bad", state="failed", started_at="2026-01-31T23:00:00+00:00")


@pytest.fixture(autouse=True)
def few_bundled_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "bundled_points", lambda: BUNDLED_POINTS)


def collected_from(home: Path, *seen: Observation, with_launches: bool = True) -> Collected:
    with open_store(None, home) as store:
        store.add([*seen])
        return collect(store, home, with_launches=with_launches)


def test_a_launch_is_learned_from_and_listed(tmp_path: Path) -> None:
    """One that failed is counted with the reason; without launches nothing is new."""
    site = collected_from(tmp_path, *GOOD, BAD)
    assert site.launches_left_out == (LeftOut("launches that failed", 1),)
    assert {point.source for point in site.own.pairs} == {OBSERVED_SOURCE}
    assert len(site.own.pairs) == len(GOOD)
    registry, own = registry_in(tmp_path), points(made_up.JOBS[:4])
    with few_trees():
        report = retrain(
            replace(site, own=site.own | own), tmp_path / "models", FIRST_DAY, registry=registry
        )
    assert (report.outcome, report.new_points) == ("promoted", len(GOOD) + len(own.ids))
    assert report.left_out == ()
    assert report.launches_left_out == site.launches_left_out
    listed = json.loads((registry.folder(report.champion) / POINTS).read_text())
    assert site.own.ids <= set(listed)
    assert collected_from(tmp_path, with_launches=False).own == PointSet()


def test_own_points_borrow_profiles_for_launches(tmp_path: Path) -> None:
    """Of bundled jobs that were launched and never profiled here, where no bundled pair counts."""
    site = replace(collected_from(tmp_path, *GOOD), with_bundled=False)
    jobs = {job for point in site.own.pairs for job in point.jobs}
    assert {solo.job for solo in site.candidates.profiled} == jobs


def test_launches_pass_the_checks_of_points(tmp_path: Path) -> None:
    """Far off is news; faster than alone is never possible."""
    even = next(p for p in SOME if p.jobs == ("climber", "climber"))

    def refused(factor: float, times: int) -> list[str]:
        slow = faster(even, factor)
        seen = [
            replace(launched(slow, n), started_at=f"2026-01-31T20:00:0{n}+00:00")
            for n in range(times)
        ]
        site = collected_from(tmp_path / f"{factor}-{times}", *seen)
        return [one.reason for one in sift(site, BUNDLED_POINTS, FIRST_DAY).refused]

    assert refused(1e-4, 1) == []
    assert refused(20, 3) == ["impossible"] * 3
    assert refused(1, 1) == []
