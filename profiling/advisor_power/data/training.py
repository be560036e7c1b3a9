"""Measured inputs to a model of power by data: points, learners, their errors, and the model.

Power of a product above idle is its physics (`physics.parts`, weights by non-negative least squares
on relative errors, for each type) times what Extra Trees leave. Errors are those on patterns of
data that took no part in fitting, next to medians and lines through one or two metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.files import PUBLIC_FILE, replace_file
from advisor.predict.features import Float32s
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, InputPoint
from advisor_data.known import input_points_sha256, input_points_text
from advisor_models.intervals import LogBounds
from advisor_models.manifest import LearnerSettings, hashes, version_of
from advisor_power.components import non_negative_least_squares
from advisor_power.data.fill import FILE
from advisor_power.data.fingerprint import features_of
from advisor_power.data.language import Call, Operand, OperandPair
from advisor_power.data.physics import (
    COLUMNS,
    PARTS,
    Known,
    columns,
    feature_matrix,
    held_to,
    known_of,
    parts,
)
from advisor_power.data.predictor import (
    POINTS,
    SCHEMA,
    InputFacts,
    InputManifest,
    TypeModel,
    write_input_manifest,
)
from advisor_power.data.result import InputPower, kept_inputs, with_ratios
from advisor_training.intervals import COVERAGE, Residuals, bounds_of, measured_coverage
from advisor_training.learners import LEAST_IN_LEAF, PART_OF_FEATURES, SEED, TREES, PriorRegressor
from advisor_training.train import LIBRARIES, trees_files, write_model

Points: TypeAlias = Sequence[InputPoint]
FittedPower: TypeAlias = Callable[[Points], Floats]
"""Expected power of points, W; shape (points,). It looks at no measured power."""
PowerLearner: TypeAlias = Callable[[Points], FittedPower]
OnGroup = Callable[[str, int, int], None]
"""Called after each group with its name, how many are done, and of how many."""

_LEAST_POINTS = 8  # of a type: fewer say nothing about its features
_BAD = ("wrong-outputs", "not-settled")  # flags of results whose power is not that of the product


def kept_points(home: Path) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Points of what was measured on this host; and what is not used, by reason."""
    return points_of(kept_inputs(home))


