"""Which way is recommended, what is said of it, and that swapping the jobs swaps the answer."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import (
    MARGINS,
    TIE,
    Decision,
    RatedSplit,
    Request,
    choose,
    environments,
    gain_to_the_end,
    same_work,
    worth_of,
)
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import SHARES, Physics, Scripted, profile
from unsafe_counts import UNSAFE_132, checked_132, checked_with

from advisor.core.gpu import PERCENTAGE, Gpu, Share, grantable, units_for_percent
from advisor.core.interval import Interval
from advisor.core.objectives import NO_PRICES, OBJECTIVES, Work, finish
from advisor.core.split import EQUAL, NINE, UNCAPPED, Split
from advisor.decide.limits import Limits
from advisor.errors import InputError, NoSplitError
from advisor.place.problem import JobType, QueuedJob, make_problem, predict_options
from advisor.place.schedule import first_come
from advisor.place.solver import place
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile, Serving
from advisor.runtime.mps import Control, MpsBackend
from advisor.validity.safe_counts import CheckedCounts

A, B = profile("fft"), profile("gemm")


FREE = Request(default_min_speed=0)


"""No limits at all."""


def names(answer: Decision) -> list[str]:
    return [option.name for option in answer.candidates]


def said(answer: Decision) -> str:
    return "\n".join((*answer.reasons, *answer.warnings))


# symmetry and choice, of any jobs

_RATES = st.lists(st.floats(0.1, 1e4), min_size=10, max_size=10)


_POWERS = st.lists(st.floats(90, 700), min_size=10, max_size=10)


def profiles(job: str) -> st.SearchStrategy[Profile]:
    return st.builds(
        profile,
        st.just(job),
        _RATES,
        columns=st.fixed_dictionaries({"power_w": _POWERS}),
        memory_used_mib=st.none() | st.floats(1, 1e5),
    )


requests = st.builds(
    Request,
    objective=st.sampled_from(sorted(OBJECTIVES)),
    min_speed=st.dictionaries(st.sampled_from(["fft", "gemm"]), st.floats(0, 0.6)),
    default_min_speed=st.sampled_from([0.0, 0.2, 0.4]),
    max_power_w=st.none() | st.floats(300, 800),
    memory_mib=st.none() | st.floats(1e5, 2e5),
    fine=st.booleans(),
    tie=st.sampled_from([0.0, TIE, 0.3]),
)


def swapped(p: Prediction) -> Prediction:
    return dataclasses.replace(
        p, split=Split(p.split.shares[::-1], p.split.sharing), parts=p.parts[::-1]
    )


def answer_or_error(a: Profile, b: Profile, request: Request) -> Decision | None:
    try:
        return recommend((a, b), Physics(), request)
    except NoSplitError:
        return None


@pytest.mark.slow
@given(profiles("fft"), profiles("gemm"), requests)
def test_swapping_the_jobs_swaps_the_answer(a: Profile, b: Profile, request: Request) -> None:
    there, back = answer_or_error(a, b, request), answer_or_error(b, a, request)
    if there is None or back is None:
        assert there is back
        return

    def both(option: RatedSplit | None, other: RatedSplit | None) -> None:
        assert (option and option.prediction) == (other and swapped(other.prediction))

    both(there.choice, back.choice)
    assert (
        environments(there.profiles, there.choice) == environments(back.profiles, back.choice)[::-1]
    )
    for name, option in there.picks.items():
        both(option, back.picks[name])
    assert sorted(names(there)) == sorted(o.name for o in map(_mirror, back.candidates))
    assert without_order(there.reasons) == without_order(back.reasons)
    assert without_order(there.warnings) == without_order(back.warnings)


def without_order(lines: Sequence[str]) -> list[str]:
    """Sentences, with each split as if its smaller share came first."""

    def small_first(split: re.Match[str]) -> str:
        return "/".join(sorted(split.groups(), key=int))

    return sorted(re.sub(r"\b(\d+)/(\d+)\b", small_first, line) for line in lines)


def _mirror(option: RatedSplit) -> RatedSplit:
    return dataclasses.replace(option, prediction=swapped(option.prediction))


@given(profiles("fft"), profiles("gemm"), requests)
def test_choice_keeps_the_limits_and_nothing_feasible_is_worth_more(
    a: Profile, b: Profile, request: Request
) -> None:
    answer = answer_or_error(a, b, request)
    if answer is None:
        return
    p = answer.choice.prediction
    if p.split.sharing != "exclusive":
        for job, part in zip((a.job, b.job), p.parts, strict=True):
            assert part.speed.value >= request.min_speed.get(job, request.default_min_speed)
    if request.max_power_w is not None:
        assert p.power_w.value <= request.max_power_w
    feasible = [_less_its_lead(option) for option in answer.candidates if not option.violations]
    assert _less_its_lead(answer.choice) >= max(feasible) * (1 - request.tie)
    assert answer.choice in answer.candidates


def _less_its_lead(option: RatedSplit) -> float:
    return option.objective_value.value / (1 + MARGINS[option.sharing])


# which way, by hand


def test_shares_outside_of_a_profile_are_left_out_and_it_is_said() -> None:
    answer = recommend((profile("fft", shares=SHARES[3:]), B), Physics())
    assert names(answer)[0] == "40/60"
    assert "fft was not measured below 40 %" in said(answer)


def test_tie_goes_to_the_more_even_split() -> None:
    table = {Split((20.0, 80.0)): (0.3, 0.8, 400.0), Split((40.0, 60.0)): (0.45, 0.6466, 400.0)}
    answer = recommend((A, B), Scripted(table), FREE)
    assert answer.choice.name == "40/60"
    why = "20/80 is worth 0.31 % more, which is a tie: the more even split is taken"
    assert why in said(answer)
    strict = dataclasses.replace(FREE, tie=0.001)
    assert recommend((A, B), Scripted(table), strict).choice.name == "20/80"


@pytest.mark.parametrize(("speed", "name"), [(0.65, "20/80"), (0.67, "uncapped")])
def test_no_limit_must_be_ahead(speed: float, name: str) -> None:
    """Without limits nothing holds the jobs to what was predicted: 4.5 % more is not enough."""
    table = {UNCAPPED: (speed, 0.5, 400.0), Split((20.0, 80.0)): (0.3, 0.8, 400.0)}
    answer = recommend((A, B), Scripted(table), FREE)
    assert answer.choice.name == name
    why = "uncapped is worth 4.55 % more, less than the 5.5 % that it must be ahead"
    assert (why in said(answer)) == (name != "uncapped")


def test_uncapped_is_chosen_where_it_is_worth_enough_more() -> None:
    table = {UNCAPPED: (0.6, 0.6, 400.0), Split((20.0, 80.0)): (0.3, 0.8, 400.0)}
    answer = recommend((A, B), Scripted(table), FREE)
    assert answer.choice.name == "uncapped"
    assert environments(answer.profiles, answer.choice) == ({}, {})
    assert "a split does not pay: at best, with 20/80, it is worth 8.3 % less" in said(answer)
    assert "without limits either job can take what the other needs" in said(answer)


@pytest.mark.parametrize(
    ("speed", "power_w", "name", "why"),
    [
        (0.56, 420.0, "50/50", ""),
        (0.55, 421.0, "50/50", "exclusive is worth 0.24 % more, which is a tie: sharing is done"),
        (0.55, 430.0, "exclusive", "sharing does not pay: at best, with 50/50, it is worth 2.3 %"),
        (0.5, 500.0, "exclusive", "sharing does not pay: at best, with 50/50, it is worth 20.0 %"),
        (0.5, 399.0, "exclusive", "50/50 is worth 0.25 % more, which is a tie: sharing would not"),
    ],
)
def test_sharing_must_save_energy_or_time(
    speed: float, power_w: float, name: str, why: str
) -> None:
    """Alone each draws 400 W; equal energy is shared for only if it is done sooner."""
    answer = recommend((A, B), Scripted({Split((50.0, 50.0)): (0.5, speed, power_w)}), FREE)
    assert answer.choice.name == name
    assert why in said(answer)


# limits

_PAYS = {Split((30.0, 70.0)): (0.3, 0.9, 400.0), Split((60.0, 40.0)): (0.6, 0.5, 400.0)}


def test_no_job_is_starved_unless_that_is_asked_for() -> None:
    answer = recommend((A, B), Scripted(_PAYS))
    assert answer.choice.name == "60/40"
    assert (
        "30/70 would be worth 9.1 % more, but fft runs at 30 % of its speed alone, below 40 %"
    ) in answer.reasons
    lifted = Request(min_speed={"fft": 0.0})
    assert recommend((A, B), Scripted(_PAYS), lifted).choice.name == "30/70"


def test_limit_that_only_the_bad_end_breaks_is_a_warning() -> None:
    answer = recommend((A, B), Scripted(_PAYS), Request(min_speed={"fft": 0.54}, max_power_w=420.0))
    bad = "at the bad end of its interval"
    assert [line for line in answer.warnings if line.startswith(bad)] == [
        f"{bad} both draw 440 W, at most 420 W are allowed",
    ]


def test_least_speed_of_a_job_beside_itself_is_for_both() -> None:
    table = {Split((30.0, 70.0)): (0.3, 0.9, 400.0), Split((50.0, 50.0)): (0.45, 0.45, 300.0)}
    answer = recommend((A, A), Scripted(table), Request(min_speed={"fft": 0.405}))
    assert answer.choice.name == "50/50"


def test_speeds_that_sharing_cannot_keep_are_kept_one_after_the_other() -> None:
    request = Request(min_speed={"fft": 0.7, "gemm": 0.52})
    answer = recommend((A, B), Scripted(_PAYS), request)
    assert answer.choice.name == "exclusive"
    near = "60/40 is nearest, but fft may run at as little as 54 % of its speed alone, below 70 %"
    assert f"sharing breaks a limit: {near}" in answer.reasons


# what is said next to


def test_limits_are_set_as_the_back_end_sets_them() -> None:
    answer = recommend((A, B), Scripted(_PAYS), FREE)
    assert environments(answer.profiles, answer.choice) == ({PERCENTAGE: "30"}, {PERCENTAGE: "70"})
    gpu = Gpu(uuid="GPU-1", model=A.gpu_model, units_total=132)
    backend = MpsBackend(gpu, Control(Path("/nonexistent"), {}), owned=False)
    for share, printed in zip((30, 70), environments(answer.profiles, answer.choice), strict=True):
        assert printed.items() <= backend.environment(Share(share)).items()


def test_starved_job_is_warned_of_below_three_tenths() -> None:
    text = "fft runs at 29 % of its speed only"
    starving = recommend((A, B), Scripted({Split((30.0, 70.0)): (0.29, 0.9, 400.0)}), FREE)
    assert text in said(starving)
    assert "of its speed only" not in said(recommend((A, B), Scripted(_PAYS), FREE))


def test_profiles_that_lack_something_or_are_doubtful_are_said() -> None:
    gap = profile("fft", missing=("fp64_active_percent",), flags=("counter-mismatch", "throttled"))
    text = said(recommend((gap, B), Physics()))
    assert "the profile of fft lacks fp64_active_percent" in text
    assert "the profile of fft has doubtful points (counter-mismatch: " in text
    assert "throttled" not in text


def test_what_both_want_and_the_gpu_has_not_is_said() -> None:
    hungry = {"power_w": [600.0] * 10, "dram_active_percent": [60.0] * 10}
    a, b = profile("fft", columns=hungry), profile("gemm", columns=hungry)
    text = said(recommend((a, b), Scripted({Split((50.0, 50.0)): (0.9, 0.9, 400.0)})))
    assert "both would draw 1120 W: the limit of 700 W slows them" in text
    assert "together they want 120 % of the memory bandwidth" in text
    assert "fft alone at 50 % runs at 50 % of its full speed, in this pair at 90 %" in text


def test_other_objectives_are_shown_with_what_they_would_choose() -> None:
    """The paper's sum of raw rates lets the job with the larger number decide."""
    small = profile("fft", [share / 1000 for share in SHARES])
    table = {Split((70.0, 30.0)): (0.9, 0.3, 400.0), Split((30.0, 70.0)): (0.2, 0.7, 400.0)}
    raw = dataclasses.replace(FREE, objective="raw-throughput-per-watt")
    answer = recommend((small, B), Scripted(table), raw)
    assert {name: option.name for name, option in answer.picks.items()} == {
        "raw-throughput-per-watt": "30/70",
        "energy-efficiency": "70/30",
        "throughput": "70/30",
    }


