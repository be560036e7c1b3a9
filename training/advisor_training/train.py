"""Measured points to a model: rows, the fit, its intervals, what is known of it, and its files.

How far the model carries to a GPU model that it has not learned from is measured, too. A GPU model
is left out of training, with all its pairs, and so is the tested job, on every GPU model: what is
the question is that of a new job on a new GPU. Intervals are those of the other GPU
models, made without the one left out.

From jobs that were measured at several shares, all but the whole GPU hidden, it is learned how jobs
do on parts of a GPU from one window on the whole of it. Differences to
`advisor_models.single_window.prior_kept` are learned, not their logarithms: at small shares of
small jobs these are large, and matter little.
"""

import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from advisor.core.gpu import WHOLE
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, PER_WATT_OBJECTIVE, POLICY
from advisor.core.records import PairPoint, Point, SoloPoint
from advisor.core.wording import listed
from advisor.errors import InputError, ModelError, StoreError
from advisor.formats.rows import to_row
from advisor.formats.wire import read, to_plain
from advisor.predict.profiles import (
    COLUMNS,
    IDLE,
    Float32s,
    Floats,
    Profile,
    feature_names_of,
    filled,
    kind_of,
)
from advisor_models.model_predictor import ALL_HEADS, LEAF, NODE, Forest, read_trees
from advisor_models.registry import (
    LIMITED,
    MOST_PAIRS,
    SCHEMA,
    SPLIT,
    Artefact,
    DatasetFacts,
    Manifest,
    OtherGpu,
    Strata,
    TrainedHead,
    figure_word,
    hashes,
    named,
    place_of,
    trees_file,
    write_parsed,
)
from advisor_models.single_window import (
    COUNTERS,
    ERRORS,
    ESTIMATED_SHARES,
    HEADS,
    SM,
    LeftOutJob,
    SingleWindowHead,
    SingleWindowManifest,
    SoloWindow,
    WindowEstimate,
    as_float32,
    counter_features,
    prior_kept,
    share_features,
    window_of,
)
from advisor_training.learners import (
    BY_WORKLOAD,
    HEAD_LEARNERS,
    LEAST_IN_LEAF,
    OPTIONAL_LEARNERS,
    PART_OF_FEATURES,
    SEED,
    SPEED_LEARNER,
    TREES,
    Draw,
    HeadLearner,
    HeldOut,
    Learner,
    OnFold,
    Regressors,
    extra_trees,
    family_of,
    fit,
    joined,
    learned_from,
    learners_for,
    leave_job_out,
    leave_out,
    predicted,
)
from advisor_training.rows import (
    LeftOut,
    Mask,
    Names,
    Numbers,
    Rows,
    flat,
    make_data,
    make_rows,
    read_measured,
)
from advisor_training.scoring import (
    COVERAGE,
    Calibrated,
    Residuals,
    bounds_of,
    calibrate,
    fractions,
    head_errors,
    held,
    left_out,
    residuals_of,
    strictest,
    widening,
    without_counters,
)

if TYPE_CHECKING:
    import pandas as pd


# Pairs of the new GPU model that are learned from next to the others.
_ADDED = (0, 2, 5, 10, MOST_PAIRS)

DRAWS = 5
"""How often each number of pairs is drawn."""


