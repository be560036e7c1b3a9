"""Whole runs of retraining on made-up points: what is promoted, kept, forgotten and refused."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import synthetic_pairs as made_up
from hypothesis import given, settings, strategies as st
from retraining import (
    BUNDLED_POINTS,
    FIRST_DAY,
    NEW_POINTS,
    bundled_model,
    changed,
    collected,
    faster,
    few_trees,
    launched,
    points,
    registry_in,
)
from small_model import free_names, make_manifest, save_model

from advisor.core.records import OBSERVED_SOURCE, Observation, PairPoint
from advisor.core.wording import listed
from advisor.errors import ModelError
from advisor_cli.learn.train import write_metrics
from advisor_data import open_store
from advisor_models.registry import Artefact
from advisor_training import retrain as retraining
from advisor_training.learners import as_predicted, leave_job_out, physical
from advisor_training.retrain import (
    ALL,
    POINTS,
    REASONS,
    Collected,
    ComparedFigure,
    PointSet,
    RefusedPoints,
    RetrainReport,
    Sifted,
    bundled_points,
    by_reason,
    collect,
    compare,
    decide,
    learned_from,
    retrain,
    scores,
    sift,
    training_set,
    usable_points,
    with_flags,
)
from advisor_training.rows import LeftOut, make_measurements


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


@pytest.mark.slow
def test_new_jobs_are_learned_and_served(
    site: Site, first_night: tuple[Path, RetrainReport]
) -> None:
    report, champion = first_night[1], site.registry.champion()
    assert (report.outcome, report.replaced, report.left_out) == ("promoted", "bundled", ())
    assert (report.champion, report.challenger) == (champion, champion)
    assert report.new_points == len(list(NEW_POINTS))
    assert [change.at for change in site.registry.history()] == [FIRST_DAY.isoformat()]
    jobs = {job.name for job in made_up.JOBS}
    assert set(site.registry.open_champion().manifest.dataset.jobs) == jobs


def test_what_is_left_out_every_night_trains_once(site: Site) -> None:
    """A refused point is new for ever; nothing else is, so nothing is trained for it."""
    bad = replace(NEW_POINTS.pairs[0], power_w=-1.0, run="bad")
    own = replace(NEW_POINTS, pairs=(*NEW_POINTS.pairs, bad))
    report = site.night(1, own)
    assert (report.outcome, report.challenger) == ("nothing-new", None)
    left_out = [(one.reason, one.points, one.point_ids) for one in report.left_out]
    assert left_out == [("malformed", 1, (bad.point_id,))]
    assert report.why == "nothing of what is new can be learned from"
    assert "nothing new since 2026-02-02" in site.night(2, own).why


def test_a_profile_of_a_job_in_no_pair_teaches_nothing(site: Site) -> None:
    profiled = NEW_POINTS.profiled
    lone = tuple(replace(p, job="lone") for p in profiled if p.job == profiled[0].job)
    report = site.night(1, replace(NEW_POINTS, profiled=(*profiled, *lone)))
    assert (report.outcome, report.new_points, report.left_out) == ("nothing-new", len(lone), ())
    assert lone


@pytest.mark.slow
def test_more_of_the_same_is_no_worse(site: Site) -> None:
    own = NEW_POINTS | points(made_up.JOBS[:2], "2026-02-03")
    report = site.night(3, own)
    newer = "not worse, and has learned from newer points"
    assert (report.outcome, report.why) == ("promoted", newer)
    assert report.champion == report.challenger == site.registry.champion()
    assert site.night(4, own).outcome == "nothing-new"


@pytest.mark.slow
def test_what_is_worse_leaves_no_version(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retraining, "decide", mock.Mock(return_value=(False, "worse for all")))
    before, own = site.registry.champion(), NEW_POINTS | points(made_up.JOBS[:2], "2026-02-03")
    report = site.night(3, own)
    assert (report.outcome, report.why) == ("kept", "worse for all")
    assert report.champion == site.registry.champion() == before != report.challenger
    assert (len(site.registry.versions()), site.night(4, own).outcome) == (1, "nothing-new")


def test_older_points_count_less() -> None:
    """Half after a month, a quarter at least; and moments that nobody can read are old."""
    ages = ["2026-03-03", "2026-02-01", "2020-01-01", "2026-03-03"]
    found = [points(made_up.JOBS[:3], day, f"node-{n}") for n, day in enumerate(ages)]
    unread = tuple(replace(p, started_at="?") for p in found[3].pairs)
    made = training_set(found[0] | found[1] | found[2] | replace(found[3], pairs=unread))
    of_run = {str(run)[-6:]: made.rows.weight[made.rows.run == run] for run in made.rows.run}
    for host, weight in {"node-0": 1.0, "node-1": 0.5, "node-2": 0.25, "node-3": 0.25}.items():
        assert of_run[host] == pytest.approx(weight, rel=1e-3)


@pytest.mark.slow
def test_a_version_of_a_killed_run_is_used(site: Site, bundled: Path) -> None:
    (site.models / "history.jsonl").unlink()
    (site.models / "retrain/last.json").unlink()
    before = site.registry.versions()
    assert site.night(0).outcome == "promoted"
    assert [site.registry.champion()] == site.registry.versions() == before


@pytest.mark.slow
def test_only_the_last_versions_stay(site: Site, tmp_path: Path) -> None:
    [first] = site.registry.versions()
    with free_names():
        site.registry.add(save_model(tmp_path / "by-hand", version="20250101-byhand"))
    own = NEW_POINTS | points((made_up.MadeUpJob("new", 50, 0.3, 0.3, 200, 60), *made_up.JOBS[:2]),
                              "2026-02-02")  # fmt: skip
    report = site.night(1, own, keep=1)
    assert (report.outcome, report.removed) == ("promoted", ())
    assert site.registry.rollback_target() == first
    site.registry.promote("20250101-byhand")
    assert not site.registry.remove("20250101-byhand")
    site.registry.promote(report.champion)
    assert site.registry.remove(first)
    assert site.registry.versions() == ["20250101-byhand", report.champion]


def test_a_model_without_a_list_of_points_knows_what_was_there_before_it() -> None:
    made = Artefact(make_manifest({}, created_at="2026-02-01T12:00:00+00:00"), {})
    later = points(made_up.JOBS, "2026-02-02")
    known = learned_from(made, collected(NEW_POINTS | later), is_bundled=False)
    assert known.ids == NEW_POINTS.ids | BUNDLED_POINTS.ids


def test_a_list_of_points_that_is_none() -> None:
    """Damage that the hash does not show: somebody wrote another file and its hash."""
    for data in (b"{", b"3", b"[[]]"):
        with pytest.raises(ModelError, match="not a list of points"):
            learned_from(Artefact(make_manifest({}), {POINTS: data}), collected(), is_bundled=False)


# The intervals of a model of three jobs are wide, so what is wrong here is very wrong.
KNOWN_JOBS = made_up.JOBS[:3]


def sifted(own: PointSet, learned: PointSet = BUNDLED_POINTS) -> Sifted:
    return sift(collected(own), learned, FIRST_DAY)


def part_with(point: PairPoint, **fields: object) -> PairPoint:
    first, *rest = point.parts
    return replace(point, parts=(replace(first, **fields), *rest))  # pyright: ignore


FAULTS: dict[str, tuple[str, Callable[[PairPoint], PairPoint], str]] = {
    "from the future": (
        "malformed", lambda p: replace(p, started_at="2026-02-03T00:00:00Z"), "which is now"
    ),
    "no moment": ("malformed", lambda p: replace(p, started_at="yesterday"), "'yesterday'"),
    "no share": ("malformed", lambda p: part_with(p, share_percent=0.0), "at 0 %"),
    "no number": ("malformed", lambda p: part_with(p, rate=float("nan")), "nan/s"),
    "no window": ("malformed", lambda p: replace(p, window_s=0.0), "window_s is 0"),
    "minus power": ("malformed", lambda p: replace(p, power_w=-1.0), "power_w is -1"),
    "above the limit": (
        "impossible", lambda p: replace(p, power_w=721.1, power_limit_w=700.0), "limit of 700 W"
    ),
    "below idle": ("impossible", lambda p: replace(p, power_w=70, idle_power_w=80.0), "70 W"),
    "too fast": ("impossible", lambda p: faster(p, 20), "alone it does"),
    "flagged": ("flagged", lambda p: replace(p, flags=("limit-broken",)), "limit-broken"),
    "wrong results": ("flagged", lambda p: part_with(p, results="wrong"), "not right"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refused_by_its_name(name: str) -> None:
    reason, spoil, words = FAULTS[name]
    own = points(KNOWN_JOBS)
    place = next(n for n, p in enumerate(own.pairs) if p.shares_percent == (60.0, 40.0))
    spoilt = spoil(own.pairs[place])
    found = sifted(replace(own, pairs=(*own.pairs[:place], spoilt, *own.pairs[place + 1 :])))
    [refused] = found.refused
    assert (refused.reason, refused.point_id) == (reason, spoilt.point_id)
    assert words in refused.why
    assert spoilt.point_id not in found.accepted.ids


def test_bounds_of_power_are_those_of_the_instruments() -> None:
    own = points(KNOWN_JOBS)
    assert sifted(changed(own, 0, power_limit_w=(own.pairs[0].power_w or 0) / 1.03)).refused == ()


def test_a_window_under_another_name_is_a_duplicate() -> None:
    """Of two new ones one stays; of a known one and a new one the known one."""
    own = points(KNOWN_JOBS)
    copies, known = (
        tuple(replace(p, run="copy") for p in of.pairs) for of in (own, BUNDLED_POINTS)
    )
    found = sifted(replace(own, pairs=(*own.pairs, *copies)))
    [counted] = by_reason(found.refused)
    assert (counted.reason, counted.points) == ("duplicate", len(copies))
    assert len(found.accepted.pairs) == len(own.pairs) + len(known)
    assert {one.point_id for one in sifted(PointSet(pairs=known)).refused} == {
        point.point_id for point in known
    }


def test_unlike_copies_of_a_window_keep_each_other_out() -> None:
    """A forged copy takes no place of the true one, whoever is first by name.

    What the site itself measured teaches; of those that two writers sent neither does.
    """
    own = points(KNOWN_JOBS)
    for forger, author in itertools.product("az", (None, "m")):
        true = replace(own.pairs[0], written_by=author)
        forged = replace(faster(true, 0.7), written_by=forger)
        forged = replace(forged, started_at=forged.started_at.replace("+00:00", "Z"))
        found = sifted(replace(own, pairs=(true, *own.pairs[1:], forged)))
        wrong = {forged.point_id, *([true.point_id] if author else [])}
        assert {one.point_id for one in found.refused} == wrong
        [counted] = by_reason(found.refused)
        assert counted.reason == "disputed"
        named = f"by {listed(sorted((forger, author or 'this site itself')))}"
        assert all(part in counted.example for part in (named, "--written-by NAME"))


def test_what_was_learned_stays_beside_an_unlike_copy() -> None:
    known = BUNDLED_POINTS.pairs[0]
    found = sifted(PointSet(pairs=(replace(faster(known, 0.7), written_by="a"),)))
    assert [one.reason for one in found.refused] == ["duplicate"]
    assert known.point_id in found.accepted.ids


def test_one_writer_voids_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sweeps at half of the rates that a job has, more than the site has of it."""
    own = points(KNOWN_JOBS)
    slow = tuple(
        replace(
            p,
            rate=p.rate / 2,
            run=f"slow-{hour}",
            started_at=f"{p.started_at[:10]}T2{hour}{p.started_at[13:]}",
            written_by="z",
        )
        for p in own.profiled
        if p.job == "sitter"
        for hour in range(3)
    )
    sent = replace(own, profiled=(*own.profiled, *slow))
    of = {one.reason: one for one in by_reason(sifted(sent).refused)}
    assert {*of["voids"].point_ids} == {point.point_id for point in slow}
    assert "profiles of z would make" in of["voids"].example
    assert "impossible" not in of
    monkeypatch.setattr("advisor_training.retrain.MOST_VOIDED", 10_000)
    of = {one.reason: one for one in by_reason(sifted(sent).refused)}
    assert of["impossible"].points > 10
    assert "voids" not in of


