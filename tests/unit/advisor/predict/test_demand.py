"""Jobs at a fixed demand through the arithmetic that was made for jobs without one.

Their rate is the demand at every share that can meet it, so profiles are flat, and a relative
speed is 1 or, by the chance of arrivals, a little more.
"""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import Physics, physical_predictions, profile

from advisor.core.job import Job
from advisor.core.split import NINE
from advisor.decide.recommend import Request, recommend
from advisor.predict.features import matrix, power_features, speed_features
from advisor.predict.sides import side

DEMAND = 120.0

served = st.lists(st.floats(0.95, 1.05), min_size=10, max_size=10).map(
    lambda factors: [DEMAND * factor for factor in factors]
)
"""Rates at ten shares of a server that meets its demand at all of them."""


def test_a_demand_changes_nothing_of_what_a_profile_belongs_to() -> None:
    """The command says what is run; profiles that were measured before still fit their jobs."""
    job = Job(name="a", command=("serve", "--rate", "120"))
    assert Job(name="a", command=job.command, offered_rate=DEMAND).job_hash == job.job_hash


@given(rates=served, idle=st.booleans())
def test_a_flat_profile_has_finite_features(rates: list[float], idle: bool) -> None:
    """No logarithm of a ratio and no division is of nothing, also where no counter moves."""
    columns: dict[str, Any] = {}
    if idle:
        columns = {name: [0.0] * 10 for name in ("sm_active_percent", "dram_active_percent")}
        columns |= {"power_w": [80.0] * 10}
    a = side(profile("server", rates, columns=columns), [split.shares[0] for split in NINE])
    b = side(profile("training"), [split.shares[1] for split in NINE])
    for own, other in ((a, b), (b, a), (a, a)):
        assert np.isfinite(matrix(speed_features(own, [other]))).all()
        assert np.isfinite(matrix(power_features([own, other]))).all()


@given(rates=served)
def test_a_flat_profile_gets_a_recommendation(rates: list[float]) -> None:
    """The other job gets what a server does not need."""
    server, training = profile("server", rates), profile("training")
    answer = recommend((server, training), Physics(), Request())
    assert answer.choice is not None
    for prediction in physical_predictions([server, training], NINE):
        assert 0.9 <= prediction.parts[0].speed.value <= 1.2
    split = max(
        physical_predictions([server, training], NINE), key=lambda p: p.parts[1].speed.value
    )
    assert split.split.shares[1] == 90
