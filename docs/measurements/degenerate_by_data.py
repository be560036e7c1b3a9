"""Prints whether the model of power by data finds wrong results by their power.

    .venv/bin/python docs/measurements/degenerate_by_data.py FILE.jsonl [FILE.jsonl ...]

Files are what `advisor power input` kept, of products of bf16. Points are judged as if their
matrices held normal random numbers, as those of the bundled jobs do. No GPU is needed.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from degenerate import JOBS, is_bf16, row, sweep_of, sweeps_of, truth_of, unflagged

from advisor.core.flags import DEGENERATE, DOUBTFUL, UNREAD
from advisor.core.records import SoloPoint
from advisor.validity.degenerate import (
    COUNTER_BOUND,
    LEAST_ACTIVE_PERCENT,
    energy_above_idle_j,
    expected_energy_j,
    with_solo_flags,
)
from advisor.wire.input_power import InputPoint
from advisor_data.files.bundled import bundled_solo_points
from advisor_power.inputs.keeping import read_kept
from advisor_power.inputs.predicting.learned_from import points_of
from advisor_power.inputs.result import InputPower
from advisor_power.learn.train import TrainedInputs, fit_inputs

DTYPE = "bf16"

OPERATIONS_PER_CYCLE = 4096
"""Of bf16, by the tensor cores of one SM (NVIDIA H100 Tensor Core GPU Architecture, table 3)."""

ALL_NAN = "normal(0,1)|spoil(nan,1)"

SIDE = 8192
"""Of the products of matmul-bf16."""

BOUNDS = (0.85, 0.80, 0.70, 0.60, 0.50)

DROPS = (0.06, 0.08, 0.10)

PARTS = (0.0, 0.2, 0.4, 0.6)


@dataclass(frozen=True, slots=True)
class Learned:
    """The model of one GPU model, and what it was learned from.

    Attributes:
        usual: A product of normal random numbers.
        nan: One of NaN alone.
    """

    trained: TrainedInputs
    usual: InputPoint
    nan: InputPoint

    def above_idle_w(self, point: InputPoint, like: InputPoint) -> float:
        """What a product at that speed is expected to draw with the data of another one."""
        asked = replace(point, features=like.features)
        return float(self.trained.model([asked])[0]) - point.idle_w

    def part(self, point: InputPoint) -> float:
        """Power above idle, of what normal random numbers are expected to draw."""
        return (point.power_w - point.idle_w) / self.above_idle_w(point, self.usual)


def main() -> None:
    """Print all tables."""
    kept = [result for name in sys.argv[1:] for result in read_kept(Path(name))]
    results = [r for r in kept if (r.case.dtype, r.case.work) == (DTYPE, "product")]
    models = learned(results)
    bf16 = {path.stem for path in JOBS.glob("*.yaml") if is_bf16(path)}
    solos = with_solo_flags(unflagged(bundled_solo_points()))
    known = [p for p in solos if p.job in bf16 and p.gpu_model in models and _has_counters(p)]
    for gpu_model, model in models.items():
        of = [p for p in known if p.gpu_model == gpu_model]
        groups = {**_products(results, model), **_by_truth(of, model, bf16)}
        print_parts(gpu_model, model, groups)
    print_busy(solos)
    missing = list(_missing(solos, known, models))
    print_missing(missing, lambda point: _truth(point, bf16))
    print_rules(missing, lambda point: _truth(point, bf16))


def learned(results: Sequence[InputPower]) -> dict[str, Learned]:
    """A model for each GPU model, from the files' drawn operands."""
    points = [p for p in points_of(results)[0] if not p.real]
    found: dict[str, Learned] = {}
    for gpu_model in sorted({p.gpu_model for p in points}):
        trained = fit_inputs(points, gpu_model=gpu_model)
        usual = next(p for p in trained.points if p.is_reference)
        nan = next(p for p in trained.points if p.expression.startswith(f"a={ALL_NAN};"))
        found[gpu_model] = Learned(trained, usual, nan)
    return found


def print_parts(gpu_model: str, model: Learned, groups: Mapping[str, Sequence[float]]) -> None:
    """Power above idle over what is expected, and how many a bound on it would flag."""
    low, _ = model.trained.bounds[DTYPE].factors
    units = sorted({p.units for p in model.trained.points})
    print(
        f"{gpu_model}: {len(model.trained.points)} inputs at {units} SMs, lower bound {low:.2f}\n"
    )
    row("judged as normal random numbers", "points", "least", "median", *map("< {}".format, BOUNDS))
    row(*["---"] * (4 + len(BOUNDS)))
    for name, parts in groups.items():
        below = [str(sum(part < bound for part in parts)) for bound in BOUNDS]
        row(name, str(len(parts)), f"{min(parts):.2f}", f"{median(parts):.2f}", *below)
    print()


def print_busy(solos: Iterable[SoloPoint]) -> None:
    """Operations by the time that the tensor cores were busy, over those of the work done."""
    found: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for p in solos:
        if p.job == "matmul-bf16" and p.units_granted:
            found[p.gpu_model][p.units_granted] = _operations(p) / (p.rate * 2 * SIDE**3)
    row("matmul-bf16", "operations by busy tensor cores, over those of the work, at SMs")
    row("---", "---")
    for gpu_model, ratios in found.items():
        row(
            gpu_model, ", ".join(f"{units}: {ratio:.2f}" for units, ratio in sorted(ratios.items()))
        )
    print()


