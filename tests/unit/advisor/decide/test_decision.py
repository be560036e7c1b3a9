"""Which options there are, which is taken, and what that does not depend on."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_up_profiles import SHARES, Physics, Scripted, active_job as job, profile
from unsafe_counts import checked_with

from advisor.core.gpu import (
    EQUAL,
    ISOLATING,
    NINE,
    PERCENTAGE,
    TIME_SLICED,
    UNCAPPED,
    WHOLE,
    Gpu,
    Share,
    Split,
    grantable,
    share_for_units,
    units_for_share,
    without_limits,
)
from advisor.core.objectives import OBJECTIVES, POLICY, Interval, Policy, Prices, Work
from advisor.decide.decision import (
    MOST_OPTIONS,
    Decision,
    Outlook,
    RatedSplit,
    Running,
    check_set,
    decide,
    gain_to_the_end,
    options_of,
    reasons,
    warnings,
)
from advisor.decide.limits import Request, Violation
from advisor.errors import InputError, NoSplitError
from advisor.predict.kernels import Kernels
from advisor.predict.predictions import Predictions, Predictor
from advisor.predict.profiles import Profile, Serving
from advisor.predict.sets import SetPredictor
from advisor.runtime.backend import Control, MpsBackend
from advisor.validity.safe_counts import CheckedCounts

SMALL, BIG = job("small"), job("big", 97.0, 690.0)
A, B = profile("a"), profile("b")
FREE = Policy(min_speed=0.0, p99_times_alone=0.0)
SERVER = job(
    "server",
    serving=Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=((10.0, 4.0), (100.0, 4.0))),
)

WEB = profile("web", [100.0] * 10, serving=SERVER.serving)


def decided(profiles: Sequence[Profile], by: Predictor | None = None, **wanted: Any) -> Decision:
    return decide(Outlook(profiles, by or SetPredictor()), Request(**wanted))


def scripted(known: dict[Split, tuple[float, float, float]], off: float = 0.0) -> Scripted:
    return Scripted(known, off=off)


# whatever the jobs are, and whatever is expected of them

figures = st.tuples(st.floats(0.2, 1), st.floats(0.2, 1), st.floats(250, 700))
tables = st.lists(figures, min_size=11, max_size=11).map(
    lambda found: Scripted(dict(zip((*NINE, UNCAPPED, TIME_SLICED), found, strict=True)))
)
"""Whatever a model may say: of no split does it follow what another one does."""

of_two = st.tuples(
    *(st.sampled_from([profile(name), dataclasses.replace(SERVER, job=name)]) for name in "ab")
)
jobs = st.builds(
    job,
    st.sampled_from("abcde"),
    st.floats(2, 99),
    st.floats(120, 700),
    memory_used_mib=st.floats(1, 4e4),
)
sets = st.tuples(
    st.lists(jobs, min_size=2, max_size=3, unique_by=lambda p: p.job), st.integers(0, 2)
).map(lambda found: found[0] + found[0][: found[1]])
asked = st.one_of(st.tuples(of_two, tables), st.tuples(sets, st.just(SetPredictor())))
policies = st.builds(
    Policy,
    objective=st.sampled_from(sorted(OBJECTIVES)),
    min_speed=st.sampled_from([0.0, 0.2, 0.4]),
    min_gain=st.sampled_from([0.0, 0.03, 0.2]),
    chance=st.sampled_from([0.5, 0.9]),
    tie=st.sampled_from([0.0, 0.005, 0.1]),
)
requests = st.builds(
    Request,
    policy=policies,
    max_power_w=st.none() | st.floats(300, 800),
    isolate=st.booleans(),
)
few = settings(max_examples=settings().max_examples // 2)
Asked = tuple[Sequence[Profile], Predictor]


def answered(question: Asked, request: Request) -> Decision | None:
    try:
        return decide(Outlook(*question), request)
    except NoSplitError:
        return None


def worth(found: Decision | None) -> float:
    return found.chosen.score if found else 0.0


def seats(found: Decision, option: RatedSplit | None) -> list[tuple[str, float]] | None:
    names = [one.job for one in found.profiles]
    return option and sorted(zip(names, option.prediction.split.shares, strict=True))


@few
@given(sets, st.sampled_from([SetPredictor(), Physics()]), requests, st.randoms())
def test_order_of_the_jobs_changes_nothing(
    profiles: list[Profile], by: Predictor, request: Request, dice: Random
) -> None:
    mixed = dice.sample(profiles, len(profiles))
    there, back = (answered((of, by), request) for of in (profiles, mixed))
    if there is None or back is None:
        assert there is back
        return
    assert worth(there) == pytest.approx(worth(back), rel=1e-9)
    for one, other in ((there.choice, back.choice), (there.call, back.call)):
        assert seats(there, one) == seats(back, other)
    assert len(reasons(there)) == len(reasons(back))
    assert sorted(warnings(there)) == sorted(warnings(back))


STRICTER = st.one_of(
    st.tuples(st.just("min_speed"), st.floats(0, 0.9)),
    st.tuples(st.just("min_gain"), st.floats(0, 0.5)),
    st.tuples(st.just("chance"), st.floats(0.5, 0.99)),
    st.tuples(st.just("max_power_w"), st.floats(200, 800)),
    st.tuples(st.just("default_max_p99_ms"), st.floats(3, 20)),
    st.tuples(st.just("isolate"), st.just(value=True)),
)


@few
@given(asked, requests, STRICTER)
def test_a_stricter_limit_never_gives_a_better_answer(
    question: Asked, request: Request, more: tuple[str, Any]
) -> None:
    name, limit = more
    # Ties, and options that alone keep the limits and need not gain anything, are for other tests.
    loose = dataclasses.replace(
        request, policy=dataclasses.replace(request.policy, tie=0.0, min_gain=0.0)
    )
    if name == "default_max_p99_ms" and not any(one.serving for one in question[0]):
        return
    if name in Policy.__slots__:
        limit = max(limit, getattr(loose.policy, name))
        strict = dataclasses.replace(
            loose, policy=dataclasses.replace(loose.policy, **{name: limit})
        )
    else:
        limit = min(limit, loose.max_power_w or limit) if name == "max_power_w" else limit
        strict = dataclasses.replace(loose, **{name: limit})
    before, after = answered(question, loose), answered(question, strict)
    assert worth(after) <= worth(before) * (1 + 1e-9)


@few
@given(asked, requests)
def test_what_is_chosen_keeps_every_limit_and_nothing_that_does_is_worth_more(
    question: Asked, request: Request
) -> None:
    if (found := answered(question, request)) is None:
        return
    *shared, apart = found.options
    kept = [option for option in shared if not option.violations]
    alone = any(found.request.violations_alone(one) for one in found.profiles)
    least = 0.0 if alone else apart.score * (1 + request.policy.min_gain)
    enough = [option.score for option in kept if option.score >= least]
    assert apart is found.apart
    assert (apart.sharing, found.choice is None) == ("exclusive", not enough)
    assert found.choice is None or found.call is None
    if choice := found.choice:
        assert choice in shared
        assert not choice.violations
        assert not request.isolate or choice.sharing in ISOLATING
        assert max(enough) * (1 - request.policy.tie) <= choice.score


@few
@given(sets, st.integers(0, 3) | jobs.map(lambda one: dataclasses.replace(one, job="new")))
def test_no_further_job_or_copy_makes_a_job_faster(
    profiles: list[Profile], more: int | Profile
) -> None:
    added = more if isinstance(more, Profile) else profiles[more % len(profiles)]
    both = profiles, [*profiles, added]
    fewer, larger = (decide(Outlook(of, SetPredictor()), Request(policy=FREE)) for of in both)
    for sharing in ("uncapped", "time-sliced"):
        one, other = (next(o for o in of.options if o.sharing == sharing) for of in (fewer, larger))
        pairs = zip(one.prediction.parts, other.prediction.parts, strict=False)
        assert all(b.speed.value <= a.speed.value * (1 + 1e-9) for a, b in pairs)


# which option, by hand

TWENTY, THIRTY = Split((20.0, 80.0)), Split((30.0, 70.0))
FORTY, SEVENTY = Split((40.0, 60.0)), Split((70.0, 30.0))
PAYS = {THIRTY: (0.3, 0.9, 400.0), Split((60.0, 40.0)): (0.6, 0.5, 400.0)}


def turned(split: Split) -> Split:
    return Split(split.shares[::-1], split.sharing)


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({TWENTY: (0.3, 0.8, 400.0), FORTY: (0.45, 0.6466, 400.0)}, "40/60"),
        ({TWENTY: (0.3, 0.8, 400.0), UNCAPPED: (0.45, 0.6466, 400.0)}, "uncapped"),
        ({TWENTY: (0.3, 0.8, 400.0), UNCAPPED: (0.45, 0.63, 400.0)}, "20/80"),
        ({SEVENTY: (0.602, 0.6, 400.0), THIRTY: (0.6, 0.6, 400.0)}, "70/30"),
        ({SEVENTY: (0.6, 0.6, 400.0), THIRTY: (0.6, 0.6, 400.0)}, "30/70"),
        ({TIME_SLICED: (0.6, 0.6, 400.0), FORTY: (0.58, 0.58, 400.0)}, "40/60"),
        ({TIME_SLICED: (0.6, 0.6, 400.0), FORTY: (0.56, 0.57, 400.0)}, "time-sliced"),
        ({TIME_SLICED: (0.632, 0.632, 400.0), UNCAPPED: (0.6, 0.6, 400.0)}, "uncapped"),
    ],
    ids=["even", "fewest", "worth", "better", "name", "in margin", "beyond margin", "surer"],
)
def test_of_options_worth_the_same_the_fewest_and_loosest_limits_are_taken(
    known: dict[Split, tuple[float, float, float]], name: str
) -> None:
    assert decided((A, B), scripted(known), policy=FREE).chosen.name == name
    mirror = {turned(split): (b, a, watts) for split, (a, b, watts) in known.items()}
    back = decided((B, A), scripted(mirror), policy=FREE).chosen.prediction.split
    assert str(turned(back)) == name


def test_of_limits_as_even_the_loosest_are_taken() -> None:
    """One limit goes before them, however uneven."""
    tight, loose = Split((40.0, 30.0, 30.0)), Split((50.0, 40.0, 40.0))
    for known in ((tight, loose), (tight, loose, Split((60.0, WHOLE, WHOLE)))):
        by = Scripted(dict.fromkeys(known, (0.5, 0.5, 0.5, 400.0)), off=0.0)
        outlook = Outlook([A, B, profile("c")], by, measured=known)
        assert decide(outlook, Request(policy=FREE)).chosen.name == str(known[-1])


@pytest.mark.parametrize(
    ("gain", "name"), [(0.0, "50/50"), (0.2, "50/50"), (0.28, "60/40"), (0.31, "exclusive")]
)
def test_of_options_nearly_alike_one_that_gains_enough_is_taken(gain: float, name: str) -> None:
    known = {Split((60.0, 40.0)): (0.70, 0.60, 400.0), EQUAL: (0.63, 0.62, 400.0)}
    policy = Policy(objective="throughput", tie=0.1, min_gain=gain)
    assert decided((A, B), scripted(known), policy=policy).chosen.name == name


@pytest.mark.parametrize("two", [(A, B), (WEB, B)], ids=["jobs", "with a server"])
@pytest.mark.parametrize(("power_w", "choice"), [(396.0, "50/50"), (397.0, None)])
def test_sharing_must_gain_one_part_in_a_hundred(
    two: tuple[Profile, Profile], power_w: float, choice: str | None
) -> None:
    """Alone each draws 400 W. A server that saves less has a GPU of its own, too."""
    found = decided(two, scripted({EQUAL: (1.0, 0.0, power_w)}), policy=FREE)
    assert (found.choice and found.choice.name) == choice
    assert found.chosen.name == (choice or "exclusive")


def test_a_way_that_alone_keeps_the_limits_need_not_gain() -> None:
    found = decided((A, B), scripted({EQUAL: (0.5, 0.4, 380.0)}), max_power_w=390.0, policy=FREE)
    assert found.choice
    assert found.choice.score < 1
    with pytest.raises(NoSplitError, match="within these limits"):
        decided([BIG] * 3, max_power_w=500)


def test_no_job_is_starved_unless_that_is_asked_for() -> None:
    assert decided((A, B), scripted(PAYS)).chosen.name == "60/40"
    assert decided((A, B), scripted(PAYS), min_speed={"a": 0.0}).chosen.name == "30/70"


def test_least_speed_of_a_job_beside_itself_is_for_both() -> None:
    table = {Split((30.0, 70.0)): (0.3, 0.9, 400.0), EQUAL: (0.45, 0.45, 300.0)}
    assert decided((A, A), scripted(table), min_speed={"a": 0.42}).chosen.name == "50/50"


def test_prices_decide_where_they_are_set() -> None:
    """A GPU hour costs more than what its energy does: who saves time saves money."""
    known = {EQUAL: (0.9, 0.9, 500.0), FORTY: (0.7, 0.7, 250.0)}
    by_energy, by_cost = (
        decided((A, B), scripted(known), policy=Policy(prices=prices))
        for prices in (POLICY.prices, Prices(gpu_hour=2.5, kwh=0.15))
    )
    assert (by_energy.chosen.name, by_cost.chosen.name) == ("40/60", "50/50")
    assert by_cost.request.objective.name == "cost"


def test_a_limit_for_the_job_that_fills_lets_a_server_keep_its_tail() -> None:
    free = decided([SERVER, SMALL, BIG], policy=FREE)
    held = decided([SERVER, SMALL, BIG], policy=FREE, max_p99_ms={"server": 30.0})
    limit = held.chosen.prediction.split.shares
    assert limit[:2] == (WHOLE, WHOLE)
    assert limit[2] < WHOLE
    assert held.chosen.score <= free.chosen.score


def test_who_joins_at_a_promise_that_cannot_be_kept_gets_no_share() -> None:
    running = Running(split=Split((30.0, 50.0)), cap_percent=50.0)
    request = Request(min_speed={"big": 0.9})
    found = decide(Outlook([SMALL, SMALL, BIG], SetPredictor()), request, running=running)
    assert found.choice is None
    assert all("big" in option.violations[0].text for option in found.options[:-1])


def test_profiles_of_two_gpus_are_told_apart() -> None:
    with pytest.raises(InputError) as raised:
        decided((A, profile("b", gpu_model="Other")), Physics())
    assert str(raised.value) == (
        "the profile of a is of NVIDIA H200, that of b is of Other. jobs that share a GPU run on "
        "the same one. give profiles of one GPU model."
    )
    with pytest.raises(InputError, match="8 jobs"):
        Outlook([SMALL] * 8, Physics())
    with pytest.raises(InputError, match="a minimum speed was given for c"):
        decided((A, B), min_speed={"c": 0.5})


def test_what_is_expected_is_worked_out_once_for_all_requests() -> None:
    by = mock.Mock(wraps=Physics())
    outlook = Outlook((A, B), by)
    for request, times in ((None, 1), (Request(max_power_w=600.0), 1), (Request(fine=True), 2)):
        decide(outlook, request)
        assert by.predict.call_count == times


# what is asked of a decision

WORSE = (0.7, 0.7, 600.0)
"""Seven parts in a hundred more energy, and more than a quarter of the time saved."""


@pytest.mark.parametrize(
    ("known", "isolate", "call"),
    [
        ({EQUAL: WORSE}, False, "50/50"),
        ({EQUAL: WORSE, FORTY: (0.72, 0.72, 620.0)}, False, "40/60"),
        ({EQUAL: (0.7, 0.7, 620.0)}, False, None),
        ({EQUAL: (0.52, 0.52, 420.0)}, False, None),
        ({TIME_SLICED: WORSE}, False, None),
        ({TIME_SLICED: WORSE, EQUAL: WORSE}, True, "time-sliced"),
    ],
    ids=["time", "most time", "much energy", "little time", "unsure", "apart"],
)
def test_prices_are_asked_for_where_time_costs_energy(
    known: dict[Split, tuple[float, float, float]], isolate: bool, call: str | None
) -> None:
    found = decided((A, B), scripted(known), isolate=isolate)
    assert found.choice is None
    assert (
        (found.call and found.call.name)
        == (found.sharing_option and found.sharing_option.name)
        == call
    )
    assert found.chosen is found.apart


def test_the_best_of_each_kind_is_shown_and_where_none_is_allowed_the_nearest() -> None:
    known = {EQUAL: (0.9, 0.36, 400.0), FORTY: (0.3, 0.9, 400.0), UNCAPPED: (0.7, 0.7, 400.0)}
    found = decided((A, B), scripted(known), min_speed={"a": 0.6})
    assert [o.name for o in found.best_of_each()] == [
        "50/50",
        "uncapped",
        "time-sliced",
        "exclusive",
    ]
    called = decided((A, B), scripted({EQUAL: (0.7, 0.7, 600.0), FORTY: (0.6, 0.6, 480.0)}))
    assert called.call in called.best_of_each()


def test_other_objectives_are_shown_with_what_they_would_choose() -> None:
    """The paper's sum of raw rates lets the job with the larger number decide."""
    small = profile("a", [share / 1000 for share in range(10, 101, 10)])
    table = {SEVENTY: (0.9, 0.3, 400.0), THIRTY: (0.2, 0.9, 400.0)}
    raw = dataclasses.replace(FREE, objective="raw-throughput-per-watt")
    found = decided((small, B), scripted(table), policy=raw)
    assert {name: option.name for name, option in found.picks().items()} == {
        "raw-throughput-per-watt": "30/70",
        "energy-efficiency": "70/30",
        "throughput": "70/30",
    }
    # Where too little is gained, or all options break a limit.
    for two, table in (((A, B), {EQUAL: (0.502, 0.502, 400.0)}), ((WEB, B), {})):
        assert decided(two, scripted(table)).picks()["energy-efficiency"].name == "exclusive"


