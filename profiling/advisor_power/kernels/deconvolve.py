"""Power over time from readings that are means over a window: Tikhonov, with an honest band.

A reading at tau is `1/W * integral of P over [tau - W, tau]`, or of an exponential response; P
before the run is known.
With P constant within bins that is a linear system. Its plain solution is the recursion
`P(tau) = W R'(tau) + P(tau - W)`, which multiplies noise by the window over the bin and adds it up
once per window, so differences of neighbouring bins are held down (Tikhonov, first differences), by
as much as generalised cross validation says (Golub, Heath, Wahba, 1979). Where the delay of
the sensor varies, a reading is taken for the mean of what it would be at each delay, and counts the
less the more these differ: near a step of power it says little of when the step was.
"""

import math
from dataclasses import dataclass

import numpy as np

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import PowerChannel
from advisor_power.kernels.runs import STANDARD_ERRORS_95, Stitched

_MOST_OF_LIMIT = 1.6
"""Of the power limit: bands of operations at it went up to 1.5 times (docs/measurements)."""

_MOST_DIFFER = 0.03
"""Part by which curve and energy counter may differ."""


_PARTS = 4
"""Of each bin, in which power is taken as constant: in whole bins it is not, and what a window that
begins within a bin sees of that would be taken for a difference between bins."""

_DELAYS = 8  # of those within the spread, how many are looked at