Missing = tuple[SoloPoint, float, float]
"""A point, the part of energy that is missing against larger shares, and the missing power over
what NaN instead of normal random numbers would take off."""


def print_missing(missing: Iterable[Missing], truth: Callable[[SoloPoint], str]) -> None:
    """Whether NaN in all products would explain what flagged jobs draw too little."""
    by_job: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for point, _, of_nan in missing:
        if DEGENERATE in point.flags:
            by_job[point.job, truth(point)].append(of_nan)
    row("flagged by its sweep", "", "points", "missing power, over what NaN would take off")
    row("---", "---", "---", "---")
    for (job, name), parts in sorted(by_job.items()):
        low, high = min(parts), max(parts)
        row(job, name, str(len(parts)), f"{low:.2f} to {high:.2f}, median {median(parts):.2f}")
    print()


def print_rules(missing: Sequence[Missing], truth: Callable[[SoloPoint], str]) -> None:
    """What the sweep's rule finds if so much must be explained by NaN; as if none were read."""
    names = ("wrong", "right", "not known")
    totals = [f"{name} ({sum(truth(p) == name for p, *_ in missing)})" for name in names]
    row("energy lower by", "missing power, over what NaN would take off", *totals)
    row(*["---"] * (2 + len(names)))
    for drop in DROPS:
        for part in PARTS:
            found = [truth(p) for p, lower, of_nan in missing if lower > drop and of_nan > part]
            row(f"{drop:.0%}", f"{part:.1f}", *(str(found.count(name)) for name in names))


def _products(results: Iterable[InputPower], model: Learned) -> dict[str, list[float]]:
    """Parts of products, by what they really hold."""
    usual = next(r for r in results if r.measured_at == model.usual.measured_at)
    names = {r.measured_at: _kind(r) for r in results}
    # As if nobody knew what their matrices hold, or had looked at their outputs.
    blind = [replace(r, fingerprint=usual.fingerprint, outputs=usual.outputs) for r in results]
    found: defaultdict[str, list[float]] = defaultdict(list)
    for point in points_of(blind)[0]:
        name = names[point.measured_at]
        if name and point.gpu_model == model.usual.gpu_model:
            found[name].append(model.part(point))
    return dict(sorted(found.items()))


def _kind(result: InputPower) -> str | None:
    if result.outputs.unwritten:
        return f"products, parts unwritten ({result.conditions.units} SMs)"
    operands = result.case.operands
    if "spoil(nan" in operands:
        return f"products, NaN: {operands.split('spoil(nan,')[1].split(')')[0]} of A and B"
    if "file(" in operands:
        return "products of a network's tensors, right"
    return "products of normal random numbers, right" if result.is_reference else None


def _by_truth(
    points: Iterable[SoloPoint], model: Learned, bf16: set[str]
) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for point in points:
        by_sweep = ", flagged by its sweep" if DEGENERATE in point.flags else ""
        name = f"jobs, {_truth(point, bf16)}{by_sweep}"
        found[name].append(model.part(_as_product(point, model)))
    return dict(sorted(found.items()))


def _truth(point: SoloPoint, bf16: set[str]) -> str:
    """As docs/measurements/degenerate.py, and by the results where they were read."""
    if point.results is not None:
        return "right" if point.results == "right" else "wrong"
    return truth_of(point, bf16)


def _missing(
    solos: Iterable[SoloPoint], known: Iterable[SoloPoint], models: Mapping[str, Learned]
) -> Iterator[Missing]:
    sweeps = sweeps_of(solos)
    for point in known:
        own_j = energy_above_idle_j(point)
        expected_j = expected_energy_j(point, sweeps[sweep_of(point)])
        is_doubtful = not (DOUBTFUL - {DEGENERATE, UNREAD}).isdisjoint(point.flags)
        if is_doubtful or own_j is None or expected_j is None:
            continue
        model = models[point.gpu_model]
        product = _as_product(point, model)
        of_nan_w = model.above_idle_w(product, model.usual) - model.above_idle_w(product, model.nan)
        missing_w = (expected_j - own_j) * point.rate
        is_over = missing_w > COUNTER_BOUND * (point.power_w or 0) and of_nan_w > 0
        yield point, 1 - own_j / expected_j if is_over else 0.0, missing_w / max(of_nan_w, 1e-9)


def _has_counters(point: SoloPoint) -> bool:
    needed = (point.power_w, point.idle_power_w, point.sm_clock_mhz, point.units_total)
    return None not in needed and (point.tensor_active_percent or 0) >= LEAST_ACTIVE_PERCENT


def _operations(point: SoloPoint) -> float:
    """Of the tensor cores in a second, by the time that they were busy."""
    part, clock_hz = (point.tensor_active_percent or 0) / 100, 1e6 * (point.sm_clock_mhz or 0)
    return part * OPERATIONS_PER_CYCLE * (point.units_total or 0) * clock_hz


def _as_product(point: SoloPoint, model: Learned) -> InputPoint:
    """The operations of a job as one product.

    Above its own idle power, from before it had a context: that makes the bound weaker, not wrong.
    """
    return replace(
        model.usual,
        units=point.units_granted or point.units_total or 0,
        power_w=point.power_w or 0.0,
        idle_w=point.idle_power_w or 0.0,
        clock_mhz=point.sm_clock_mhz or 0.0,
        flop_per_s=_operations(point),
    )


if __name__ == "__main__":
    main()
