"""Least squares with coefficients that cannot be negative.

Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23. Here in numpy, since advice
is given where SciPy is not installed.
"""

import numpy as np
import numpy.typing as npt

from advisor.predict.profiles import Floats

_ENOUGH = 1e-9
"""Gradient, relative to the largest at zero, from which on no coefficient is worth moving."""


def non_negative_least_squares(
    matrix: Floats, values: Floats, begin: npt.NDArray[np.bool_] | None = None
) -> Floats:
    """The x (columns,) of no negative number with the least |matrix x - values|.

    It begins with coefficients above 0 in these columns, such as those of nearly the same problem;
    None: in no column.
    """
    # Columns of one size: what counts as nothing is then the same of each coefficient.
    sizes = np.abs(matrix).max(axis=0)
    sizes[sizes == 0] = 1.0
    matrix = matrix / sizes
    columns = matrix.shape[1]
    free = np.zeros(columns, dtype=bool) if begin is None else begin.copy()
    found = _inside(matrix, values, np.zeros_like(sizes), free)
    start = matrix.T @ values
    least = _ENOUGH * max(float(np.abs(start).max(initial=0.0)), 1e-300)
    for _ in range(3 * columns):
        gradient = np.where(free, -np.inf, matrix.T @ (values - matrix @ found))
        if gradient.max(initial=-np.inf) <= least:
            break
        free[int(gradient.argmax())] = True
        found = _inside(matrix, values, found, free)
    return found / sizes


def _inside(matrix: Floats, values: Floats, found: Floats, free: npt.NDArray[np.bool_]) -> Floats:
    """Moves towards the least squares of the free columns, and frees fewer until none is negative.

    Changes `free`.
    """
    while free.any():
        wanted = np.zeros_like(found)
        wanted[free] = np.linalg.lstsq(matrix[:, free], values, rcond=None)[0]
        blocked = free & (wanted <= 0)
        if not blocked.any():
            return wanted
        steps = np.full_like(found, np.inf)
        steps[blocked] = found[blocked] / np.maximum(found[blocked] - wanted[blocked], 1e-300)
        found = found + float(steps.min()) * (wanted - found)
        # Those that are at 0 and would go below. A new one that is still at 0 goes up: it stays.
        free &= ~blocked | (found > 1e-12 * max(float(found.max()), 1e-300))
        free[int(steps.argmin())] = False
        found = np.where(free, found, 0.0)
    return np.zeros_like(found)