def test_a_near_miss_is_taken_by_who_accepts_it() -> None:
    """As expected it keeps the limit; an option that does not is none."""
    unsure = scripted({THIRTY: (0.45, 0.9, 400.0)}, off=0.3)
    assert decided((A, B), unsure).near_miss() == (
        "a@30 and b@70 would take 26 % less energy; accept it with --min-speed a=0.38"
    )
    accepted = decided((A, B), unsure, min_speed={"a": 0.3})
    assert accepted.chosen.name == "30/70"
    assert accepted.near_miss() is decided((A, B), scripted(PAYS)).near_miss() is None


def test_only_floors_and_tails_can_be_accepted() -> None:
    two, table = (WEB, B), scripted({EQUAL: (1.0, 0.3, 300.0)})
    tight = Request(policy=FREE, min_speed={"b": 0.4}, max_p99_ms={"web": 5.0})
    (slow,) = (o for o in decide(Outlook(two, table), tight).options if o.name == "50/50")
    assert slow.accepting(two, tight) == "--max-p99 web=10ms --min-speed b=0.3"
    hot = dataclasses.replace(tight, max_power_w=290.0)
    broken = hot.violations(slow.predictions, two)[slow.place]
    assert dataclasses.replace(slow, violations=broken).accepting(two, hot) == ""
    behind = scripted({EQUAL: (0.5, 0.9, 300.0)})
    (option,) = (o for o in decided(two, behind).options if o.name == "50/50")
    assert option.accepting(two, Request()) == ""


