"""Why nothing keeps the limits, and what would help; why sharing does not pay."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_up_profiles import Scripted, profile

from advisor.core.split import EQUAL, NINE, UNCAPPED, Split
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import Request
from advisor.errors import NoSplitError
from advisor.predict.predictions import Predictor
from advisor.predict.profiles import Profile, Serving

A, B = profile("a"), profile("b")
SERVED = profile("a", serving=Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=()))


def refused(
    by: Predictor, of: Sequence[Profile] = (A, B), **limits: float | str | dict[str, float]
) -> NoSplitError:
    with pytest.raises(NoSplitError) as raised:
        recommend(of, by, Request(**{"default_min_speed": 0.0, **limits}))  # type: ignore[arg-type]
    return raised.value


def all_draw(power_w: float, *but: tuple[Split, float]) -> Scripted:
    """Every way at half of the speeds, at that power."""
    ways = dict.fromkeys((*NINE, UNCAPPED), power_w) | dict(but)
    return Scripted({split: (0.6, 0.6, w) for split, w in ways.items()}, off=0.0)


def test_a_ceiling_that_would_be_enough_is_rounded_up() -> None:
    """The lowest one at which something keeps all other limits."""
    by = all_draw(450.0, (EQUAL, 380.2))
    starving = replace(by, known={**by.known, NINE[0]: (0.1, 0.6, 370.0)})
    error = refused(starving, max_power_w=350.0, default_min_speed=0.4)
    assert error.what == "a and b cannot run on one NVIDIA H200 within these limits"
    assert error.fix
    assert error.fix.startswith("allow 381 W, which 50/50 needs")
    assert error.why
    assert error.why.startswith("nearest is 50/50: both draw 380.2 W, at most 350 W are allowed")


def test_one_after_the_other_may_need_the_least() -> None:
    error = refused(all_draw(450.0), max_power_w=350.0)
    assert error.fix
    assert error.fix.startswith("allow 400 W, which one after the other needs")


def test_a_ceiling_below_idle_power_lets_nothing_run() -> None:
    error = refused(all_draw(450.0), max_power_w=79.9)
    assert error.what == "nothing runs within 79.9 W"
    assert error.why == "the NVIDIA H200 draws 80 W without any job"
    assert error.fix == "allow 400 W, which one after the other needs"
    assert refused(all_draw(450.0), max_power_w=80.0).what.startswith("a and b cannot run")


def test_more_power_does_not_help_where_another_limit_is_broken() -> None:
    slow = Scripted({}, off=0.0)
    error = refused(slow, (SERVED, B), max_power_w=79.0, default_min_speed=0.9)
    assert error.fix == "allow more"
    other = refused(slow, (SERVED, B), max_power_w=390.0)
    assert other.fix
    assert other.fix.startswith("loosen that limit")
    free = refused(slow, (SERVED, B))
    assert free.fix == "loosen that limit, or give each job a GPU of its own"


def test_a_speed_that_is_missed_is_named_as_an_option() -> None:
    """Of a server only what it pays beside its demand."""
    by = Scripted({EQUAL: (1.0, 0.666, 300.0)}, off=0.0)
    error = refused(by, (SERVED, B), default_min_speed=0.7)
    assert error.fix == "allow it: --min-speed b=0.66, or give each job a GPU of its own"


def test_a_gpu_for_each_is_offered_where_it_would_help() -> None:
    """Else it is said what would be broken there, too: the limit that is missed by most."""
    hot = profile("a", columns={"power_w": [200.0 + 5 * s for s in range(10, 101, 10)]})
    error = refused(all_draw(900.0), (hot, B), max_power_w=350.0)
    assert error.fix
    assert error.fix.endswith(
        "; a GPU for each does not help: a alone draws 700 W, at most 350 W are allowed"
    )


def test_a_server_that_saves_nothing_has_a_gpu_of_its_own() -> None:
    """One after the other is no way for it; where time was asked for, it may share."""
    wasteful = dict.fromkeys((*NINE, UNCAPPED), (1.0, 0.3, 600.0))
    by = Scripted(wasteful, off=0.0)
    error = refused(by, (SERVED, B))
    assert error.what == "a and b are better off apart than on one NVIDIA H200"
    assert error.fix
    assert error.fix.startswith("give each job a GPU of its own, or ask for time")
    assert error.why == "50/50 takes 15 % more energy for the same work than a GPU for each"
    fast = recommend((SERVED, B), by, Request(default_min_speed=0.0, objective="throughput"))
    assert fast.choice.sharing == "limited"
    saving = Scripted(dict.fromkeys((*NINE, UNCAPPED), (1.0, 0.5, 590.0)), off=0.0)
    assert recommend((SERVED, B), saving, Request(default_min_speed=0.0)).choice