def test_a_candidate_is_valued_though_it_breaks_a_limit() -> None:
    answer = recommend((A, B), Scripted(_PAYS), Request(min_speed={"fft": 0.54}))
    (equal,) = (option for option in answer.candidates if option.name == "50/50")
    assert equal.objective_value.value == pytest.approx(0.8 * 400 / 500)
    assert equal.violations
    assert equal.gain_over(answer.choice) == pytest.approx(0.8 / 500 / (1.1 / 400) - 1)


def test_only_pairs_are_advised() -> None:
    with pytest.raises(InputError, match=r"no advice for 3 jobs.*name 2 jobs"):
        recommend((A, B, profile("triad")), Physics())


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


def test_without_a_check_nothing_is_said_or_changed() -> None:
    plain = recommend((A, B), Physics())
    right = recommend((A, B), Physics(), None, checked_with(132, frozenset()))
    assert [o.prediction for o in right.candidates] == [o.prediction for o in plain.candidates]
    assert (right.reasons, right.warnings) == (plain.reasons, plain.warnings)


def test_where_no_split_is_safe_jobs_share_without_limits_or_not_at_all() -> None:
    none = checked_with(132, frozenset(set(grantable(132)) - {132}))
    answer = recommend((A, B), Physics(), None, none)
    assert [o.name for o in answer.candidates] == ["uncapped", "exclusive"]
    assert any(text.startswith("not used: 12, 26, 38") for text in answer.reasons)


