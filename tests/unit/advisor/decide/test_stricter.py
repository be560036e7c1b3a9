"""A stricter limit never gives a better answer, whatever the jobs."""

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import Scripted, profile

from advisor.core.interval import Interval
from advisor.core.objectives import NO_PRICES
from advisor.core.split import EQUAL, NINE, UNCAPPED, Split
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import MARGINS, Decision, Request, worth_of
from advisor.errors import NoSplitError
from advisor.predict.profiles import Profile, Serving

OBJECTIVES = ("energy-efficiency", "throughput", "max-min")
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


def profiles(job: str) -> st.SearchStrategy[Profile]:
    return st.builds(profile, st.just(job), serving=st.none() | SERVERS)


REQUESTS = st.builds(
    Request,
    objective=st.sampled_from(OBJECTIVES),
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
    """None where nothing keeps every limit, or the jobs are better off apart."""
    try:
        return recommend(jobs, predictor, request)
    except NoSplitError:
        return None


def worth(answer: Decision) -> float:
    """Less the lead that sharing without limits must have."""
    value: Interval = answer.choice.objective_value
    return value.value / (1 + MARGINS[answer.choice.sharing])


@given(profiles("fft"), profiles("gemm"), PREDICTORS, REQUESTS, STRICTER)
def test_a_stricter_limit_never_gives_a_better_answer(
    a: Profile, b: Profile, predictor: Scripted, request: Request, more: tuple[str, Any]
) -> None:
    """Not a better choice, none where there was none, and no question of prices worth more."""
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
    """The even one of them gains too little: that is no reason not to share at all."""
    jobs = profile("fft"), profile("gemm")
    uneven, even = (0.70, 0.60, 400.0), (0.63, 0.62, 400.0)
    known = {Split((60.0, 40.0)): uneven, EQUAL: even}
    answers = [
        recommend(jobs, Scripted(known), Request(objective="throughput", tie=0.1, min_gain=gain))
        for gain in (0.0, 0.2, 0.28, 0.31)
    ]
    assert [a.choice.name for a in answers] == ["50/50", "50/50", "60/40", "exclusive"]
