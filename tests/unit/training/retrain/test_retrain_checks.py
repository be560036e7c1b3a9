"""What new points have to pass before anything is learned from them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import synthetic_pairs as made_up
from retraining import BUNDLED_POINTS, FIRST_DAY, bundled_model, changed, collected, faster, points

from advisor.core.records import PairPoint
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_training.dataset.pairs import DISTURBED, make_pairs
from advisor_training.retrain.collected import Collected, PointSet
from advisor_training.retrain.refused import by_reason
from advisor_training.retrain.sifted import Sifted, sift

# The intervals of a model of three jobs are wide, so what is wrong here is very wrong.
KNOWN_JOBS = made_up.JOBS[:3]


@pytest.fixture(scope="module")
def champion(tmp_path_factory: pytest.TempPathFactory) -> OnnxPredictor:
    """A model of the bundled points of this site."""
    return OnnxPredictor(bundled_model(tmp_path_factory.mktemp("model")))


def sifted(own: PointSet, champion: OnnxPredictor, learned: PointSet = BUNDLED_POINTS) -> Sifted:
    return sift(collected(own), learned, champion, FIRST_DAY)


def test_good_points_pass(champion: OnnxPredictor) -> None:
    """Of jobs that the champion knows, and of jobs that it does not."""
    own = points(made_up.JOBS)
    found = sifted(own, champion)
    assert found.refused == ()
    assert found.new == len(list(own))
    assert found.accepted.ids == own.ids | BUNDLED_POINTS.ids


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
    "far off": ("outlier", lambda p: faster(p, 1e-4), "times as far"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refused_by_its_name(champion: OnnxPredictor, name: str) -> None:
    """Only the point that has it, which keeps its place in the store."""
    reason, spoil, words = FAULTS[name]
    own = points(KNOWN_JOBS)
    place = next(n for n, p in enumerate(own.pairs) if p.shares_percent == (60.0, 40.0))
    spoilt = spoil(own.pairs[place])
    found = sifted(
        replace(own, pairs=(*own.pairs[:place], spoilt, *own.pairs[place + 1 :])), champion
    )
    [refused] = found.refused
    assert (refused.reason, refused.point_id) == (reason, spoilt.point_id)
    assert words in refused.why
    assert spoilt.point_id not in found.accepted.ids


def test_bounds_of_power_are_those_of_the_instruments(champion: OnnxPredictor) -> None:
    """A card at its limit reads a little more than that."""
    own = points(KNOWN_JOBS)
    warm = changed(own, 0, power_limit_w=(own.pairs[0].power_w or 0) / 1.03)
    assert sifted(warm, champion).refused == ()


def test_a_window_under_another_name_is_a_duplicate(champion: OnnxPredictor) -> None:
    """Of two new ones one stays; of a known one and a new one the known one."""
    own = points(KNOWN_JOBS)
    copies = tuple(replace(p, run="copy") for p in own.pairs)
    found = sifted(replace(own, pairs=(*own.pairs, *copies)), champion)
    [counted] = by_reason(found.refused)
    assert (counted.reason, counted.points) == ("duplicate", len(copies))
    assert len(found.accepted.pairs) == len(own.pairs) + len(BUNDLED_POINTS.pairs)
    known = PointSet(pairs=tuple(replace(p, run="copy") for p in BUNDLED_POINTS.pairs))
    found = sifted(known, champion)
    assert {one.point_id for one in found.refused} == known.ids


def test_a_job_that_nobody_understands_is_news(champion: OnnxPredictor) -> None:
    """Where all points of a pair are far off, retraining is there to learn them."""
    own = points(KNOWN_JOBS)
    pairs = tuple(faster(p, 1e-4) if p.jobs == ("climber", "sitter") else p for p in own.pairs)
    assert sifted(replace(own, pairs=pairs), champion).refused == ()


def with_power(found: PointSet, factor: float) -> PointSet:
    return replace(
        found, pairs=tuple(replace(p, power_w=(p.power_w or 0) * factor) for p in found.pairs)
    )


GOOD, POISONED = points(KNOWN_JOBS, host="good"), with_power(points(KNOWN_JOBS, host="bad"), 4.0)


def test_a_host_that_disagrees_with_all_others_is_left_out(champion: OnnxPredictor) -> None:
    """All its pairs, and none of the others."""
    found = sifted(GOOD | POISONED, champion)
    assert {one.reason for one in found.refused} == {"disagreeing-host"}
    limited = {p.point_id for p in POISONED.pairs if p.mode != "time-sliced"}
    assert {one.point_id for one in found.refused} <= {p.point_id for p in POISONED.pairs}
    assert len(found.refused) >= 0.8 * len(limited)
    assert "power of host bad +300 % against all others" in found.refused[0].why


def test_where_all_hosts_disagree_the_world_has_changed(champion: OnnxPredictor) -> None:
    """After a new driver everywhere the champion is what is wrong."""
    assert sifted(with_power(GOOD, 4.0) | POISONED, champion).refused == ()


def test_the_only_host_of_a_site_is_not_judged(champion: OnnxPredictor) -> None:
    """Points that come with the package speak for no host of the site."""
    assert sifted(POISONED, champion).refused == ()


def test_learned_points_of_another_host_tell_as_well(champion: OnnxPredictor) -> None:
    """A host without new points is still there to be compared with."""
    found = sifted(GOOD | POISONED, champion, BUNDLED_POINTS | GOOD)
    assert {one.reason for one in found.refused} == {"disagreeing-host"}


def test_few_points_are_no_strange_host(champion: OnnxPredictor) -> None:
    """One pair may be strange by its jobs."""
    one_pair = tuple(p for p in POISONED.pairs if p.jobs == ("climber", "sitter"))
    assert sifted(GOOD | replace(POISONED, pairs=one_pair), champion).refused == ()


def test_what_was_learned_of_a_wrong_host_is_taken_out_again(champion: OnnxPredictor) -> None:
    """Points that the champion has learned from before more of the same was seen."""
    found = sifted(GOOD | POISONED, champion, BUNDLED_POINTS | GOOD | POISONED)
    assert {one.reason for one in found.refused} == {"disagreeing-host"}
    assert found.new == len(found.refused)
    assert found.accepted.ids.isdisjoint(one.point_id for one in found.refused)


def test_a_clock_that_is_wrong_moves_both_rates(champion: OnnxPredictor) -> None:
    """30 % less of everything is a host; of one job it is the job."""
    slow = points(KNOWN_JOBS, host="bad")
    wrong = replace(slow, pairs=tuple(faster(p, 0.7) for p in slow.pairs))
    assert {one.reason for one in sifted(GOOD | wrong, champion).refused} == {"disagreeing-host"}
    one_job = tuple(
        replace(p, parts=tuple(
            replace(part, rate=0.7 * (part.rate or 0)) if part.job == "sitter" else part
            for part in p.parts
        ))
        for p in slow.pairs
    )  # fmt: skip
    reasons = {one.reason for one in sifted(GOOD | replace(slow, pairs=one_job), champion).refused}
    assert "disagreeing-host" not in reasons


def far_launch(host: str, factor: float) -> PairPoint:
    """One point of a pair, as a launch has it, far from what is expected."""
    mine = points(KNOWN_JOBS, host=host).pairs
    return faster(next(p for p in mine if p.shares_percent == (60.0, 40.0)), factor)


@pytest.mark.parametrize(("other", "refused"), [(1e-4, 0), (1.0, 1)])
def test_an_outlier_that_another_host_bears_out_is_none(
    champion: OnnxPredictor, other: float, refused: int
) -> None:
    """Two hosts that see the same of a pair; and one alone."""
    own = PointSet(
        pairs=(far_launch("one", 1e-4), far_launch("two", other)),
        profiled=points(KNOWN_JOBS).profiled,
    )
    assert [one.reason for one in sifted(own, champion).refused] == ["outlier"] * refused


def test_own_points_alone_borrow_profiles() -> None:
    """A job of an own pair that was never profiled here has the bundled profile."""
    own = PointSet(pairs=points(KNOWN_JOBS).pairs)
    lone = Collected(own=own, bundled=BUNDLED_POINTS, with_bundled=False).candidates
    assert lone.pairs == own.pairs
    assert {solo.job for solo in lone.profiled} == {job.name for job in KNOWN_JOBS}


def alone(host: str, run: str, factor: float = 1.0) -> PointSet:
    """A job's profile on the card of a host, all of it faster by a factor."""
    found = points(KNOWN_JOBS[:1], host=host).profiled
    return PointSet(
        profiled=tuple(replace(p, run=f"{run} {host}", rate=p.rate * factor) for p in found)
    )


