"""What the predictor must beat: medians, and lines through one or two metrics.

All of them know idle power and rate, and expect an energy for each operation.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from advisor.predict.profiles import Floats
from advisor_power.learn.model import Fitted, Learner, Points, above_idle_w, types_of


def _median(points: Points) -> Floats:
    return np.ones((len(points), 1))


def _zeros(points: Points) -> Floats:
    return np.array([[1, p.features["zero_products"]] for p in points])


def _two_metrics(points: Points) -> Floats:
    """Hamming weight and alignment of bits, each the mean of both operands.

    Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024), section V, have one alignment,
    between multiplied elements. Here it is that between neighbours of an operand, which the
    fingerprint has.
    """
    return np.array([[1, *(_mean(p.features, n) for n in ("weight", "along"))] for p in points])


def _mean(features: Mapping[str, float], name: str) -> float:
    return (features[f"a_{name}"] + features[f"b_{name}"]) / 2


def _linear(metrics: Callable[[Points], Floats]) -> Learner:
    def learn(points: Points) -> Fitted:
        lines = {d: _line(metrics, points, d) for d in types_of(points)}

        def predict(asked: Points) -> Floats:
            energies = [
                float(row @ lines[p.dtype]) for row, p in zip(metrics(asked), asked, strict=True)
            ]
            return np.array([p.idle_w for p in asked]) + np.array(energies) * _rates(asked)

        return predict

    return learn


def _line(metrics: Callable[[Points], Floats], points: Points, dtype: str) -> Floats:
    of = [p for p in points if p.dtype == dtype]
    energy, columns = above_idle_w(of) / _rates(of), metrics(of)
    if columns.shape[1] == 1:
        return np.array([np.median(energy)])
    found = np.linalg.lstsq(columns / energy[:, None], np.ones(len(of)), rcond=None)[0]
    return np.asarray(found, dtype=np.float64)


def _rates(points: Points) -> Floats:
    return np.array([p.flop_per_s for p in points])


BASELINES: Mapping[str, Learner] = MappingProxyType(
    {
        "median": _linear(_median),
        "two-metrics": _linear(_two_metrics),
        "zeros": _linear(_zeros),
    }
)
"""By name."""
