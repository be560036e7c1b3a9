"""What is said of a choice, each sentence by hand."""

from dataclasses import replace

import pytest
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import (
    Decision,
    RatedSplit,
    Request,
    gain_to_the_end,
    worst_violation,
)
from made_up_profiles import Physics, Scripted, profile

from advisor.core.interval import Interval
from advisor.core.objectives import OBJECTIVES, Work
from advisor.core.split import EQUAL, NINE, UNCAPPED, Split
from advisor.decide.limits import Violation
from advisor.errors import InputError, NoSplitError
from advisor.predict.features import FULL_BANDWIDTH_PERCENT
from advisor.predict.predictions import Prediction, Predictor
from advisor.predict.profiles import Profile, Serving

FREE = Request(default_min_speed=0.0)


A, B = profile("a"), profile("b")


THIRTY, SEVENTY = Split((30.0, 70.0)), Split((70.0, 30.0))


def served(offered: float = 100.0, *latencies: tuple[float, float]) -> Profile:
    serving = Serving(offered_rate=offered, rate_noise=None, latency_p99_ms=latencies)
    return profile("a", serving=serving)


def decided(known: dict[Split, tuple[float, float, float]], a: Profile = A) -> Decision:
    request = replace(FREE, min_speed={"a": 0.0, "b": 0.0})
    return recommend((a, B), Scripted(known, off=0.0), request)


# jobs that answer requests


def test_a_server_that_is_behind_alone_is_said_to_be() -> None:
    best_way = {EQUAL: (0.9, 0.9, 300.0)}
    text = "a serves 80 % of its demand alone on the whole GPU"
    assert text in decided(best_way, served(125.0)).warnings
    assert not any("of its demand alone" in t for t in decided(best_way, served(100.0)).warnings)


@pytest.mark.parametrize(
    ("most_ms", "limit"), [(None, ""), (30.0, " of 30 ms allowed")], ids=["free", "limited"]
)
def test_the_latency_is_told_with_what_is_allowed(most_ms: float | None, limit: str) -> None:
    own = served(100.0, (10.0, 12.0), (100.0, 4.0))
    request = replace(FREE, min_speed={"a": 0.0}, default_max_p99_ms=most_ms)
    given = recommend((own, B), Scripted({EQUAL: (0.9, 0.9, 300.0)}, off=0.0), request)
    assert given.choice.name == "50/50"
    assert (
        f"the p99 latency of a is expected at 11.8 ms (7.6 to 25.3){limit}, by what four servers "
        "had beside others: alone at 50 % it is 8.44 ms"
    ) in given.warnings


def test_a_latency_that_was_not_measured_is_said() -> None:
    given = decided({EQUAL: (0.9, 0.9, 300.0)}, served())
    assert "the latency of a was not measured at 50 %" in given.warnings
    assert not any("latency of b" in text for text in given.warnings)


def test_a_server_that_costs_energy_is_warned_of() -> None:
    text = "this takes 25.0 % more energy than the same work with a GPU for each job"

    def warned(a: Profile, power_w: float) -> bool:
        request = replace(FREE, objective="throughput", min_speed={"a": 0.0})
        ways = dict.fromkeys((*NINE, UNCAPPED), (0.6, 0.6, power_w))
        given = recommend((a, B), Scripted(ways, off=0.0), request)
        assert given.choice.sharing == "limited"
        return text in given.warnings

    assert warned(served(), 600.0)
    assert not warned(served(), 400.0)
    assert not warned(A, 600.0)


# what the GPU has not


def test_bandwidth_that_is_not_there() -> None:
    for percent, texts in (
        (FULL_BANDWIDTH_PERCENT / 2, []),
        (50.0, ["together they want 100 % of the memory bandwidth, of which 93 % can be had"]),
    ):
        busy = [profile(job, columns={"dram_active_percent": [percent] * 10}) for job in "ab"]
        given = recommend(busy, Scripted({EQUAL: (0.9, 0.9, 300.0)}, off=0.0), FREE)
        assert [text for text in given.reasons if "memory bandwidth" in text] == texts


# what is worth more


def test_a_barred_way_is_named_only_beyond_a_tie() -> None:
    ways = {EQUAL: (0.8, 0.8, 300.0), THIRTY: (1.0, 0.616, 300.0)}
    slow = replace(FREE, min_speed={"b": 0.7}, tie=0.0)
    given = recommend((A, B), Scripted(ways, off=0.0), slow)
    assert given.choice.name == "50/50"
    assert any(text.startswith("30/70 would be worth 1.0 % more, but b ") for text in given.reasons)
    barred, chosen = (next(o for o in given.candidates if o.name == n) for n in ("30/70", "50/50"))
    at_tie = recommend((A, B), Scripted(ways, off=0.0), replace(slow, tie=barred.gain_over(chosen)))
    assert not any("would be worth" in text for text in at_tie.reasons)


# work that is given


def test_the_value_of_given_work_has_bounds_of_its_own() -> None:
    work = Work((600.0, 1200.0))
    objective = OBJECTIVES["energy-efficiency"]
    with_work = recommend((A, B), Physics(), replace(FREE, work=work))
    without = recommend((A, B), Physics(), FREE)
    for given, to_the_end in ((with_work, True), (without, False)):
        option = next(o for o in given.candidates if o.name == "50/50")
        p = option.prediction
        gain = gain_to_the_end(p, (A, B), work, objective)
        expected = p.range_of(gain) if to_the_end else p.objective_value(objective)
        assert option.objective_value == expected
        assert p.range_of(gain) != p.objective_value(objective)


