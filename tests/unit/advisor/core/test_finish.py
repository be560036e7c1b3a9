"""Two jobs to their end: time and energy, with what is left when one has ended."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_up_results import pair_result, swapped

from advisor.core.objectives import (
    Finish,
    PartResult,
    Rest,
    SplitResult,
    Work,
    finish,
    one_after_the_other,
    work_of,
)
from advisor.errors import InputError

HOUR_S = 3600.0

_SPEEDS = st.floats(0.01, 1.2)
_POWERS = st.floats(50, 700)
results = st.builds(
    pair_result,
    rate_a=_SPEEDS,
    rate_b=_SPEEDS,
    solo_rate_a=st.just(1.0),
    solo_rate_b=st.just(1.0),
    solo_power_a_w=_POWERS,
    solo_power_b_w=_POWERS,
    power_w=_POWERS,
)
works = st.builds(Work, st.tuples(st.floats(1, 1e5), st.floats(1, 1e5)))


def result(speed_a: float, speed_b: float, power_w: float) -> SplitResult:
    """Jobs that draw 150 and 600 W alone."""
    return pair_result(
        rate_a=speed_a, rate_b=speed_b, solo_rate_a=1, solo_rate_b=1,
        solo_power_a_w=150, solo_power_b_w=600, power_w=power_w,
    )  # fmt: skip


def test_an_hour_of_each_by_hand() -> None:
    """Together 2 h at 500 W; 0.2 h of the second are left, under its limit 0.5 h at 350 W."""
    shared, work = result(0.5, 0.4, 500), Work((HOUR_S, HOUR_S))
    kept = finish(shared, work, (Rest(0.9, 140), Rest(0.4, 350)))
    assert kept.shared_s == pytest.approx(2 * HOUR_S)
    assert kept.time_s == pytest.approx(2.5 * HOUR_S)
    assert kept.energy_j / HOUR_S == pytest.approx(2 * 500 + 0.5 * 350)
    lifted = finish(shared, work)
    assert lifted.time_s == pytest.approx(2.2 * HOUR_S)
    assert lifted.energy_j / HOUR_S == pytest.approx(2 * 500 + 0.2 * 600)
    alone = one_after_the_other(shared, work)
    assert alone.energy_j / HOUR_S == pytest.approx(750)
    assert alone.shared_s == 0


@given(results, st.floats(1, 1e5))
def test_its_own_mix_of_work_leaves_nothing_over(shared: SplitResult, span_s: float) -> None:
    """Then the energy saved is that of the objective, and the time is the sum of speeds."""
    work = work_of(shared, span_s)
    together, alone = finish(shared, work), one_after_the_other(shared, work)
    assert together.time_s == pytest.approx(span_s)
    assert 1 - together.energy_j / alone.energy_j == pytest.approx(shared.energy_saved, abs=1e-9)
    assert alone.time_s / together.time_s == pytest.approx(shared.stp)


@given(results, works)
def test_what_is_saved_is_saved_while_both_run(shared: SplitResult, work: Work) -> None:
    """A rest on the whole GPU costs what it costs one after the other."""
    together, alone = finish(shared, work), one_after_the_other(shared, work)
    saved_j = together.shared_s * (shared.same_work_w - shared.power_w)
    assert alone.energy_j - together.energy_j == pytest.approx(saved_j, rel=1e-6, abs=1e-3)


@given(results, works)
def test_swapping_the_jobs_changes_nothing(shared: SplitResult, work: Work) -> None:
    there, back = finish(shared, work), finish(swapped(shared), Work(work.alone_s[::-1]))
    assert back.time_s == pytest.approx(there.time_s)
    assert back.energy_j == pytest.approx(there.energy_j)


def test_a_job_that_stands_still_is_done_when_the_other_has_ended() -> None:
    """It runs alone then; where both stand still nothing is ever done."""
    work = Work((HOUR_S, HOUR_S))
    assert finish(result(1, 0, 200), work).time_s == pytest.approx(2 * HOUR_S)
    never = finish(result(0, 0, 200), work)
    assert never == Finish(time_s=math.inf, energy_j=math.inf, shared_s=math.inf)


def test_a_job_without_work_is_over_at_once() -> None:
    alone = finish(result(0.5, 0.5, 400), Work((HOUR_S, 0)))
    assert (alone.shared_s, alone.time_s, alone.energy_j) == (0, HOUR_S, 150 * HOUR_S)
    other = finish(result(0.5, 0.5, 400), Work((0, HOUR_S)))
    assert (other.shared_s, other.time_s, other.energy_j) == (0, HOUR_S, 600 * HOUR_S)


@pytest.mark.parametrize("work", [(0, 0), (-1, 5.5), (math.nan, 1), (math.inf, 1)])
def test_what_is_no_work_is_refused(work: tuple[float, float]) -> None:
    """Nothing, less than nothing and for ever; the message shows how a time is written."""
    with pytest.raises(InputError) as refused:
        Work(work)
    assert str(refused.value) == (
        f"{work[0]} s and {work[1]} s are not amounts of work. "
        "give the time that each job takes alone, such as 3h or 90min."
    )


parts = st.builds(PartResult, rate=_SPEEDS, solo_rate=st.just(1.0), solo_power_w=_POWERS)


@given(st.lists(st.tuples(parts, st.floats(0, 1e5)), min_size=3, max_size=5), _POWERS)
def test_of_more_jobs_those_that_are_left_go_on_one_after_the_other(
    jobs: list[tuple[PartResult, float]], power_w: float
) -> None:
    """Until the first has ended all run; then each that is left has the whole GPU."""
    alone_s = tuple(seconds for _, seconds in jobs)
    assume(sum(alone_s) > 0)
    shared = SplitResult(tuple(part for part, _ in jobs), power_w)
    found = finish(shared, Work(alone_s))
    assert found.shared_s == min(seconds / part.speed for part, seconds in jobs)
    left_s = [seconds - found.shared_s * part.speed for part, seconds in jobs]
    assert found.time_s == pytest.approx(found.shared_s + sum(left_s))
    left_j = sum(s * part.solo_power_w for s, (part, _) in zip(left_s, jobs, strict=True))
    assert found.energy_j == pytest.approx(found.shared_s * power_w + left_j)
