"""The predictor that is served: a model's trees between the features and the predictions.

What this version can predict of a pair is one declaration for each head. A new head is one more
`Head` here and one `HeadLearner` in `advisor_training.learners`; rows, the trees, intervals, the
manifest and the predictor go by these.

A file of trees has nothing but nodes, ten bytes each: those of all trees level by level, the roots
first. The children of the first node that branches stand behind all roots, the left one before the
right one, those of the next one behind these, and so on. So no file can name a node that is not
there:

    np.fromfile("speed.trees", [("feature", "<i2"), ("number", "<f8")])
"""

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import ADVISED_JOBS, Split
from advisor.core.records import DOUBTFUL, grouped
from advisor.core.telemetry import NEAR_LIMIT, OVER_LIMIT
from advisor.errors import InputError, ModelError
from advisor.predict.predictions import (
    ExpectedPair,
    PairQuery,
    Predictions,
    possible_speeds,
    solo_of,
)
from advisor.predict.profiles import (
    COLUMNS,
    NEEDED,
    Float32s,
    Floats,
    JobKind,
    Profile,
    Side,
    beside,
    feature_names_of,
    filled,
    kind_of,
    make_profiles,
    matrix,
    of_job,
    of_pair,
    physical_power_w,
    power_features,
    power_limit_w,
    side,
    speed_features,
)
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_models.registry import (
    LIMITED,
    REPLACE,
    RETRAIN,
    SPLIT,
    UNCAPPED,
    HeadFacts,
    Manifest,
    TrainedHead,
    bounds_of_stratum,
    figure_word,
    place_of,
    read_artefact,
    trees_file,
    wider,
)

# By name, in the order of the columns; each shape (n,).
_Features: TypeAlias = dict[str, Floats]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Head(HeadFacts):
    """A quantity of a pair at splits, learned as the logarithm of its distance to a prior.

    Of a job, the functions get the side of each job first in turn.

    Attributes:
        features_of: What the model sees of the jobs.
        prior_of: The target without learning, shape (n,); the features are given so that nothing is
            worked out twice.
        limit_of: What holds the target back: at 97 % of it the intervals "at the power limit" hold.
            Infinite where it is not known; None: nothing does.
    """

    features_of: Callable[[Sequence[Side]], _Features]
    prior_of: Callable[[Sequence[Side], _Features], Floats]
    limit_of: Callable[[Sequence[Side]], float] | None = None


def inputs_of(head: Head, sides: Sequence[Side]) -> tuple[Float32s, tuple[Floats, ...]]:
    """What a head takes of jobs at n splits: a part for each job, or one of all.

    _Features are all of the first part, then all of the next, shape (parts x n, features); priors
    are of each part, shape (n,).
    """
    views = (
        [(side, *beside(sides, n)) for n, side in enumerate(sides)]
        if head.of == "job"
        else [tuple(sides)]
    )
    features = [head.features_of(view) for view in views]
    priors = [head.prior_of(view, f) for view, f in zip(views, features, strict=True)]
    return np.concatenate([*map(matrix, features)]), tuple(priors)


SPEED = Head(
    name="speed",
    of="job",
    target="relative speed of a job that always has something to do",
    unit="1",
    prior="prior_kept x relative rate alone at the share",
    features_of=lambda sides: speed_features(sides[0], sides[1:]),
    prior_of=lambda sides, features: features["prior_kept"] * sides[0].capacity,
)

POWER = Head(
    name="power",
    of="pair",
    target="power of the GPU",
    unit="W",
    prior="both powers less one active idle power, up to the limit",
    features_of=power_features,
    prior_of=lambda sides, _: physical_power_w(sides),
    limit_of=power_limit_w,
)

MEMORY_POWER = Head(
    name="memory_power",
    of="pair",
    target="power of the memory of the GPU",
    unit="W",
    prior="that of the whole GPU: both powers less one active idle power, up to the limit",
    features_of=power_features,
    prior_of=lambda sides, _: physical_power_w(sides),
)
"""Part of the power; few cards read it, so most models are without it."""

