"""How many copies of a job a GPU holds, and what ends their number."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import profile

from advisor.core.interval import Interval
from advisor.core.policy import Policy
from advisor.core.split import Split
from advisor.decide.limits import Request
from advisor.decide.replicas import replicas
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Prediction
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
    return profile("job", [100.0] * 10, columns=columns, **fields)


FREE = Request(policy=Policy(min_speed=0.0))


@given(st.floats(1, 99), st.floats(1, 99), st.floats(0, 0.8), st.integers(1, 20))
def test_each_copy_adds_work_and_keeps_every_limit(
    sm: float, dram: float, speed: float, most: int
) -> None:
    found = replicas(copied_job(sm, dram), Request(policy=Policy(min_speed=speed)), most=most)
    assert [copies.number for copies in found.copies] == list(range(1, found.best + 1))
    rates = [copies.rate.value for copies in found.copies]
    assert all(more >= 1.03 * fewer for fewer, more in itertools.pairwise(rates))
    assert all(copies.speed.at_least_with(0.9) >= speed for copies in found.copies)
    for fewer, more in itertools.pairwise(found.copies):
        assert more.speed.value <= fewer.speed.value
        assert more.power_w.value >= fewer.power_w.value
    assert (found.beyond is None) == (found.ended_by is None) == (found.best == most)


@pytest.mark.parametrize(
    ("one", "wanted", "ended_by", "best"),
    [
        (copied_job(memory_used_mib=4e4), {"memory_mib": 1e5}, "memory", 2),
        (copied_job(), {"host_cores": 3.5}, "host cores", 3),
        (copied_job(serving=SERVING), {"max_p99_ms": {"job": 14.0}}, "tail", 5),
        (copied_job(), {"max_power_w": 300.0}, "power", 3),
        (copied_job(70.0), {"policy": Policy(min_speed=0.0, min_gain=0.2)}, "SMs", 2),
        (copied_job(20.0, 70.0), {"policy": Policy(min_speed=0.0, min_gain=0.2)}, "DRAM", 2),
        (copied_job(97.0), {"policy": Policy()}, "SMs", 1),
        (copied_job(5.0), {}, None, 7),
    ],
)
def test_what_ends_the_number(
    one: Profile, wanted: dict[str, Any], ended_by: str | None, best: int
) -> None:
    request = dataclasses.replace(FREE, **wanted)
    found = replicas(one, request)
    assert (found.ended_by, found.best) == (ended_by, best), found.why
    assert found.why


def test_not_even_one_is_an_error() -> None:
    with pytest.raises(NoSplitError, match="not even one"):
        replicas(copied_job(), Request(max_power_w=100.0))
    with pytest.raises(InputError, match=r"49 copies.*from 1 to 48"):
        replicas(copied_job(), FREE, most=49)


def test_copies_do_what_is_predicted_of_the_set() -> None:
    """So `replicas A` and `recommend A*3` say the same of three: nothing is bounded here again."""

    class LessOfThree:
        def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
            found = SetPredictor().predict(profiles, splits)
            watts = Interval(*[400.0 - 10 * len(profiles)] * 3)
            return [dataclasses.replace(p, power_w=watts) for p in found]

    _, two, three = replicas(copied_job(5.0), FREE, most=3, predictor=LessOfThree()).copies
    assert (two.power_w.value, three.power_w.value) == (380.0, 370.0)