def points_of(results: Iterable[InputPower]) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Results as points, and how many were left out, by reason."""
    found: list[InputPoint] = []
    left_out: Counter[str] = Counter()
    for result in with_ratios(results):
        if why := _fault(result):
            left_out[why] += 1
        else:
            found.append(_point(result))
    return tuple(_with_clocks(found)), dict(left_out)


def pattern_of(pair: OperandPair) -> str:
    """The pattern that operands follow: their words, without numbers.

    All levels of a sweep have one; so have sweeps that differ in numbers alone, such as the mean
    and the spread of normal random numbers.
    """
    a, b = _pattern(pair.a), _pattern(pair.b)
    both = a if a == b else f"a={a}; b={b}"
    return both if pair.aligned else f"{both}; align=false"


def _fault(result: InputPower) -> str | None:
    reasons = {
        f"computed a {result.case.work}, not a product": result.case.work != "product",
        "has no fingerprint": result.fingerprint is None,
        "has no idle power": result.idle_w is None,
        "has no clock": result.sm_clock_mhz is None,
        "does not say on how many SMs": result.conditions.units is None,
        "draws no more than the idle card": result.power_w.value <= (result.idle_w or 0.0),
        **{f"has the flag {flag}": flag in result.flags for flag in _BAD},
    }
    return next((why for why, is_so in reasons.items() if is_so), None)


def _point(result: InputPower) -> InputPoint:
    case, where = result.case, result.conditions
    fingerprint, idle_w, clock_mhz = result.fingerprint, result.idle_w, result.sm_clock_mhz
    # `_fault` has looked at them.
    assert fingerprint is not None
    assert idle_w is not None
    assert clock_mhz is not None
    assert where.units is not None
    ratio = result.reference_ratio
    return InputPoint(
        gpu_model=where.gpu_model,
        gpu_uuid=where.gpu_uuid,
        driver=where.driver,
        torch=where.torch,
        measured_at=result.measured_at,
        dtype=case.dtype,
        shape=case.shape,
        units=where.units,
        expression=case.operands,
        group=pattern_of(case.pair),
        real=FILE in (case.pair.a.source.name, case.pair.b.source.name),
        is_reference=result.is_reference,
        features=features_of(fingerprint),
        power_w=result.power_w.value,
        idle_w=idle_w,
        flop_per_s=result.rate.value * case.launch_work,
        clock_mhz=clock_mhz,
        reference_w=None if ratio is None else result.power_w.value / ratio.value,
        power_limit_w=result.power_limit_w,
        at_limit=result.at_limit,
        throttled=result.throttled,
    )


def _with_clocks(points: Sequence[InputPoint]) -> Iterator[InputPoint]:
    """Points whose clock was held back with the clock that their rate tells.

    A product takes as many cycles at any clock. So others of the same kind, whose clock stood
    still, tell it better than few readings of one that went up and down.
    """

    def kind(p: InputPoint) -> tuple[object, ...]:
        return p.gpu_uuid, p.dtype, p.shape, p.units

    per_cycle: dict[tuple[object, ...], list[float]] = {}
    for p in points:
        if not p.held_back:
            per_cycle.setdefault(kind(p), []).append(p.flop_per_s / p.clock_mhz)
    for p in points:
        known = per_cycle.get(kind(p), ())
        told = bool(known) and p.held_back
        yield replace(p, clock_mhz=p.flop_per_s / median(known)) if told else p


def _pattern(operand: Operand) -> str:
    def words(call: Call) -> str:
        if call.name == FILE:
            return f"{FILE}({call.arguments[0]})"
        chosen: Sequence[str] = [value for value in call.values if isinstance(value, str)]
        return f"{call.name}({','.join(chosen)})" if chosen else call.name

    calls = [operand.source, *(call for call in operand.operations if call.name != "cast")]
    return "|".join(map(words, calls))


@dataclass(frozen=True, slots=True, eq=False)
class InputModel:
    """Weights of `physics.PARTS` by type, and the trees behind them; none: the physics alone."""

    weights: Mapping[str, Floats]
    trees: Mapping[str, Any]

    def __call__(self, points: Points) -> Floats:
        """Expected power, W.

        Raises:
            InputError: a type was not learned.
        """
        if missing := {p.dtype for p in points} - self.weights.keys():
            raise InputError(
                f"no point of {', '.join(sorted(missing))} was learned from",
                fix="measure inputs of that type",
            )
        found = np.array([p.idle_w for p in points])
        for dtype, weights in self.weights.items():
            which = [i for i, p in enumerate(points) if p.dtype == dtype]
            if not which:
                continue
            of, trees = [points[i] for i in which], self.trees.get(dtype)
            expected = parts(of) @ weights
            if trees is not None:
                expected = trees.predict(np.column_stack([expected, columns(of)]))
            found[which] += expected
        return found


def physics(points: Points) -> InputModel:
    """The sum of parts alone, for each type.

    Raises:
        InputError: a type has too few points.
    """
    weights: dict[str, Floats] = {}
    for dtype, of in _by_type(points).items():
        if len(of) < _LEAST_POINTS:
            raise InputError(
                f"{dtype} has {len(of)} points", fix=f"measure {_LEAST_POINTS} or more"
            )
        rows = parts(of) / _above_idle_w(of)[:, None]
        weights[dtype] = non_negative_least_squares(rows, np.ones(len(of)))
    return InputModel(weights, {})


def physics_and_trees(points: Points) -> InputModel:
    """The model."""
    weights = physics(points).weights
    trees = {
        dtype: PriorRegressor(prior_column=0).fit(
            np.column_stack([parts(of) @ weights[dtype], columns(of)]), _above_idle_w(of)
        )
        for dtype, of in _by_type(points).items()
    }
    return InputModel(weights, trees)


def residuals_of(points: Points, expected_w: Floats) -> Residuals:
    """Logarithms of measured over expected power above idle, of points by their groups."""
    idle_w = np.array([p.idle_w for p in points])
    values = np.log(_above_idle_w(points) / np.maximum(expected_w - idle_w, 1e-9))
    names = np.array([p.group for p in points])
    return Residuals(values, names, names, np.array([p.dtype for p in points]))


def _above_idle_w(points: Points) -> Floats:
    return np.array([p.power_w - p.idle_w for p in points])


def _by_type(points: Points) -> dict[str, list[InputPoint]]:
    return {d: [p for p in points if p.dtype == d] for d in sorted({p.dtype for p in points})}


def _linear(metrics: Callable[[InputPoint], Sequence[float]]) -> PowerLearner:
    """Energy above idle of an operation by a line through metrics; the median without any."""

    def energy_line(of: Points) -> Floats:
        energy = _above_idle_w(of) / np.array([p.flop_per_s for p in of])
        table = np.array([[1.0, *metrics(p)] for p in of])
        if table.shape[1] == 1:
            return np.array([np.median(energy)])
        found = np.linalg.lstsq(table / energy[:, None], np.ones(len(of)), rcond=None)[0]
        return np.asarray(found, dtype=np.float64)

    def learn(points: Points) -> FittedPower:
        lines = {dtype: energy_line(of) for dtype, of in _by_type(points).items()}
        return lambda asked: np.array(
            [
                p.idle_w + float(np.array([1.0, *metrics(p)]) @ lines[p.dtype]) * p.flop_per_s
                for p in asked
            ]
        )

    return learn


def _two_metrics(p: InputPoint) -> Sequence[float]:
    """Hamming weight and alignment of bits, each the mean of both operands.

    Gregersen et al., section V, have one alignment, between multiplied elements; here it is that
    between neighbours of an operand.
    """
    return [(p.features[f"a_{n}"] + p.features[f"b_{n}"]) / 2 for n in ("weight", "along")]


METHODS: Mapping[str, PowerLearner] = MappingProxyType(
    {
        "model": physics_and_trees,
        "physics": physics,
        "median": _linear(lambda _: ()),
        "two-metrics": _linear(_two_metrics),
        "zeros": _linear(lambda p: (p.features["zero_products"],)),
    }
)
"""Every learner by name; the first one is the model."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutInputs:
    """Points in the order of their groups, and what was expected of each.

    Attributes:
        as_run_w: At the rate and the clock that were measured.
        power_w: At those that its data let expect, at most the power limit.
        flop_per_s: Expected.
    """

    points: tuple[InputPoint, ...]
    as_run_w: Floats
    power_w: Floats
    flop_per_s: Floats


