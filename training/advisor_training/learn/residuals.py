"""Errors of a head of a model for jobs that were left out, with what each of them is of."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.profiles import Floats
from advisor_models.intervals import LIMITED, SPLIT, UNCAPPED, on_gpu_model
from advisor_training.dataset.rows import Names, Rows, flat
from advisor_training.learn.head_learners import LEAST_SPEED, HeadLearner
from advisor_training.learn.held_out import HeldOut


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Logarithms of measured over predicted values of jobs left out; each shape (n,).

    Attributes:
        left_out: Job that the learner had not seen.
        beside: The other job of the pair; the same one, of a job next to itself.
        stratum: What has an interval of its own (`advisor_models.intervals`); of a job its share to
            the nearest 10 %.
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
    the demand is (`advisor.predict.serving.Serving.served`). Where all of it was expected and
    served, an error is not to be seen, and there is none.
    """
    measured = flat(learner.measured(rows)[held_out.row])
    predicted = held_out.heads[learner.head.name]
    expected, parts = flat(predicted), predicted.shape[1]
    all_served = flat(learner.all_served(rows)[held_out.row])
    found = Residuals(
        np.log(np.maximum(measured, learner.least) / expected),
        np.tile(held_out.left_out, parts),
        np.tile(_beside(rows, held_out), parts),
        _strata(rows, held_out, learner),
        rows.gpu_model[held_out.row] if learner.head.of == "pair" else None,
    )
    return found.take(np.minimum(measured, expected) < all_served)


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
        np.where(rows.kind[row] == UNCAPPED, UNCAPPED, SPLIT),
    )


def share_names(shares: Floats) -> Names:
    """Shares as the strata are called: "10" to "90".

    Safe counts have shares such as 11 % and 47 %, each with few jobs: too few for a quantile.
    """
    return np.array([f"{share:g}" for share in np.clip(10 * np.round(shares / 10), 10, 90)])


def _strata(rows: Rows, held_out: HeldOut, learner: HeadLearner) -> Names:
    """Of each residual; whether a card is at its limit is told from what is expected."""
    row = held_out.row
    uncapped = rows.kind[row] == UNCAPPED
    if learner.head.of == "job":
        shares = share_names(np.concatenate([rows.share_a[row], rows.share_b[row]]))
        return np.where(np.tile(uncapped, 2), UNCAPPED, shares)
    split = np.full(len(row), SPLIT, dtype=object)
    if learner.head.limit_of is not None:
        expected = held_out.heads[learner.head.name][:, 0]
        split = np.where(expected >= NEAR_LIMIT * rows.power_limit_w[row], LIMITED, SPLIT)
    return np.where(uncapped, UNCAPPED, split).astype(str)


def _beside(rows: Rows, held_out: HeldOut) -> Names:
    a, b = rows.job_a[held_out.row], rows.job_b[held_out.row]
    return np.where(a == held_out.left_out, b, a)
