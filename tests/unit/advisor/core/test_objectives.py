"""What a split is worth, which split is chosen, and the policy."""

import json
import math
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as some, strategies as st
from made_up_results import changed, pair_result, swapped

from advisor.core.gpu import Split
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    POLICY,
    Candidate,
    Finish,
    Interval,
    Objective,
    PartResult,
    Policy,
    Prices,
    Rest,
    SplitResult,
    Work,
    best,
)
from advisor.core.wording import (
    as_requested,
    count_of,
    in_ranges,
    less_or_more,
    listed,
    measuring,
    printable,
    shown,
    unknown_job,
)
from advisor.decide.limits import sure_p99_ms, sure_speeds
from advisor.errors import InputError

BY_HAND = pair_result(
    rate_a=30,
    rate_b=400,
    solo_rate_a=100,
    solo_rate_b=500,
    solo_power_a_w=100,
    solo_power_b_w=300,
    power_w=220,
)


_RATES = st.floats(0, 1e9)


_POSITIVE = st.floats(1e-3, 1e9)


results = st.builds(
    pair_result,
    rate_a=_RATES,
    rate_b=_RATES,
    solo_rate_a=_POSITIVE,
    solo_rate_b=_POSITIVE,
    solo_power_a_w=_POSITIVE,
    solo_power_b_w=_POSITIVE,
    power_w=_POSITIVE,
)


percents = st.integers(1, 100).map(float)


candidates = st.builds(Candidate, st.builds(Split, st.tuples(percents, percents)), results)


objectives = st.sampled_from(sorted(OBJECTIVES))


def test_values_by_hand() -> None:
    assert {o.name: pytest.approx(o.value(BY_HAND)) for o in OBJECTIVES.values()} == {
        "energy-efficiency": (0.3 * 100 + 0.8 * 300) / 220,
        "throughput-per-watt": 1.1 / 220,
        "raw-throughput-per-watt": 430 / 220,
        "throughput": 1.1,
        "energy-delay": 1.21 / 220,
        "max-min": 0.3,
    }
    assert [*OBJECTIVES] == [objective.name for objective in OBJECTIVES.values()]


def test_energy_and_cost_by_hand() -> None:
    """The same work takes 330 W in the mean on a GPU each, and a freed one draws 50 W."""
    prices = Prices(gpu_hour=2.0, kwh=0.5, host_w=100.0)
    assert BY_HAND.energy_saved_beside(50) == pytest.approx(1 - (220 + 50) / BY_HAND.same_work_w)
    costs = prices.of_hour(220), prices.of(1800, 3.6e6)
    assert costs == pytest.approx((2 + 0.5 * 0.32, 0.5 * (2 + 0.5 * 0.1) + 0.5))
    assert prices.with_host(BY_HAND).power_w == 320


def test_the_default_and_a_name_that_is_none() -> None:
    assert Objective.find(DEFAULT_OBJECTIVE).name == "energy-efficiency"
    with pytest.raises(InputError, match=r"no objective speed\. give one of energy-efficiency,"):
        Objective.find("speed")


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("throughput-per-wat", "throughput-per-watt or raw-throughput-per-watt"),
        ("delay", "energy-delay"),
        ("enegy-delay", "energy-delay"),
    ],
)
def test_a_name_that_is_nearly_one_is_asked_back(asked: str, near: str) -> None:
    with pytest.raises(InputError, match=rf"did you mean {near}\? Else give one of"):
        Objective.find(asked)


@given(results, objectives)
def test_swapping_the_jobs_changes_nothing(result: SplitResult, name: str) -> None:
    assert OBJECTIVES[name].value(swapped(result)) == OBJECTIVES[name].value(result)


@given(results, st.floats(1e-3, 1e3))
def test_units_of_progress_do_not_matter(result: SplitResult, factor: float) -> None:
    """Counting a job in batches, not images, changes the raw objective alone."""
    a = result.parts[0]
    counted = changed(result, rate_a=a.rate * factor, solo_rate_a=a.solo_rate * factor)
    for name, objective in OBJECTIVES.items():
        if name != "raw-throughput-per-watt":
            assert objective.value(counted) == pytest.approx(objective.value(result))


