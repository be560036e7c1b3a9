"""Prints how much longer the tail of a server is beside another job than alone at the same share.

    .venv/bin/python docs/measurements/model/p99.py

Bundled windows of pairs in which a server met its whole demand (97 % of it), and those in which it
did not: its p99 over that of its profile at the share. Then each server is predicted by the others:
the 5th, 50th and 95th percentile of their ratios under limits, and how many of its own they hold.
Last, each window of a pair that was measured more than once at a split is predicted by the median
of the others there, which are of other cards.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.predict.profiles import Profile, make_profiles
from advisor_data.bundled import bundled_pair_points, bundled_solo_points, select

SERVED = 0.97
SMALL = 0.7
"""Part of its rate that a job keeps at 26 % of the SMs without filling the card."""


@dataclass(frozen=True)
class Tail:
    """One server in one window."""

    server: str
    kind: str
    is_served: bool
    ratio: float


def main() -> None:
    """Print both tables."""
    tails = list(tails_of())
    print("| | demand | windows | 5 % | 25 % | median | 75 % | 95 % |")
    print(f"|---|---|{'--:|' * 6}")
    for kind in sorted({tail.kind for tail in tails}):
        for is_served in (True, False):
            own = [t.ratio for t in tails if t.kind == kind and t.is_served == is_served]
            if own:
                cells = (f"{x:.2f}" for x in np.quantile(own, [0.05, 0.25, 0.5, 0.75, 0.95]))
                demand = "met" if is_served else "not met"
                print(f"| {kind} | {demand} | {len(own)} | {' | '.join(cells)} |")
    limited = [t for t in tails if t.kind.startswith("limits") and t.is_served]
    print("\n| server | windows | by the others: 5 % | median | 95 % | held % | mean off, factor |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for server in sorted({tail.server for tail in limited}):
        print(f"| {server} | {' | '.join(held(server, limited))} |")
    print("\n| same jobs, same split | windows | 5 % | median | 95 % | mean off, factor |")
    print("|---|--:|--:|--:|--:|--:|")
    logs = np.log(np.array(list(repeated()), dtype=np.float64))
    quantiles = " | ".join(
        f"{math.exp(x):.2f}" for x in np.quantile(logs, [0.05, 0.5, 0.95]).tolist()
    )
    off = math.exp(float(np.abs(logs).mean()))
    print(f"| by other windows | {len(logs)} | {quantiles} | {off:.2f} |")


def held(server: str, tails: Sequence[Tail]) -> Iterator[str]:
    """What the other servers say of one."""
    own = np.array([t.ratio for t in tails if t.server == server])
    others = [t.ratio for t in tails if t.server != server]
    low, median, high = np.quantile(others, [0.05, 0.5, 0.95])
    yield str(len(own))
    yield from (f"{x:.2f}" for x in (low, median, high))
    yield f"{100 * np.mean((own >= low) & (own <= high)):.0f}"
    yield f"{np.exp(np.mean(np.abs(np.log(own / median)))):.2f}"


def tails_of() -> Iterator[Tail]:
    """Every window of a server whose tail alone at that share is known."""
    profiles = make_profiles(bundled_solo_points())
    for point in select(bundled_pair_points()).points:
        for part, other in zip(point.parts, point.parts[::-1], strict=True):
            own, beside = (profiles.get((p.job, point.gpu_model)) for p in (part, other))
            alone_ms = own and own.serving and own.serving.p99_alone_ms(part.share_percent)
            if not (part.latency_p99_ms and alone_ms and beside and part.offered_rate):
                continue
            how = "no limits" if point.mode == "uncapped" else "limits"
            what = "a small job" if is_small(beside) else "one that fills the card"
            kind = f"{how}, beside {what}"
            served = (part.rate or 0) / part.offered_rate >= SERVED
            yield Tail(part.job, kind, served, part.latency_p99_ms / alone_ms)


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


def is_small(profile: Profile) -> bool:
    """Whether it does not fill the card."""
    if profile.shares[0] > 26:
        return False
    return float(profile.at([26.0])["rate"][0]) / profile.whole_gpu_rate >= SMALL


if __name__ == "__main__":
    main()
