"""How good predictions are: the value of the split they choose, and their relative errors."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core.objectives import Candidate, Objective, PartResult, SplitResult, best
from advisor.predict.profiles import Floats
from advisor_training.held_out import Answers, HeldOut, Mask
from advisor_training.learners import HeadLearner
from advisor_training.rows import Data, Rows, flat


def fractions(rows: Rows, predicted: HeldOut, objective: Objective, tie: float) -> Floats:
    """Fraction of the oracle at the split that predictions choose among the nine.

    The value measured at the chosen split for each one of the best measured value, both of one
    measurement; `tie` is that of `advisor.core.objectives.best`. There is one for each (left out,
    measurement), in their order, so a measurement that was left out for two jobs counts twice;
    those in which no split is worth anything are not among them.
    """
    found: list[float] = []
    for _, places in predicted.by_measurement(rows, rows.kind == "nine"):
        row = predicted.row[places]
        measured = np.column_stack([rows.speed_a, rows.speed_b])[row]
        values = [objective.value(x) for x in _results(rows, row, measured, rows.power_w[row])]
        expected = _results(rows, row, predicted.speed[places], predicted.power_w[places])
        candidates = [Candidate(*each) for each in zip(rows.splits(row), expected, strict=True)]
        chosen = best(candidates, objective, tie)
        if max(values) > 0:
            place = next(n for n, candidate in enumerate(candidates) if candidate is chosen)
            found.append(values[place] / max(values))
    return np.array(found)


def speed_errors(rows: Rows, predicted: HeldOut, kind: str = "nine") -> Floats:
    """|predicted / measured - 1| of first jobs, then of second ones, at one kind of split.

    A relative speed is a rate over a constant, so this is the relative error of the rates, too.
    Rates measured as 0 have no relative error and are left out.
    """
    tests = rows.kind[predicted.row] == kind
    row = predicted.row[tests]
    measured = np.concatenate([rows.speed_a[row], rows.speed_b[row]])
    known = measured > 0
    return np.abs(flat(predicted.speed[tests])[known] / measured[known] - 1)


def head_errors(rows: Rows, predicted: HeldOut, learner: HeadLearner, kind: str = "nine") -> Floats:
    """|predicted / measured - 1| of a head at one kind of split, part by part, where known."""
    tests = rows.kind[predicted.row] == kind
    measured = flat(learner.measured(rows)[predicted.row[tests]])
    errors = np.abs(flat(predicted.heads[learner.head.name][tests]) / measured - 1)
    return errors[~np.isnan(errors)]


def _results(
    rows: Rows, row: npt.NDArray[np.int64], speeds: Floats, power_w: Floats
) -> list[SplitResult]:
    """Results at rows with speeds, shape (n, 2), and powers, W, shape (n,)."""
    rates = np.column_stack([rows.solo_rate_a, rows.solo_rate_b])[row]
    watts = np.column_stack([rows.solo_power_a_w, rows.solo_power_b_w])[row]
    parts = np.stack([speeds * rates, rates, watts], axis=2).tolist()
    return [
        SplitResult(parts=tuple(PartResult(*part) for part in both), power_w=power)
        for both, power in zip(parts, power_w.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Error:
    """Relative errors |predicted / measured - 1| in short, in percent."""

    mean_percent: float
    median_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of one learner, each over all tested rows; None of no values.

    Attributes:
        rate: Rate of each job as it is served: the predicted relative speed times the rate of its
            profile, against the rate measured next to the other job. It includes how far the
            profile's day was from the pair's.
        speed: Relative speed of each job, against the reference of the pair's own card and run.
        rates_sum: X1 + X2, what the paper predicts.
    """

    rows: int
    rate: Error | None
    speed: Error | None
    power: Error | None
    rates_sum: Error | None
    speeds_sum: Error | None


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedAndMeasured:
    """Expected and measured values of tested rows, each shape (n,)."""

    speeds: tuple[Floats, Floats]
    measured_speeds: tuple[Floats, Floats]
    rates: tuple[Floats, Floats]
    measured_rates: tuple[Floats, Floats]
    power_w: Floats
    measured_power_w: Floats


def compare(data: Data, held_out: HeldOut, which: Mask) -> ExpectedAndMeasured:
    """Expected and measured values of some of the predictions; `which` is a mask of these."""
    rows = data.rows.take(held_out.row[which])
    speeds = held_out.speed[which, 0], held_out.speed[which, 1]
    models = rows.gpu_model.tolist()
    whole = [
        np.array([data.profiles[key].whole_gpu_rate for key in zip(jobs, models, strict=True)])
        for jobs in (rows.job_a.tolist(), rows.job_b.tolist())
    ]
    return ExpectedAndMeasured(
        speeds,
        (rows.speed_a, rows.speed_b),
        (speeds[0] * whole[0], speeds[1] * whole[1]),
        (rows.speed_a * rows.solo_rate_a, rows.speed_b * rows.solo_rate_b),
        held_out.power_w[which],
        rows.power_w,
    )


def errors_of(data: Data, answers: Answers, which: Mask) -> Errors:
    """Errors over the tested ones of the rows of a mask."""
    asked = answers.tested & which[answers.held_out.row]
    found = compare(data, answers.held_out, asked)
    return Errors(
        rows=int(asked.sum()),
        rate=error(np.concatenate(found.rates), np.concatenate(found.measured_rates)),
        speed=error(np.concatenate(found.speeds), np.concatenate(found.measured_speeds)),
        power=error(found.power_w, found.measured_power_w),
        rates_sum=error(np.add(*found.rates), np.add(*found.measured_rates)),
        speeds_sum=error(np.add(*found.speeds), np.add(*found.measured_speeds)),
    )


def error(expected: Floats, measured: Floats) -> Error | None:
    """The relative errors in short; values measured as 0 have none. None of no values."""
    known = measured > 0
    if not known.any():
        return None
    errors = 100 * np.abs(expected[known] / measured[known] - 1)
    return Error(float(errors.mean()), float(np.median(errors)))