def expected(fitted: FittedPower, known: Known, points: Points) -> HeldOutInputs:
    """What is expected of points by their data alone.

    Each runs at the rate and the clock of other points of its card, type, shape and SMs. Where
    power limit or heat held the clock back, the power that was left is taken as measured.
    """

    def free(p: InputPoint) -> InputPoint:
        product, _ = known.product(
            p.dtype, p.shape, p.features, units=p.units, gpu_model=p.gpu_model
        )
        return replace(
            p,
            idle_w=product.idle_w,
            flop_per_s=product.flop_per_s,
            clock_mhz=product.clock_mhz,
        )

    limits_w = np.array([p.power_w if p.held_back else known.limit_w(p.gpu_model) for p in points])
    run = held_to(fitted, list(map(free, points)), limits_w)
    rates = np.array([p.flop_per_s for p in run])
    return HeldOutInputs(tuple(points), fitted(points), fitted(run), rates)


def group_left_out(
    points: Points, learners: Mapping[str, PowerLearner], progress: OnGroup | None = None
) -> dict[str, HeldOutInputs]:
    """Each method, with each group of points left out in its turn.

    Raises:
        InputError: all points are of one group, or too few of a type are in the others.
    """
    groups = sorted({p.group for p in points})
    if len(groups) < 2:
        raise InputError("all points are of one group", fix="measure other sweeps, too")
    found: dict[str, list[HeldOutInputs]] = {name: [] for name in learners}
    for done, group in enumerate(groups, 1):
        tested = [p for p in points if p.group == group]
        learned = [p for p in points if p.group != group]
        known = known_of(learned)
        for name, learner in learners.items():
            found[name].append(expected(learner(learned), known, tested))
        if progress is not None:
            progress(group, done, len(groups))
    return {
        name: HeldOutInputs(
            tuple(p for one in each for p in one.points),
            np.concatenate([one.as_run_w for one in each]),
            np.concatenate([one.power_w for one in each]),
            np.concatenate([one.flop_per_s for one in each]),
        )
        for name, each in found.items()
    }


@dataclass(frozen=True, slots=True)
class RelativeErrors:
    """|predicted / measured - 1|: mean over all points, and what nine of ten do not exceed."""

    mean: float
    p90: float
    points: int


def relative_errors(predicted: Floats, measured: Floats) -> RelativeErrors:
    """Errors of points that took no part in fitting.

    Raises:
        InputError: there are none.
    """
    if not len(measured):
        raise InputError("no point is left to test on", fix="measure more")
    off = np.abs(predicted / measured - 1)
    return RelativeErrors(float(off.mean()), float(np.quantile(off, 0.9)), len(off))