def test_one_writer_teaches_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor_training.retrain.LEAST_TAUGHT", 5)
    monkeypatch.setattr("advisor_training.retrain.MOST_TAUGHT", 0.0)
    own = points(KNOWN_JOBS)
    sent = replace(own, pairs=tuple(replace(p, written_by="agents") for p in own.pairs[:20]))
    others = tuple(replace(p, written_by="bench") for p in own.pairs[20:24])
    found = sifted(replace(sent, pairs=(*sent.pairs, *others, *own.pairs[24:])))
    [counted] = by_reason(found.refused)
    assert (counted.reason, counted.points) == ("too-many", 15)
    assert "agents teaches 5 pairs at most" in counted.example
    taught = [p for p in found.accepted.pairs if p.written_by == "agents"]
    assert max(p.started_at for p in taught) <= min(
        p.started_at for p in sent.pairs if p.point_id in counted.point_ids
    )


@pytest.mark.parametrize(("power_w", "words"), [(721.1, "limit of 700 W"), (70.0, "idle GPU")])
def test_power_of_a_job_alone_has_the_same_bounds(power_w: float, words: str) -> None:
    profiled = points(KNOWN_JOBS[:1]).profiled
    bad = replace(profiled[0], power_w=power_w, power_limit_w=700.0, idle_power_w=80.0)
    [refused] = sifted(PointSet(profiled=(bad, *profiled[1:]))).refused
    assert (refused.reason, refused.point_id) == ("impossible", bad.point_id)
    assert words in refused.why


