"""How many copies of a job a GPU holds, and what ends their number."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import profile

from advisor.core.gpu import Split
from advisor.core.objectives import Policy
from advisor.core.records import CPU_BOUND, FILLS_PERCENT
from advisor.decide.decision import FoundCopies, Outlook, decide, replicas, way_of
from advisor.decide.limits import Request
from advisor.errors import NoSplitError
from advisor.predict.predictions import Predictions
from advisor.predict.profiles import Profile, Serving
from advisor.predict.sets import SetPredictor

SERVING = Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=((10.0, 4.0), (100.0, 4.0)))


def copied_job(sm: float = 10.0, dram: float = 5.0, **fields: Any) -> Profile:
    columns = {
        "sm_active_percent": np.full(10, sm),
        "dram_active_percent": np.full(10, dram),
        "job_cpu_percent": np.full(10, 100.0),
        "power_w": np.full(10, 180.0),
    }
    flags = (CPU_BOUND,) if sm < FILLS_PERCENT else ()
    return profile("job", [100.0] * 10, columns=columns, flags=flags, **fields)


FREE = Request(policy=Policy(min_speed=0.0))


def outlook(one: Profile, number: int) -> Outlook:
    return Outlook([one] * number, SetPredictor())


def counted(one: Profile, request: Request, most: int = 7) -> FoundCopies:
    return replicas((outlook(one, number) for number in range(2, most + 1)), request)


@given(st.floats(1, 99), st.floats(1, 99), st.floats(0, 0.8), st.integers(2, 7), st.booleans())
def test_each_number_is_decided_as_a_set_of_so_many(
    sm: float, dram: float, speed: float, most: int, isolate: bool
) -> None:
    """`replicas A` and `recommend A*3` say the same of three, and each copy adds work."""
    one, request = copied_job(sm, dram), Request(policy=Policy(min_speed=speed), isolate=isolate)
    found = counted(one, request, most)
    for number, decision in enumerate(found.decisions, start=2):
        asked = decide(outlook(one, number), request)
        assert (asked.choice, asked.call, asked.options) == (
            decision.choice, decision.call, decision.options
        )  # fmt: skip
    kept = found.decisions[: found.best - 1]
    assert all(decision.choice for decision in kept)
    rates = [1.0, *(way_of(decision).prediction.stp.value for decision in kept)]
    assert all(more >= 1.01 * fewer for fewer, more in itertools.pairwise(rates))
    assert (len(found.decisions) < found.best) == (found.ended_by is None) == (found.best == most)


@pytest.mark.parametrize(
    ("one", "wanted", "ended_by", "best"),
    [
        (copied_job(memory_used_mib=4e4), {"memory_mib": 1e5}, "memory", 2),
        (copied_job(), {"host_cores": 3.5}, "host cores", 3),
        (copied_job(serving=SERVING), {"max_p99_ms": {"job": 13.0}}, "tail", 6),
        (copied_job(), {"max_power_w": 300.0}, "power", 3),
        (copied_job(70.0), {"policy": Policy(min_speed=0.0, min_gain=0.2)}, "SMs", 2),
        (copied_job(20.0, 70.0), {"policy": Policy(min_speed=0.0, min_gain=0.2)}, "DRAM", 2),
        (copied_job(97.0), {"policy": Policy()}, "SMs", 2),
        (copied_job(5.0), {}, None, 7),
    ],
)
def test_what_ends_the_number(
    one: Profile, wanted: dict[str, Any], ended_by: str | None, best: int
) -> None:
    found = counted(one, dataclasses.replace(FREE, **wanted))
    assert (found.ended_by, found.best) == (ended_by, best), found.why
    assert found.why


def halved(profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
    found = SetPredictor().predict(profiles, splits)
    return dataclasses.replace(found, power_w=found.power_w / 2)


@pytest.mark.parametrize("is_measured", [True, False])
def test_more_copies_that_were_measured_say_that_fewer_keep_their_limits(is_measured: bool) -> None:
    """Four are predicted to break a limit that five were measured to keep."""
    one, request = copied_job(), dataclasses.replace(FREE, max_power_w=300.0)
    knows = Mock(predict=halved)
    way = way_of(decide(Outlook([one] * 5, knows), request)).split
    outlooks = [outlook(one, number) for number in range(2, 7)]
    outlooks[3] = Outlook([one] * 5, knows, measured=[way] if is_measured else [])
    found = replicas(outlooks, request)
    assert (found.best, found.ended_by) == (5 if is_measured else 3, "power")
    assert len(found.decisions) == found.best


def test_not_even_one_is_an_error() -> None:
    with pytest.raises(NoSplitError, match="not even one"):
        counted(copied_job(), Request(max_power_w=100.0))