def test_units_of_progress_decide_the_raw_objective() -> None:
    """The paper's objective prefers another split when one job counts in thousandths."""
    for thousandths, chosen in ((1, 10), (1000, 90)):
        alone = changed(BY_HAND, solo_rate_a=100.0 * thousandths)
        ways = [
            Candidate(Split((90.0, 10.0)), changed(alone, rate_a=90 * thousandths, rate_b=50)),
            Candidate(Split((10.0, 90.0)), changed(alone, rate_a=10 * thousandths, rate_b=450)),
        ]
        assert best(ways, OBJECTIVES["raw-throughput-per-watt"]).split.shares[0] == chosen


@given(results, results)
def test_energy_saved_orders_splits_as_energy_efficiency_does(
    one: SplitResult, other: SplitResult
) -> None:
    value = OBJECTIVES["energy-efficiency"].value
    if one.energy_saved > other.energy_saved:
        assert value(one) >= value(other)
    if one.same_work_w > 1e-200:  # of less a quotient has no digits left
        assert one.energy_saved == pytest.approx(1 - 1 / value(one))


@given(results, objectives, st.floats(1, 10))
def test_less_power_and_more_speed_are_never_worse(
    result: SplitResult, name: str, factor: float
) -> None:
    frugal = replace(result, power_w=result.power_w / factor)
    faster = changed(result, rate_a=result.parts[0].rate * factor)
    value = OBJECTIVES[name].value
    assert min(value(frugal), value(faster)) >= value(result) * (1 - 1e-12)


@given(_POSITIVE, _POSITIVE, st.floats(0, 2), st.floats(0, 2))
def test_exclusive_wins_exactly_when_sharing_gives_less_than_one_gpu(
    power_w: float, rate: float, speed_a: float, speed_b: float
) -> None:
    turns = SplitResult.exclusive([(rate, power_w), (rate, power_w)])
    shared = changed(turns, rate_a=speed_a * rate, rate_b=speed_b * rate)
    if math.isclose(speed_a + speed_b, 1, rel_tol=1e-9):
        return
    for name in ("energy-efficiency", "throughput", "throughput-per-watt", "energy-delay"):
        value = OBJECTIVES[name].value
        assert (value(turns) > value(shared)) == (speed_a + speed_b < 1)


@given(st.lists(candidates, min_size=1, max_size=9), objectives, st.floats(0, 0.5))
def test_best_is_within_the_tie_and_none_there_is_more_even(
    given_candidates: list[Candidate], name: str, tie: float
) -> None:
    value = OBJECTIVES[name].value
    chosen = best(given_candidates, OBJECTIVES[name], tie)
    least = max(value(c.result) for c in given_candidates) * (1 - tie)
    assert value(chosen.result) >= least
    assert chosen.split.gap_percent == min(
        c.split.gap_percent for c in given_candidates if value(c.result) >= least
    )


@given(st.lists(candidates, min_size=1, max_size=6), objectives, st.randoms())
def test_best_does_not_depend_on_the_order(
    given_candidates: list[Candidate], name: str, random: Random
) -> None:
    chosen = best(given_candidates, OBJECTIVES[name], 0.01)
    random.shuffle(given_candidates)
    assert best(given_candidates, OBJECTIVES[name], 0.01).split == chosen.split


@pytest.mark.parametrize(
    "name", ["solo_rate_a", "solo_rate_b", "solo_power_a_w", "solo_power_b_w", "power_w"]
)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_what_is_divided_by_is_above_zero(name: str, value: float) -> None:
    plain = name.replace("_a", "").replace("_b", "")
    for result in (BY_HAND, changed(BY_HAND, solo_rate_a=0.01, solo_rate_b=0.5)):
        with pytest.raises(InputError) as refused:
            changed(result, **{name: value})
        assert str(refused.value) == f"{plain} is {value}. objectives divide by it."


@given(st.lists(st.tuples(_POSITIVE, _POSITIVE), min_size=1, max_size=5))
def test_any_number_of_jobs_one_after_the_other(alone: list[tuple[float, float]]) -> None:
    turns = SplitResult.exclusive(alone)
    assert (turns.stp, turns.energy_saved) == (pytest.approx(1), pytest.approx(0))
    assert turns.speeds == pytest.approx([1 / len(alone)] * len(alone))


HOUR_S = 3600.0


_SPEEDS = st.floats(0.01, 1.2)


_POWERS = st.floats(50, 700)