def gpu_models(rows: Rows) -> list[str]:
    """GPU models that can be left out; none where there is one only."""
    return [n for n in np.unique(rows.gpu_model).tolist() if _is_enough(rows, rows.gpu_model == n)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Carried:
    """Predictions of a GPU model that was left out.

    Attributes:
        held_out: Predictions of its rows, each row tested once for each of its jobs.
        bounds: By head, from the other GPU models.
        learned_pairs: Pairs of the other GPU models.
    """

    held_out: HeldOut
    bounds: Mapping[str, Strata]
    learned_pairs: int
    learners: Sequence[HeadLearner]


def carry_over(
    rows: Rows,
    mask: Mask,
    name: str,
    learner: Learner,
    progress: OnFold | None = None,
    learners: Sequence[HeadLearner] = HEAD_LEARNERS,
) -> _Carried:
    """Leave the rows of a mask out, such as all of one GPU model, and each job as well.

    It takes a fit for each job of the other rows, and one more where the rows left out have jobs of
    their own; `progress` hears of each.

    Raises:
        InputError: nothing is left to learn from.
    """
    if not _is_enough(rows, mask):
        raise InputError(
            f"{name} cannot be left out",
            why=f"it has {mask.sum()} of {len(rows)} rows, and each job of the others is left out "
            "as well, which must leave some",
            fix="measure more pairs: advisor colocate",
        )
    jobs = rows.take(~mask).jobs
    learned_jobs = sorted(set(rows.take(mask).jobs) - set(jobs))
    held_out = leave_out(
        rows,
        learner,
        [Draw(job, ~mask & ~rows.of(job), rows.of(job)) for job in jobs],
        lambda _, done, total: progress(name, done, total) if progress else None,
    )
    if learned_jobs:
        fitted = learner(rows.take(~mask))
        held_out = joined(
            [held_out, *[predicted(fitted, rows, mask & rows.of(job), job) for job in learned_jobs]]
        )
    is_tested = mask[held_out.row]
    kept = held_out.take(~is_tested)
    return _Carried(
        held_out=held_out.take(is_tested),
        bounds={x.head.name: _without_limit(residuals_of(rows, kept, x)) for x in learners},
        learned_pairs=len(np.unique(rows.pair[~mask])),
        learners=learners,
    )


def add_pairs(
    rows: Rows, mask: Mask, learner: Learner, progress: OnFold | None = None
) -> Iterator[tuple[int, list[HeldOut]]]:
    """Learn from the other GPU models and from ever more pairs of the one that a mask has.

    Each draw puts the pairs into an order; the first ones are learned from and all others tested,
    so a larger number has the pairs of every smaller one. Numbers that leave nothing to test are
    left out.

    Yields:
        The number of pairs, and predictions of the others by draw.
    """
    pairs = np.unique(rows.pair[mask])
    random = np.random.default_rng(SEED)
    orders = [random.permutation(pairs) for _ in range(DRAWS)]
    for count in (n for n in _ADDED if n < len(pairs)):
        folds: list[HeldOut] = []
        for number, order in enumerate(orders[:1] if count == 0 else orders, 1):
            tested = mask & ~np.isin(rows.pair, order[:count])
            folds.append(predicted(learner(rows.take(~tested)), rows, tested, f"draw {number}"))
            if progress:
                progress(f"{count} pairs", number, DRAWS)
        yield count, folds


def fits(rows: Rows) -> int:
    """How many fits it takes to leave each GPU model out, and to add pairs of it."""
    masks = [rows.gpu_model == name for name in gpu_models(rows)]
    pairs = [len(np.unique(rows.pair[mask])) for mask in masks]
    return sum(
        len(rows.take(~mask).jobs) + 1 + DRAWS * sum(0 < added < n for added in _ADDED)
        for mask, n in zip(masks, pairs, strict=True)
    )


def mean_held(carried: _Carried, rows: Rows, draws: Sequence[HeldOut]) -> dict[str, float]:
    """By head, the part within the intervals of the other GPU models, the mean over draws."""
    of_draws = [_residuals(carried, rows, held_out) for held_out in draws]
    return {
        name: float(np.mean([held(of_draw[name], bounds) for of_draw in of_draws]))
        for name, bounds in carried.bounds.items()
    }


def widenings(carried: _Carried, rows: Rows) -> dict[str, float]:
    """By head, how much wider the intervals must be to hold what they promise."""
    return {
        name: widening(residuals, carried.bounds[name])
        for name, residuals in _residuals(carried, rows, carried.held_out).items()
    }


def learn_other_gpu(
    rows: Rows,
    learner: Learner,
    progress: OnFold | None = None,
    learners: Sequence[HeadLearner] = HEAD_LEARNERS,
) -> OtherGpu:
    """What the rows tell of GPU models that are not among them.

    Those are left out in turn that have at most half of the pairs: the model learns from more than
    the others, and what learns from little would tell of that, not of another GPU.
    """
    names = [
        name
        for name in gpu_models(rows)
        if len(np.unique(rows.pair[rows.gpu_model == name])) <= len(np.unique(rows.pair)) / 2
    ]
    assumed = {x.head.name: x.single_gpu_widening for x in learners}
    if not names:
        return OtherGpu(assumed, (), MOST_PAIRS)
    # A head that not every row tells may be known of one GPU model only.
    every = [x for x in learners if x.is_measured(rows).all()]
    carried_models = [
        carry_over(rows, rows.gpu_model == n, n, learner, progress, every) for n in names
    ]
    wider = [widenings(carried, rows) for carried in carried_models]
    # The smallest numbers of pairs with which the intervals hold what they promise.
    par = [
        next(
            (
                count
                for count, draws in add_pairs(rows, rows.gpu_model == name, learner, progress)
                if min(mean_held(carried, rows, draws).values()) >= COVERAGE
            ),
            None,
        )
        for name, carried in zip(names, carried_models, strict=True)
    ]
    return OtherGpu(
        widening=assumed
        | {x.head.name: round(max(w[x.head.name] for w in wider), 3) for x in every},
        left_out=tuple(names),
        pairs_to_par=None if None in par else max(n for n in par if n is not None),
    )


def _residuals(carried: _Carried, rows: Rows, held_out: HeldOut) -> dict[str, Residuals]:
    """By head; all splits alike, since whether another GPU model is at its limit is not known."""
    residuals = {x.head.name: residuals_of(rows, held_out, x) for x in carried.learners}
    return {
        name: replace(each, stratum=np.char.replace(each.stratum, LIMITED, SPLIT), gpu_model=None)
        for name, each in residuals.items()
    }


def _without_limit(residuals: Residuals) -> Strata:
    """Of all GPU models together: another one is like none of them more than like the others."""
    bounds = bounds_of(replace(residuals, gpu_model=None))
    # Those at the limit first: where both are known, the one below it stands.
    names = sorted(bounds, key=lambda name: place_of(name) != LIMITED)
    return {name.replace(LIMITED, SPLIT, 1): bounds[name] for name in names}


def _is_enough(rows: Rows, mask: Mask) -> bool:
    """Whether the rows of a mask can be left out, and each job of the rest after that."""
    rest = rows.take(~mask)
    return bool(mask.any() and len(rest) and all((~rest.of(job)).any() for job in rest.jobs))


LIBRARIES = ("numpy", "scikit-learn")
"""What the trees hang on."""

# Between the logarithms of the file and of scikit-learn, which adds up in another order.
_LARGEST_DIFFERENCE = 1e-12


def trees_files(fitted: Mapping[str, Any], inputs: Mapping[str, Float32s]) -> dict[str, bytes]:
    """The trees of all heads by name of their file, which say on rows what scikit-learn says.

    `fitted` are the estimators of the heads.

    Raises:
        ModelError: it does not, by more than `_LARGEST_DIFFERENCE`.
    """
    regressors = {name: estimator.regressor_ for name, estimator in fitted.items()}
    forests = {name: forest_bytes(regressor) for name, regressor in regressors.items()}
    for name, data in forests.items():
        (by_file,) = Forest(read_trees(name, data, inputs[name].shape[1]))(inputs[name])
        largest = float(np.abs(by_file - regressors[name].predict(inputs[name])).max())
        if largest > _LARGEST_DIFFERENCE:
            raise ModelError(
                f"{trees_file(name)} differs from scikit-learn by {largest:.2g}",
                why=f"up to {_LARGEST_DIFFERENCE:g} of a logarithm is rounding",
                fix="report this, with the version of scikit-learn",
            )
    return {trees_file(name): data for name, data in forests.items()}


def forest_bytes(regressor: Any) -> bytes:
    """The trees of a regressor, as `advisor_models.model_predictor` has them."""
    trees = [tree.tree_ for tree in regressor.estimators_]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    left, right = (
        np.concatenate(
            [getattr(tree, side) + root for tree, root in zip(trees, roots, strict=True)]
        )
        for side in ("children_left", "children_right")
    )
    leaf = np.concatenate([tree.children_left for tree in trees]) < 0
    nodes = np.empty(len(leaf), NODE)
    nodes["feature"] = np.where(leaf, LEAF, np.concatenate([tree.feature for tree in trees]))
    answers = np.concatenate([tree.value[:, 0, 0] for tree in trees])
    nodes["number"] = np.where(leaf, answers, np.concatenate([tree.threshold for tree in trees]))
    levels = [roots]
    while len(inner := levels[-1][~leaf[levels[-1]]]):
        levels.append(np.column_stack([left[inner], right[inner]]).ravel())
    return nodes[np.concatenate(levels)].tobytes()


def write_into(folder: Path, write: Callable[[Path], object] = lambda _: None) -> None:
    """Make a folder and write into it; without `write`, before minutes of work, make it only.

    Raises:
        StoreError: it cannot be made or written to.
    """
    with StoreError.instead_of(
        OSError, f"nothing can be written to {folder}", fix="give another folder with --out"
    ):
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)