def test_limits_are_set_as_the_back_end_sets_them() -> None:
    found = decided((A, B), scripted(PAYS), policy=FREE)
    assert found.chosen.environments(found.profiles) == ({PERCENTAGE: "30"}, {PERCENTAGE: "70"})
    gpu = Gpu(uuid="GPU-1", model=A.gpu_model, units_total=132)
    backend = MpsBackend(gpu, Control(Path("/nonexistent"), {}), owned=False)
    for share, printed in zip((30, 70), found.chosen.environments(found.profiles), strict=True):
        assert printed.items() <= backend.environment(Share(share)).items()
    others = decided([SMALL, BIG, SMALL], policy=FREE)
    option = next(o for o in others.options if o.prediction.split.shares[0] == WHOLE)
    assert [*map(bool, option.environments(others.profiles))] == [False, True, False]
    bound = "XLA_PYTHON_CLIENT_PREALLOCATE=false --gpu-memory-utilization 0.4"
    held = decided((dataclasses.replace(A, memory_bound=bound), B), scripted(PAYS), policy=FREE)
    assert held.chosen.environments(held.profiles)[0] == {
        PERCENTAGE: "30", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"
    }  # fmt: skip


def test_the_worst_violation_is_the_one_that_is_missed_by_most() -> None:
    one, other, far = Violation("a", 0.1), Violation("b", 0.1), Violation("c", 0.2)
    (p,) = scripted({}).predict((A, B), [EQUAL])
    option = RatedSplit(Predictions.of([p]), 0, EQUAL, 1.0, (one, far, other))
    assert option.worst_violation == far
    for order in ((one, other), (other, one)):
        assert dataclasses.replace(option, violations=order).worst_violation == other