pair_results = st.builds(
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
    return pair_result(
        rate_a=speed_a, rate_b=speed_b, solo_rate_a=1, solo_rate_b=1,
        solo_power_a_w=150, solo_power_b_w=600, power_w=power_w,
    )  # fmt: skip


def test_an_hour_of_each_by_hand() -> None:
    """Together 2 h at 500 W; 0.2 h of the second are left, under its limit 0.5 h at 350 W."""
    shared, work = result(0.5, 0.4, 500), Work((HOUR_S, HOUR_S))
    kept = shared.finish(work, (Rest(0.9, 140), Rest(0.4, 350)))
    assert (kept.shared_s, kept.time_s) == (pytest.approx(2 * HOUR_S), pytest.approx(2.5 * HOUR_S))
    assert kept.energy_j / HOUR_S == pytest.approx(2 * 500 + 0.5 * 350)
    lifted = shared.finish(work)
    assert lifted.time_s == pytest.approx(2.2 * HOUR_S)
    assert lifted.energy_j / HOUR_S == pytest.approx(2 * 500 + 0.2 * 600)
    alone = shared.sequential(work)
    assert (alone.energy_j / HOUR_S, alone.shared_s) == (pytest.approx(750), 0)


@given(pair_results, st.floats(1, 1e5))
def test_its_own_mix_of_work_leaves_nothing_over(shared: SplitResult, span_s: float) -> None:
    work = shared.work_in(span_s)
    together, alone = shared.finish(work), shared.sequential(work)
    assert together.time_s == pytest.approx(span_s)
    assert 1 - together.energy_j / alone.energy_j == pytest.approx(shared.energy_saved, abs=1e-9)
    assert alone.time_s / together.time_s == pytest.approx(shared.stp)


@given(pair_results, works)
def test_what_is_saved_is_saved_while_both_run(shared: SplitResult, work: Work) -> None:
    """A rest on the whole GPU costs what it costs one after the other."""
    together, alone = shared.finish(work), shared.sequential(work)
    saved_j = together.shared_s * (shared.same_work_w - shared.power_w)
    assert alone.energy_j - together.energy_j == pytest.approx(saved_j, rel=1e-6, abs=1e-3)


def test_a_job_that_stands_still_is_done_when_the_other_has_ended() -> None:
    work = Work((HOUR_S, HOUR_S))
    assert result(1, 0, 200).finish(work).time_s == pytest.approx(2 * HOUR_S)
    never = result(0, 0, 200).finish(work)
    assert never == Finish(time_s=math.inf, energy_j=math.inf, shared_s=math.inf)


@pytest.mark.parametrize("work", [(0, 0), (-1, 5.5), (math.nan, 1), (math.inf, 1)])
def test_what_is_no_work_is_refused(work: tuple[float, float]) -> None:
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
    alone_s = tuple(seconds for _, seconds in jobs)
    assume(sum(alone_s) > 0)
    found = SplitResult(tuple(part for part, _ in jobs), power_w).finish(Work(alone_s))
    assert found.shared_s == min(seconds / part.speed for part, seconds in jobs)
    left_s = [seconds - found.shared_s * part.speed for part, seconds in jobs]
    assert found.time_s == pytest.approx(found.shared_s + sum(left_s))
    left_j = sum(s * part.solo_power_w for s, (part, _) in zip(left_s, jobs, strict=True))
    assert found.energy_j == pytest.approx(found.shared_s * power_w + left_j)


def test_prices_decide_where_they_are_set() -> None:
    priced = Policy(prices=Prices(gpu_hour=2.0))
    assert (POLICY.deciding, priced.deciding) == ("energy-efficiency", "cost")
    assert priced.with_("throughput", None).deciding == "throughput"


def test_a_request_replaces_what_it_names() -> None:
    own = Policy(objective="max-min", min_gain=0.2, chance=0.8)
    assert own.with_(None, None) == own
    assert own.with_("throughput", 0.0) == Policy(objective="throughput", min_gain=0, chance=0.8)


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("min_speed", -0.01, "0 to 1"),
        ("min_speed", 1.01, "0 to 1"),
        ("p99_times_alone", -1.0, "0 to inf"),
        ("min_gain", -0.01, "0 to 10"),
        ("chance", 0.49, "0.5 to 0.999"),
        ("chance", 1.0, "0.5 to 0.999"),
        ("tie", 1.0, "0 to 0.999"),
        ("tie", math.nan, "0 to 0.999"),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: float, limits: str) -> None:
    with pytest.raises(InputError) as refused:
        Policy(**{name: value})  # type: ignore[arg-type]
    assert str(refused.value) == f"{name} is {value:g}. give a number from {limits}."