def test_counts_that_nobody_checked_are_allowed_and_named() -> None:
    few = checked_with(132, frozenset({8}), checked=frozenset({8, 132}))
    a, b = (profile(job, rates=[1.0] * 10) for job in ("fft", "gemm"))
    answer = recommend((a, b), Physics(), None, few)
    assert (answer.choice.sharing, len(answer.candidates)) == ("limited", 11)
    assert any("no result was checked: advisor check" in text for text in answer.warnings)


def test_pairs_of_a_placement_stand_at_safe_counts() -> None:
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


ADVISED_OBJECTIVES = ("energy-efficiency", "throughput", "max-min")


SERVERS = st.builds(
    Serving,
    offered_rate=st.just(100.0),
    rate_noise=st.none(),
    latency_p99_ms=st.just(tuple((float(s), 300.0 / s) for s in range(10, 101, 10))),
)


PREDICTORS = st.lists(
    st.tuples(st.floats(0.2, 1), st.floats(0.2, 1), st.floats(250, 700)), min_size=10, max_size=10
).map(lambda known: Scripted(dict(zip((*NINE, UNCAPPED), known, strict=True))))


"""Whatever a model may say: of no split does it follow what another one does."""


def any_profiles(job: str) -> st.SearchStrategy[Profile]:
    return st.builds(profile, st.just(job), serving=st.none() | SERVERS)


