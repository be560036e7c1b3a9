"""Whole runs of retraining on made-up points: what is promoted, kept, forgotten and refused."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
import synthetic_pairs as made_up
from retraining import (
    BUNDLED_POINTS,
    FIRST_DAY,
    NEW_POINTS,
    bundled_model,
    changed,
    collected,
    few_trees,
    points,
    registry_in,
)
from small_model import make_manifest, save_model

from advisor.errors import BusyError, ModelError
from advisor_models.manifest import Artefact
from advisor_training.retrain import retrain as retraining
from advisor_training.retrain.challenger import PromotionDecision, training_set
from advisor_training.retrain.points import POINTS, Collected, PointSet, learned_from
from advisor_training.retrain.retrain import RetrainReport, retrain, working_in


class Site:
    """A site that retrains."""

    def __init__(self, folder: Path, bundled: Path) -> None:
        self.models, self.registry = folder / "models", registry_in(folder, bundled)

    def night(self, day: int, own: PointSet = NEW_POINTS, keep: int = 10) -> RetrainReport:
        now = FIRST_DAY + timedelta(days=day)
        return retrain(collected(own), self.models, now, registry=self.registry, keep=keep)


@pytest.fixture(scope="module", autouse=True)
def small_models() -> Iterator[None]:
    with few_trees():
        yield


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundled_model(tmp_path_factory.mktemp("bundled"))


@pytest.fixture(scope="module")
def first_night(
    tmp_path_factory: pytest.TempPathFactory, bundled: Path
) -> tuple[Path, RetrainReport]:
    """The models after two new jobs were learned, and the report of it."""
    folder = tmp_path_factory.mktemp("first")
    return folder / "models", Site(folder, bundled).night(0)


@pytest.fixture
def site(tmp_path: Path, bundled: Path, first_night: tuple[Path, RetrainReport]) -> Site:
    shutil.copytree(first_night[0], tmp_path / "models")
    return Site(tmp_path, bundled)


def test_new_jobs_are_learned_and_served(
    site: Site, first_night: tuple[Path, RetrainReport]
) -> None:
    """The history has the moment that was given, and says what was replaced."""
    report = first_night[1]
    assert report.outcome == "promoted"
    assert report.champion == report.challenger == site.registry.champion()
    assert report.replaced is None
    assert report.new_points == len(list(NEW_POINTS))
    assert report.left_out == ()
    [change] = site.registry.history()
    assert change.at == FIRST_DAY.isoformat()
    assert set(site.registry.open_champion().manifest.dataset.jobs) == {
        j.name for j in made_up.JOBS
    }


def test_nothing_new_trains_nothing(site: Site) -> None:
    report = site.night(1)
    assert (report.outcome, report.new_points, report.challenger) == ("nothing-new", 0, None)
    assert site.night(2, PointSet()).outcome == "nothing-new"
    assert len(site.registry.versions()) == 1


def test_what_is_left_out_every_night_trains_once(site: Site) -> None:
    """A refused point is new for ever; nothing else is, so nothing is trained for it."""
    bad = replace(NEW_POINTS.pairs[0], power_w=-1.0, run="bad")
    own = replace(NEW_POINTS, pairs=(*NEW_POINTS.pairs, bad))
    report = site.night(1, own)
    assert (report.outcome, report.challenger) == ("nothing-new", None)
    assert [(one.reason, one.points, one.point_ids) for one in report.left_out] == [
        ("malformed", 1, (bad.point_id,))
    ]
    assert report.why == "nothing of what is new can be learned from"
    again = site.night(2, own)
    assert "nothing new since 2026-02-02" in again.why


def test_more_of_the_same_is_no_worse(site: Site) -> None:
    """It is newer, so it serves; the next night trains none."""
    own = NEW_POINTS | points(made_up.JOBS[:2], "2026-02-03")
    report = site.night(3, own)
    assert report.outcome == "promoted"
    assert report.why == "not worse, and has learned from newer points"
    assert report.champion == report.challenger == site.registry.champion()
    assert site.night(4, own).outcome == "nothing-new"


def test_what_is_worse_leaves_no_version(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The champion stays, and the next night does not try again."""
    worse = mock.Mock(return_value=PromotionDecision(False, "worse for all"))
    monkeypatch.setattr(retraining, "decide", worse)
    before, own = site.registry.champion(), NEW_POINTS | points(made_up.JOBS[:2], "2026-02-03")
    report = site.night(3, own)
    assert (report.outcome, report.why) == ("kept", "worse for all")
    assert report.champion == site.registry.champion() == before != report.challenger
    assert len(site.registry.versions()) == 1
    assert site.night(4, own).outcome == "nothing-new"


