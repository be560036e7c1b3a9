"""Observations of bundled jobs that did what the bundled model expects, or something else."""

import functools
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from advisor.core.gpu import EQUAL
from advisor.core.records import Observation, ObservedPart
from advisor.formats.moments import to_text
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile, make_profiles
from advisor_data.bundled import bundled_solo_points
from advisor_models.model_predictor import ModelPredictor

PAIR = ("fft", "sorting")
GPU_MODEL = "NVIDIA H200"
CARD = "GPU-card-1"

_MODEL = Path(__file__).parents[2] / "models/advisor_models/bundled"


def launched(
    rates: Sequence[float] = (),
    powers: Sequence[float] = (),
    *,
    pair: tuple[str, str] = PAIR,
    card: str = CARD,
    noise: float = 0.005,
) -> list[Observation]:
    """One launch at 50/50 for each pair of ratios.

    Args:
        rates: Rate of the first job over what is expected; by default 1.
        powers: Power likewise.
        pair: Names of bundled jobs, in order.
        card: Where they ran.
        noise: Relative standard deviation of each value.
    """
    draw, n = random.Random(1), max(len(rates), len(powers))
    rates, powers = rates or [1.0] * n, powers or [1.0] * n
    expected, profiles = expectation(pair)

    def near(value: float) -> float:
        return value * (1 + draw.gauss(0, noise))

    return [
        Observation(
            launch_id=f"launch-{card}-{number}",
            gpu_model=GPU_MODEL,
            gpu_uuid=card,
            parts=tuple(
                ObservedPart(
                    job=profile.job,
                    share_percent=50.0,
                    units=66,
                    rate=near(part.rate.value * (rates[number] if first else 1.0)),
                    rate_unit=profile.rate_unit,
                    results="right",
                )
                for first, part, profile in zip(
                    (True, False), expected.parts, profiles, strict=True
                )
            ),
            power_w=near(expected.power_w.value * powers[number]),
            overlap_s=60.0,
            state="stopped",
            started_at=to_text(datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=number)),
        )
        for number in range(n)
    ]


@functools.cache
def expectation(pair: tuple[str, str]) -> tuple[Prediction, tuple[Profile, ...]]:
    """What the bundled model says of jobs at 50/50."""
    made = make_profiles(bundled_solo_points(set(pair)))
    profiles = tuple(made[job, GPU_MODEL] for job in pair)
    (expected,) = ModelPredictor(_MODEL).predict(profiles, [EQUAL])
    return expected, profiles