REQUESTS = st.builds(
    Request,
    objective=st.sampled_from(ADVISED_OBJECTIVES),
    default_min_speed=st.sampled_from([0.0, 0.2, 0.4]),
    max_power_w=st.none() | st.floats(300, 800),
    min_gain=st.sampled_from([0.0, 0.01, 0.03, 0.2]),
    tie=st.sampled_from([0.0, 0.005, 0.1]),
)


STRICTER = st.one_of(
    st.tuples(st.just("default_min_speed"), st.floats(0, 0.6)),
    st.tuples(st.just("min_speed"), st.floats(0.4, 0.9).map(lambda least: {"fft": least})),
    st.tuples(st.just("max_power_w"), st.floats(200, 800)),
    st.tuples(st.just("default_max_p99_ms"), st.floats(3, 60)),
    st.tuples(st.just("min_gain"), st.floats(0, 0.5)),
)


def answered(
    jobs: tuple[Profile, Profile], predictor: Scripted, request: Request
) -> Decision | None:
    try:
        return recommend(jobs, predictor, request)
    except NoSplitError:
        return None


def worth(answer: Decision) -> float:
    value: Interval = answer.choice.objective_value
    return value.value / (1 + MARGINS[answer.choice.sharing])


@given(any_profiles("fft"), any_profiles("gemm"), PREDICTORS, REQUESTS, STRICTER)
def test_a_stricter_limit_never_gives_a_better_answer(
    a: Profile, b: Profile, predictor: Scripted, request: Request, more: tuple[str, Any]
) -> None:
    name, limit = more
    before = getattr(request, name)
    if name == "default_max_p99_ms" and not (a.serving or b.serving):
        return
    if name.startswith("max") and before is not None:
        limit = min(limit, before)
    elif name in ("default_min_speed", "min_gain"):
        limit = max(limit, before)
    strict_request = dataclasses.replace(request, **{name: limit})
    loose, strict = (answered((a, b), predictor, r) for r in (request, strict_request))
    if strict is None:
        return
    assert loose is not None
    assert worth(strict) * (1 - request.tie) <= worth(loose) * (1 + 1e-9)
    if loose.call and strict.call:
        hours = [worth_of(way.call.prediction, NO_PRICES) for way in (loose, strict) if way.call]
        assert hours[1].gpu_time.value <= hours[0].gpu_time.value + 1e-9