def errors_of(found: HeldOutInputs) -> dict[str, RelativeErrors]:
    """Errors by kind; one of which there is no point is left out.

    power: where nothing held the clock back, by the data alone. speed: where power limit or heat
    did, by the data and the power that was left. energy: power at the speed that was measured.
    """
    held_back = np.array([p.held_back for p in found.points], dtype=bool)
    power_w = np.array([p.power_w for p in found.points])
    rates = np.array([p.flop_per_s for p in found.points])
    kinds = {
        "power": (~held_back, found.power_w, power_w),
        "speed": (held_back, found.flop_per_s, rates),
        "energy": (np.ones(len(rates), dtype=bool), found.as_run_w, power_w),
    }
    return {
        kind: relative_errors(predicted[which], measured[which])
        for kind, (which, predicted, measured) in kinds.items()
        if which.any()
    }


def real_left_out(points: Points) -> dict[str, dict[str, RelativeErrors]]:
    """Each method, learned from drawn operands, on tensors of networks.

    Raises:
        InputError: there are none of either.
    """
    drawn, real = [p for p in points if not p.real], [p for p in points if p.real]
    if not drawn or not real:
        raise InputError("drawn operands and tensors of networks are needed, and one is missing")
    known = known_of(drawn)
    return {
        name: errors_of(expected(learner(drawn), known, real)) for name, learner in METHODS.items()
    }


def noise_floor(points: Points) -> float | None:
    """Mean |energy / median - 1| of the repeated reference: nothing can be better.

    Energy above idle for each operation; the median is of one card, type, shape and number of SMs.
    None: none was measured twice.
    """
    found: dict[tuple[object, ...], list[float]] = {}
    for p in points:
        if p.is_reference:
            found.setdefault((p.gpu_uuid, p.dtype, p.shape, p.units), []).append(
                (p.power_w - p.idle_w) / p.flop_per_s
            )
    repeated = [energies for energies in found.values() if len(energies) > 1]
    off = [abs(e / float(np.median(energies)) - 1) for energies in repeated for e in energies]
    return float(np.mean(off)) if off else None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainedInputs:
    """A model, and how good it is for patterns of data that it has not seen.

    Attributes:
        points: What it was fitted to.
        left_out: Points that were not used, by reason.
        held_out: What each method expected of drawn points, their pattern left out.
        bounds: By type, of data whose sums are finite.
        figures: As the manifest has them.
    """

    points: tuple[InputPoint, ...]
    left_out: Mapping[str, int]
    model: InputModel
    held_out: Mapping[str, HeldOutInputs]
    bounds: Mapping[str, LogBounds]
    figures: Mapping[str, float]


def fit_inputs(
    points: Points, progress: OnGroup | None = None, gpu_model: str | None = None
) -> TrainedInputs:
    """Fit the model, and know its errors; the same points in whatever order give the same trees.

    Args:
        points: Of one GPU model, or of several, of which one is learned.
        progress: Called after each pattern of data that was left out.
        gpu_model: Which one; None: the one with the most points.

    Raises:
        InputError: no type has points enough.
    """
    kept, left_out = learnable(points, gpu_model)
    if not kept:
        raise InputError(
            f"no type has enough of the {len(points)} measured inputs",
            why="; ".join(left_out) or "there are none",
            fix="measure several sweeps: advisor power input --preset T4 --preset T9 --preset T12",
        )
    held_out = group_left_out([p for p in kept if not p.real], METHODS, progress)
    found = held_out["model"]
    residuals = residuals_of(found.points, found.as_run_w).take(_finite(found.points))
    figures = _figures({name: errors_of(of) for name, of in held_out.items()})
    if any(p.real for p in kept):
        figures |= {f"real_{n}": value for n, value in _figures(real_left_out(kept)).items()}
    if (noise := noise_floor(kept)) is not None:
        figures["reference_noise_percent"] = 100 * noise
    figures["coverage_percent"] = 100 * measured_coverage(residuals).overall
    return TrainedInputs(
        points=kept,
        left_out=left_out,
        model=physics_and_trees(kept),
        held_out=held_out,
        bounds=bounds_of(residuals),
        figures=figures,
    )


