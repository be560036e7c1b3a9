"""A model of a few trees on made-up profiles, as a folder: what serving needs to be tested."""

import dataclasses
import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from advisor.core.gpu import NINE, UNCAPPED, Split
from advisor.predict.profiles import (
    COLUMNS,
    Float32s,
    Floats,
    Profile,
    feature_names_of,
    matrix,
    of_job,
    power_features,
    side,
    speed_features,
)
from advisor_models.model_predictor import HEADS, Head
from advisor_models.registry import (
    SCHEMA,
    SPLIT,
    UNCAPPED as WITHOUT_LIMITS,
    Artefact,
    DatasetFacts,
    LogBounds,
    Manifest,
    OtherGpu,
    TrainedHead,
    hashes,
    trees_file,
    write_artefact,
)
from advisor_training.learners import PriorRegressor, Regressors
from advisor_training.train import forest_bytes

GPU_MODEL = "Card"
SHARES = tuple(float(share) for share in range(10, 101, 10))
SPLITS: tuple[Split, ...] = (*NINE, UNCAPPED)
LIMIT_W = 700.0

SPEED_BOUNDS = {
    SPLIT: LogBounds(-0.3, 0.2),
    of_job("filling", ("filling",), 20, SPLIT): LogBounds(-0.4, 0.1),
    of_job("filling", ("filling",), 80, SPLIT): LogBounds(-0.2, 0.05),
    WITHOUT_LIMITS: LogBounds(-1.0, 0.5),
}
POWER_BOUNDS = {SPLIT: LogBounds(-0.1, 0.05), WITHOUT_LIMITS: LogBounds(-0.2, 0.3)}


def make_profile(job: str = "job", seed: int = 0, **changes: Any) -> Profile:
    """A made-up job; another seed makes another one."""
    random = np.random.default_rng(seed)
    shares = np.array(SHARES)
    values: dict[str, Floats] = {
        name: random.uniform(0, 60) + random.uniform(0, 0.4) * shares for name in COLUMNS
    }
    values["rate"] = random.uniform(1, 1000) * shares ** random.uniform(0.2, 1)
    values["power_w"] = 100 + random.uniform(1, 5) * shares
    made = Profile(
        job=job,
        gpu_model=GPU_MODEL,
        rate_unit="step",
        units_total=132,
        idle_power_w=75.0 + random.uniform(0, 5),
        power_limit_w=LIMIT_W,
        memory_used_mib=1000.0,
        shares=shares,
        values=values,
        missing=(),
        flags=(),
    )
    return dataclasses.replace(made, **changes)


def without(profile: Profile, *columns: str) -> Profile:
    """The profile of a card that lacks some counters."""
    gone = {name: np.full_like(profile.shares, np.nan) for name in columns}
    return dataclasses.replace(profile, values={**profile.values, **gone}, missing=columns)


def training_rows() -> tuple[Float32s, Float32s]:
    """Features of made-up pairs: of speed, shape (2n, features), and of power, (n, features)."""
    profiles = [make_profile(f"job{seed}", seed) for seed in range(8)]
    pairs = [
        (side(a, [s.shares[0] for s in SPLITS]), side(b, [s.shares[1] for s in SPLITS]))
        for a in profiles
        for b in profiles
    ]
    speed = [speed_features(a, [b]) for a, b in pairs]
    speed += [speed_features(b, [a]) for a, b in pairs]
    power = [power_features(pair) for pair in pairs]
    return np.concatenate([*map(matrix, speed)]), np.concatenate([*map(matrix, power)])


@functools.cache
def regressors(trees: int = 5) -> Regressors:
    """Fitted to noise: every row gets its own answer."""
    random = np.random.default_rng(1)
    made = [
        PriorRegressor(ExtraTreesRegressor(trees, max_depth=6, random_state=seed))
        for seed in (0, 1)
    ]
    for estimator, rows in zip(made, training_rows(), strict=True):
        estimator.fit(rows, np.exp(random.normal(-0.1, 0.2, len(rows))))
    return Regressors({"speed": made[0], "power": made[1]})


SPEED_TREES, POWER_TREES = (trees_file(head.name) for head in HEADS)


@functools.cache
def trees() -> Mapping[str, bytes]:
    by_head = regressors().by_head
    return MappingProxyType({trees_file(n): forest_bytes(by_head[n].regressor_) for n in by_head})


def make_manifest(files: Mapping[str, bytes], **changes: Any) -> Manifest:
    """A manifest of the small model next to these files."""
    made = Manifest(
        schema=SCHEMA,
        version="20260131-aaaaaa",
        learner="extra-trees",
        created_at="2026-01-31T12:00:00+00:00",
        gpu_models=(GPU_MODEL,),
        fill=dict.fromkeys(COLUMNS[2:], 7.5),
        coverage=0.9,
        heads=_heads(),
        efficiency={},
        other_gpu=OtherGpu({"speed": 2.0, "power": 3.0}, (), None),
        no_counters=None,
        dataset=DatasetFacts("0" * 64, 640, 64, ("job0", "job1"), 1),
        figures={"fraction_of_oracle": 0.995, "rate_mape": 0.059},
        settings={"trees": 5, "least_in_leaf": 3, "part_of_features": 0.5, "seed": 0},
        libraries={"scikit-learn": "1.9.1"},
        files=hashes(files),
    )
    return dataclasses.replace(made, **changes)


def changed_head(name: str, **changes: Any) -> tuple[TrainedHead, ...]:
    """The heads of the small model, one of them with other fields."""
    heads = make_manifest({}).heads
    return tuple(dataclasses.replace(h, **changes) if h.name == name else h for h in heads)


def save_model(folder: Path, speed: bytes | None = None, **changes: Any) -> Path:
    """The small model, or with other bytes for the trees of its speeds, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {**trees(), **({} if speed is None else {SPEED_TREES: speed})}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    write_artefact(folder, Artefact(make_manifest(files, **changes), {}))
    return folder


def free_names() -> AbstractContextManager[object]:
    """Models are taken in under names that are not of their content."""
    return patch("advisor_models.registry.version_of", attrgetter("version"))


@functools.cache
def _heads() -> tuple[TrainedHead, ...]:
    speed, power = training_rows()
    return _head(HEADS[0], speed, SPEED_BOUNDS), _head(HEADS[1], power, POWER_BOUNDS)


def _head(head: Head, rows: Float32s, intervals: Mapping[str, LogBounds]) -> TrainedHead:
    return TrainedHead(
        name=head.name,
        of=head.of,
        target=head.target,
        unit=head.unit,
        prior=head.prior,
        features=feature_names_of(head.features_of),
        ranges=_ranges(rows),
        intervals=intervals,
    )


def _ranges(rows: Float32s) -> tuple[tuple[float, float], ...]:
    low, high = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
    return tuple(zip(low, high, strict=True))