HEADS = (SPEED, POWER)
"""The heads that every model has."""

ALL_HEADS = (*HEADS, MEMORY_POWER)
"""All heads of this version; a model may be without the later ones."""

# A feature is outside what the model has seen when it lies further beyond its range than this part
# of the range.
_OUTSIDE = 0.05

_Factors: TypeAlias = tuple[float, float]


class _ServedHead:
    """One head between the sides of a pair and its values."""

    def __init__(self, head: Head, trained: TrainedHead, manifest: Manifest) -> None:
        self.head, self.trained = head, trained
        self._factors = {
            key: _factors(self.trained, manifest, learned=key[0], whole=key[1])
            for key in {(learned, whole) for learned in (True, False) for whole in (True, False)}
        }

    def values(
        self,
        priors: Sequence[Floats],
        logs: Sequence[float],
        sides: Sequence[Side],
        splits: Sequence[Split],
        *,
        kinds: Sequence[str],
        known: tuple[bool, bool],
    ) -> Floats:
        """What the trees' answers mean: one log for each row of the features.

        For each part, a job or the pair, values, low and high ends; shape (parts, 3, n).

        Args:
            priors: Of each part.
            logs: What the trees say.
            sides: Each job at its shares.
            splits: The same shares.
            kinds: What each job is.
            known: Whether the model has seen the GPU model, and the profiles have every column.
        """
        n, factors = len(splits), self._factors[known]
        limit = self.head.limit_of(sides) if self.head.limit_of else math.inf
        gpu_model = sides[0].profile.gpu_model
        near, most = NEAR_LIMIT * limit, OVER_LIMIT * limit
        values = [
            [
                _around(value, factors(split, part, kinds, gpu_model, value >= near), most)
                for split, log, of_prior in zip(
                    splits, logs[part * n : (part + 1) * n], prior.tolist(), strict=True
                )
                # One by one: where it stands in an array may change the last bit of numpy's exp.
                for value in [math.exp(log) * of_prior]
            ]
            for part, prior in enumerate(priors)
        ]
        return np.moveaxis(np.array(values), -1, 1)

    def outside(self, rows: Float32s) -> list[str]:
        """_Features that lie outside of what was learned from; shape (rows, features)."""
        low, high = np.array(self.trained.ranges).T
        # A feature that was the same in all rows has no width; rounding is no extrapolation.
        reach = _OUTSIDE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
        is_outside = ((rows < low - reach) | (rows > high + reach)).any(axis=0)
        names = zip(self.trained.features, is_outside, strict=True)
        return [name for name, is_outside in names if is_outside]


def _factors(
    trained: TrainedHead, manifest: Manifest, *, learned: bool, whole: bool
) -> Callable[[Split, int, Sequence[str], str, bool], _Factors]:
    """Factors of the intervals, worked out once for each stratum."""
    strata = trained.intervals
    if not learned:
        # Whether another GPU model is at its limit is not known beforehand.
        strata = {n: bounds for n, bounds in strata.items() if place_of(n) != LIMITED}
        strata = wider(strata, manifest.other_gpu.widening[trained.name])
    if not whole and manifest.no_counters is not None:
        strata = wider(strata, manifest.no_counters[trained.name])

    @functools.cache
    def at(name: str, gpu_model: str) -> _Factors:
        return bounds_of_stratum(strata, name, gpu_model).factors

    def of(
        split: Split, part: int, kinds: Sequence[str], gpu_model: str, at_limit: bool
    ) -> _Factors:
        place = UNCAPPED if not split.is_limited else LIMITED if at_limit else SPLIT
        if trained.of == "pair":
            return at(of_pair(kinds, place), gpu_model)
        kind, others = kinds[part], (*kinds[:part], *kinds[part + 1 :])
        return at(of_job(kind, others, split.shares[part], place), "")

    return of