def test_older_points_count_less() -> None:
    """Half after a month, a quarter at least; and moments that nobody can read are old."""
    ages = ["2026-03-03", "2026-02-01", "2020-01-01", "2026-03-03"]
    found = [points(made_up.JOBS[:3], day, f"node-{n}") for n, day in enumerate(ages)]
    unread = tuple(replace(p, started_at="?") for p in found[3].pairs)
    made = training_set(found[0] | found[1] | found[2] | replace(found[3], pairs=unread))
    of_run = {str(run)[-6:]: made.rows.weight[made.rows.run == run] for run in made.rows.run}
    for host, weight in {"node-0": 1.0, "node-1": 0.5, "node-2": 0.25, "node-3": 0.25}.items():
        assert of_run[host] == pytest.approx(weight, rel=1e-3)


def test_what_a_person_takes_back_stays_taken_back(site: Site) -> None:
    """Without new points the model that was rolled back is not promoted again."""
    site.registry.rollback()
    report = site.night(1)
    assert report.outcome == "nothing-new"
    assert site.registry.champion() is None


def test_a_version_of_a_killed_run_is_used(site: Site, bundled: Path) -> None:
    """It was taken in and not promoted, and nothing was remembered."""
    (site.models / "history.jsonl").unlink()
    (site.models / "retrain/last.json").unlink()
    before = site.registry.versions()
    report = site.night(0)
    assert report.outcome == "promoted"
    assert [site.registry.champion()] == site.registry.versions() == before


def test_only_the_last_versions_stay(site: Site, tmp_path: Path) -> None:
    """Neither the champion goes, nor what a rollback goes to, nor what somebody else made."""
    [first] = site.registry.versions()
    site.registry.add(save_model(tmp_path / "by-hand", version="20250101-byhand"))
    own = NEW_POINTS | points((made_up.MadeUpJob("new", 50, 0.3, 0.3, 200, 60), *made_up.JOBS[:2]),
                              "2026-02-02")  # fmt: skip
    report = site.night(1, own, keep=1)
    assert report.outcome == "promoted"
    assert report.removed == ()
    assert site.registry.rollback_target() == first
    site.registry.promote("20250101-byhand")
    assert not site.registry.remove("20250101-byhand")
    site.registry.promote(report.champion)
    assert site.registry.remove(first)
    assert site.registry.versions() == ["20250101-byhand", report.champion]
    with pytest.raises(ModelError, match="no model"):
        site.registry.remove(first)


def test_one_run_at_a_time(site: Site) -> None:
    with working_in(site.models), pytest.raises(BusyError, match="another advisor retrain"):
        site.night(1, changed(NEW_POINTS, 0, run="new"))
    assert site.night(1).outcome == "nothing-new"


def test_own_points_alone(site: Site) -> None:
    own = Collected(own=points(made_up.JOBS, host="x"), bundled=BUNDLED_POINTS, with_bundled=False)
    report = retrain(own, site.models, FIRST_DAY + timedelta(days=1), registry=site.registry)
    assert report.used_points == len(list(own.own))


def test_a_model_without_a_list_of_points_knows_what_was_there_before_it() -> None:
    """As `advisor train` makes them: what was measured later is new."""
    made = Artefact(make_manifest({}, created_at="2026-02-01T12:00:00+00:00"), {})
    later = points(made_up.JOBS, "2026-02-02")
    known = learned_from(made, collected(NEW_POINTS | later), is_bundled=False)
    assert known.ids == NEW_POINTS.ids | BUNDLED_POINTS.ids


def test_a_list_of_points_that_is_none() -> None:
    """Damage that the hash does not show: somebody wrote another file and its hash."""
    for data in (b"{", b"3", b"[[]]"):
        with pytest.raises(ModelError, match="not a list of points"):
            learned_from(Artefact(make_manifest({}), {POINTS: data}), collected(), is_bundled=False)