# work that is given

WORK = Work((600.0, 1200.0))


def of_work(known: dict[Split, tuple[float, float, float]], work: Work | None = WORK) -> Decision:
    return decided((A, B), scripted(known), work=work, policy=FREE)


def test_the_job_that_goes_on_keeps_its_limit() -> None:
    """1000 s together at 350 W, then 600 s of work at half of the rate and 250 W."""
    found = of_work({EQUAL: (0.6, 0.6, 350.0)})
    assert found.choice
    ending = found.same_work(found.choice).choice
    assert (ending.time_s, ending.shared_s) == (pytest.approx(1000 + 1200), pytest.approx(1000))
    assert ending.energy_j == pytest.approx(1000 * 350 + 1200 * 250)


@pytest.mark.parametrize(
    ("objective", "gain"),
    [
        ("energy-efficiency", 1800 * 400 / (1000 * 350 + 1200 * 250)),
        ("throughput", 1800 / 2200),
    ],
)
def test_the_gain_is_energy_or_time_over_one_after_the_other(objective: str, gain: float) -> None:
    (p,) = scripted({EQUAL: (0.6, 0.6, 350.0)}).predict((A, B), [EQUAL])
    by = gain_to_the_end(p.split, (A, B), WORK, OBJECTIVES[objective])
    assert by(p.result) == pytest.approx(gain)