def _around(value: float, factors: _Factors, most: float) -> tuple[float, float, float]:
    return value, value * factors[0], max(value, min(value * factors[1], most))


NODE: Final = np.dtype([("feature", "<i2"), ("number", "<f8")])
"""A row goes left where its feature is at most the number; of a leaf the number is the answer."""

LEAF = -1
"""In place of the feature."""

MOST_LEVELS = 500
"""Of a tree; the bundled ones have 26. More would only be there to take time."""

LARGEST = 50.0
"""Of an answer, which is the logarithm of a ratio."""


_Places: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Trees:
    """The trees of one head, checked.

    Attributes:
        count: How many.
        columns: _Features of a row.
        left: Place of each node's left child; of a leaf its own.
        features: Column that a node looks at.
        thresholds: A row goes right above it; of a leaf infinity, so that a row stays.
        answers: Of leaves.
    """

    count: int
    columns: int
    left: _Places
    features: _Places
    thresholds: Floats
    answers: Floats


def read_trees(name: str, data: bytes, columns: int, retrain: str = RETRAIN) -> _Trees:
    """The trees of a file.

    Args:
        name: Of the head.
        data: The file.
        columns: _Features of a row.
        retrain: What to do where it cannot be used.

    Raises:
        ModelError: the file has no trees for so many columns.
    """
    fault = None if data and len(data) % NODE.itemsize == 0 else "it is cut off"
    nodes = np.frombuffer(b"" if fault else data, NODE)
    if fault := fault or _fault(nodes, columns):
        raise ModelError(f"{trees_file(name)} has no trees", why=fault, fix=retrain)
    inner = nodes["feature"] != LEAF
    count = _roots(inner)
    return _Trees(
        count=count,
        columns=columns,
        left=np.where(inner, count + 2 * (np.cumsum(inner) - 1), np.arange(len(nodes))),
        features=np.where(inner, nodes["feature"], 0).astype(np.intp),
        thresholds=np.where(inner, nodes["number"], np.inf),
        answers=nodes["number"].astype(np.float64),
    )


class Forest:
    """The trees of some heads, whose means are the answers; safe to share between threads.

    They are walked together: for ten splits NumPy's time is that of its calls, not of the nodes.
    """

    def __init__(self, *heads: _Trees) -> None:
        begins = list(itertools.accumulate((len(trees.left) for trees in heads[:-1]), initial=0))
        self._heads = heads
        self._roots = [begin + np.arange(t.count) for begin, t in zip(begins, heads, strict=True)]
        lefts = [begin + trees.left for begin, trees in zip(begins, heads, strict=True)]
        self._left: _Places = np.concatenate(lefts)
        self._features: _Places = np.concatenate([trees.features for trees in heads])
        self._thresholds: Floats = np.concatenate([trees.thresholds for trees in heads])
        self._answers: Floats = np.concatenate([trees.answers for trees in heads])
        # The same numbers of splits are asked for again and again.
        self._starts = functools.lru_cache(maxsize=4)(self._at_the_roots)

    def __call__(self, *inputs: Float32s) -> list[list[float]]:
        """For each head the mean over its trees for each row.

        Args:
            inputs: For each head its rows, shape (n, columns).
        """
        counts = tuple(map(len, inputs))
        values = np.concatenate([rows.ravel() for rows in inputs], dtype=np.float64)
        answers = self._walk(values, *self._starts(counts))
        ends = np.cumsum([n * trees.count for n, trees in zip(counts, self._heads, strict=True)])
        return [
            of_head.reshape(-1, trees.count).mean(axis=1).tolist()
            for of_head, trees in zip(np.split(answers, ends[:-1]), self._heads, strict=True)
        ]

    def _at_the_roots(self, counts: Sequence[int]) -> tuple[_Places, _Places]:
        """Of each row and each root: the node, and where the row's values begin."""
        heads = zip(counts, self._heads, strict=True)
        begins = itertools.accumulate((n * trees.columns for n, trees in heads), initial=0)
        starts = [
            begin + np.repeat(np.arange(count) * trees.columns, trees.count)
            for begin, count, trees in zip(begins, counts, self._heads, strict=False)
        ]
        return np.concatenate([*map(np.tile, self._roots, counts)]), np.concatenate(starts)

    def _walk(self, values: Floats, node: _Places, row: _Places) -> Floats:
        """The answer of each tree that begins at a node, for the row that begins at a value."""
        arrived, walking = node.copy(), np.arange(len(node))
        while len(walking):
            # Looking which rows have arrived takes as long as one level.
            for _ in range(6):
                above = values.take(row + self._features.take(node)) > self._thresholds.take(node)
                node = self._left.take(node) + above
            arrived[walking] = node
            (moving,) = np.nonzero(self._left.take(node) != node)
            node, row, walking = node[moving], row[moving], walking[moving]
        return self._answers.take(arrived)


