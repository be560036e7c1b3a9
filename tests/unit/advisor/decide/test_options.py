"""Which options are looked at: their kinds, their order, and no unsafe count among them."""

import dataclasses
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import SHARES, profile
from made_up_profiles import active_job as job
from unsafe_counts import checked_with

from advisor.core.gpu import (
    NINE,
    WHOLE,
    Split,
    grantable,
    share_for_units,
    units_for_share,
    without_limits,
)
from advisor.decide.decision import MOST_WAYS, Running, check_set, options_of
from advisor.errors import InputError
from advisor.predict.profiles import Kernels, Profile
from advisor.validity.safe_counts import CheckedCounts

SMALL, BIG = job("small"), job("big", 97.0, 690.0)
FREE = ["uncapped", "time-sliced", "exclusive"]
ALL_UNSAFE = checked_with(132, frozenset(set(grantable(132)) - {132}))


def units_of(share: float) -> int:
    return units_for_share(share, 132, "nvidia")


def limited(profiles: Sequence[Profile], *more: object, **fields: object) -> list[Split]:
    found = options_of(profiles, *more, **fields)  # type: ignore[arg-type]
    return [split for split in found if split.is_limited]


counts = st.frozensets(st.sampled_from(sorted(grantable(132))))


@st.composite
def known(draw: st.DrawFn) -> tuple[list[Profile], CheckedCounts | None]:
    """Jobs and copies whose results were read at some counts, on a GPU that may be checked."""
    host = draw(st.none() | counts.map(lambda unsafe: checked_with(132, unsafe)))
    kinds = [
        dataclasses.replace(job(name, sm), right_units=draw(counts), wrong_units=draw(counts))
        for name, sm in (("a", 8.0), ("b", 97.0), ("c", 97.0))
    ]
    return draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=5)), host


shares_of_units = st.sampled_from(grantable(132)).map(
    lambda units: share_for_units(units, 132, "nvidia")
)


@given(known(), st.lists(shares_of_units, min_size=5, max_size=5), st.booleans())
def test_no_option_has_an_unsafe_count(
    jobs_and_check: tuple[list[Profile], CheckedCounts | None], shares: list[float], fine: bool
) -> None:
    """Neither a split of two, nor limits for some or for all, nor what was measured."""
    profiles, host = jobs_and_check
    measured = [Split(tuple(shares[: len(profiles)]))]
    fine = fine and len(profiles) == 2
    for split in options_of(profiles, host, measured, fine=fine, most_ways=30):
        for one, share in zip(profiles, split.shares, strict=True):
            assert share == WHOLE or units_of(share) not in one.safety(host).unsafe


@given(known(), st.randoms())
def test_order_of_the_jobs_changes_no_option(
    jobs_and_check: tuple[list[Profile], CheckedCounts | None], chance: Random
) -> None:
    profiles, host = jobs_and_check
    mixed = chance.sample(profiles, len(profiles))
    found = options_of(mixed, host, most_ways=30)
    assert seats(mixed, found) == seats(profiles, options_of(profiles, host, most_ways=30))


def seats(profiles: Sequence[Profile], splits: Iterable[Split]) -> set[object]:
    names = [one.job for one in profiles]
    return {(s.sharing, *sorted(zip(names, s.shares, strict=True))) for s in splits}


def test_of_two_small_jobs_the_nine_splits_are_options() -> None:
    found = options_of((SMALL, SMALL))
    assert [*map(str, found)] == [*map(str, NINE), *FREE]
    assert options_of((SMALL, SMALL), checked_with(132, frozenset())) == found


def test_shares_outside_of_a_profile_are_left_out() -> None:
    assert str(options_of((profile("a", shares=SHARES[3:]), SMALL))[0]) == "40/60"


@pytest.mark.parametrize("jobs", range(2, 8))
def test_everybody_has_the_same_limit(jobs: int) -> None:
    """The largest safe count of each that fits so many times."""
    equal = min(limited([SMALL] * jobs), key=lambda split: split.gap_percent)
    units = units_of(equal.shares[0])
    assert len(set(equal.shares)) == 1
    assert 132 - 4 * jobs < jobs * units <= 132
    wrong = dataclasses.replace(SMALL, job="wrong", wrong_units=frozenset({units}))
    found = limited([wrong] + [SMALL] * (jobs - 1))
    assert (units - 2, *[units] * (jobs - 1)) in {tuple(map(units_of, s.shares)) for s in found}


def test_who_was_not_measured_at_so_little_has_no_limit_with_everybody() -> None:
    assert limited([profile("a", shares=SHARES[5:]), SMALL, SMALL], most_ways=1) == []


def test_one_job_that_fills_is_looked_at_under_every_safe_count() -> None:
    """And under no other; small jobs have a limit only where all have."""
    host = checked_with(132, frozenset(range(40, 110, 2)))
    own = [w for w in limited([SMALL, BIG, SMALL], host) if w.shares[0] == WHOLE]
    assert {w.shares[2] for w in own} == {WHOLE}
    found = {units_of(w.shares[1]) for w in own}
    assert found == {*range(12, 40, 2), *range(110, 132, 2)}


