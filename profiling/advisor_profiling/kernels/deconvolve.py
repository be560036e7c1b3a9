"""Power over time from readings that are means over a window: Tikhonov, with an honest band.

A reading at tau is `1/W * integral of P over [tau - W, tau]`, where P before the run is known.
With P constant within bins that is a linear system. Its plain solution is the recursion
`P(tau) = W R'(tau) + P(tau - W)`, which multiplies noise by the window over the bin and adds it up
once per window, so differences of neighbouring bins are held down (Tikhonov, first differences), by
as much as generalised cross validation says (Golub, Heath, Wahba, 1979).
"""

from dataclasses import dataclass

import numpy as np

from advisor_profiling.kernels.stitch import Floats, Sensor, Stitched

_STRENGTHS = np.logspace(-4, 6, 41)
"""Tried for the weight of neighbouring differences, in units of the noise."""

_BAND = 1.96
"""95 % of a normal distribution."""


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
        return _BAND * np.sqrt(np.diag(self.covariance))

    def mean_w(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Mean power between two times, and half of its 95 % interval."""
        weights = _overlaps(np.array([end_s]), end_s - begin_s, self.edges_s)[0]
        sigma = float(np.sqrt(weights @ self.covariance @ weights))
        return float(weights @ self.power_w), _BAND * sigma


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


def deconvolve(stitched: Stitched, sensor: Sensor, edges_s: Floats) -> Curve:
    """The power in each bin.

    Args:
        stitched: Readings of golden runs.
        sensor: Window and noise.
        edges_s: Of the bins, from 0 on, shape (bins + 1,).
    """
    inside = stitched.tau_s <= edges_s[-1]
    tau_s, power_w = stitched.tau_s[inside], stitched.power_w[inside]
    matrix = _overlaps(tau_s, sensor.window_s, edges_s)
    before = np.clip(sensor.window_s - tau_s, 0, None) / sensor.window_s
    wanted = power_w - before * stitched.base_w
    counts, _ = np.histogram(tau_s, edges_s)
    solution, covariance = _solve(matrix, wanted, sensor.noise_w)
    return Curve(edges_s, solution, covariance, counts.astype(np.float64))


def _overlaps(ends_s: Floats, window_s: float, edges_s: Floats) -> Floats:
    """Part of each window that lies in each bin, shape (windows, bins)."""
    last = np.minimum(ends_s[:, None], edges_s[None, 1:])
    first = np.maximum(ends_s[:, None] - window_s, edges_s[None, :-1])
    overlaps = np.clip(last - first, 0, None)
    return np.asarray(overlaps / window_s, dtype=np.float64)


def _solve(matrix: Floats, wanted: Floats, noise_w: float) -> tuple[Floats, Floats]:
    """Least squares with differences held down, and the covariance of the solution."""
    bins = matrix.shape[1]
    differences = np.diff(np.eye(bins), axis=0)
    normal, smooth = matrix.T @ matrix, differences.T @ differences
    right = matrix.T @ wanted

    def inverse(strength: float) -> Floats:
        found = np.linalg.pinv(normal + strength * smooth, hermitian=True)
        return np.asarray(found, dtype=np.float64)

    def cross_validation(strength: float) -> float:
        operator = inverse(strength)
        residual = wanted - matrix @ (operator @ right)
        freedom = len(wanted) - float(np.trace(operator @ normal))
        return float(residual @ residual) / max(freedom, 1e-9) ** 2

    best = inverse(min(_STRENGTHS.tolist(), key=cross_validation))
    residual = wanted - matrix @ (best @ right)
    freedom = max(1.0, len(wanted) - float(np.trace(best @ normal)))
    # The larger of what the sensor does on a steady load and of what is really seen here.
    noise = max(noise_w**2, float(residual @ residual) / freedom)
    # Bayesian covariance (Wahba, 1983): it holds the bias of smoothing, too.
    return best @ right, noise * best