SCORED = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, "raw-throughput-per-watt")

# Without one of two jobs, nothing is left but the other one next to itself.
_LEAST_JOBS = 3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainingSet:
    """What a model is made from.

    Attributes:
        blind: The same rows as they are for profiles without counters.
        fill: Value of each profile column, and of the idle power, for profiles that lack it: the
            median over the training profiles at 100 %, 0 where none has it. And how far active
            idle power is above idle power.
        newest: When the last of the points was measured, ISO 8601, UTC.
    """

    rows: Rows
    blind: Rows
    fill: dict[str, float]
    facts: DatasetFacts
    newest: str
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trained:
    """A model, and how good it is for jobs that it has not seen.

    Attributes:
        held_out: Predictions for each job by a learner that never saw it.
        figures: As the manifest has them.
        fit_s: Time to fit it to all rows.
        total_s: Time with leaving out one job after the other, to know the errors.
    """

    learners: tuple[HeadLearner, ...]
    regressors: Regressors
    held_out: HeldOut
    calibrated: Calibrated
    other_gpu: OtherGpu
    figures: dict[str, float]
    fit_s: float
    total_s: float


def make_training_set(
    points: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint] = (),
    left_out: Sequence[LeftOut] = (),
) -> TrainingSet:
    """Rows of points, in whatever order they come; arguments as of `make_data`.

    Raises:
        InputError: no measured pair has profiles of both its jobs, or no profile has the idle
            power.
    """
    data = make_data(points, profiled, references, left_out)
    used = {(job, m.gpu_model) for m in data.measurements for job in m.jobs}
    of_jobs = [data.profiles[key] for key in sorted(used)]
    columns = {name: np.array([p.values[name][-1] for p in of_jobs]) for name in COLUMNS}
    columns[IDLE] = np.array([p.idle_power_w for p in of_jobs])
    present = {name: values[~np.isnan(values)] for name, values in columns.items()}
    if not len(present[IDLE]):
        raise InputError(
            "no profile of the pairs' jobs has the power of the idle GPU",
            why="the power of a pair is predicted from it",
            fix="profile one of them on a GPU that nothing else uses: advisor profile JOB",
        )
    fill = {name: float(np.median(v)) if len(v) else 0.0 for name, v in present.items()}
    fill |= {name: round(w, 3) for name, w in data.active_idle_fill.items()}
    profiles = {key: filled(data.profiles[key], fill) for key in used}
    every = [*points, *profiled, *references]
    rows = make_rows(data.measurements, profiles, ALL_HEADS)
    blind = {key: filled(without_counters(data.profiles[key]), fill) for key in used}
    return TrainingSet(
        rows=rows,
        blind=make_rows(data.measurements, blind, ALL_HEADS),
        fill=fill,
        facts=DatasetFacts(
            sha256=dataset_sha256(every),
            pair_points=sum(m.points for m in data.measurements),
            pairs=len({m.pair for m in data.measurements}),
            jobs=tuple(rows.jobs),
            cards=len({m.gpu_uuid for m in data.measurements}),
        ),
        newest=max(point.started_at for point in every),
        left_out=data.left_out,
    )