def test_of_ways_nearly_alike_one_that_gains_enough_is_taken() -> None:
    jobs = profile("fft"), profile("gemm")
    uneven, even = (0.70, 0.60, 400.0), (0.63, 0.62, 400.0)
    known = {Split((60.0, 40.0)): uneven, EQUAL: even}
    answers = [
        recommend(jobs, Scripted(known), Request(objective="throughput", tie=0.1, min_gain=gain))
        for gain in (0.0, 0.2, 0.28, 0.31)
    ]
    assert [a.choice.name for a in answers] == ["50/50", "50/50", "60/40", "exclusive"]


Figures = tuple[float, float, float]


"""Both relative speeds and the power."""


LESS, MORE = (0.6, 0.6, 400.0), (0.61, 0.61, 400.0)


def efficiency(p: Prediction) -> float:
    return p.result.stp / p.result.power_w


def chosen(at_30: Figures, at_70: Figures, *, mirrored: bool) -> float:
    less, more = Split((30.0, 70.0)), Split((70.0, 30.0))
    predictor = Scripted({less: at_30, more: at_70})
    ways = predictor.predict([profile("fft"), profile("gemm")], [less, more])
    return choose(ways, efficiency, 0.03, mirrored=mirrored).split.shares[0]


@pytest.mark.parametrize("mirrored", [False, True])
def test_of_equally_even_splits_the_better_one_is_taken(mirrored: bool) -> None:
    assert chosen(LESS, MORE, mirrored=mirrored) == 70
    assert chosen(MORE, LESS, mirrored=mirrored) == 30


def test_of_mirror_images_worth_the_same_the_names_decide() -> None:
    assert chosen(LESS, LESS, mirrored=False) == 30
    assert chosen(LESS, LESS, mirrored=True) == 70


LONG_JOB, SHORT_JOB = profile("a"), profile("b")


WORK = Work((600.0, 1200.0))


KNOWN = {EQUAL: (0.6, 0.6, 350.0), UNCAPPED: (0.9, 0.9, 380.0)}


def recommended(known: dict[Split, tuple[float, ...]], work: Work | None = WORK) -> Decision:
    by = Scripted({split: (one, two, w) for split, (one, two, w) in known.items()}, off=0.0)
    return recommend((LONG_JOB, SHORT_JOB), by, Request(default_min_speed=0.0, work=work))


def prediction(split: Split) -> Prediction:
    return Scripted(KNOWN).predict((LONG_JOB, SHORT_JOB), [split])[0]


def test_the_job_that_goes_on_keeps_its_limit() -> None:
    """1000 s together at 350 W, then 600 s of work at half of the rate and 250 W."""
    found = same_work(recommended({EQUAL: (0.6, 0.6, 350.0)})).choice
    assert (found.time_s, found.shared_s) == (pytest.approx(1000 + 1200), pytest.approx(1000))
    assert found.energy_j == pytest.approx(1000 * 350 + 1200 * 250)


@pytest.mark.parametrize(
    ("objective", "gain"),
    [
        ("energy-efficiency", 1800 * 400 / (1000 * 350 + 1200 * 250)),
        ("throughput", 1800 / 2200),
    ],
)
def test_the_gain_is_energy_or_time_over_one_after_the_other(objective: str, gain: float) -> None:
    p = prediction(EQUAL)
    assert gain_to_the_end(p, (LONG_JOB, SHORT_JOB), WORK, OBJECTIVES[objective])(
        p.result
    ) == pytest.approx(gain)


def test_a_restart_is_told_where_a_limit_stays() -> None:
    limited = recommended({EQUAL: (0.8, 0.8, 350.0)}, Work((600.0, 700.0)))
    assert limited.choice.name == "50/50"
    found = same_work(limited)
    assert found.restarted == finish(limited.choice.prediction.result, found.work)
    assert found.restarted != found.choice
    free = recommended({UNCAPPED: (0.9, 0.9, 380.0)})
    assert free.choice.name == "uncapped"
    assert same_work(free).restarted is None
    assert same_work(recommended({EQUAL: (0.8, 0.8, 350.0)}, None)).restarted is None