@pytest.mark.parametrize("filling", range(8))
def test_search_of_seven_jobs_stays_small(filling: int) -> None:
    """How many options are looked at bounds the time; docs/measurements/sets.md says it."""
    found = options_of([BIG] * filling + [SMALL] * (7 - filling))
    assert len(found) == len(set(found)) <= MOST_WAYS + 4
    assert (len(found) > 4) == (filling > 0)


def test_where_no_count_is_safe_nobody_has_a_limit() -> None:
    for jobs in ((SMALL, BIG), (SMALL, SMALL, BIG)):
        assert [*map(str, options_of(jobs, ALL_UNSAFE, [Split((50.0,) * len(jobs))]))] == FREE


def test_measured_splits_are_options_where_they_are_safe() -> None:
    jobs, odd = (SMALL, SMALL, SMALL), Split((18.0, 27.0, 36.0))
    assert odd in options_of(jobs, measured=[odd])
    unsafe = checked_with(132, frozenset({units_of(27.0)}))
    assert odd not in options_of(jobs, unsafe, [odd])


def test_amd_gpus_hold_two_limits_and_have_no_turns_to_choose() -> None:
    jobs = [job(name, 97.0, gpu_model="AMD Instinct MI300X", units_total=304) for name in "abc"]
    found = options_of(jobs, measured=[Split((30.0, 30.0, 30.0))])
    assert [str(split) for split in found if not split.is_limited] == ["uncapped", "exclusive"]
    assert max(sum(share < WHOLE for share in split.shares) for split in found) == 2


COUNTED = Kernels(per_unit=1.0, per_unit_stderr=0.0, hold_s=1e-3, hold_stderr_s=0.0, source="probe")


def counted(one: Profile, occupancy: float = 50.0, **fields: Any) -> Profile:
    values = {**one.values, "sm_occupancy_percent": np.full(len(one.shares), occupancy)}
    return dataclasses.replace(one, values=values, **{"kernels": COUNTED} | fields)


def below_normal_of(*profiles: Profile, measured: Sequence[Split] = ()) -> list[str]:
    return [str(split) for split in options_of(profiles, None, measured) if split.below_normal]


def test_a_job_that_fills_runs_below_normal_beside_one_that_does_not() -> None:
    """Without a limit, and at the safe count next to half the GPU: so it was measured."""
    small, big = counted(SMALL), counted(BIG)
    assert below_normal_of(
        big, small, measured=[Split((WHOLE, share), below_normal=(1,)) for share in (50.0, WHOLE)]
    ) == ["50:low/100", "100:low/100"]
    assert below_normal_of(small, big) == ["100/50:low", "100/100:low"]
    never: list[tuple[Profile, ...]] = [
        (counted(BIG, 14.0), small),
        (counted(BIG, float("nan")), small),
        (counted(BIG, kernels=None), small),
        (big, dataclasses.replace(big, job="other")),
        (small, dataclasses.replace(small, job="other")),
        (big, small, dataclasses.replace(small, job="third")),
        tuple(dataclasses.replace(one, gpu_model="NVIDIA A100") for one in (big, small)),
    ]
    assert [below_normal_of(*jobs) for jobs in never] == [[]] * len(never)
    # So does one that is left over, beside who joins it.
    left = Running(split=Split((WHOLE,), "uncapped", (0,)), cap_percent=WHOLE)
    for joins, ways in ((small, ["100:low/100", "exclusive"]), (counted(BIG), ["exclusive"])):
        assert [*map(str, options_of([big, joins], running=left))] == ways


def test_fine_splits_are_steps_of_two_units() -> None:
    found = limited((SMALL, SMALL), fine=True)
    assert {units_of(split.shares[0]) for split in found} == {*range(12, 122, 2)}
    assert {*NINE} < {*found}


def test_fine_splits_that_cannot_be_meant() -> None:
    unknown = profile("a", units_total=None)
    with pytest.raises(InputError) as raised:
        options_of((unknown, unknown), fine=True)
    assert str(raised.value) == (
        "the number of SMs of NVIDIA H200 is not known. no point of the profiles has units_total. "
        "leave out the fine splits."
    )
    with pytest.raises(InputError, match="fine splits are of 2 jobs, not of 3"):
        options_of([SMALL] * 3, fine=True)


def test_who_joins_gets_a_share_beside_those_that_stay() -> None:
    running = Running(split=Split((30.0, 50.0)), cap_percent=50.0)
    *joined, apart = options_of([SMALL, SMALL, BIG], running=running)
    assert str(apart) == "exclusive"
    assert {split.shares[:2] for split in joined} == {(30.0, 50.0)}
    assert max(split.shares[2] for split in joined) == 50
    free = Running(split=without_limits("uncapped", 2), cap_percent=WHOLE)
    assert [*map(str, options_of([SMALL, SMALL, BIG], running=free))] == ["uncapped", "exclusive"]


@pytest.mark.parametrize("jobs", [1, 8])
def test_only_two_to_seven_jobs_are_advised(jobs: int) -> None:
    with pytest.raises(InputError, match=rf"no advice for {jobs} jobs? on.*name two to seven"):
        check_set(jobs)