def test_the_bounds_of_the_models_own_errors_count_without_work() -> None:
    """They are narrower than those of speeds and power together."""

    class Sure(Physics):
        def predict(self, profiles: object, splits: object) -> list[Prediction]:
            found = super().predict(profiles, splits)  # type: ignore[arg-type]
            return [replace(p, efficiency_factors=(0.99, 1.01)) for p in found]

    option = recommend((A, B), Sure(), FREE).candidates[4]
    value = option.objective_value.value
    assert option.objective_value == Interval(value, 0.99 * value, 1.01 * value)


# nearest, best and worst


def rated(split: Split, value: float = 1.0, *violations: Violation) -> RatedSplit:
    (p,) = Scripted({}, off=0.0).predict((A, B), [split])
    return RatedSplit(p, Interval(value, value, value), violations)


def test_the_worst_violation_is_the_one_that_is_missed_by_most() -> None:
    one, other, far = Violation("a", 0.1), Violation("b", 0.1), Violation("c", 0.2)
    assert worst_violation(rated(EQUAL, 1.0, one, far, other)) == far
    assert worst_violation(rated(EQUAL, 1.0, one, other)) == other
    assert worst_violation(rated(EQUAL, 1.0, other, one)) == other


# what cannot be meant


def test_profiles_of_two_gpus_are_told_apart() -> None:
    with pytest.raises(InputError) as raised:
        recommend((A, profile("b", gpu_model="Other")), Physics(), FREE)
    error = raised.value
    assert error.what == "the profile of a is of NVIDIA H200, that of b is of Other"
    assert (error.why, error.fix) == (
        "jobs that share a GPU run on the same one", "give profiles of one GPU model",
    )  # fmt: skip


def test_fine_splits_without_units_say_what_to_leave_out() -> None:
    unknown = profile("a", units_total=None)
    with pytest.raises(InputError) as raised:
        recommend((unknown, unknown), Physics(), replace(FREE, fine=True))
    assert raised.value.what == "the number of SMs of NVIDIA H200 is not known"
    assert raised.value.why == "no point of the profiles has units_total"
    assert raised.value.fix == "leave out the fine splits"


SERVED = profile("a", serving=Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=()))


def all_draw(power_w: float, *but: tuple[Split, float]) -> Scripted:
    ways = dict.fromkeys((*NINE, UNCAPPED), power_w) | dict(but)
    return Scripted({split: (0.6, 0.6, w) for split, w in ways.items()}, off=0.0)


SLOW = Scripted({}, off=0.0)


HOT = profile("a", columns={"power_w": [200.0 + 5 * s for s in range(10, 101, 10)]})


STARVING = all_draw(450.0, (EQUAL, 380.2), (NINE[0], 370.0))


@pytest.mark.parametrize(
    ("by", "a", "limits", "said"),
    [
        # Rounded up, and the lowest one at which something keeps all other limits.
        (
            replace(STARVING, known={**STARVING.known, NINE[0]: (0.1, 0.6, 370.0)}),
            A,
            {"max_power_w": 350.0, "default_min_speed": 0.4},
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
        (SLOW, SERVED, {"max_power_w": 79.0, "default_min_speed": 0.9}, "allow more.$"),
        (SLOW, SERVED, {"max_power_w": 390.0}, "loosen that limit"),
        (SLOW, SERVED, {}, "loosen that limit, or give each job a GPU of its own.$"),
        (
            Scripted({EQUAL: (1.0, 0.666, 300.0)}, off=0.0),
            SERVED,
            {"default_min_speed": 0.7},
            "allow it: --min-speed b=0.66, or give each job a GPU of its own.$",
        ),
        (
            all_draw(900.0),
            HOT,
            {"max_power_w": 350.0},
            "a GPU for each does not help: a alone draws 700 W, at most 350 W are allowed.$",
        ),
    ],
)
def test_what_would_help_is_said(
    by: Predictor, a: Profile, limits: dict[str, float], said: str
) -> None:
    with pytest.raises(NoSplitError, match=said):
        recommend((a, B), by, Request(**{"default_min_speed": 0.0, **limits}))  # type: ignore[arg-type]


def test_a_server_that_saves_nothing_has_a_gpu_of_its_own() -> None:
    wasteful = dict.fromkeys((*NINE, UNCAPPED), (1.0, 0.3, 600.0))
    by = Scripted(wasteful, off=0.0)
    apart = (
        "a and b are better off apart than on one NVIDIA H200. 50/50 takes 15 % more energy for "
        "the same work than a GPU for each. give each job a GPU of its own, or ask for time"
    )
    with pytest.raises(NoSplitError, match=apart):
        recommend((SERVED, B), by, FREE)
    fast = recommend((SERVED, B), by, Request(default_min_speed=0.0, objective="throughput"))
    assert fast.choice.sharing == "limited"
    saving = Scripted(dict.fromkeys((*NINE, UNCAPPED), (1.0, 0.5, 590.0)), off=0.0)
    assert recommend((SERVED, B), saving, Request(default_min_speed=0.0)).choice