def fit_model(
    rows: Rows,
    progress: OnFold | None = None,
    blind: Rows | None = None,
    learners: Sequence[HeadLearner] | None = None,
) -> Trained:
    """Fit the model, and know its errors; the same rows give the same trees.

    `blind` are the same rows for profiles without counters; None: what these cost is not known.
    Heads are learned by `learners`; None: all that can be learned from the rows.

    Raises:
        InputError: too few jobs, or no pair at enough of the nine splits.
    """
    if len(rows.jobs) < _LEAST_JOBS:
        raise InputError(
            f"a model cannot be learned from pairs of {listed(rows.jobs)} alone",
            why=f"how wrong it is shows when each job is left out, which takes {_LEAST_JOBS} jobs",
            fix="measure pairs with another job, or add the bundled points: --with-bundled",
        )
    if "nine" not in rows.kind:
        raise InputError(
            "no pair was measured at enough of the nine splits to tell how good a choice is",
            why="50/50 and most of the others of one run are needed",
            fix="measure them: advisor colocate --pairs A+B; or learn with --with-bundled",
        )
    learners = learners_for(rows) if learners is None else tuple(learners)
    started = time.perf_counter()

    def learner(some: Rows) -> Regressors:
        return fit(extra_trees, some, learners)

    held_out = leave_job_out(rows, learner, progress=progress)
    strict = left_out(rows, learner) if strictest(rows) != BY_WORKLOAD else held_out
    blind_held_out = leave_job_out(rows, learner, wanted=blind) if blind is not None else None
    calibrated = calibrate(rows, strict, blind_held_out, learners)
    other_gpu = learn_other_gpu(rows, learner, progress, learners)
    fitting = time.perf_counter()
    regressors = learner(rows)
    done = time.perf_counter()
    return Trained(
        learners=learners,
        regressors=regressors,
        held_out=held_out,
        calibrated=calibrated,
        other_gpu=other_gpu,
        figures=_figures(rows, held_out, calibrated, learners),
        fit_s=done - fitting,
        total_s=done - started,
    )


