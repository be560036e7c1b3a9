"""Measured inputs to a model of power by data: points, learners, their errors, and the model.

Power of a product above idle is its physics (`parts`, weights by non-negative least squares
on relative errors, for each type) times what Extra Trees leave. Errors are those on patterns of
data that took no part in fitting, next to medians.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.linear_model import LinearRegression

from advisor.core.records import grouped
from advisor.errors import InputError
from advisor.predict.profiles import Float32s, Floats
from advisor.wire.power import FEATURES, InputPoint
from advisor_data.bundled import input_points_sha256, input_points_text
from advisor_models.registry import LogBounds, hashes, version_of, write_parsed
from advisor_power.data.measuring import InputPower, with_ratios
from advisor_power.data.operands import FILE, Call, Operand, OperandPair, features_of
from advisor_power.data.predictor import (
    COLUMNS,
    PARTS,
    POINTS,
    SCHEMA,
    InputFacts,
    InputManifest,
    MeasuredCards,
    TypeModel,
    columns,
    feature_matrix,
    held_to,
    measured_cards,
    parsed_manifest,
    parts,
)
from advisor_training.learners import LEAST_IN_LEAF, PART_OF_FEATURES, SEED, TREES, PriorRegressor
from advisor_training.scoring import COVERAGE, Residuals, bounds_of, measured_coverage
from advisor_training.train import LIBRARIES, trees_files, write_into

_Points: TypeAlias = Sequence[InputPoint]
FittedPower: TypeAlias = Callable[[_Points], Floats]
"""Expected power of points, W; shape (points,). It looks at no measured power."""
_PowerLearner: TypeAlias = Callable[[_Points], FittedPower]
# Called after each group with its name, how many are done, and of how many.
_OnGroup = Callable[[str, int, int], None]

_LEAST_POINTS = 8  # of a type: fewer say nothing about its features


def points_of(results: Iterable[InputPower]) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Results as points, and how many were left out, by reason."""
    points: list[InputPoint] = []
    left_out: Counter[str] = Counter()
    for result in with_ratios(results):
        case, where, ratio = result.case, result.conditions, result.reference_ratio
        fingerprint, idle_w, clock_mhz = result.fingerprint, result.idle_w, result.sm_clock_mhz
        reasons = {
            f"computed a {case.work}, not a product": case.work != "product",
            "has no fingerprint": fingerprint is None,
            "has no idle power": idle_w is None,
            "has no clock": clock_mhz is None,
            "does not say on how many SMs": where.units is None,
            "draws no more than the idle card": result.power_w.value <= (idle_w or 0.0),
            **{
                f"has the flag {flag}": flag in result.flags
                for flag in ("wrong-outputs", "not-settled")
            },
        }
        why = next((why for why, is_so in reasons.items() if is_so), "")
        # What is None has a reason above, too.
        if why or not fingerprint or idle_w is None or clock_mhz is None or where.units is None:
            left_out[why] += 1
            continue
        points.append(
            InputPoint(
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
        )
    return tuple(_with_clocks(points)), dict(left_out)


def pattern_of(pair: OperandPair) -> str:
    """The pattern that operands follow: their words, without numbers.

    All levels of a sweep have one; so have sweeps that differ in numbers alone, such as the mean
    and the spread of normal random numbers.
    """

    def words(call: Call) -> str:
        if call.name == FILE:
            return f"{FILE}({call.arguments[0]})"
        chosen: Sequence[str] = [value for value in call.values if isinstance(value, str)]
        return f"{call.name}({','.join(chosen)})" if chosen else call.name

    def pattern(of: Operand) -> str:
        return "|".join(words(c) for c in (of.source, *of.operations) if c.name != "cast")

    a, b = pattern(pair.a), pattern(pair.b)
    both = a if a == b else f"a={a}; b={b}"
    return both if pair.aligned else f"{both}; align=false"


def _with_clocks(points: Sequence[InputPoint]) -> Iterator[InputPoint]:
    """Points whose clock was held back with the clock that their rate tells.

    A product takes as many cycles at any clock. So others of the same kind, whose clock stood
    still, tell it better than few readings of one that went up and down.
    """
    alike = grouped((p for p in points if not p.held_back), _kind)
    for p in points:
        paces = [point.flop_per_s / point.clock_mhz for point in alike.get(_kind(p), ())]
        is_slowed = bool(paces) and p.held_back
        yield replace(p, clock_mhz=p.flop_per_s / float(np.median(paces))) if is_slowed else p


def _kind(p: InputPoint) -> tuple[object, ...]:
    return p.gpu_uuid, p.dtype, p.shape, p.units


@dataclass(frozen=True, slots=True, eq=False)
class _InputModel:
    """Weights of `PARTS` by type, and the trees behind them; none: the physics alone."""

    weights: Mapping[str, Floats]
    trees: Mapping[str, Any]

    def __call__(self, points: _Points) -> Floats:
        if missing := {p.dtype for p in points} - self.weights.keys():
            raise InputError(
                f"no point of {', '.join(sorted(missing))} was learned from",
                fix="measure inputs of that type",
            )
        expected_w = np.array([p.idle_w for p in points])
        for dtype in {p.dtype for p in points}:
            which = [i for i, p in enumerate(points) if p.dtype == dtype]
            of, trees = [points[i] for i in which], self.trees.get(dtype)
            expected = parts(of) @ self.weights[dtype]
            if trees is not None:
                expected = trees.predict(np.column_stack([expected, columns(of)]))
            expected_w[which] += expected
        return expected_w


def physics_alone(points: _Points) -> _InputModel:
    """The sum of parts alone, for each type."""
    weights: dict[str, Floats] = {}
    for dtype, of in _by_type(points).items():
        if len(of) < _LEAST_POINTS:
            raise InputError(
                f"{dtype} has {len(of)} points", fix=f"measure {_LEAST_POINTS} or more"
            )
        # No weight is negative: a bit that switches saves no power.
        summed: Any = LinearRegression(fit_intercept=False, positive=True)
        weights[dtype] = summed.fit(parts(of) / _above_idle_w(of)[:, None], np.ones(len(of))).coef_
    return _InputModel(weights, {})


def physics_and_trees(points: _Points) -> _InputModel:
    """The model."""
    weights = physics_alone(points).weights
    return _InputModel(
        weights,
        {
            dtype: PriorRegressor(prior_column=0).fit(
                np.column_stack([parts(of) @ weights[dtype], columns(of)]), _above_idle_w(of)
            )
            for dtype, of in _by_type(points).items()
        },
    )


def residuals_of(points: _Points, expected_w: Floats) -> Residuals:
    """Logarithms of measured over expected power above idle, of points by their groups."""
    idle_w = np.array([p.idle_w for p in points])
    values = np.log(_above_idle_w(points) / np.maximum(expected_w - idle_w, 1e-9))
    names = np.array([p.group for p in points])
    return Residuals(values, names, names, np.array([p.dtype for p in points]))


def _above_idle_w(points: _Points) -> Floats:
    return np.array([p.power_w - p.idle_w for p in points])


def _by_type(points: _Points) -> dict[str, list[InputPoint]]:
    return {d: [p for p in points if p.dtype == d] for d in sorted({p.dtype for p in points})}


def _median(points: _Points) -> FittedPower:
    """Median energy above idle of an operation, for each type."""
    energy_j = {
        dtype: float(np.median(_above_idle_w(of) / np.array([p.flop_per_s for p in of])))
        for dtype, of in _by_type(points).items()
    }
    return lambda points: np.array([p.idle_w + energy_j[p.dtype] * p.flop_per_s for p in points])


METHODS: Mapping[str, _PowerLearner] = {
    "model": physics_and_trees,
    "physics": physics_alone,
    "median": _median,
}
"""Every learner by name; the first one is the model."""


def expected(fitted: FittedPower, cards: MeasuredCards, points: _Points) -> Floats:
    """What is expected of points by their data alone, shape (3, points).

    Rows: power at the rate and the clock that were measured, W; power at those that the data let
    expect, at most the power limit, W; that rate. Each point runs at the rate and the clock of
    other points of its card, type, shape and SMs. Where power limit or heat held the clock back,
    the power that was left is taken as measured.
    """

    def free(p: InputPoint) -> InputPoint:
        product, _ = cards.product(
            p.dtype, p.shape, p.features, units=p.units, gpu_model=p.gpu_model
        )
        return replace(
            p,
            idle_w=product.idle_w,
            flop_per_s=product.flop_per_s,
            clock_mhz=product.clock_mhz,
        )

    limits_w = np.array([p.power_w if p.held_back else cards.limit_w(p.gpu_model) for p in points])
    run = held_to(fitted, list(map(free, points)), limits_w)
    return np.array([fitted(points), fitted(run), [p.flop_per_s for p in run]])


def group_left_out(
    points: _Points, learners: Mapping[str, _PowerLearner], progress: _OnGroup | None = None
) -> dict[str, Floats]:
    """What each method expects of points, as `expected`, with their group left out."""
    groups = sorted({p.group for p in points})
    if len(groups) < 2:
        raise InputError("all points are of one group", fix="measure other sweeps, too")
    expectations = {name: np.empty((3, len(points))) for name in learners}
    for done, group in enumerate(groups, 1):
        which = np.array([p.group == group for p in points])
        tested = [p for p in points if p.group == group]
        learned = [p for p in points if p.group != group]
        cards = measured_cards(learned)
        for name, learner in learners.items():
            expectations[name][:, which] = expected(learner(learned), cards, tested)
        if progress is not None:
            progress(group, done, len(groups))
    return expectations


def errors_of(points: _Points, methods: Mapping[str, Floats]) -> dict[str, float]:
    """|predicted / measured - 1| in percent: mean and what nine of ten do not exceed, by kind.

    power: where nothing held the clock back, by the data alone. speed: where power limit or heat
    did, by the data and the power that was left. energy: power at the speed that was measured. A
    kind without points is left out.
    """
    figures: dict[str, float] = {}
    power_w, rates = np.array([(p.power_w, p.flop_per_s) for p in points]).T
    held_back = np.array([p.held_back for p in points], dtype=bool)
    for method, (as_run_w, expected_w, expected_rates) in methods.items():
        kinds = {
            "power": (~held_back, expected_w / power_w),
            "speed": (held_back, expected_rates / rates),
            "energy": (np.ones(len(rates), dtype=bool), as_run_w / power_w),
        }
        for kind, (which, ratios) in kinds.items():
            if which.any():
                off = 100 * np.abs(ratios[which] - 1)
                figures[f"{method}_{kind}_mean_error_percent"] = float(off.mean())
                figures[f"{method}_{kind}_p90_error_percent"] = float(np.quantile(off, 0.9))
                figures[f"{kind}_points"] = len(off)
    return figures


def noise_floor(points: _Points) -> float | None:
    """Mean |energy / median - 1| of the repeated reference: nothing can be better.

    Energy above idle for each operation; the median is of one card, type, shape and number of SMs.
    None: none was measured twice.
    """
    repeated = [
        [(p.power_w - p.idle_w) / p.flop_per_s for p in of]
        for of in grouped((p for p in points if p.is_reference), _kind).values()
        if len(of) > 1
    ]
    off = [abs(e / float(np.median(energies)) - 1) for energies in repeated for e in energies]
    return float(np.mean(off)) if off else None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainedInputs:
    """A model, and how good it is for patterns of data that it has not seen.

    Attributes:
        points: What it was fitted to.
        left_out: Points that were not used, by reason.
        bounds: By type, of data whose sums are finite.
        figures: As the manifest has them.
    """

    points: tuple[InputPoint, ...]
    left_out: Mapping[str, int]
    model: _InputModel
    bounds: Mapping[str, LogBounds]
    figures: Mapping[str, float]


def fit_inputs(
    points: _Points, progress: _OnGroup | None = None, gpu_model: str | None = None
) -> TrainedInputs:
    """Fit the model, and know its errors; the same points in whatever order give the same trees.

    Args:
        points: Of one GPU model, or of several, of which one is learned.
        progress: Called after each pattern of data that was left out.
        gpu_model: Which one; None: the one with the most points.
    """
    kept, left_out = learnable(points, gpu_model)
    if not kept:
        raise InputError(
            f"no type has enough of the {len(points)} measured inputs",
            why="; ".join(left_out) or "there are none",
            fix="measure several sweeps: advisor power input --preset T4 --preset T9 --preset T12",
        )
    drawn, real = [p for p in kept if not p.real], [p for p in kept if p.real]
    held_out = group_left_out(drawn, METHODS, progress)
    # One pattern of NaN, no work, would widen the intervals of all data: it tells none, but of a
    # type that has only one pattern with finite sums all points do.
    finite = {(p.dtype, p.group) for p in drawn if not p.features["sum_non_finite"]}
    patterns = Counter(dtype for dtype, _ in finite)
    telling = [patterns[p.dtype] < 2 or not p.features["sum_non_finite"] for p in drawn]
    residuals = residuals_of(drawn, held_out["model"][0]).take(np.array(telling))
    figures = errors_of(drawn, held_out)
    if real:  # tensors of networks, by what drawn operands teach
        cards = measured_cards(drawn)
        on_real = {name: expected(learn(drawn), cards, real) for name, learn in METHODS.items()}
        figures |= {f"real_{name}": value for name, value in errors_of(real, on_real).items()}
    if (noise := noise_floor(kept)) is not None:
        figures["reference_noise_percent"] = 100 * noise
    figures["coverage_percent"] = 100 * measured_coverage(residuals).overall
    return TrainedInputs(
        points=kept,
        left_out=left_out,
        model=physics_and_trees(kept),
        bounds=bounds_of(residuals),
        figures=figures,
    )


def learnable(
    points: _Points, gpu_model: str | None = None
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
    left_out = Counter(
        f"{p.dtype} has fewer than {_LEAST_POINTS} points beside each of its patterns"
        for p in points
        if p.dtype in few
    )
    return tuple(p for p in ordered if p.dtype not in few), dict(others + left_out)


def write_input_model(folder: Path, trained: TrainedInputs) -> InputManifest:
    """Write a model with its points; the time of the newest of them is that of the model."""
    points, by_type = trained.points, _by_type(trained.points)
    features: dict[str, Float32s] = {d: columns(of).astype(np.float32) for d, of in by_type.items()}
    contents = {**trees_files(trained.model.trees, features), POINTS: input_points_text(points)}
    newest = max(datetime.fromisoformat(p.measured_at) for p in points).astimezone(UTC)
    unnamed = InputManifest(
        schema=SCHEMA,
        version="",
        created_at=newest.isoformat(timespec="seconds"),
        features=FEATURES,
        physics=PARTS,
        columns=COLUMNS,
        coverage=COVERAGE,
        types=tuple(_type_model(dtype, of, trained) for dtype, of in by_type.items()),
        known=measured_cards(points),
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
        settings={
            "trees": TREES,
            "least_in_leaf": LEAST_IN_LEAF,
            "part_of_features": PART_OF_FEATURES,
            "seed": SEED,
        },
        libraries={name: metadata.version(name) for name in LIBRARIES},
        files=hashes(contents),
    )
    manifest = replace(unnamed, version=version_of(unnamed))
    write_into(folder, lambda to: write_parsed(to, contents, manifest, parsed_manifest))
    return manifest


def _is_enough(points: _Points) -> bool:
    drawn = [p for p in points if not p.real]
    groups = Counter(p.group for p in drawn)
    return len(groups) > 1 and len(drawn) - max(groups.values()) >= _LEAST_POINTS


def _type_model(dtype: str, of: _Points, trained: TrainedInputs) -> TypeModel:
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