def test_a_restart_is_told_where_a_limit_stays() -> None:
    limited = of_work({EQUAL: (0.8, 0.8, 350.0)}, Work((600.0, 700.0)))
    assert limited.chosen.name == "50/50"
    found = limited.same_work(limited.chosen)
    assert found.restarted == limited.chosen.prediction.result.finish(found.work)
    assert found.restarted != found.choice
    free = of_work({UNCAPPED: (0.9, 0.9, 380.0)})
    assert (free.chosen.name, free.same_work(free.chosen).restarted) == ("uncapped", None)
    unasked = of_work({EQUAL: (0.8, 0.8, 350.0)}, None)
    assert unasked.same_work(unasked.chosen).restarted is None


def test_the_value_of_given_work_has_bounds_of_its_own() -> None:
    """Without work, those of the model's own errors: they are narrower."""

    class Sure(Physics):
        def predict(self, profiles: Any, splits: Any) -> Predictions:
            found = super().predict(profiles, splits)
            factors = np.tile([[0.99], [1.01]], len(splits))
            return dataclasses.replace(found, efficiency_factors=factors)

    of_hours, free = (decided((A, B), Sure(), work=w, policy=FREE) for w in (WORK, None))
    option, plain = of_hours.options[4], free.options[4]
    gain = gain_to_the_end(option.split, (A, B), WORK, of_hours.request.objective)
    assert option.value == gain(option.prediction.result)
    bounds = plain.prediction.objective_value(free.request.objective)
    assert bounds == Interval(plain.value, 0.99 * plain.value, 1.01 * plain.value)