def _fault(nodes: npt.NDArray[np.void], columns: int) -> str | None:
    """What is wrong with nodes; None: nothing."""
    features, numbers = nodes["feature"], nodes["number"]
    inner = features != LEAF
    if features.min() < LEAF or features.max() >= columns:
        return f"its features go from {features.min()} to {features.max()}, and {columns} are known"
    if not np.isfinite(numbers).all():
        return "a number is not finite"
    if not inner.all() and np.abs(numbers[~inner]).max() > LARGEST:
        return f"an answer is beyond {LARGEST:g}, which is the logarithm of no ratio"
    # The levels of trees must end, and end with the last node.
    begin, end = 0, _roots(inner)
    for _ in range(MOST_LEVELS):
        if begin >= end:
            break
        begin, end = end, end + 2 * int(inner[begin:end].sum())
    whole = begin == end == len(inner)
    return None if whole else f"its {len(inner)} nodes are no trees of up to {MOST_LEVELS} levels"


def _roots(inner: npt.NDArray[np.bool_]) -> int:
    """How many trees: every node but the roots is one of two children."""
    return len(inner) - 2 * int(inner.sum())


class ModelPredictor:
    """Predicts with a model that was checked and loaded once; safe to share between threads.

    Swapping the jobs swaps the answer exactly. A column that a profile lacks is taken as it
    usually is (`Manifest.fill`), and the bounds are wider (`Manifest.no_counters`), as they are for
    a GPU model that the model has not seen (`Manifest.other_gpu`).

    Raises:
        ModelError: the folder is not whole, or was made for other heads or features than this
            version's.
    """

    def __init__(self, folder: Path) -> None:
        artefact = read_artefact(folder)
        self.manifest: Manifest = artefact.manifest
        heads = {head.name: head for head in ALL_HEADS}
        names = [head.name for head in self.manifest.heads]
        if unknown := sorted(set(names) - heads.keys()):
            raise ModelError(
                f"the model {self.manifest.version} predicts {', '.join(unknown)}",
                why="this version does not know what that is made from",
                fix=f"install a newer advisor, or {RETRAIN}",
            )
        if missing := sorted({SPEED.name, POWER.name} - set(names)):
            raise ModelError(
                f"the model {self.manifest.version} has no {' and no '.join(missing)}", fix=RETRAIN
            )
        for trained in self.manifest.heads:
            head = heads[trained.name]
            features = feature_names_of(head.features_of)
            changed = sorted({*features} ^ {*trained.features})
            faults = {
                f"they differ in {', '.join(changed) or 'their order'}": (
                    trained.features != features
                ),
                f"its {head.name} is learned over another prior": (
                    (trained.of, trained.unit, trained.prior) != (head.of, head.unit, head.prior)
                ),
            }
            if why := next((fault for fault, is_so in faults.items() if is_so), None):
                raise ModelError(
                    f"the model {self.manifest.version} was trained on other features",
                    why=why,
                    fix=REPLACE,
                )
        if gaps := sorted(set(COLUMNS) - set(NEEDED) - self.manifest.fill.keys()):
            raise ModelError(
                f"the model {self.manifest.version} cannot fill in {', '.join(gaps)}",
                why="a profile may lack them",
                fix=RETRAIN,
            )
        self._heads = {
            h.name: _ServedHead(heads[h.name], h, self.manifest) for h in self.manifest.heads
        }
        self._forest = Forest(
            *(
                read_trees(h.name, artefact.files[trees_file(h.name)], len(h.features))
                for h in self.manifest.heads
            )
        )
        # Placing asks for many pairs of few jobs, at the same splits.
        self._side = functools.lru_cache(maxsize=512)(self._new_side)
        self._kind = functools.lru_cache(maxsize=512)(self._new_kind)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Raises:
            InputError: not two profiles, those of two GPU models, or a share outside of one.
        """
        values, n = self.values(profiles, splits), len(splits)
        (power_w,) = values[POWER.name]
        (memory_power_w,) = values.get(MEMORY_POWER.name, np.full((1, 3, n), np.nan))
        factors = np.full((2, n), np.nan)
        if (efficiency := self._efficiency(profiles)) is not None:
            factors[:, [split.is_limited for split in splits]] = np.array([efficiency]).T
        return Predictions(
            splits=tuple(splits),
            solo=solo_of(profiles),
            speeds=np.stack([*map(possible_speeds, profiles, values[SPEED.name])], axis=1),
            power_w=power_w,
            latencies_p99_ms=np.full((3, len(profiles), n), np.nan),
            memory_power_w=memory_power_w,
            efficiency_factors=factors,
        )

    def values(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> dict[str, Floats]:
        """What each head says of jobs at splits, as `_ServedHead.values` has it.

        Raises:
            InputError: as for `predict`.
        """
        known, sides = self._has_learned(profiles), self._sides(profiles, splits)
        kinds = tuple(map(self._kind, profiles))
        inputs = [inputs_of(head.head, sides) for head in self._heads.values()]
        answers = self._forest(*(features for features, _ in inputs))
        return {
            name: head.values(priors, of_head, sides, splits, kinds=kinds, known=known)
            for (name, head), (_, priors), of_head in zip(
                self._heads.items(), inputs, answers, strict=True
            )
        }

    def expected(self, queries: Sequence[PairQuery]) -> list[ExpectedPair]:
        """What is expected of many pairs, each at its splits: `predict` without intervals.

        Raises:
            InputError: as for `predict`.
        """
        if not queries:
            return []
        for profiles, _ in queries:
            self._has_learned(profiles)
        sides = [self._sides(*of_pair) for of_pair in queries]
        inputs = [
            [inputs_of(head.head, of_pair) for of_pair in sides] for head in self._heads.values()
        ]
        rows = [np.concatenate([features for features, _ in of_head]) for of_head in inputs]
        logs = dict(zip(self._heads, self._forest(*rows), strict=True))
        priors = {
            name: np.concatenate([prior for _, of_parts in of_head for prior in of_parts])
            for name, of_head in zip(self._heads, inputs, strict=True)
        }
        speeds, powers_w = (np.exp(logs[name]) * priors[name] for name in (SPEED.name, POWER.name))
        ends = np.cumsum([len(splits) for _, splits in queries])[:-1]
        return [
            (of_jobs.reshape(ADVISED_JOBS, -1), power_w)
            for of_jobs, power_w in zip(
                np.split(speeds, ADVISED_JOBS * ends), np.split(powers_w, ends), strict=True
            )
        ]

    def bundled_figures(self) -> dict[str, float]:
        """Errors and coverage on bundled windows of two jobs with limits, named as manifests do.

        Of GPU models that it says it has seen; empty where none of them is bundled.
        """
        windows = [
            point
            for point in bundled_pair_points()
            if point.gpu_model in self.manifest.gpu_models
            and point.mode == "mps"
            and DOUBTFUL.isdisjoint(point.flags)
        ]
        profiles = make_profiles(bundled_solo_points()) if windows else {}
        misses = defaultdict[str, list[tuple[float, bool]]](list)
        for (jobs, gpu_model), points in grouped(windows, lambda p: (p.jobs, p.gpu_model)).items():
            pair = [profiles[job, gpu_model] for job in jobs if (job, gpu_model) in profiles]
            if len(pair) < ADVISED_JOBS:
                continue
            least = [profile.shares[0] for profile in pair]
            usable = [p for p in points if np.all(np.greater_equal(p.shares_percent, least))]
            predictions = self.predict(pair, [Split(point.shares_percent) for point in usable])
            for n, point in enumerate(usable):
                rows = [
                    (
                        figure_word(SPEED.name),
                        predictions.speeds[:, k, n],
                        part.rate / pair[k].whole_gpu_rate,
                    )
                    for k, part in enumerate(point.parts)
                    if part.rate
                ]
                if point.power_w:
                    rows.append((figure_word(POWER.name), predictions.power_w[:, n], point.power_w))
                for name, (value, low, high), true in rows:
                    misses[name].append((abs(value / true - 1), low <= true <= high))
        return {
            f"{name}_{figure}_percent": round(100 * float(np.mean(values)), 3)
            for name, of in misses.items()
            for figure, values in zip(
                ("mean_error", "coverage"), zip(*of, strict=True), strict=True
            )
        }

    def extrapolation(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[str]:
        """Names of the features of the jobs that lie outside of what the model has seen.

        Raises:
            InputError: as for `predict`.
        """
        sides = self._sides(profiles, splits)
        outside = (head.outside(inputs_of(head.head, sides)[0]) for head in self._heads.values())
        # Some features are of several heads.
        return list(dict.fromkeys(name for names in outside for name in names))

    def missing_columns(self, profiles: Sequence[Profile]) -> list[str]:
        """Columns that one of the profiles lacks, which are taken as they usually are."""
        return sorted({name for profile in profiles for name in profile.missing})

    def _has_learned(self, profiles: Sequence[Profile]) -> tuple[bool, bool]:
        """Whether the jobs' GPU model was seen, and whether the profiles have every column."""
        if (jobs := len(profiles)) != ADVISED_JOBS:
            raise InputError(
                f"there is no advice for {jobs} job{'s' if jobs != 1 else ''} on one GPU",
                why=f"models have learned from {ADVISED_JOBS} jobs side by side",
                fix=f"name {ADVISED_JOBS} jobs; for a queue of jobs ask for a plan: advisor place",
            )
        if len(dict.fromkeys(profile.gpu_model for profile in profiles)) > 1:
            raise InputError(
                " and ".join(f"{p.job} was profiled on {p.gpu_model}" for p in profiles),
                why="jobs share one GPU",
                fix="give profiles of one GPU model",
            )
        return profiles[0].gpu_model in self.manifest.gpu_models, not self.missing_columns(profiles)

    def _efficiency(self, profiles: Sequence[Profile]) -> _Factors | None:
        """Factors of `energy-efficiency` at splits; speeds and power are both in it."""
        manifest, both = self.manifest, (SPEED.name, POWER.name)
        if not manifest.efficiency:
            return None
        learned, whole = self._has_learned(profiles)
        bounds = bounds_of_stratum(
            manifest.efficiency, of_pair([*map(self._kind, profiles)], SPLIT)
        )
        if not learned:
            bounds = bounds.wider(max(manifest.other_gpu.widening[name] for name in both))
        if not whole and manifest.no_counters is not None:
            bounds = bounds.wider(max(manifest.no_counters[name] for name in both))
        return bounds.factors

    def _new_side(self, profile: Profile, shares: tuple[float, ...]) -> Side:
        return side(filled(profile, self.manifest.fill), shares)

    def _new_kind(self, profile: Profile) -> JobKind:
        return kind_of(filled(profile, self.manifest.fill))

    def _sides(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> tuple[Side, ...]:
        return tuple(
            self._side(profile, tuple(split.shares[k] for split in splits))
            for k, profile in enumerate(profiles)
        )
