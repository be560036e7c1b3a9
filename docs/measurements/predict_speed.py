"""Time to predict the nine splits of a pair and uncapped, in a warm process, and where it goes.

    .venv/bin/python docs/measurements/predict_speed.py

Fits the model, and one of 300 trees, to the bundled pairs. What is compared runs in turns, so that
all of it meets the same other work on the host; the smallest time is the one without any.
"""

import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from sklearn.ensemble import ExtraTreesRegressor

from advisor.core.split import NINE, UNCAPPED
from advisor.predict.features import Float32s
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.sides import side
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_models.forest import Forest, read_trees
from advisor_models.heads import HEADS, inputs_of
from advisor_models.manifest import named, read_manifest, trees_file, write_artefact
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import BUNDLED
from advisor_training.learners import LEAST_IN_LEAF, PART_OF_FEATURES, SEED, TREES, Regressors, fit
from advisor_training.pairs import make_pairs
from advisor_training.rows import Rows, make_rows
from advisor_training.train import forest_bytes

SPLITS = (*NINE, UNCAPPED)
TURNS = 2000
SLOW_TURNS = 50
"""Of scikit-learn, which takes a hundred times as long."""


def main() -> None:
    """Print the table."""
    solos = bundled_solo_points()
    points = select(bundled_pair_points()).points
    profiles = make_profiles(solos)
    pairs, _ = make_pairs(points, [*bundled_reference_points(), *solos])
    rows = make_rows(pairs, profiles)
    jobs = [profile for profile in profiles.values() if profile.shares[0] <= 10]
    print(f"{len(SPLITS)} splits of a pair, {len(jobs)} jobs; microseconds: smallest, median")
    for trees in (TREES, 300):
        for name, times in measure(trees, rows, jobs).items():
            smallest, median = 1e6 * min(times), 1e6 * statistics.median(times)
            print(f"{trees} trees  {name:34} {smallest:9.0f} {median:9.0f}  ({len(times)} runs)")


def measure(trees: int, rows: Rows, jobs: list[Profile]) -> dict[str, list[float]]:
    """Seconds of each run of each part."""
    regressors = fit(functools.partial(extra_trees, trees), rows)
    files = {head.name: forest_bytes(regressors.by_head[head.name].regressor_) for head in HEADS}
    predictor = load(files)
    # Another pair each time, as a scheduler asks; a new job is one whose profile was just read.
    of_one_gpu = [(a, b) for a in jobs for b in jobs if a.gpu_model == b.gpu_model]
    pairs = itertools.cycle(of_one_gpu)
    asked = features(jobs[0], jobs[1])
    forest = Forest(*(read_trees(name, files[name], asked[name].shape[1]) for name in files))
    parts: dict[str, Callable[[], object]] = {
        "features alone": lambda: features(*next(pairs)),
        "trees alone": lambda: forest(*asked.values()),
        "whole prediction": lambda: predictor.predict(next(pairs), SPLITS),
        "whole prediction, two new jobs": lambda: predictor.predict(
            list(map(replace, next(pairs))), SPLITS
        ),
        "scikit-learn alone, one thread": lambda: plain(regressors, asked),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(TURNS):
        for name, part in parts.items():
            if "scikit" in name and turn % (TURNS // SLOW_TURNS):
                continue
            started = time.perf_counter()
            part()
            times[name].append(time.perf_counter() - started)
    return times


def extra_trees(trees: int) -> ExtraTreesRegressor:
    """The model's settings, with this many trees; threads cost more than they bring here."""
    return ExtraTreesRegressor(
        trees,
        min_samples_leaf=LEAST_IN_LEAF,
        max_features=PART_OF_FEATURES,
        random_state=SEED,
        n_jobs=1,
    )


def load(files: Mapping[str, bytes]) -> ModelPredictor:
    """A predictor of other trees than the bundled ones."""
    made = named(read_manifest(BUNDLED), {trees_file(name): data for name, data in files.items()})
    with tempfile.TemporaryDirectory() as folder:
        write_artefact(Path(folder), made)
        return ModelPredictor(Path(folder))


def features(a: Profile, b: Profile) -> dict[str, Float32s]:
    """What each head sees: of speed, both directions."""
    sides = [side(p, [split.shares[n] for split in SPLITS]) for n, p in enumerate((a, b))]
    return {head.name: inputs_of(head, sides).features for head in HEADS}


def plain(regressors: Regressors, asked: dict[str, Float32s]) -> object:
    """The same rows by scikit-learn."""
    return [regressors.by_head[name].regressor_.predict(rows) for name, rows in asked.items()]


main()