SOME = [p for p in BUNDLED_POINTS.pairs if p.mode == "mps" and sum(p.shares_percent) == 100]
GOOD = [launched(point, number) for number, point in enumerate(SOME[:9])]
BAD = replace(GOOD[0], launch_id="bad", state="failed", started_at="2026-01-31T23:00:00+00:00")


@pytest.fixture(autouse=True)
def few_bundled_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retraining, "bundled_points", lambda: BUNDLED_POINTS)


def collected_from(home: Path, *seen: Observation, with_launches: bool = True) -> Collected:
    with open_store(None, home) as store:
        store.add([*seen])
        return collect(store, home, with_launches=with_launches)


@pytest.mark.slow
def test_a_launch_is_learned_from_and_listed(tmp_path: Path) -> None:
    site = collected_from(tmp_path, *GOOD, BAD)
    assert site.local.left_out == (LeftOut("launches that failed", 1),)
    assert [point.source for point in site.local.pairs] == [OBSERVED_SOURCE] * len(GOOD)
    registry, own = registry_in(tmp_path), points(made_up.JOBS[:4])
    whole = replace(site, local=site.local | own)
    report = retrain(whole, tmp_path / "models", FIRST_DAY, registry=registry)
    assert (report.outcome, report.new_points) == ("promoted", len(GOOD) + len(own.ids))
    assert (report.left_out, report.launches_left_out) == ((), site.local.left_out)
    listed = json.loads((registry.folder(report.champion) / POINTS).read_text())
    assert site.local.ids <= set(listed)
    assert collected_from(tmp_path, with_launches=False).local == PointSet()