def dataset_sha256(points: Iterable[Point]) -> str:
    """A hash of points that does not depend on their order."""
    # Empty columns do not count: points stay the same where a column is added.
    lines = sorted(
        json.dumps(
            {name: value for name, value in row.items() if value is not None}, sort_keys=True
        )
        for row in map(to_row, points)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _figures(
    rows: Rows, held_out: HeldOut, calibrated: Calibrated, learners: Sequence[HeadLearner]
) -> dict[str, float]:
    """For jobs that were left out, at the nine splits where nothing else is said."""
    figures: dict[str, float] = {}
    for name in SCORED:
        scores = fractions(rows, held_out, OBJECTIVES[name], POLICY.tie)
        word = f"oracle_{name.replace('-', '_')}"
        figures |= {
            word: float(scores.mean()),
            f"{word}_p10": float(np.quantile(scores, 0.1)),
            f"{word}_worst": float(scores.min()),
        }
    for kind, where in (("nine", ""), ("uncapped", "uncapped_")):
        for learner in learners:
            figures[f"{where}{figure_word(learner.head.name)}_mean_error"] = float(
                head_errors(rows, held_out, learner, kind).mean()
            )
    figures["rate_median_error"] = float(np.median(head_errors(rows, held_out, SPEED_LEARNER)))
    held = {f"{figure_word(n)}_coverage": part.overall for n, part in calibrated.held.items()}
    return {f"{name}_percent": round(100 * v, 3) for name, v in (figures | held).items()}


def make_artefact(
    made_from: TrainingSet,
    trained: Trained,
    created_at: datetime,
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> Artefact:
    """A model as files, with `more` that belong to it, under the name that is its own.

    It was created at a moment in UTC.

    Raises:
        ModelError: its trees are not what scikit-learn says.
    """
    rows = made_from.rows
    inputs = {n: flat(values[..., 1:]).astype(np.float32) for n, values in rows.heads.items()}
    manifest = Manifest(
        schema=SCHEMA,
        version="",
        learner="extra-trees",
        created_at=created_at.isoformat(timespec="seconds"),
        gpu_models=tuple(sorted(set(rows.gpu_model.tolist()))),
        fill=made_from.fill,
        coverage=COVERAGE,
        heads=tuple(_trained_head(x, rows, trained.calibrated) for x in trained.learners),
        efficiency=trained.calibrated.efficiency,
        other_gpu=trained.other_gpu,
        no_counters=trained.calibrated.no_counters,
        dataset=made_from.facts,
        figures=trained.figures,
        settings={
            "trees": TREES,
            "least_in_leaf": LEAST_IN_LEAF,
            "part_of_features": PART_OF_FEATURES,
            "seed": SEED,
        },
        libraries={name: importlib.metadata.version(name) for name in LIBRARIES},
        files={},
    )
    return named(manifest, {**trees_files(trained.regressors.by_head, inputs), **more})


def _trained_head(learner: HeadLearner, rows: Rows, calibrated: Calibrated) -> TrainedHead:
    head = learner.head
    inputs = flat(rows.take(learner.is_measured(rows)).heads[head.name][..., 1:])
    return TrainedHead(
        name=head.name,
        of=head.of,
        target=head.target,
        unit=head.unit,
        prior=head.prior,
        features=feature_names_of(head.features_of),
        ranges=tuple(zip(inputs.min(axis=0).tolist(), inputs.max(axis=0).tolist(), strict=True)),
        intervals=calibrated.intervals[head.name],
    )


_LEARNERS = {learner.head.name: learner for learner in (*HEAD_LEARNERS, *OPTIONAL_LEARNERS)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainingData:
    """One head's share of the training rows, as scikit-learn takes it; n rows.

    Attributes:
        X: The column `prior`, then the features by their names.
        y: What was measured, in the unit of the head; shape (n,).
        weight: What each row counts; shape (n,).
        jobs: Of each row, in the order of their names; shape (n, 2).
    """

    X: "pd.DataFrame"
    y: Floats
    weight: Floats
    jobs: Names

    def folds(self) -> Iterator[tuple[Numbers, Numbers]]:
        """For each job the rows without it and those with it: the `cv` of `cross_val_score`."""
        for job in np.unique(self.jobs):
            is_tested = np.any(self.jobs == job, axis=1)
            yield np.flatnonzero(~is_tested), np.flatnonzero(is_tested)


def training_data(
    head: str = "speed",
    *,
    pairs: str | Path | None = None,
    solo: str | Path | None = None,
    with_bundled: bool = False,
) -> TrainingData:
    """What `advisor train` learns of a head, from the bundled points or from files.

    Args:
        head: `speed` of a job, `power` of the GPU, or `memory_power`.
        pairs: A file of pair points; of those not given, the bundled ones.
        solo: A file of solo points; as `pairs`.
        with_bundled: The bundled points as well as the files'.

    Raises:
        InputError: no such head, a file that cannot be read, or nothing to learn from.
    """
    if head not in _LEARNERS:
        raise InputError(f"no head {head}", fix=f"name one of {', '.join(_LEARNERS)}")
    files = [None if file is None else Path(file) for file in (pairs, solo)]
    measured = read_measured(*files, with_bundled=with_bundled)
    rows = make_training_set(measured.pairs, measured.profiled, measured.references).rows
    learner = _LEARNERS[head]
    usable = rows.take(learner.is_measured(rows))
    features, values, weight, row = learned_from(learner, usable)
    return TrainingData(
        X=importlib.import_module("pandas").DataFrame(
            features, columns=["prior", *feature_names_of(learner.head.features_of)]
        ),
        y=values,
        weight=weight,
        jobs=np.column_stack([usable.job_a, usable.job_b])[row],
    )


# A profile has few rows, so leaves are smaller than those of the heads of pairs.
_LEAST_IN_SMALL_LEAF = 3


def learnable(profiles: Iterable[Profile]) -> list[Profile]:
    """Those whose counters are known, so that they say something."""
    return [p for p in profiles if not any(np.isnan(p.values[name][-1]) for name in COUNTERS)]


def fit_single_window(profiles: Sequence[Profile]) -> Mapping[str, bytes]:
    """The trees of each head of `SingleWindowHead`, from profiles that are `learnable`."""
    forests: dict[str, bytes] = {}
    for head in HEADS:
        rows = [_rows_of_window(profile, head) for profile in profiles]
        features, targets = (np.concatenate(of_all) for of_all in zip(*rows, strict=True))
        trees: Any = ExtraTreesRegressor(
            TREES, min_samples_leaf=_LEAST_IN_SMALL_LEAF, random_state=SEED
        )
        forests[head] = forest_bytes(trees.fit(as_float32(features), targets))
    return forests


def _rows_of_window(profile: Profile, head: str) -> tuple[Floats, Floats]:
    """Features and targets: SM activity as a fraction; of others what was kept over the prior."""
    if head == SM:
        return counter_features(window_of(profile)), profile.values[head][-1:] / WHOLE
    features, prior, kept = _kept_at_shares(profile)
    return features, kept[head] - prior


def write_single_window(
    folder: Path, profiles: Sequence[Profile], points: Iterable[SoloPoint]
) -> None:
    """Fit the model to profiles that are `learnable`, made from these points, and write it.

    Raises:
        StoreError: it cannot be written.
    """
    files = {trees_file(name): data for name, data in fit_single_window(profiles).items()}
    errors = {"left_out": [*_left_out_errors(profiles)]}
    files[ERRORS] = json.dumps(to_plain(errors), separators=(",", ":")).encode() + b"\n"
    manifest = SingleWindowManifest(
        profiles=len(profiles),
        dataset_sha256=dataset_sha256(points),
        libraries={name: importlib.metadata.version(name) for name in LIBRARIES},
        files=hashes(files),
    )

    write_into(
        folder,
        lambda to: write_parsed(
            to, files, manifest, lambda _, text: read(SingleWindowManifest, text)
        ),
    )


def families_left_out(
    profiles: Sequence[Profile],
) -> Iterator[tuple[SingleWindowHead, list[Profile]]]:
    """For each family of jobs the model that has seen none of it, and its profiles."""
    for family in dict.fromkeys(family_of(p.job) for p in profiles):
        others = [p for p in profiles if family_of(p.job) != family]
        tested = [p for p in profiles if family_of(p.job) == family]
        yield SingleWindowHead(fit_single_window(others)), tested


def _left_out_errors(profiles: Sequence[Profile]) -> Iterator[LeftOutJob]:
    """Of each by the model that has seen none of its family, with and without counters."""
    for model, tested in families_left_out(profiles):
        for p in tested:
            for missing in ((), COUNTERS):
                window = blind(window_of(p), missing)
                estimate = model.estimate(window)
                yield LeftOutJob(
                    family=family_of(p.job),
                    is_server=kind_of(p) == "server",
                    missing=missing,
                    sm=round(estimate.sm, 4),
                    part_of_power=round(window.part_of_power, 4),
                    errors=tuple(_errors_of_estimate(p, estimate).round(4).tolist()),
                )


def blind(window: SoloWindow, lacking: Sequence[str]) -> SoloWindow:
    """The same without these counters."""
    return replace(window, counters={n: v for n, v in window.counters.items() if n not in lacking})


def _errors_of_estimate(profile: Profile, estimate: WindowEstimate) -> Floats:
    """True less told; where nothing was measured, as at the nearest share that was."""
    window, (_, _, kept) = window_of(profile), _kept_at_shares(profile)
    sm, dram = (window.read(name) / WHOLE for name in COUNTERS)
    shares = profile.shares[:-1]
    of_shares = [
        np.interp(
            ESTIMATED_SHARES, shares, kept[of] - np.interp(shares, ESTIMATED_SHARES, estimated)
        )
        for of, estimated in (("rate", estimate.rate), ("power", estimate.power))
    ]
    return np.concatenate([[sm - estimate.sm, dram - estimate.dram], *of_shares])


def _kept_at_shares(profile: Profile) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Features at each share that was measured, the prior there, and what was kept."""
    window = window_of(profile)
    sm, dram = (window.read(name) / WHOLE for name in COUNTERS)
    shares = profile.shares[:-1].tolist()
    kept = {
        "rate": np.minimum(1.0, profile.values["rate"][:-1] / profile.values["rate"][-1]),
        "power": (profile.values["power_w"][:-1] - profile.idle_power_w)
        / (window.power_w - window.idle_power_w),
    }
    return share_features(window, sm, dram, shares), prior_kept(sm, shares), kept
