"""The predictor that is served: a model's trees between the features and the predictions.

A file of trees has nothing but nodes, ten bytes each: those of all trees level by level, the roots
first. The children of the first node that branches stand behind all roots, the left one before the
right one, those of the next one behind these, and so on. So no file can name a node that is not
there:

    np.fromfile("speed.trees", [("feature", "<i2"), ("number", "<f8")])
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import ADVISED_JOBS, Split, check_advised
from advisor.errors import InputError, ModelError
from advisor.predict.features import Float32s, Side, feature_names_of, side
from advisor.predict.predictions import (
    AskedPair,
    ExpectedPair,
    Predictions,
    possible_speeds,
    solo_of,
)
from advisor.predict.profiles import (
    COLUMNS,
    NEEDED,
    Floats,
    JobKind,
    Profile,
    filled,
    kind_of,
    of_pair,
)
from advisor_models.heads import (
    KNOWN_HEADS,
    MEMORY_POWER,
    POWER,
    SPEED,
    Head,
    PredictionRequest,
    ServedHead,
    inputs_of,
)
from advisor_models.registry import (
    REPLACE,
    RETRAIN,
    SPLIT,
    Manifest,
    bounds_of_stratum,
    read_artefact,
    trees_file,
)

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
class Trees:
    """The trees of one head, checked.

    Attributes:
        count: How many.
        columns: Features of a row.
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


def read_trees(name: str, data: bytes, columns: int, retrain: str = RETRAIN) -> Trees:
    """The trees of a file.

    Args:
        name: Of the head.
        data: The file.
        columns: Features of a row.
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
    return Trees(
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

    def __init__(self, *heads: Trees) -> None:
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
        means: list[list[float]] = []
        end = 0
        for count, trees in zip(counts, self._heads, strict=True):
            begin, end = end, end + count * trees.count
            means.append(answers[begin:end].reshape(count, trees.count).mean(axis=1).tolist())
        return means

    def _at_the_roots(self, counts: Sequence[int]) -> tuple[_Places, _Places]:
        """Of each row and each root: the node, and where the row's values begin."""
        nodes: list[_Places] = []
        starts: list[_Places] = []
        begin = 0
        for count, trees, roots in zip(counts, self._heads, self._roots, strict=True):
            nodes.append(np.tile(roots, count))
            starts.append(begin + np.repeat(np.arange(count) * trees.columns, trees.count))
            begin += count * trees.columns
        return np.concatenate(nodes), np.concatenate(starts)

    def _walk(self, values: Floats, node: _Places, row: _Places) -> Floats:
        """The answer of each tree that begins at a node, for the row that begins at a value."""
        arrived, on_the_way = node.copy(), np.arange(len(node))
        while len(on_the_way):
            # Looking which rows have arrived takes as long as one level.
            for _ in range(6):
                above = values.take(row + self._features.take(node)) > self._thresholds.take(node)
                node = self._left.take(node) + above
            arrived[on_the_way] = node
            (moving,) = np.nonzero(self._left.take(node) != node)
            node, row, on_the_way = node[moving], row[moving], on_the_way[moving]
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
    return _broken(inner)


def _broken(inner: npt.NDArray[np.bool_]) -> str | None:
    """Why nodes make no trees: the levels must end, and end with the last node."""
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