def test_own_points_borrow_profiles_for_launches(tmp_path: Path) -> None:
    """Of bundled jobs that were launched and never profiled here, where no bundled pair counts."""
    site = replace(collected_from(tmp_path, *GOOD), with_bundled=False)
    jobs = {job for point in site.local.pairs for job in point.jobs}
    assert {solo.job for solo in site.candidates.profiled} == jobs


def test_launches_pass_the_checks_of_points(tmp_path: Path) -> None:
    even = next(p for p in SOME if p.jobs == ("climber", "climber"))
    for factor, expected in ((1e-4, []), (20, ["impossible"]), (1, [])):
        site = collected_from(tmp_path / f"{factor}", launched(faster(even, factor), 0))
        assert [one.reason for one in sift(site, BUNDLED_POINTS, FIRST_DAY).refused] == expected


REPORT = RetrainReport(
    at="2026-02-01T03:00:00+00:00",
    outcome="promoted",
    why="better",
    champion="20260201-abc",
    challenger="20260201-abc",
    new_points=12,
    left_out=(RefusedPoints("flagged", 2, "far off", ("x", "y")),),
    launches_left_out=(LeftOut("launches that failed", 3),),
    compared=(
        ComparedFigure(
            group='GPU model "X\\Y"', figure="error", tests=3, jobs=5, champion_percent=7.5,
            challenger_percent=6.0, gain_percent=1.5, low_percent=1.0, high_percent=2.0,
            decides=True,
        ),
    ),
)  # fmt: skip


def test_metrics(tmp_path: Path) -> None:
    """Every reason and outcome has a sample, so that a first one is a rise.

    The file is replaced at once, readable for the collector, with nothing left beside it.
    """
    path = tmp_path / "advisor.prom"
    path.write_text("old")
    write_metrics(path, REPORT)
    assert path.stat().st_mode & 0o044
    assert list(tmp_path.iterdir()) == [path]
    lines = path.read_text().splitlines()
    group = r'group="GPU model \"X\\Y\""'
    assert {
        "advisor_retrain_last_success_timestamp_seconds 1.7699148e+09",
        'advisor_retrain_outcome{outcome="promoted"} 1.0',
        'advisor_retrain_outcome{outcome="kept"} 0.0',
        'advisor_retrain_champion_info{version="20260201-abc"} 1.0',
        'advisor_retrain_left_out_points{reason="flagged"} 2.0',
        'advisor_retrain_left_out_launches{reason="launches that failed"} 3.0',
        f'advisor_retrain_error_percent{{{group},model="challenger"}} 6.0',
    } <= set(lines)
    reasons = [line for line in lines if line.startswith("advisor_retrain_left_out_points{")]
    assert len(reasons) == len(REASONS)


