"""Profiles of made-up jobs, and predictors that need no model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.predict.predictions import UNCAPPED, Interval, Prediction, Split
from advisor.predict.profiles import COLUMNS, Profile
from advisor.predict.rules import physical_predictions

SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def profile(
    job: str,
    rates: Sequence[float] | None = None,
    shares: Sequence[float] = SHARES,
    **fields: Any,
) -> Profile:
    """A job at shares; without rates given, its rate is the share. It draws 130 to 400 W."""
    counters = {name: np.full(len(shares), 20.0) for name in COLUMNS}
    values = {
        **counters,
        "rate": np.array(shares if rates is None else rates, dtype=np.float64),
        "power_w": 100.0 + 3.0 * np.array(shares),
    }
    values |= {name: np.array(column) for name, column in fields.pop("columns", {}).items()}
    known: dict[str, Any] = {
        "gpu_model": "NVIDIA H200",
        "rate_unit": "steps",
        "units_total": 132,
        "idle_power_w": 80.0,
        "power_limit_w": 700.0,
        "memory_used_mib": 1000.0,
        "missing": (),
        "flags": (),
    }
    return Profile(
        job=job, shares=np.array(shares, dtype=np.float64), values=values, **(known | fields)
    )


@dataclass(frozen=True)
class Physics:
    """No learning, with bounds a tenth below and above, or as given."""

    off: float = 0.1

    def predict(self, a: Profile, b: Profile, splits: Sequence[Split]) -> list[Prediction]:
        """See `advisor.predict.predictions.Predictor`."""
        return [
            replace(
                p,
                speed_a=_around(p.speed_a.value, self.off),
                speed_b=_around(p.speed_b.value, self.off),
                power_w=_around(p.power_w.value, self.off),
            )
            for p in physical_predictions(a, b, splits)
        ]


@dataclass(frozen=True)
class Scripted:
    """What was written down for a split: both relative speeds and the power; else poor ones."""

    known: Mapping[Split, tuple[float, float, float]]
    off: float = 0.1

    def predict(self, a: Profile, b: Profile, splits: Sequence[Split]) -> list[Prediction]:
        """See `advisor.predict.predictions.Predictor`."""
        return [self._prediction(a, b, split) for split in splits]

    def _prediction(self, a: Profile, b: Profile, split: Split) -> Prediction:
        speed_a, speed_b, power_w = self.known.get(split, (0.4, 0.4, 500.0))
        return Prediction(
            way="uncapped" if split == UNCAPPED else "split",
            share_a_percent=split[0],
            share_b_percent=split[1],
            speed_a=_around(speed_a, self.off),
            speed_b=_around(speed_b, self.off),
            power_w=_around(power_w, self.off),
            solo_rate_a=a.whole_gpu_rate,
            solo_rate_b=b.whole_gpu_rate,
            solo_power_a_w=a.whole_gpu_power_w,
            solo_power_b_w=b.whole_gpu_power_w,
        )


def _around(value: float, off: float) -> Interval:
    return Interval(value, (1 - off) * value, (1 + off) * value)