@given(some.floats(0.5, 0.94))
def test_more_is_sure_of_with_a_lower_chance(chance: float) -> None:
    """Nineteen of twenty p99s stay below the high end."""
    found = Interval(0.8, 0.4, 1.6)
    assert sure_p99_ms(found, 0.95) == pytest.approx(found.high)
    assert found.value <= sure_p99_ms(found, chance) <= sure_p99_ms(found, chance + 0.01) <= 1.6001


def test_nine_chances_of_ten_by_hand() -> None:
    """What is sure stays."""
    assert sure_p99_ms(Interval(0.8, 0.4, 1.6), 0.9) == pytest.approx(0.8 * 2**0.73)
    speeds, low = np.array([[0.8, 0.0], [0.4, 0.0]])
    assert sure_speeds(speeds, low, 0.9).tolist() == pytest.approx([0.8 * 0.5**0.46, 0.0])
    assert sure_p99_ms(Interval.sure(0.7), 0.9) == 0.7


# Words of messages.


def test_lists_and_counts() -> None:
    lists = [listed([]), listed([1]), listed([1, 2]), listed("abc")]
    assert lists == ["", "1", "1 and 2", "a, b and c"]
    assert [count_of(1, "pair"), count_of(2, "pair")] == ["1 pair", "2 pairs"]
    assert [count_of(1, "process"), count_of(2, "process")] == ["1 process", "2 processes"]


def test_copies_are_named_as_commands_take_them() -> None:
    assert (as_requested(["a", "a", "b", "a"]), as_requested([])) == ("'a*2' b a", "")


def test_three_in_a_row_are_a_range() -> None:
    assert in_ranges([26, 28, 36, 40, 42, 44, 72], 2) == "26, 28, 36, 40 to 44 and 72"
    assert in_ranges([], 2) == ""


@given(st.sets(st.integers(1, 66).map(lambda n: 2 * n)))
def test_no_count_is_lost(counts: set[int]) -> None:
    written = in_ranges(sorted(counts), 2).replace(" and ", ", ")
    read: set[int] = set()
    for part in filter(None, written.split(", ")):
        ends = [int(end) for end in part.split(" to ")]
        read |= set(range(ends[0], ends[-1] + 1, 2))
    assert read == counts


@given(st.text())
def test_no_text_steers_a_terminal(text: str) -> None:
    """Words of any language stay as they are, and JSON means the same."""
    said = printable(text)
    assert said.isprintable() or not {"Cc", "Cf", "Cs"} & {
        unicodedata.category(one) for one in said if one not in "\n\t"
    }
    assert printable(said) == said
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_what_steers_is_shown_as_json_writes_it() -> None:
    assert printable("\x1b[2J \x9b \u202e \U000e0041") == r"\u001b[2J \u009b \u202e \udb40\udc41"
    assert printable("Zug 端末\tµ\n") == "Zug 端末\tµ\n"


@pytest.mark.parametrize(
    ("say", "of", "text"),
    [
        (less_or_more, (0.1234,), "12.3 % less"),
        (less_or_more, (-0.004, 0), "as much"),
        (less_or_more, (-0.5, 0), "50 % more"),
        (shown, ("a" * 58,), repr("a" * 58)),
        (shown, ("a" * 59,), "'" + "a" * 56 + "..."),
        (measuring, (["train.py"],), "advisor profile --name train -- python train.py"),
        (measuring, (["sh", "train.py"],), "advisor profile --name train -- sh train.py"),
        (measuring, (["My job"],), "advisor profile --name NAME -- COMMAND"),
    ],
)
def test_words_of_messages(say: Callable[..., str], of: tuple[Any, ...], text: str) -> None:
    assert say(*of) == text


@pytest.mark.parametrize(
    ("name", "fix", "steps"),
    [
        ("train+infer", "write train infer", []),
        ("train,other", "similar names: trainer, train", ["NAME", "with NAME for it"]),
        ("Training", "similar names: train, trainer", ["NAME", "with NAME for it"]),
        ("z", "names: advisor jobs --bundled", ["--name z", "this command again"]),
    ],
)
def test_an_unknown_job_is_answered_with_what_to_do(name: str, fix: str, steps: list[str]) -> None:
    error = unknown_job(name, ["trainer", "train", "infer"], among=" among the 3")
    assert (f"write `command:` into {name}.yaml" in error.why) == bool(steps)
    found = [word for word, step in zip(steps, error.steps, strict=True) if word in step]
    assert (error.fix, found) == (fix, steps)