def learnable(
    points: Points, gpu_model: str | None = None
) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Points of types that are learned whatever pattern is left out; and the others, by reason.

    Of one GPU model: another one draws other power with the same data. In an order of their own,
    so that trees do not depend on that of the files.
    """
    models = Counter(p.gpu_model for p in points)
    chosen = gpu_model or max(sorted(models), key=lambda name: models[name], default="")
    others = Counter(
        f"of {p.gpu_model}, and the model is of {chosen}: --gpu-model"
        for p in points
        if p.gpu_model != chosen
    )
    points = [p for p in points if p.gpu_model == chosen]
    ordered = sorted(points, key=lambda p: input_points_text([p]))
    few = {dtype for dtype, of in _by_type(points).items() if not _is_enough(of)}
    why = "{} has fewer than {} points beside each of its patterns"
    left_out = Counter(why.format(p.dtype, _LEAST_POINTS) for p in points if p.dtype in few)
    return tuple(p for p in ordered if p.dtype not in few), dict(others + left_out)


def make_input_manifest(trained: TrainedInputs, created_at: datetime) -> InputManifest:
    """All that is known of the model, but for its files and its name."""
    points = trained.points
    return InputManifest(
        schema=SCHEMA,
        version="",
        created_at=created_at.isoformat(timespec="seconds"),
        features=FEATURES,
        physics=PARTS,
        columns=COLUMNS,
        coverage=COVERAGE,
        types=tuple(_type_model(d, of, trained) for d, of in _by_type(points).items()),
        known=known_of(points),
        dataset=InputFacts(
            sha256=input_points_sha256(points),
            points=len(points),
            held_back=sum(p.held_back for p in points),
            patterns=tuple(sorted({p.group for p in points})),
            cards=tuple(sorted({p.gpu_uuid for p in points})),
            drivers=tuple(sorted({p.driver for p in points})),
            torch=tuple(sorted({p.torch for p in points})),
            left_out=trained.left_out,
        ),
        figures=trained.figures,
        settings=LearnerSettings(TREES, LEAST_IN_LEAF, PART_OF_FEATURES, SEED),
        libraries={name: metadata.version(name) for name in LIBRARIES},
        files={},
    )


def write_input_model(
    folder: Path, trained: TrainedInputs, manifest: InputManifest
) -> InputManifest:
    """Write a model with its points; the manifest comes last, so that a half is no model."""
    of_type = _by_type(trained.points)
    asked: dict[str, Float32s] = {d: columns(of).astype(np.float32) for d, of in of_type.items()}
    trees = trees_files(trained.model.trees, asked)
    contents = {**trees, POINTS: input_points_text(trained.points)}
    written = replace(manifest, files=hashes(contents))
    written = replace(written, version=version_of(written))

    def write(folder: Path) -> None:
        for name, data in contents.items():
            replace_file(folder / name, data, PUBLIC_FILE)
        write_input_manifest(folder, written)

    write_model(folder, write)
    return written


def _finite(points: Points) -> npt.NDArray[np.bool_]:
    """Which points tell the intervals: one pattern of NaN, no work, would widen those of all data.

    All of a type that has only one pattern with finite sums.
    """
    patterns: dict[str, set[str]] = {}
    for p in points:
        if not p.features["sum_non_finite"]:
            patterns.setdefault(p.dtype, set()).add(p.group)
    few = {p.dtype for p in points if len(patterns.get(p.dtype, ())) < 2}
    return np.array([p.dtype in few or not p.features["sum_non_finite"] for p in points])


def _is_enough(points: Points) -> bool:
    drawn = [p for p in points if not p.real]
    groups = Counter(p.group for p in drawn)
    return len(groups) > 1 and len(drawn) - max(groups.values()) >= _LEAST_POINTS


def _type_model(dtype: str, of: Points, trained: TrainedInputs) -> TypeModel:
    features = feature_matrix(of)
    usual = [p for p in of if p.is_reference]
    middle = np.median(feature_matrix(usual), axis=0) if usual else ()
    return TypeModel(
        dtype=dtype,
        points=len(of),
        weights=tuple(map(float, trained.model.weights[dtype])),
        ranges=tuple(
            (float(low), float(high))
            for low, high in zip(features.min(axis=0), features.max(axis=0), strict=True)
        ),
        bounds=trained.bounds[dtype],
        usual=dict(zip(FEATURES, map(float, middle), strict=True)) if usual else None,
    )


def _figures(of_methods: Mapping[str, Mapping[str, RelativeErrors]]) -> dict[str, float]:
    """Errors in percent, by method and kind."""
    found: dict[str, float] = {}
    for method, kinds in of_methods.items():
        for kind, errors in kinds.items():
            found[f"{method}_{kind}_mean_error_percent"] = 100 * errors.mean
            found[f"{method}_{kind}_p90_error_percent"] = 100 * errors.p90
            found[f"{kind}_points"] = errors.points
    return found
