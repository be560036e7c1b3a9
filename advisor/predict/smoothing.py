"""Rates of a job alone as a function of its share, without dips that are noise. Pure.

More SMs do not make a job slower; where a profile says so, mostly of launch-bound jobs, its
windows were disturbed. Dips are taken out by the non-decreasing fit that changes the logarithms
least, each weighted by how surely it is known (pool adjacent violators: R. E. Barlow,
D. J. Bartholomew, J. M. Bremner, H. D. Brunk, "Statistical Inference under Order Restrictions",
1972, chapter 1).
"""

import math
from collections.abc import Sequence

LEAST_ERROR = 0.002
"""Relative standard error that a rate has at least: two profiles of a GPU-bound job on one card
differ by 0.1 to 0.2 % (docs/measurements, "Does a profile repeat?")."""


def non_decreasing_rates(rates: Sequence[float], stderrs: Sequence[float]) -> list[float]:
    """The rates without dips.

    Args:
        rates: Over ascending shares, above 0.
        stderrs: Standard error of each, in the same unit; NaN where it is not known.
    """
    pools: list[tuple[float, float, int]] = []  # mean of the logarithms, weight, how many
    for rate, stderr in zip(rates, stderrs, strict=True):
        relative = stderr / rate if stderr == stderr else 0.0  # NaN is not itself
        pool = (math.log(rate), 1 / max(relative, LEAST_ERROR) ** 2, 1)
        while pools and pools[-1][0] > pool[0]:
            pool = _joined(pools.pop(), pool)
        pools.append(pool)
    return [
        rates[place] if count == 1 else math.exp(mean)
        for start, (mean, _, count) in zip(_starts(pools), pools, strict=True)
        for place in range(start, start + count)
    ]


def _joined(
    one: tuple[float, float, int], other: tuple[float, float, int]
) -> tuple[float, float, int]:
    weight = one[1] + other[1]
    return (one[0] * one[1] + other[0] * other[1]) / weight, weight, one[2] + other[2]


def _starts(pools: Sequence[tuple[float, float, int]]) -> list[int]:
    counts = [count for _, _, count in pools]
    return [sum(counts[:n]) for n in range(len(counts))]
