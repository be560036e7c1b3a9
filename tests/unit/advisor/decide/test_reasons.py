"""What is said of a decision, each sentence by hand."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_up_profiles import SHARES, Physics, Scripted, profile
from unsafe_counts import checked_with

from advisor.core.gpu import EQUAL, NINE, TIME_SLICED, UNCAPPED, Split
from advisor.core.objectives import Policy
from advisor.core.records import CPU_BOUND, FILLS_PERCENT
from advisor.decide.decision import (
    Decision,
    Outlook,
    decide,
    reasons,
    replicas,
    warnings,
    why_unsure,
)
from advisor.decide.limits import Request
from advisor.errors import NoSplitError
from advisor.predict.predictions import Predictions, Predictor
from advisor.predict.profiles import FULL_BANDWIDTH_PERCENT, Profile, Serving
from advisor.predict.sets import SetPredictor
from advisor.wire.answers import Replicas

FREE = Policy(min_speed=0.0, p99_times_alone=0.0)
A, B = profile("a"), profile("b")
TWENTY, THIRTY = Split((20.0, 80.0)), Split((30.0, 70.0))
PAYS = {THIRTY: (0.3, 0.9, 400.0), Split((60.0, 40.0)): (0.6, 0.5, 400.0)}
Known = dict[Split, tuple[float, float, float]]


def served(offered: float = 100.0, *latencies: tuple[float, float]) -> Profile:
    serving = Serving(offered_rate=offered, rate_noise=None, latency_p99_ms=latencies)
    return profile("a", serving=serving)


def decided(known: Known, a: Profile = A, b: Profile = B, **wanted: Any) -> Decision:
    # A server alone is behind its demand here, too.
    wanted = {"policy": FREE, "min_speed": {"a": 0.0}} | wanted
    return decide(Outlook((a, b), Scripted(known, off=0.0)), Request(**wanted))


def said(decision: Decision) -> str:
    return "\n".join((*reasons(decision), *warnings(decision)))


# jobs that answer requests


def test_a_server_that_is_behind_alone_is_said_to_be() -> None:
    best_way = {EQUAL: (0.9, 0.9, 300.0)}
    text = "a serves 80 % of its demand alone on the whole GPU"
    assert text in warnings(decided(best_way, served(125.0)))
    assert "of its demand alone" not in said(decided(best_way, served(100.0)))


@pytest.mark.parametrize(
    ("half", "half_ms", "text"),
    [
        (50.0, 8.0, "a answers as fast as it can: 100 steps/s alone"),
        (50.0, 4000.0, "100 steps/s arrived at a while it ran alone: not declared"),
        (100.0, 8.0, "100 steps/s arrived at a while it ran alone: not declared"),
    ],
    ids=["clients wait", "behind at half", "serves all at half"],
)
def test_a_server_without_a_demand_is_told_what_it_can_or_what_arrived(
    half: float, half_ms: float, text: str
) -> None:
    latencies = ((50.0, half_ms), (100.0, 4.0))
    serving = Serving(offered_rate=None, rate_noise=None, latency_p99_ms=latencies)
    own = profile("a", [half] * (len(SHARES) - 1) + [100.0], serving=serving)
    told = said(decided({EQUAL: (0.9, 0.9, 300.0)}, own))
    assert text in told
    assert "its demand" not in told


@pytest.mark.parametrize(
    ("most_ms", "limit"), [(None, ""), (30.0, " of 30 ms allowed")], ids=["free", "limited"]
)
def test_the_latency_is_told_with_what_is_allowed(most_ms: float | None, limit: str) -> None:
    own = served(100.0, (10.0, 12.0), (100.0, 4.0))
    given = decided({EQUAL: (0.9, 0.9, 300.0)}, own, default_max_p99_ms=most_ms)
    assert given.chosen.name == "50/50"
    assert (
        f"the p99 latency of a is expected at 11.8 ms (7.6 to 25.3){limit}: "
        "alone at 50 % it is 8.44 ms"
    ) in warnings(given)


def test_a_latency_that_was_not_measured_is_said() -> None:
    given = decided({EQUAL: (0.9, 0.9, 300.0)}, served())
    assert "the latency of a was not measured at 50 %" in warnings(given)
    assert "latency of b" not in said(given)


@pytest.mark.parametrize(
    ("a", "power_w", "is_warned"),
    [(served(), 600.0, True), (served(), 400.0, False), (A, 600.0, False)],
)
def test_a_server_that_costs_energy_is_warned_of(
    a: Profile, power_w: float, is_warned: bool
) -> None:
    text = "this takes 25.0 % more energy than the same work with a GPU for each job"
    policy = replace(FREE, objective="throughput")
    given = decided(dict.fromkeys((*NINE, UNCAPPED), (0.6, 0.6, power_w)), a, policy=policy)
    assert given.choice
    assert (text in warnings(given)) is is_warned


# power and bandwidth that the GPU lacks


def test_what_all_want_and_the_gpu_has_not_is_said() -> None:
    equal = {EQUAL: (0.9, 0.9, 400.0)}
    hungry = {"power_w": [600.0] * 10, "dram_active_percent": [60.0] * 10}
    text = said(decided(equal, *(profile(job, columns=hungry) for job in "ab")))
    assert all(
        part in text
        for part in (
            "all would draw 896 W: at the limit of 700 W the clock falls by 9 %",
            "together they need 120 % of the memory bandwidth; 93 % is the most",
            "a alone at 50 % runs at 50 % of its full speed, beside the others at 90 %",
        )
    )
    half = {"dram_active_percent": [FULL_BANDWIDTH_PERCENT / 2] * 10}
    text = said(decided(equal, *(profile(job, columns=half) for job in "ab")))
    assert "bandwidth" not in text
    assert "would draw" not in text


# better options


@pytest.mark.parametrize(
    ("known", "name", "why"),
    [
        (
            {TWENTY: (0.3, 0.8, 400.0), Split((40.0, 60.0)): (0.45, 0.6466, 400.0)},
            "40/60",
            "20/80 is 0.31 % better, which is a tie: the fewest and the loosest limits win",
        ),
        (
            {TIME_SLICED: (0.6, 0.6, 400.0), TWENTY: (0.575, 0.575, 400.0)},
            "20/80",
            "time-sliced is 4.35 % better, and has to be 5.0 % better: its prediction",
        ),
        (
            {TIME_SLICED: (0.51, 0.51, 400.0)},
            "exclusive",
            "time-sliced is 2.00 % better, and has to be 6.0 % better: its prediction",
        ),
        (
            {EQUAL: (0.503, 0.503, 400.0)},
            "exclusive",
            "50/50 would gain 0.6 %, below the minimum gain of 1 %: --min-gain 0",
        ),
        (
            {UNCAPPED: (0.6, 0.6, 400.0), TWENTY: (0.3, 0.8, 400.0)},
            "uncapped",
            "a split does not pay: the best one, 20/80, is 8.3 % worse",
        ),
        (
            {UNCAPPED: (0.6, 0.6, 400.0)},
            "uncapped",
            "without limits a job can take what another needs",
        ),
        (
            {EQUAL: (0.5, 0.55, 430.0)},
            "exclusive",
            "sharing does not pay: the best one, 50/50, is 2.3 % worse",
        ),
        (PAYS | {THIRTY: (0.29, 0.9, 400.0)}, "30/70", "a runs at 29 % of its speed only"),
    ],
)
def test_why_this_way_and_no_other(known: Known, name: str, why: str) -> None:
    given = decided(known)
    assert given.chosen.name == name
    assert why in said(given)
    assert "of its speed only" not in said(decided(PAYS))


def test_limits_that_better_options_break_are_named() -> None:
    slow = decided(PAYS, min_speed={"a": 0.4, "b": 0.4})
    assert "30/70 would be 9.1 % better, but a would run at 30 % of its" in said(slow)
    assert (
        "sharing breaks a limit: 60/40 is nearest, but a would run at 60 % of its speed "
        "alone (60 % at worst), below 70 %"
    ) in reasons(decided(PAYS, min_speed={"a": 0.7, "b": 0.52}))


def test_a_barred_way_is_named_only_beyond_a_tie() -> None:
    ways = {EQUAL: (0.8, 0.8, 300.0), THIRTY: (1.0, 0.616, 300.0)}
    for tie, is_named in ((0.0, True), (0.0101, False)):
        given = decided(ways, policy=replace(FREE, tie=tie), min_speed={"b": 0.7})
        assert given.chosen.name == "50/50"
        assert ("30/70 would be 1.0 % better, but b " in said(given)) is is_named


def test_a_ceiling_that_only_the_bad_end_breaks_is_a_warning() -> None:
    given = decide(Outlook((A, B), Scripted(PAYS)), Request(policy=FREE, max_power_w=420.0))
    text = "at the bad end of its interval both draw 440 W, at most 420 W are allowed"
    assert text in warnings(given)


def test_what_bounds_memory_by_options_and_several_clients_are_warnings() -> None:
    crowd = replace(A, mps_clients=2, memory_bound="--gpu-memory-utilization 0.4")
    told = warnings(decide(Outlook((crowd, B), Scripted(PAYS)), Request(policy=FREE)))
    assert any(line.startswith("a was profiled with --gpu-memory-utilization 0.4") for line in told)
    assert any("a has 2 clients of MPS, and its 30 % are of each: together" in t for t in told)


# what profiles and checks lack


def test_profiles_that_lack_something_or_are_doubtful_are_said() -> None:
    gap = profile(
        "a",
        shares=SHARES[3:],
        missing=("fp64_active_percent",),
        flags=("counter-mismatch", "throttled"),
    )
    text = said(decide(Outlook((gap, B), Physics())))
    assert all(
        part in text
        for part in (
            "the profile of a lacks fp64_active_percent",
            "the profile of a has doubtful points (counter-mismatch: ",
            "a was not measured below 40 %",
        )
    )
    assert "throttled" not in text


def test_counts_that_nobody_checked_are_named() -> None:
    few = checked_with(132, frozenset({8}), checked=frozenset({8, 132}))
    given = decided({EQUAL: (0.9, 0.9, 400.0)})
    assert any("no result was checked: advisor check" in text for text in why_unsure(given, few))
    assert why_unsure(given, checked_with(132, frozenset())) == ()
    assert why_unsure(decided({UNCAPPED: (0.9, 0.9, 400.0)}), few) == ()


# what cannot be


def all_draw(power_w: float, *but: tuple[Split, float]) -> Scripted:
    ways = dict.fromkeys((*NINE, UNCAPPED, TIME_SLICED), power_w) | dict(but)
    return Scripted({split: (0.6, 0.6, w) for split, w in ways.items()}, off=0.0)


STARVING = all_draw(450.0, (EQUAL, 380.2), (NINE[0], 370.0))


@pytest.mark.parametrize(
    ("by", "a", "limits", "text"),
    [
        # Rounded up, and the lowest one at which something keeps all other limits.
        (
            replace(STARVING, known={**STARVING.known, NINE[0]: (0.1, 0.6, 370.0)}),
            A,
            {"max_power_w": 350.0, "policy": Policy()},
            "a and b cannot run on one NVIDIA H200 within these limits. nearest is 50/50: both "
            "draw 380.2 W, at most 350 W are allowed.*allow 381 W, which 50/50 needs",
        ),
        (all_draw(450.0), A, {"max_power_w": 350.0}, "allow 400 W, which one after the other"),
        (
            all_draw(450.0),
            A,
            {"max_power_w": 79.9},
            "nothing runs within 79.9 W. the NVIDIA H200 draws 80 W without any job. "
            "allow 400 W, which one after the other needs.$",
        ),
        (all_draw(450.0), A, {"max_power_w": 80.0}, "a and b cannot run"),
        (Scripted({}, off=0.0), served(), {"max_power_w": 79.0}, "allow more.$"),
        (Scripted({}, off=0.0), served(), {"max_power_w": 390.0}, "loosen that limit"),
        (
            all_draw(900.0),
            profile("a", columns={"power_w": [200.0 + 5 * s for s in range(10, 101, 10)]}),
            {"max_power_w": 350.0},
            "a GPU for each does not help: a alone draws 700 W, at most 350 W are allowed.$",
        ),
    ],
)
def test_what_would_help_is_said(
    by: Predictor, a: Profile, limits: dict[str, Any], text: str
) -> None:
    with pytest.raises(NoSplitError, match=text):
        decide(Outlook((a, B), by), replace(Request(policy=FREE), **limits))


# How many copies of a job a GPU holds, and what ends their number.


SERVING = Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=((10.0, 4.0), (100.0, 4.0)))


def copied_job(sm: float = 10.0, dram: float = 5.0, **fields: Any) -> Profile:
    columns = {
        "sm_active_percent": np.full(10, sm),
        "dram_active_percent": np.full(10, dram),
        "job_cpu_percent": np.full(10, 100.0),
        "power_w": np.full(10, fields.pop("power_w", 180.0)),
    }
    flags = (CPU_BOUND,) if sm < FILLS_PERCENT else ()
    return profile("job", [100.0] * 10, columns=columns, flags=flags, **fields)


ANY_COPIES = Request(policy=Policy(min_speed=0.0))


def outlook(one: Profile, number: int) -> Outlook:
    return Outlook([one] * number, SetPredictor())


def counted(one: Profile, request: Request, most: int = 7) -> tuple[tuple[Decision, ...], Replicas]:
    return replicas((outlook(one, number) for number in range(2, most + 1)), request)


@given(st.floats(1, 99), st.floats(1, 99), st.floats(0, 0.8), st.integers(2, 7), st.booleans())
def test_each_number_is_decided_as_a_set_of_so_many(
    sm: float, dram: float, speed: float, most: int, isolate: bool
) -> None:
    """`replicas A` and `recommend A*3` say the same of three, and each copy adds work."""
    one, request = copied_job(sm, dram), Request(policy=Policy(min_speed=speed), isolate=isolate)
    decisions, found = counted(one, request, most)
    for number, decision in enumerate(decisions, start=2):
        asked = decide(outlook(one, number), request)
        assert (asked.choice, asked.call, asked.options) == (
            decision.choice, decision.call, decision.options
        )  # fmt: skip
    kept = decisions[: found.best - 1]
    assert all(decision.choice for decision in kept)
    rates = [1.0, *(decision.sharing_or_nearest.prediction.stp.value for decision in kept)]
    assert all(more >= 1.01 * fewer for fewer, more in itertools.pairwise(rates))
    assert (len(decisions) < found.best) == (found.ended_by is None) == (found.best == most)


@pytest.mark.parametrize(
    ("one", "wanted", "ended_by", "best"),
    [
        (copied_job(memory_used_mib=4e4), {"memory_mib": 1e5}, "memory", 2),
        (copied_job(), {"host_cores": 3.5}, "host cores", 3),
        (copied_job(serving=SERVING), {"max_p99_ms": {"job": 11.0}}, "tail", 5),
        (copied_job(), {"max_power_w": 300.0}, "power", 3),
        (copied_job(70.0), {"policy": Policy(min_speed=0.0, min_gain=0.2)}, "SMs", 2),
        (copied_job(20.0, 70.0), {"policy": Policy(min_speed=0.0, min_gain=0.2)}, "DRAM", 2),
        (copied_job(97.0), {"policy": Policy()}, "SMs", 2),
        (copied_job(30.0, power_w=600.0), {"policy": Policy(min_speed=0.8)}, "power", 2),
        (copied_job(5.0), {}, None, 7),
    ],
)
def test_what_ends_the_number(
    one: Profile, wanted: dict[str, Any], ended_by: str | None, best: int
) -> None:
    _, found = counted(one, dataclasses.replace(ANY_COPIES, **wanted))
    assert (found.ended_by, found.best) == (ended_by, best), found.why
    assert found.why


def halved(profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
    found = SetPredictor().predict(profiles, splits)
    return dataclasses.replace(found, power_w=found.power_w / 2)


@pytest.mark.parametrize("is_measured", [True, False])
def test_more_copies_that_were_measured_say_that_fewer_keep_their_limits(is_measured: bool) -> None:
    """Four are predicted to break a limit that five were measured to keep."""
    one, request = copied_job(), dataclasses.replace(ANY_COPIES, max_power_w=300.0)
    knows = Mock(predict=halved)
    way = decide(Outlook([one] * 5, knows), request).sharing_or_nearest.split
    outlooks = [outlook(one, number) for number in range(2, 7)]
    outlooks[3] = Outlook([one] * 5, knows, measured=[way] if is_measured else [])
    decisions, found = replicas(outlooks, request)
    assert (found.best, found.ended_by) == (5 if is_measured else 3, "power")
    assert len(decisions) == found.best


def test_not_even_one_is_an_error() -> None:
    with pytest.raises(NoSplitError, match="not even one"):
        counted(copied_job(), Request(max_power_w=100.0))
