"""Recommendations and placements where some counts of SMs are unsafe: never one of these."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import Physics, profile
from unsafe_counts import UNSAFE_132, checked_132, checked_with

from advisor.core.gpu import units_for_percent
from advisor.core.units import grantable
from advisor.decide.limits import Limits
from advisor.decide.recommend import Decision, RatedSplit, Request, candidate_splits, recommend
from advisor.place.first_come import first_come
from advisor.place.options import predict_options
from advisor.place.problem import JobType, QueuedJob, make_problem
from advisor.place.solver import place
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts

A, B = profile("fft"), profile("gemm")

counts = st.frozensets(st.sampled_from(sorted(grantable(132))))


@st.composite
def known(draw: st.DrawFn) -> tuple[Profile, Profile, CheckedCounts | None]:
    """Two jobs whose own results were read at some counts, on a GPU that may have been checked."""
    host = draw(st.none() | counts.map(lambda unsafe: checked_with(132, unsafe)))
    a, b = (
        dataclasses.replace(job, right_units=draw(counts), wrong_units=draw(counts))
        for job in (A, B)
    )
    return a, b, host


def units(option: RatedSplit) -> tuple[int, int]:
    first, second = option.prediction.split.shares
    return units_for_percent(first, 132), units_for_percent(second, 132)


def splits(answer: Decision) -> list[RatedSplit]:
    named = (*answer.candidates, *answer.picks.values())
    return [option for option in named if option.sharing == "limited"]


@given(known(), st.booleans())
def test_no_split_that_is_named_is_unsafe(
    case: tuple[Profile, Profile, CheckedCounts | None], fine: bool
) -> None:
    """Whatever is known of the libraries and of both jobs, in the nine splits and in all."""
    a, b, host = case
    answer = recommend((a, b), Physics(), Request(fine=fine), host)
    unsafe = a.safety(host).unsafe, b.safety(host).unsafe
    for option in splits(answer):
        assert not [n for n, avoided in zip(units(option), unsafe, strict=True) if n in avoided]
        assert sum(units(option)) <= 132


@given(known(), st.booleans())
def test_swapping_the_jobs_swaps_the_splits(
    case: tuple[Profile, Profile, CheckedCounts | None], fine: bool
) -> None:
    a, b, host = case
    there = set(candidate_splits((a, b), host, fine=fine))
    assert there == {split.turned() for split in candidate_splits((b, a), host, fine=fine)}
    one, other = (recommend(jobs, Physics(), None, host) for jobs in ((a, b), (b, a)))
    assert units(one.choice) == units(other.choice)[::-1]


def test_without_a_check_nothing_is_said_or_changed() -> None:
    """And with one that found nothing wrong no split is another."""
    plain = recommend((A, B), Physics())
    right = recommend((A, B), Physics(), None, checked_with(132, frozenset()))
    assert [o.prediction for o in right.candidates] == [o.prediction for o in plain.candidates]
    assert (right.reasons, right.warnings) == (plain.reasons, plain.warnings)


def test_where_no_split_is_safe_jobs_share_without_limits_or_not_at_all() -> None:
    """Nothing else is left, and the reasons say why."""
    none = checked_with(132, frozenset(set(grantable(132)) - {132}))
    answer = recommend((A, B), Physics(), None, none)
    assert [o.name for o in answer.candidates] == ["uncapped", "exclusive"]
    assert any(text.startswith("not used: 12, 26, 38") for text in answer.reasons)


def test_counts_that_nobody_checked_are_allowed_and_named() -> None:
    few = checked_with(132, frozenset({8}), checked=frozenset({8, 132}))
    a, b = (profile(job, rates=[1.0] * 10) for job in ("fft", "gemm"))
    answer = recommend((a, b), Physics(), None, few)
    assert answer.choice.sharing == "limited"
    assert len(answer.candidates) == 11
    assert any("no result was checked: advisor check" in text for text in answer.warnings)


def test_pairs_of_a_placement_stand_at_safe_counts() -> None:
    """Each pair at its own: what one job's results say is of no other job."""
    jobs = [A, B, dataclasses.replace(profile("triad"), wrong_units=frozenset({66}))]
    options = predict_options(jobs, Physics(), checked=checked_132())
    types = [JobType(name=p.job, power_w=2000.0) for p in jobs]  # so that sharing pays
    queue = [QueuedJob(jobs[n].job) for n in (0, 2, 1, 2, 0, 1)]
    limits = Limits(default_min_speed=0)
    problem = make_problem(queue, types, options, 2, idle_power_w=80.0, limits=limits)
    simple = first_come(problem)
    assert simple is not None
    for runs in (place(problem).schedule.runs, simple.runs):
        shared = [run for run in runs if run.share_percent < 100]
        assert shared
        for run in shared:
            count = units_for_percent(run.share_percent, 132)
            assert count not in UNSAFE_132
            assert (run.job.name, count) != ("triad", 66)