@dataclass(frozen=True, slots=True)
class Curve:
    """Power in bins since the start of a run.

    Attributes:
        edges_s: Of the bins, shape (bins + 1,).
        power_w: Mean of each bin, shape (bins,).
        covariance: Of these means, W^2, shape (bins, bins).
        readings: Windows that ended in each bin, shape (bins,).
    """

    edges_s: Floats
    power_w: Floats
    covariance: Floats
    readings: Floats

    @property
    def band_w(self) -> Floats:
        """Half of the 95 % interval of each bin."""
        return STANDARD_ERRORS_95 * np.sqrt(np.diag(self.covariance))

    def mean_w(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Mean power between two times, and half of its 95 % interval."""
        weights = _overlaps(np.array([end_s]), end_s - begin_s, self.edges_s)[0]
        sigma = float(np.sqrt(weights @ self.covariance @ weights))
        return float(weights @ self.power_w), STANDARD_ERRORS_95 * sigma


def fault_of(
    band_w: tuple[float, float], idle_w: float, limit_w: float | None, differ: float | None
) -> str:
    """Why a curve is no result; "": it is one.

    Readings that are few, or late by another time each, can be explained by power that swings by
    thousands of watts.

    Args:
        band_w: The lowest and the highest power within its 95 % band.
        idle_w: The least that the GPU draws.
        limit_w: Its power limit; None: not known.
        differ: By which part energy by the counter is off that of the curve; None: not compared.
    """
    low_w, high_w = band_w
    limit_w, off = math.inf if limit_w is None else limit_w, differ or 0.0
    reasons = {
        f"its band goes down to {low_w:.0f} W, and the idle GPU draws {idle_w:.0f} W": (
            low_w < idle_w
        ),
        f"its band goes up to {high_w:.0f} W, over {_MOST_OF_LIMIT:g} times the limit of "
        f"{limit_w:.0f} W": high_w > _MOST_OF_LIMIT * limit_w,
        f"the energy counter says {off:+.1%}, and {_MOST_DIFFER:.0%} is allowed": (
            abs(off) > _MOST_DIFFER
        ),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def bin_edges(length_s: float, execution_s: float, resolution_s: float) -> Floats:
    """Bins near the resolution that begin and end with executions.

    Executions longer than the resolution are cut into equal bins, shorter ones are put together.
    """
    if execution_s >= resolution_s:
        width = execution_s / int(execution_s / resolution_s)
    else:
        width = execution_s * round(resolution_s / execution_s)
    count = max(1, int(length_s / width + 1e-6))
    return np.linspace(0.0, count * width, count + 1, dtype=np.float64)


def deconvolve(stitched: Stitched, sensor: PowerChannel, edges_s: Floats) -> Curve:
    """The power in each bin, by readings of golden runs; edges begin with 0, shape (bins + 1,)."""
    bins = len(edges_s) - 1
    parts_s = np.interp(np.arange(bins * _PARTS + 1) / _PARTS, np.arange(bins + 1), edges_s)
    inside = stitched.tau_s <= edges_s[-1] - sensor.late_s
    tau_s, power_w = stitched.tau_s[inside], stitched.power_w[inside]
    ends_s = [tau_s + late_s for late_s in _late_s(sensor)]
    matrices = np.stack([_parts(ends, sensor, parts_s) for ends in ends_s])
    before_w = stitched.base_w * np.stack([_before(ends, sensor) for ends in ends_s])
    matrix, wanted = matrices.mean(axis=0), power_w - before_w.mean(axis=0)
    solution, covariance = _solve(matrix, wanted, sensor.noise_w)
    # Readings are weighed anew by the curve that came out.
    for _ in range(3 if sensor.late_s else 0):
        scatter_w = np.std(matrices @ solution + before_w, axis=0)
        weight = sensor.noise_w / np.hypot(sensor.noise_w, scatter_w)
        solution, covariance = _solve(matrix * weight[:, None], wanted * weight, sensor.noise_w)
    means = np.kron(np.eye(bins), np.full((1, _PARTS), 1 / _PARTS))
    counts, _ = np.histogram(tau_s, edges_s)
    return Curve(edges_s, means @ solution, means @ covariance @ means.T, counts.astype(np.float64))


def _late_s(sensor: PowerChannel) -> list[float]:
    if not sensor.late_s:
        return [0.0]
    parts = (np.arange(_DELAYS) + 0.5) / _DELAYS - 0.5
    return [float(part) for part in sensor.delay_spread_ms / 1000 * parts]


def _before(ends_s: Floats, sensor: PowerChannel) -> Floats:
    """Part of each reading that is of what was before the run."""
    if sensor.response == "mean":
        return np.asarray(np.clip(1 - ends_s / (sensor.window_ms / 1000), 0, 1), dtype=np.float64)
    return _forgotten(ends_s, sensor)


def _parts(ends_s: Floats, sensor: PowerChannel, edges_s: Floats) -> Floats:
    """Part of each reading that is of each bin, shape (readings, bins)."""
    if sensor.response == "mean":
        return _overlaps(ends_s, sensor.window_ms / 1000, edges_s)
    left = _forgotten(ends_s[:, None] - edges_s[None, :], sensor)
    return np.asarray(left[:, 1:] - left[:, :-1], dtype=np.float64)


def _forgotten(since_s: Floats, sensor: PowerChannel) -> Floats:
    """Part of an exponential response that is of what was before that time."""
    constant_s = sensor.window_ms / 1000 / 2
    return np.asarray(np.exp(-np.maximum(since_s, 0) / constant_s), dtype=np.float64)


def _overlaps(ends_s: Floats, window_s: float, edges_s: Floats) -> Floats:
    """Part of each window that lies in each bin, shape (windows, bins)."""
    last = np.minimum(ends_s[:, None], edges_s[None, 1:])
    first = np.maximum(ends_s[:, None] - window_s, edges_s[None, :-1])
    overlaps = np.clip(last - first, 0, None)
    return np.asarray(overlaps / window_s, dtype=np.float64)


def _solve(matrix: Floats, wanted: Floats, noise_w: float) -> tuple[Floats, Floats]:
    """Least squares with differences held down, and the covariance of the solution.

    Both quadratic forms are made diagonal at once, so that each strength costs next to nothing:
    `matrix.T @ matrix + s * scale * smooth` is `inv(V).T @ diag(1 + (s - 1) * share) @ inv(V)`.
    """
    differences = np.diff(np.eye(matrix.shape[1]), axis=0)
    normal, smooth = matrix.T @ matrix, differences.T @ differences
    smooth = smooth * (float(np.trace(normal)) / float(np.trace(smooth)))
    half = np.linalg.inv(np.linalg.cholesky(normal + smooth))
    share, turned = np.linalg.eigh(half @ smooth @ half.T)
    basis = half.T @ turned
    seen, right = matrix @ basis, basis.T @ (matrix.T @ wanted)

    def residual_and_freedom(strength: float) -> tuple[float, float]:
        weight = 1 / (1 + (strength - 1) * share)
        residual = wanted - seen @ (weight * right)
        freedom = len(wanted) - float(np.sum(weight * (1 - share)))
        return float(residual @ residual), max(freedom, 1.0)

    def cross_validation(strength: float) -> float:
        residual, freedom = residual_and_freedom(strength)
        return residual / freedom**2

    # The weight of neighbouring differences against that of the readings.
    best = min(np.logspace(-6, 4, 41).tolist(), key=cross_validation)
    weight = 1 / (1 + (best - 1) * share)
    residual, freedom = residual_and_freedom(best)
    # The larger of what the sensor does on a steady load and of what is really seen here.
    noise = max(noise_w**2, residual / freedom)
    # Bayesian covariance (Wahba, 1983): it holds the bias of smoothing, too.
    return basis @ (weight * right), noise * (basis * weight) @ basis.T
