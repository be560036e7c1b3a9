"""Rows as one head of a model sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.predict.features import Float32s, Side
from advisor.predict.profiles import Floats
from advisor_models.heads import Head, inputs_of


@dataclass(frozen=True, slots=True, eq=False)
class HeadRows:
    """What a head takes of n rows; a part is a job of the pair, or the pair.

    Attributes:
        features: Shape (n, parts, features).
        prior: Shape (n, parts), in the unit of the head.
    """

    features: Float32s
    prior: Floats

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> "HeadRows":
        """Those of a mask or of indices."""
        return HeadRows(self.features[which], self.prior[which])

    @staticmethod
    def joined(blocks: "Sequence[HeadRows]") -> "HeadRows":
        """One after the other."""
        return HeadRows(
            np.concatenate([block.features for block in blocks]),
            np.concatenate([block.prior for block in blocks]),
        )


def head_rows(head: Head, sides: Sequence[Side]) -> HeadRows:
    """What a head takes of jobs at their shares, one row for each."""
    found = inputs_of(head, sides)
    parts = np.split(found.features, len(found.priors))
    return HeadRows(np.stack(parts, axis=1), np.stack(found.priors, axis=1))


def flat(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """All of the first part, then all of the second: (n, parts, ...) to (parts x n, ...)."""
    return np.concatenate(list(np.moveaxis(values, 1, 0)))