_Factors: TypeAlias = tuple[float, float]


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
        known = {head.name: head for head in KNOWN_HEADS}
        _check_heads(self.manifest, known)
        if gaps := sorted(set(COLUMNS) - set(NEEDED) - self.manifest.fill.keys()):
            raise ModelError(
                f"the model {self.manifest.version} cannot fill in {', '.join(gaps)}",
                why="a profile may lack them",
                fix=RETRAIN,
            )
        self._heads = {
            h.name: ServedHead(known[h.name], h, self.manifest) for h in self.manifest.heads
        }
        self._forest = Forest(
            *(
                read_trees(h.name, artefact.files[trees_file(h.name)], len(h.features))
                for h in self.manifest.heads
            )
        )
        # Anyone who places jobs asks for many pairs of few jobs, at the same splits.
        self._side = functools.lru_cache(maxsize=512)(self._new_side)
        self._kind = functools.lru_cache(maxsize=512)(self._new_kind)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Raises:
            InputError: not two profiles, those of two GPU models, or a share outside of one.
        """
        values, n = self.values(profiles, splits), len(splits)
        (power_w,) = values[POWER.name]
        unknown = np.full((1, 3, n), np.nan)
        (memory_power_w,) = values.get(MEMORY_POWER.name, unknown)
        speeds = map(possible_speeds, profiles, values[SPEED.name])
        factors = np.full((2, n), np.nan)
        if (efficiency := self._efficiency(profiles)) is not None:
            factors[:, [split.is_limited for split in splits]] = np.array([efficiency]).T
        return Predictions(
            splits=tuple(splits),
            solo=solo_of(profiles),
            speeds=np.stack([*speeds], axis=1),
            power_w=power_w,
            latencies_p99_ms=np.full((3, len(profiles), n), np.nan),
            memory_power_w=memory_power_w,
            efficiency_factors=factors,
        )

    def values(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> dict[str, Floats]:
        """What each head says of jobs at splits, as `ServedHead.values` has it.

        Raises:
            InputError: as for `predict`.
        """
        seen, whole = self._known(profiles)
        sides, gpu_model = self._sides(profiles, splits), profiles[0].gpu_model
        kinds = tuple(map(self._kind, profiles))
        asked = PredictionRequest(sides, kinds, splits, gpu_model, seen, whole)
        inputs = [inputs_of(head.head, sides) for head in self._heads.values()]
        answers = self._forest(*(features for features, _ in inputs))
        return {
            name: head.values(priors, found, asked)
            for (name, head), (_, priors), found in zip(
                self._heads.items(), inputs, answers, strict=True
            )
        }

    def expected(self, asked: Sequence[AskedPair]) -> list[ExpectedPair]:
        """What is expected of many pairs, each at its splits: `predict` without intervals.

        Raises:
            InputError: as for `predict`.
        """
        if not asked:
            return []
        for profiles, _ in asked:
            self._known(profiles)
        sides = [self._sides(*of_pair) for of_pair in asked]
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
        ends = np.cumsum([len(splits) for _, splits in asked])[:-1]
        return [
            ExpectedPair(of_jobs.reshape(ADVISED_JOBS, -1), power_w)
            for of_jobs, power_w in zip(
                np.split(speeds, ADVISED_JOBS * ends), np.split(powers_w, ends), strict=True
            )
        ]

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

    def _known(self, profiles: Sequence[Profile]) -> tuple[bool, bool]:
        """Whether the jobs' GPU model was seen, and whether the profiles have every column."""
        check_advised(len(profiles))
        models = dict.fromkeys(profile.gpu_model for profile in profiles)
        if len(models) > 1:
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
        seen, whole = self._known(profiles)
        situation = of_pair([*map(self._kind, profiles)], SPLIT)
        bounds = bounds_of_stratum(manifest.efficiency, situation)
        if not seen:
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


def _check_heads(manifest: Manifest, known: dict[str, Head]) -> None:
    """A model has speed and power, and nothing that this version would feed with something else."""
    names = [head.name for head in manifest.heads]
    if unknown := sorted(set(names) - known.keys()):
        raise ModelError(
            f"the model {manifest.version} predicts {', '.join(unknown)}",
            why="this version does not know what that is made from",
            fix=f"install a newer advisor, or {RETRAIN}",
        )
    if missing := sorted({SPEED.name, POWER.name} - set(names)):
        raise ModelError(
            f"the model {manifest.version} has no {' and no '.join(missing)}", fix=RETRAIN
        )
    for trained in manifest.heads:
        head = known[trained.name]
        features = feature_names_of(head.features_of)
        if trained.features != features:
            changed = {*features} ^ {*trained.features}
            raise _other(manifest, f"they differ in {', '.join(sorted(changed)) or 'their order'}")
        if (trained.of, trained.unit, trained.prior) != (head.of, head.unit, head.prior):
            raise _other(manifest, f"its {head.name} is learned over another prior")


def _other(manifest: Manifest, why: str) -> ModelError:
    return ModelError(
        f"the model {manifest.version} was trained on other features", why=why, fix=REPLACE
    )
