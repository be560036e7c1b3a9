"""Watts that a GPU model draws for what its parts do, fitted to jobs alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core.records import DOUBTFUL, SoloPoint
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.validity.points import is_usable, with_solo_flags
from advisor_power.components.activity import TERMS, Activity, activity_of
from advisor_power.components.least_squares import non_negative_least_squares

DRAWS = 200
"""Fits to jobs drawn again, from which intervals are made."""

MICROBENCHMARK = "component-"
"""Begins the names of jobs that keep one part of the GPU busy (jobs/components). Weights that are
fitted to them as well miss the power of all other jobs by 4.2 % instead of 3.7 % on average
(docs/component-power.md)."""

FEWEST_JOBS = 8
"""Fewer jobs than terms say nothing of what each term draws."""

OUTSIDE = 0.1
"""Part of the largest reading by which a window may lie outside all that weights were fitted to."""

_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class ComponentWeights:
    """Watts for each term at 1: an activity of 100 % at the highest clock."""

    gpu_model: str
    highest_clock_mhz: float
    values: Floats
    """None is negative; in the order of `TERMS`, shape (terms,)."""
    draws: Floats
    """The same, each fitted to jobs drawn again; shape (draws, terms)."""
    terms: Floats
    """Of the points that it was fitted to; shape (points, terms)."""
    counters: dict[str, float]
    """Largest reading of each counter among them, percent."""
    jobs: tuple[str, ...]

    def watts(self, activity: Activity) -> float:
        """Power that is expected of the activity."""
        return float(activity.terms(self.highest_clock_mhz) @ self.values)

    def outside(self, activity: Activity) -> tuple[str, ...]:
        """What is unlike any mixture of the windows that it was fitted to; empty: nothing.

        A mixture is nearest by least squares, each term relative to its largest. Pipes without a
        weight are compared with the most that was seen of them.
        """
        unweighed = [
            name
            for name in ("fp16_active_percent", "fp64_active_percent")
            if activity.counters[name] > self.counters[name] + 100 * OUTSIDE
        ]
        scale = np.maximum(self.terms.max(axis=0), 1e-9)
        known, asked = self.terms / scale, activity.terms(self.highest_clock_mhz) / scale
        # The first term is 1 everywhere, so that ten times it has the parts sum to 1.
        known[:, 0], asked[0] = 10.0, 10.0
        mixture = non_negative_least_squares(known.T, asked) @ known
        far = np.abs(mixture - asked) > OUTSIDE
        return (*(name for name, is_far in zip(TERMS, far, strict=True) if is_far), *unweighed)


def fit_components(points: Iterable[SoloPoint]) -> ComponentWeights:
    """Weights of one GPU model, from the points of jobs alone that can be trusted.

    Relative errors count, since a job that idles half its time draws a third of what others do.
    Jobs are drawn with all their points, which resemble each other.

    Args:
        points: Of one GPU model; those that failed a cross-check or lack a reading are left out.

    Raises:
        InputError: points of several GPU models, or of fewer than `FEWEST_JOBS` jobs.
    """
    known = [(p, a) for p in fitted_to(points) if (a := activity_of(p)) is not None]
    models, jobs = {p.gpu_model for p, _ in known}, sorted({p.job for p, _ in known})
    if len(models) > 1:
        raise InputError(f"component weights are of one GPU model, not of {sorted(models)}")
    if len(jobs) < FEWEST_JOBS:
        raise _too_few(len(jobs))
    highest = max(a.clock_mhz for _, a in known)
    terms = np.array([a.terms(highest) for _, a in known])
    watts = np.array([p.power_w or 0.0 for p, _ in known])
    rows = terms / watts[:, None]
    by_job = [rows[[p.job == job for p, _ in known]] for job in jobs]
    values = non_negative_least_squares(rows, np.ones(len(rows)))
    return ComponentWeights(
        gpu_model=models.pop(),
        highest_clock_mhz=highest,
        values=values,
        draws=_drawn(by_job, values > 0),
        terms=terms,
        counters={n: max(a.counters[n] for _, a in known) for n in known[0][1].counters},
        jobs=tuple(jobs),
    )


def trusted(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """Those with a power that passed every cross-check, among them right results."""
    flagged = with_solo_flags(points)
    return [p for p in flagged if is_usable(p) and DOUBTFUL.isdisjoint(p.flags)]


def fitted_to(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The trusted ones that weights are fitted to."""
    return [p for p in trusted(points) if not p.job.startswith(MICROBENCHMARK)]


def _drawn(by_job: Sequence[Floats], begin: npt.NDArray[np.bool_]) -> Floats:
    # Nearly all draws have coefficients in the same columns as all jobs together.
    dice = np.random.default_rng(_SEED)
    drawn: list[Floats] = []
    for _ in range(DRAWS):
        chosen: list[int] = dice.integers(len(by_job), size=len(by_job)).tolist()
        rows: Floats = np.concatenate([by_job[n] for n in chosen])
        drawn.append(non_negative_least_squares(rows, np.ones(len(rows)), begin))
    return np.array(drawn)


def _too_few(jobs: int) -> InputError:
    return InputError(
        f"{jobs} jobs with all counters, clock and temperature are too few for component weights",
        why=f"what each part draws is told apart by at least {FEWEST_JOBS} unlike jobs",
        fix="profile more jobs on that GPU: advisor profile JOB",
    )