UNLIMITED = ["uncapped", "time-sliced", "exclusive"]
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
    for split in options_of(profiles, host, measured, fine=fine, most_options=30):
        for one, share in zip(profiles, split.shares, strict=True):
            assert share == WHOLE or units_of(share) not in one.safety(host).unsafe


@given(known(), st.randoms())
def test_order_of_the_jobs_changes_no_option(
    jobs_and_check: tuple[list[Profile], CheckedCounts | None], chance: Random
) -> None:
    profiles, host = jobs_and_check
    mixed = chance.sample(profiles, len(profiles))
    found = options_of(mixed, host, most_options=30)
    assert seats_of(mixed, found) == seats_of(profiles, options_of(profiles, host, most_options=30))


def seats_of(profiles: Sequence[Profile], splits: Iterable[Split]) -> set[object]:
    names = [one.job for one in profiles]
    return {(s.sharing, *sorted(zip(names, s.shares, strict=True))) for s in splits}


def test_of_two_small_jobs_the_nine_splits_are_options() -> None:
    found = options_of((SMALL, SMALL))
    assert [*map(str, found)] == [*map(str, NINE), *UNLIMITED]
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
    assert limited([profile("a", shares=SHARES[5:]), SMALL, SMALL], most_options=1) == []


def test_one_job_that_fills_is_looked_at_under_every_safe_count() -> None:
    """And under no other; small jobs have a limit only where all have."""
    host = checked_with(132, frozenset(range(40, 110, 2)))
    own = [w for w in limited([SMALL, BIG, SMALL], host) if w.shares[0] == WHOLE]
    assert {w.shares[2] for w in own} == {WHOLE}
    assert {units_of(w.shares[1]) for w in own} == {*range(12, 40, 2), *range(110, 132, 2)}


