"""The predictor that is served: a model's ONNX graph between the features and the predictions."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import Split, check_advised
from advisor.errors import InputError, ModelError
from advisor.predict.features import (
    Float32s,
    Side,
    beside,
    feature_names,
    matrix,
    physical_power_w,
    power_features,
    power_limit_w,
    prior_kept,
    side,
    speed_features,
)
from advisor.predict.predictions import Prediction, predicted_part
from advisor.predict.profiles import COLUMNS, NEEDED, Floats, Profile, filled
from advisor_models.intervals import Intervals
from advisor_models.manifest import MODEL, RETRAIN, Manifest, Range, read_artefact
from advisor_models.session import POWER, SPEED, Session

OUTSIDE = 0.05
"""A feature is outside what the model has seen when it lies further beyond its range than this part
of the range."""


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """Jobs at splits as the graph takes them, and `prior_kept`, shape (n,)."""

    sides: tuple[Side, ...]
    kept: Floats
    speed: Float32s
    power: Float32s


class _Bounds:
    """Factors of the intervals, worked out once for each share."""

    def __init__(self, intervals: Intervals) -> None:
        def speed(share_percent: float) -> tuple[float, float]:
            return intervals.of_speed(share_percent).factors

        self.speed = functools.lru_cache(maxsize=1024)(speed)
        self._power = intervals.power
        self.efficiency = intervals.efficiency.factors if intervals.efficiency else None

    def power(self, split: Split, power_w: float, limit_w: float) -> tuple[float, float]:
        """Those of the power at a split, by the expected power and the limit."""
        if not split.is_limited:
            return self._power.uncapped.factors
        return self._power.at(power_w, limit_w).factors


class OnnxPredictor:
    """Predicts with a model that was checked and loaded once; safe to share between threads.

    Swapping the jobs swaps the answer exactly. A column that a profile lacks is taken as it
    usually is (`Manifest.fill`), and the bounds are wider (`Manifest.no_counters`), as they are for
    a GPU model that the model has not seen (`Manifest.other_gpu`).

    Args:
        folder: The model's folder.

    Attributes:
        manifest: What is known of the model.

    Raises:
        ModelError: the folder is not whole, or was made for other features than this version's.
    """

    def __init__(self, folder: Path) -> None:
        artefact = read_artefact(folder)
        self.manifest: Manifest = artefact.manifest
        _check_features(self.manifest)
        self._bounds = {
            (seen, whole): _Bounds(_intervals(self.manifest, seen=seen, whole=whole))
            for seen in (True, False)
            for whole in (True, False)
        }
        names = {SPEED: self.manifest.speed_features, POWER: self.manifest.power_features}
        columns = {name: len(features) for name, features in names.items()}
        self._session = Session(artefact.files[MODEL], columns)
        # Whoever places jobs asks for many pairs of few jobs, at the same splits.
        self._side = functools.lru_cache(maxsize=512)(self._new_side)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order.

        Raises:
            InputError: not two profiles, those of two GPU models, or a share outside of one.
        """
        if not splits:
            return []
        bounds = self._bounds_of(profiles)
        inputs = self._inputs(profiles, splits)
        log_kept, log_ratio = self._session(inputs.speed, inputs.power)
        n = len(splits)
        return _predictions(
            profiles,
            splits,
            speeds=[
                _scaled(log_kept[k * n : (k + 1) * n], inputs.kept * one.capacity)
                for k, one in enumerate(inputs.sides)
            ],
            powers_w=_scaled(log_ratio, physical_power_w(inputs.sides)),
            limit_w=power_limit_w(inputs.sides),
            bounds=bounds,
        )

    def extrapolation(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[str]:
        """Names of the features of the jobs that lie outside of what the model has seen.

        Raises:
            InputError: as for `predict`.
        """
        inputs = self._inputs(profiles, splits)
        manifest = self.manifest
        outside = [
            *_outside(manifest.speed_features, manifest.speed_ranges, inputs.speed),
            *_outside(manifest.power_features, manifest.power_ranges, inputs.power),
        ]
        return list(dict.fromkeys(outside))  # some features are of both

    def missing_columns(self, profiles: Sequence[Profile]) -> list[str]:
        """Columns that one of the profiles lacks, which are taken as they usually are."""
        return sorted({name for profile in profiles for name in profile.missing})

    def _bounds_of(self, profiles: Sequence[Profile]) -> "_Bounds":
        """The bounds for the jobs' GPU model."""
        check_advised(len(profiles))
        models = dict.fromkeys(profile.gpu_model for profile in profiles)
        if len(models) > 1:
            raise InputError(
                " and ".join(f"{p.job} was profiled on {p.gpu_model}" for p in profiles),
                why="jobs share one GPU",
                fix="give profiles of one GPU model",
            )
        seen = profiles[0].gpu_model in self.manifest.gpu_models
        return self._bounds[seen, not self.missing_columns(profiles)]

    def _new_side(self, profile: Profile, shares: tuple[float, ...]) -> Side:
        return side(filled(profile, self.manifest.fill), shares)

    def _inputs(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> _Inputs:
        sides = tuple(
            self._side(profile, tuple(split.shares[k] for split in splits))
            for k, profile in enumerate(profiles)
        )
        speed = [matrix(speed_features(one, beside(sides, k))) for k, one in enumerate(sides)]
        power = matrix(power_features(sides))
        return _Inputs(sides, prior_kept(sides), np.concatenate(speed), power)


def _intervals(manifest: Manifest, *, seen: bool, whole: bool) -> Intervals:
    """Bounds by whether the GPU model was seen, and whether the profiles have every column."""
    intervals, other, missing = manifest.intervals, manifest.other_gpu, manifest.no_counters
    if not seen:
        wide = intervals.wider(speed=other.speed_widening, power=other.power_widening)
        intervals = wide.without_limit()
    if not whole and missing is not None:
        intervals = intervals.wider(speed=missing.speed, power=missing.power)
    return intervals


def _check_features(manifest: Manifest) -> None:
    names = feature_names()
    if names != (manifest.speed_features, manifest.power_features):
        changed = {*sum(names, ())} ^ {*manifest.speed_features, *manifest.power_features}
        raise ModelError(
            f"the model {manifest.version} was trained on other features",
            why=f"they differ in {', '.join(sorted(changed)) or 'their order'}",
            fix=f"{RETRAIN}; or take the one that came with it: advisor models promote bundled",
        )
    if gaps := sorted(set(COLUMNS) - set(NEEDED) - manifest.fill.keys()):
        raise ModelError(
            f"the model {manifest.version} cannot fill in {', '.join(gaps)}",
            why="a profile may lack them",
            fix=RETRAIN,
        )


def _predictions(
    profiles: Sequence[Profile],
    splits: Sequence[Split],
    *,
    speeds: Sequence[Sequence[float]],
    powers_w: Sequence[float],
    limit_w: float,
    bounds: _Bounds,
) -> list[Prediction]:
    return [
        Prediction(
            split=split,
            parts=tuple(
                predicted_part(profile, _served(profile, _around(speed, bounds.speed(share))))
                for profile, speed, share in zip(profiles, of_split, split.shares, strict=True)
            ),
            power_w=_around(power_w, bounds.power(split, power_w, limit_w)),
            efficiency_factors=bounds.efficiency if split.is_limited else None,
        )
        for split, power_w, of_split in zip(
            splits, powers_w, zip(*speeds, strict=True), strict=True
        )
    ]


def _served(profile: Profile, speed: Interval) -> Interval:
    return profile.serving.served(speed) if profile.serving else speed


def _scaled(logs: Sequence[float], factors: Floats) -> list[float]:
    # One by one: where a value stands in an array may change the last bit of numpy's exp.
    return [math.exp(log) * f for log, f in zip(logs, factors.tolist(), strict=True)]


def _around(value: float, factors: tuple[float, float]) -> Interval:
    return Interval(value, value * factors[0], value * factors[1])


def _outside(names: Sequence[str], ranges: Sequence[Range], rows: Float32s) -> list[str]:
    low, high = np.array(ranges).T
    # A feature that was the same in all rows has no width; rounding is no extrapolation.
    reach = OUTSIDE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
    found = ((rows < low - reach) | (rows > high + reach)).any(axis=0)
    return [name for name, is_outside in zip(names, found, strict=True) if is_outside]
