"""What a learner expects of rows that it was not fitted to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Names, Rows
from advisor_training.learn.learners import Fitted, Learner, Predicted

OnFold: TypeAlias = Callable[[str, int, int], None]
"""Takes what is left out, how many folds are done, and how many there are."""

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Predictions of n rows by a learner that was fitted without them.

    Leaving out jobs, a row is tested once for each of its two jobs.

    Attributes:
        left_out: What was left out of the fit, the name of a job or of another group; shape (n,).
        row: Index of the tested row; shape (n,).
    """

    left_out: Names
    row: npt.NDArray[np.int64]
    predicted: Predicted

    def __len__(self) -> int:
        return len(self.row)

    @property
    def speed(self) -> Floats:
        """Expected relative speed of each job; shape (n, 2)."""
        return self.predicted.speed

    @property
    def heads(self) -> Mapping[str, Floats]:
        """What each head says; shape (n, parts)."""
        return self.predicted.heads

    @property
    def power_w(self) -> Floats:
        """Expected power, W; shape (n,)."""
        return self.predicted.power_w

    def take(self, which: Mask | npt.NDArray[np.int64]) -> "HeldOut":
        """Some of the answers: by a mask of shape (n,), or by their numbers in any order."""
        heads = {name: values[which] for name, values in self.heads.items()}
        return HeldOut(self.left_out[which], self.row[which], Predicted(self.speed[which], heads))


def leave_one_job_out(rows: Rows, learner: Learner, progress: OnFold | None = None) -> HeldOut:
    """For each job, what a learner that never saw it expects of every row with it.

    Raises:
        InputError: without a job there are no rows left to learn from.
    """
    return _tested(rows, learner, [(job, rows.of(job)) for job in rows.jobs], progress)


def fold_by(
    rows: Rows, groups: npt.NDArray[Any], learner: Learner, progress: OnFold | None = None
) -> HeldOut:
    """For each group of rows, what a learner that was fitted to the other groups expects of it.

    Raises:
        InputError: there is one group only.
    """
    folds = [(str(group), groups == group) for group in np.unique(groups)]
    return _tested(rows, learner, folds, progress)


def predicted(fitted: Fitted, rows: Rows, mask: Mask, name: str) -> HeldOut:
    """What a fitted learner expects of the rows of a mask, which it did not learn from."""
    tested = np.flatnonzero(mask)
    return HeldOut(np.full(len(tested), name), tested, fitted(rows.take(tested)))


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Predictions one after the other."""
    heads = {n: np.concatenate([part.heads[n] for part in parts]) for n in parts[0].heads}
    return HeldOut(
        np.concatenate([part.left_out for part in parts]),
        np.concatenate([part.row for part in parts]),
        Predicted(np.concatenate([part.speed for part in parts]), heads),
    )


def _tested(
    rows: Rows, learner: Learner, folds: Sequence[tuple[str, Mask]], progress: OnFold | None
) -> HeldOut:
    parts: list[HeldOut] = []
    for count, (name, mask) in enumerate(folds, 1):
        if mask.all():
            raise InputError(
                f"{name} cannot be left out",
                why=f"it has {mask.sum()} of {len(rows)} rows",
                fix="measure more pairs: advisor colocate",
            )
        parts.append(predicted(learner(rows.take(~mask)), rows, mask, name))
        if progress is not None:
            progress(name, count, len(folds))
    return joined(parts)