@pytest.mark.parametrize("filling", range(8))
def test_search_of_seven_jobs_stays_small(filling: int) -> None:
    """How many options are looked at bounds the time; docs/measurements/sets.md says it."""
    found = options_of([BIG] * filling + [SMALL] * (7 - filling))
    assert len(found) == len(set(found)) <= MOST_OPTIONS + 4
    assert (len(found) > 4) == (filling > 0)


def test_where_no_count_is_safe_nobody_has_a_limit() -> None:
    for jobs in ((SMALL, BIG), (SMALL, SMALL, BIG)):
        assert [*map(str, options_of(jobs, ALL_UNSAFE, [Split((50.0,) * len(jobs))]))] == UNLIMITED


def test_measured_splits_are_options_where_they_are_safe() -> None:
    jobs, odd = (SMALL, SMALL, SMALL), Split((18.0, 27.0, 36.0))
    assert odd in options_of(jobs, measured=[odd])
    assert odd not in options_of(jobs, checked_with(132, frozenset({units_of(27.0)})), [odd])


def test_amd_gpus_hold_two_limits_and_have_no_turns_to_choose() -> None:
    jobs = [job(name, 97.0, gpu_model="AMD Instinct MI300X", units_total=304) for name in "abc"]
    found = options_of(jobs, measured=[Split((30.0, 30.0, 30.0))])
    assert [str(split) for split in found if not split.is_limited] == ["uncapped", "exclusive"]
    assert max(sum(share < WHOLE for share in split.shares) for split in found) == 2


COUNTED = Kernels(per_unit=1.0, hold_s=1e-3, source="probe")


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
    # And one that joins who runs alone, where those who ask next can be told.
    for split, told in ((Split((WHOLE,)), True), (Split((WHOLE,)), False), (Split((50.0,)), True)):
        there = Running(split=split, cap_percent=WHOLE, may_be_low=told)
        low = [one for one in options_of([small, big], running=there) if one.below_normal]
        assert [*map(str, low)] == ["100/100:low"] * (told and split.shares == (WHOLE,))


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
    assert (str(apart), {split.shares[:2] for split in joined}) == ("exclusive", {(30.0, 50.0)})
    assert max(split.shares[2] for split in joined) == 50
    free = Running(split=without_limits("uncapped", 2), cap_percent=WHOLE)
    assert [*map(str, options_of([SMALL, SMALL, BIG], running=free))] == ["uncapped", "exclusive"]


@pytest.mark.parametrize("jobs", [1, 8])
def test_only_two_to_seven_jobs_are_advised(jobs: int) -> None:
    with pytest.raises(InputError, match=rf"no advice for {jobs} jobs? on.*name two to seven"):
        check_set(jobs)
