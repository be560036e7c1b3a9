"""Profiles of made-up jobs, and predictors that need no model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.core.gpu import Split
from advisor.core.objectives import Interval
from advisor.core.records import CPU_BOUND, FILLS_PERCENT
from advisor.predict.predictions import Prediction, Predictions, predict_exclusive, predicted_part
from advisor.predict.profiles import COLUMNS, Floats, Profile, physical_power_w, side

P99_BESIDE = Interval(1.4, 0.9, 3.0)
"""Of a server, for each 1 alone at its share."""

SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def profile(
    job: str,
    rates: Sequence[float] | None = None,
    shares: Sequence[float] = SHARES,
    **fields: Any,
) -> Profile:
    """A job at shares; without rates given, its rate is the share. It draws 130 to 400 W."""
    values = {
        **{name: np.full(len(shares), 20.0) for name in COLUMNS},
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


def physical_predictions(profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
    """Rates alone at the shares; all powers less the shared active idle power, up to the limit."""
    sides = [side(p, [split.shares[i] for split in splits]) for i, p in enumerate(profiles)]
    speeds = zip(*(_exact(one.alone["relative_rate"]) for one in sides), strict=True)
    values = zip(splits, speeds, _exact(physical_power_w(sides)), strict=True)
    return [
        Prediction(
            split=split, parts=tuple(map(predicted_part, profiles, of_split)), power_w=power_w
        )
        for split, of_split, power_w in values
    ]


def _exact(values: Floats) -> list[Interval]:
    return [Interval(value, value, value) for value in values.tolist()]


@dataclass(frozen=True)
class Physics:
    """No learning, with bounds a tenth below and above, or as given; alone what was measured."""

    off: float = 0.1

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        found = [
            predict_exclusive(profiles)
            if p.split.sharing == "exclusive"
            else replace(
                p,
                parts=tuple(
                    replace(part, speed=_around(part.speed.value, self.off)) for part in p.parts
                ),
                power_w=_around(p.power_w.value, self.off),
            )
            for p in physical_predictions(profiles, splits)
        ]
        return Predictions.of(found)


@dataclass(frozen=True, eq=False)
class Scripted:
    """What was written down for a split: relative speeds and the power; else poor ones.

    One after the other is what was measured.
    """

    known: Mapping[Split, tuple[float, ...]]
    off: float = 0.1

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        return Predictions.of([self._prediction(profiles, split) for split in splits])

    def _prediction(self, profiles: Sequence[Profile], split: Split) -> Prediction:
        if split.sharing == "exclusive":
            return predict_exclusive(profiles)
        *speeds, power_w = self.known.get(split, (*[0.8 / len(profiles)] * len(profiles), 500.0))
        return Prediction(
            split=split,
            parts=tuple(
                replace(
                    predicted_part(profile, _around(speed, self.off)),
                    latency_p99_ms=alone_ms and P99_BESIDE.times(alone_ms),
                )
                for profile, speed, share in zip(profiles, speeds, split.shares, strict=True)
                for alone_ms in [profile.serving and profile.serving.p99_alone_ms(share)]
            ),
            power_w=_around(power_w, self.off),
        )


def _around(value: float, off: float) -> Interval:
    return Interval(value, (1 - off) * value, (1 + off) * value)


def active_job(
    name: str, sm: float = 10.0, power_w: float = 200.0, dram: float = 5.0, **fields: Any
) -> Profile:
    """Alone it keeps the SMs active so much of the time; as fast where that fits its share.

    One that leaves most of them unused waits for its host.
    """
    active = np.minimum(sm, np.arange(10.0, 101.0, 10.0))
    columns = {
        "sm_active_percent": active,
        "dram_active_percent": np.full(10, dram),
        "power_w": 100 + (power_w - 100) * active / sm,
        "job_cpu_percent": np.full(10, 100.0),
    }
    flags = (CPU_BOUND,) if sm < FILLS_PERCENT else ()
    known: dict[str, Any] = {"columns": columns, "flags": flags} | fields
    return profile(name, (100 * active / sm).tolist(), **known)
