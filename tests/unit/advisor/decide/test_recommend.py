"""Which way is recommended, what is said of it, and that swapping the jobs swaps the answer."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import SHARES, Physics, Scripted, profile

from advisor.core.gpu import PERCENTAGE, Gpu, Share
from advisor.core.objectives import OBJECTIVES
from advisor.core.split import NINE, UNCAPPED, Split
from advisor.decide.recommend import TIE, Decision, RatedSplit, Request, recommend
from advisor.decide.recommendation import MARGINS, environments
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.runtime.backends.mps import MpsBackend
from advisor.runtime.backends.mps_control import Control

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
    return dataclasses.replace(p, split=p.split.turned(), parts=p.parts[::-1])


def answer_or_error(a: Profile, b: Profile, request: Request) -> Decision | None:
    """None where nothing keeps every limit."""
    try:
        return recommend((a, b), Physics(), request)
    except NoSplitError:
        return None


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
    """Up to a tie and the leads of ways; without an answer every candidate breaks a limit."""
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


@given(profiles("fft"), requests)
def test_of_a_job_beside_itself_the_smaller_share_comes_first(
    own: Profile, request: Request
) -> None:
    """Mirror images are the same; the answer is one of them, always the same one."""
    request = dataclasses.replace(request, min_speed={})
    answer = answer_or_error(own, own, request)
    if answer is not None:
        first, second = answer.choice.prediction.split.shares
        assert first <= second + 1  # whole percents of 132 SMs


# which way, by hand


def test_candidates_are_the_nine_splits_and_both_other_ways() -> None:
    answer = recommend((A, B), Physics(), FREE)
    assert names(answer) == [*map(str, NINE), "uncapped", "exclusive"]


def test_shares_outside_of_a_profile_are_left_out_and_it_is_said() -> None:
    answer = recommend((profile("fft", shares=SHARES[3:]), B), Physics())
    assert names(answer)[0] == "40/60"
    assert "fft was not measured below 40 %" in said(answer)


def test_tie_goes_to_the_more_even_split() -> None:
    """What is less than the noise decides nothing."""
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
    """No limit is a valid answer; nothing is set then, and the reader is warned."""
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
    """The split that saves most leaves one job with 30 %: it is said, and not chosen."""
    answer = recommend((A, B), Scripted(_PAYS))
    assert answer.choice.name == "60/40"
    assert (
        "30/70 would be worth 9.1 % more, but fft runs at 30 % of its speed alone, below 40 %"
    ) in answer.reasons
    lifted = Request(min_speed={"fft": 0.0})
    assert recommend((A, B), Scripted(_PAYS), lifted).choice.name == "30/70"


def test_limit_that_only_the_bad_end_breaks_is_a_warning() -> None:
    """Of power the expected value decides; the interval is told."""
    answer = recommend((A, B), Scripted(_PAYS), Request(min_speed={"fft": 0.54}, max_power_w=420.0))
    bad = "at the bad end of its interval"
    assert [line for line in answer.warnings if line.startswith(bad)] == [
        f"{bad} both draw 440 W, at most 420 W are allowed",
    ]


def test_least_speed_of_a_job_beside_itself_is_for_both() -> None:
    """50/50 keeps it for both, an uneven split for one only."""
    table = {Split((30.0, 70.0)): (0.3, 0.9, 400.0), Split((50.0, 50.0)): (0.45, 0.45, 300.0)}
    answer = recommend((A, A), Scripted(table), Request(min_speed={"fft": 0.405}))
    assert answer.choice.name == "50/50"


def test_speeds_that_sharing_cannot_keep_are_kept_one_after_the_other() -> None:
    """Alone each job runs at its full speed, only later."""
    request = Request(min_speed={"fft": 0.7, "gemm": 0.52})
    answer = recommend((A, B), Scripted(_PAYS), request)
    assert answer.choice.name == "exclusive"
    near = "60/40 is nearest, but fft may run at as little as 54 % of its speed alone, below 70 %"
    assert f"sharing breaks a limit: {near}" in answer.reasons


def test_requests_that_do_not_fit_the_jobs() -> None:
    """A misspelled job would be a limit that nobody keeps."""
    with pytest.raises(InputError, match="a minimum speed was given for ftf"):
        recommend((A, B), Physics(), Request(min_speed={"ftf": 0.5}))
    with pytest.raises(InputError, match="no objective speed"):
        recommend((A, B), Physics(), Request(objective="speed"))


# what is said next to


def test_limits_are_set_as_the_back_end_sets_them() -> None:
    """What is printed to copy is what `advisor` itself gives to a job."""
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
    """Physics that a reader can check explains a loss."""
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
