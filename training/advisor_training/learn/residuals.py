"""Errors of a head of a model for jobs that were left out, with what each of them is of."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.profiles import Floats
from advisor_models.intervals import LIMITED, SPLIT, on_gpu_model
from advisor_training.dataset.rows import Names, Rows, flat
from advisor_training.learn.head_learners import LEAST_SPEED, HeadLearner
from advisor_training.learn.held_out import HeldOut


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Logarithms of measured over predicted values of jobs left out; each shape (n,).

    Attributes:
        left_out: Job that the learner had not seen.
        beside: The other job of the pair; the same one, of a job next to itself.
        stratum: What has an interval of its own (`advisor_models.intervals`).
        gpu_model: Where GPU models have intervals of their own; None: they have not.
    """

    values: Floats
    left_out: Names
    beside: Names
    stratum: Names
    gpu_model: Names | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, which: npt.NDArray[np.bool_]) -> "Residuals":
        """Those for which `which`, as long as the residuals, is true."""
        return Residuals(
            self.values[which],
            self.left_out[which],
            self.beside[which],
            self.stratum[which],
            None if self.gpu_model is None else self.gpu_model[which],
        )

    @property
    def own_stratum(self) -> Names:
        """The part of the stratum that the GPU model has, by name."""
        if self.gpu_model is None:
            return self.stratum
        both = zip(self.stratum.tolist(), self.gpu_model.tolist(), strict=True)
        return np.array([on_gpu_model(*each) for each in both])


def residuals_of(rows: Rows, held_out: HeldOut, learner: HeadLearner) -> Residuals:
    """Of one head; first of all first jobs, then of all second ones.

    Of jobs with a fixed demand they are of what the jobs could do, to which bounds are put before
    the demand is (`advisor.predict.profiles.Serving.served`). Where all of it was expected and
    served, or missed by less than twice what chance misses, an error is not to be seen, and there
    is none.
    """
    tested = rows.take(held_out.row)
    predicted = held_out.heads[learner.head.name]
    parts = predicted.shape[1]
    measured = learner.possible(tested, learner.measured(tested))
    expected = learner.possible(tested, predicted)
    found = Residuals(
        np.log(measured / expected),
        np.tile(held_out.left_out, parts),
        np.tile(_beside(rows, held_out), parts),
        _strata(rows, held_out, learner),
        tested.gpu_model if learner.head.of == "pair" else None,
    )
    short = 2 * flat(learner.all_served(tested)) - 1
    return found.take(np.minimum(measured, expected) < short)


def efficiency_residuals(rows: Rows, held_out: HeldOut) -> Residuals:
    """Of the energy that the same work takes one after the other, per energy that it takes shared.

    What is expected has the powers alone from the profiles, what is measured those of the pair's
    own card: where that card draws more for everything, both are the same.
    """
    row = held_out.row
    measured = (
        rows.speed_a[row] * rows.solo_power_a_w[row] + rows.speed_b[row] * rows.solo_power_b_w[row]
    ) / rows.power_w[row]
    speed_a, speed_b = held_out.speed.T
    expected = (
        speed_a * rows.profile_power_a_w[row] + speed_b * rows.profile_power_b_w[row]
    ) / held_out.power_w
    return Residuals(
        np.log(np.maximum(measured, LEAST_SPEED) / expected),
        held_out.left_out,
        _beside(rows, held_out),
        rows.situation[row],
    )


def _strata(rows: Rows, held_out: HeldOut, learner: HeadLearner) -> Names:
    """Of each residual; whether a card is at its limit is told from what is expected."""
    row = held_out.row
    if learner.head.of == "job":
        return np.concatenate([rows.situation_a[row], rows.situation_b[row]])
    found = rows.situation[row]
    if learner.head.limit_of is None:
        return found
    expected = held_out.heads[learner.head.name][:, 0]
    at_limit = expected >= NEAR_LIMIT * rows.power_limit_w[row]
    # What is uncapped has no such place in its name.
    return np.where(at_limit, np.char.replace(found, f"{SPLIT}, ", f"{LIMITED}, "), found)


def _beside(rows: Rows, held_out: HeldOut) -> Names:
    a, b = rows.job_a[held_out.row], rows.job_b[held_out.row]
    return np.where(a == held_out.left_out, b, a)