def cpu_bound(found: PointSet) -> PointSet:
    """Points of a job that waits for a core."""
    return replace(found, profiled=tuple(replace(p, flags=("cpu-bound",)) for p in found.profiled))


def test_a_reference_that_is_too_fast_takes_no_pairs_with_it(champion: OnnxPredictor) -> None:
    """One point at 100 % would make every other run of the job a disturbed one."""
    fast = alone("bad", "fast", 1.2)
    found = sifted(GOOD | fast, champion)
    [refused] = found.refused
    [whole] = [p for p in fast.profiled if p.share_percent == 100]
    assert (refused.reason, refused.point_id) == ("outlier", whole.point_id)
    assert "in the fastest of 2 other runs" in refused.why
    _, left_out = make_pairs(found.accepted.pairs, found.accepted.profiled)
    assert DISTURBED not in {one.reason for one in left_out}
    _, without_check = make_pairs(GOOD.pairs, [*GOOD.profiled, *fast.profiled])
    assert DISTURBED in {one.reason for one in without_check}


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(GOOD | alone("bad", "fast", 1.1), id="as fast as a run may be"),
        pytest.param(alone("bad", "fast", 1.2), id="one other run"),
        pytest.param(
            GOOD | alone("bad", "fast", 1.2) | alone("other", "fast", 1.2), id="two cards agree"
        ),
        pytest.param(GOOD | cpu_bound(alone("bad", "fast", 2.8)), id="a faster CPU"),
    ],
)
def test_references_that_stay(champion: OnnxPredictor, own: PointSet) -> None:
    """Within noise, with nobody to say who is wrong, or seen on a second card."""
    assert sifted(own, champion).refused == ()


