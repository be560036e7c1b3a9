"""How far predictions lie from what was measured."""

from dataclasses import dataclass

import numpy as np

from advisor.predict.profiles import Floats
from advisor_training.dataset.data import Data
from advisor_training.learn.held_out import HeldOut, Mask
from advisor_training.learn.protocols import Answers


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