@pytest.mark.figures
def test_no_point_that_the_bundled_model_has_learned_from_is_refused() -> None:
    usable = usable_points(with_flags(bundled_points()))
    pairs, _ = make_measurements(usable.pairs, [*usable.references, *usable.profiled], full=False)
    used = {(*m.jobs, m.gpu_uuid, m.run) for m in pairs}
    own = tuple(p for p in usable.pairs if (*p.jobs, p.gpu_uuid, p.run) in used)
    alone = PointSet(profiled=usable.profiled, references=usable.references)
    site = Collected(local=replace(alone, pairs=own), bundled=PointSet())
    found = sift(site, alone, datetime(2026, 12, 1, tzinfo=UTC))
    assert found.new == len(own) > 800
    assert found.refused == ()


# When a challenger counts as better or worse.


PAIRS = tuple(itertools.combinations([f"job{n}" for n in range(8)], 2))
NOISE = np.random.default_rng(0).normal(0, 0.02, 2 * len(PAIRS))


def compared(
    gain: float, noise: float = 1.0, pairs: Sequence[tuple[str, str]] = PAIRS
) -> tuple[ComparedFigure, ...]:
    """A challenger whose errors are smaller by a gain, each off by some noise.

    Each job of each pair is left out once.
    """
    both = [(job, a, b) for a, b in pairs for job in (a, b)]
    tests = pd.DataFrame(both, columns=["left_out", "job_a", "job_b"])
    tests = tests.assign(error=0.1, regret=np.nan)
    challenger = tests.assign(error=0.1 - gain + noise * NOISE[: len(tests)])
    return tuple(compare(tests, challenger, {ALL: np.ones(len(tests), dtype=bool)}))


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_scores_of_left_out_jobs(factor: float) -> None:
    rows = training_set(NEW_POINTS | BUNDLED_POINTS).rows
    asked = leave_job_out(rows, physical)
    speed = np.column_stack([rows.speed_a, rows.speed_b])[asked.row]
    exact = as_predicted(factor * speed, factor * rows.power_w[asked.row])
    found = scores(rows, dataclasses.replace(asked, speed=exact.speed, heads=exact.heads))
    assert np.allclose(found["error"], factor - 1)
    assert np.allclose(found["regret"], 0, atol=0.02)  # ties go to the more even split
    other = leave_job_out(training_set(BUNDLED_POINTS).rows, physical, wanted=rows)
    names = ["left_out", "row", "job_a", "job_b"]
    assert scores(rows, other)[names].equals(found[names])
    asked_of = found[["left_out", "job_a", "job_b"]].drop_duplicates()
    assert all(name in pair for name, *pair in asked_of.itertuples(index=False))
    assert len(asked_of) == 2 * 15 - (asked_of["job_a"] == asked_of["job_b"]).sum()


@pytest.mark.parametrize(
    ("gain", "noise", "better", "worse"),
    [
        (0.03, 1.0, True, False),
        (-0.03, 1.0, False, True),
        (0.0, 1.0, False, False),
        (-0.009, 0.0, False, False),  # less than a rate repeats
    ],
)
def test_what_is_not_worse_beyond_noise_is_promoted(
    gain: float, noise: float, better: bool, worse: bool
) -> None:
    """New jobs are no excuse for what is worse, and nor is another group that is better."""
    [found] = compared(gain, noise)
    assert (found.is_better, found.is_worse) == (better, worse)
    decisions = [decide([found], []), decide([found], ["new-job"])]
    assert [promote for promote, _ in decisions] == [not worse] * 2
    assert decide([*compared(0.03), found], [])[0] != worse


def test_what_is_not_worse_is_promoted_since_it_is_newer() -> None:
    [found] = compared(0.0)
    assert (found.champion_percent, found.jobs, found.tests) == (10.0, 8, 56)
    assert abs(found.gain_percent - (found.champion_percent - found.challenger_percent)) < 0.002
    assert "newer points" in decide([found], [])[1]
    assert "new-job" in decide([found], ["new-job"])[1]


@pytest.mark.parametrize("pairs", [PAIRS[:1], [("a", "b"), ("c", "d"), ("e", "f")]])
def test_few_jobs_and_few_pairs_decide_nothing(pairs: Sequence[tuple[str, str]]) -> None:
    """Two jobs drawn again show one sign only; so do three pairs that share no job."""
    found = [*compared(0.05, pairs=pairs), *compared(-0.05, pairs=pairs)]
    assert not any(one.decides or one.is_better or one.is_worse for one in found)


@settings(max_examples=10)
@given(st.floats(-0.05, 0.05))
def test_no_challenger_is_both(gain: float) -> None:
    [found], [mirrored] = compared(gain, noise=0), compared(-gain, noise=0)
    assert not (found.is_better and found.is_worse)
    assert abs(found.gain_percent + mirrored.gain_percent) < 0.002