def test_a_card_is_no_second_opinion_of_its_own(champion: OnnxPredictor) -> None:
    """Two new runs that are too fast on one card are both left out; no CPU makes 2.9 times."""
    first, second = alone("bad", "fast", 1.2), alone("bad", "again", 1.2)
    later = tuple(replace(p, started_at=p.started_at[:11] + "23:59:59Z") for p in second.profiled)
    found = sifted(GOOD | first | replace(second, profiled=later), champion)
    assert [one.reason for one in found.refused] == ["outlier"] * 2
    no_cpu = sifted(GOOD | cpu_bound(alone("bad", "fast", 2.9)), champion)
    assert [one.reason for one in no_cpu.refused] == ["outlier"]


@pytest.mark.parametrize(("power_w", "words"), [(721.1, "limit of 700 W"), (70.0, "idle GPU")])
def test_power_of_a_job_alone_has_the_same_bounds(
    champion: OnnxPredictor, power_w: float, words: str
) -> None:
    """Nothing draws more than the limit, or less than the idle GPU."""
    profiled = points(KNOWN_JOBS[:1]).profiled
    bad = replace(profiled[0], power_w=power_w, power_limit_w=700.0, idle_power_w=80.0)
    [refused] = sifted(PointSet(profiled=(bad, *profiled[1:])), champion).refused
    assert (refused.reason, refused.point_id) == ("impossible", bad.point_id)
    assert words in refused.why
