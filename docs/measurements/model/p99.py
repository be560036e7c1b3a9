"""Prints how far the tail of a server is from what it was beside the same job at the same split.

    .venv/bin/python docs/measurements/model/p99.py

Each bundled window of a pair that was measured more than once at a split, and in which the server
met its whole demand (97 % of it), is predicted by the median of the others there, which are of
other cards.
"""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from advisor_data.bundled import bundled_pair_points, select

SERVED = 0.97


def main() -> None:
    """Print the table."""
    print("| same jobs, same split | windows | 5 % | median | 95 % | mean off, factor |")
    print("|---|--:|--:|--:|--:|--:|")
    logs = np.log(np.array(list(repeated()), dtype=np.float64))
    quantiles = " | ".join(
        f"{math.exp(x):.2f}" for x in np.quantile(logs, [0.05, 0.5, 0.95]).tolist()
    )
    off = math.exp(float(np.abs(logs).mean()))
    print(f"| by other windows | {len(logs)} | {quantiles} | {off:.2f} |")


def repeated() -> Iterator[float]:
    """p99 of each window of a server over the median of the other windows at that split."""
    groups: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
    for point in select(bundled_pair_points()).points:
        for n, part in enumerate(point.parts):
            is_served = (part.rate or 0) / (part.offered_rate or np.inf) >= SERVED
            if part.latency_p99_ms and is_served:
                where = (point.jobs, n, point.gpu_model, point.mode, point.shares_percent)
                groups[where].append(part.latency_p99_ms)
    for own in groups.values():
        for n, one_ms in enumerate(own):
            if others := own[:n] + own[n + 1 :]:
                yield one_ms / float(np.median(others))


if __name__ == "__main__":
    main()
