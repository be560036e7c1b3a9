"""What sort of split each pair point was measured at, and which splits are the nine of a pair.

The nine splits are 10/90..90/10 in steps of 10. Where libraries compute wrong results at some
counts of units, a campaign measures the nearest safe splits instead
(advisor/validity/safe_counts.py); on
H100 and H200 these are 10/90, 11/90, 26/54, 47/54, 50/50 and their mirror images. They differ by
GPU model and by job, and some leave units idle, so they are recognised by what was measured and not
by a list: where a pair was measured in one run on one card at no more than nine splits that use
about the whole GPU, those are its nine. Where there are more, the nine are those in steps of 10,
and the others are a finer grid.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from advisor.core.gpu import WHOLE
from advisor.core.records import OBSERVED_SOURCE, PairPoint, PointPart
from advisor.core.split import EQUAL, Split

SplitKind = Literal["nine", "grid", "over-subscribed", "other", "uncapped", "time-sliced"]
"""nine: the nine splits of the pair, in steps of 10 or at safe counts. grid: exact counts of units
that add up to the whole GPU, next to the nine. over-subscribed: shares of more than the GPU, such
as 70/70. other: shares of less than it."""

KINDS: tuple[SplitKind, ...] = get_args(SplitKind)

LARGEST_GAP = 0.25
"""Part of the nine splits that may be missing, left out for a flag, before a pair is left out."""

LEAST_ON_A_SIDE = 2
"""Splits with the larger share for one job, and for the other. Any seven of the nine in steps of 10
have them; what flags leave of a finer grid around the best split may not."""

LEAST_USED = 0.75
"""Part of the units that a split of the nine uses at least. The safe counts nearest to 30/70 on an
H100, 34 and 70 SMs, use 79 % of them."""


def kinds_of(points: Sequence[PairPoint]) -> list[SplitKind]:
    """The kind of each point; those of one pair, card and run are looked at together."""
    groups: dict[tuple[str, ...], set[Split]] = {}
    for point in points:
        splits = groups.setdefault(measurement_of(point), set())
        if uses_the_gpu(point):
            splits.add(split_of(point))
    own = {key for key, splits in groups.items() if _are_nine(splits, key[0] == key[1])}

    def is_one_of_nine(point: PairPoint) -> bool:
        # A launch has one split, which was chosen among the nine of its GPU or by its user.
        return (measurement_of(point) in own or is_observed(point)) and uses_the_gpu(point)

    return ["nine" if is_one_of_nine(point) else _by_itself(point) for point in points]


def is_observed(point: PairPoint) -> bool:
    """Whether it was made of what launched jobs did."""
    return point.source == OBSERVED_SOURCE


def is_full(splits: Iterable[Split], *, beside_itself: bool) -> bool:
    """Whether 50/50 and enough of the nine splits are there for their best to be an oracle."""
    present = set(splits)
    shares = [split.shares for split in present]
    sides = sum(own < other for own, other in shares), sum(own > other for own, other in shares)
    return (
        EQUAL in present
        and len(present) >= how_many(beside_itself=beside_itself) * (1 - LARGEST_GAP)
        and (beside_itself or min(sides) >= LEAST_ON_A_SIDE)
    )


def how_many(*, beside_itself: bool) -> int:
    """How many splits the nine are: five of a job next to itself, where the others are the same."""
    return 5 if beside_itself else 9


def split_of(point: PairPoint) -> Split:
    """Shares in the order of the jobs' names; of a job next to itself, the smaller share first.

    A job at 90 % next to itself at 10 % is what it is at 10 % next to itself at 90 %.
    """
    shares = tuple(part.share_percent for part in in_split_order(point))
    return Split(shares, _sharing(point))


def in_split_order(point: PairPoint) -> list[PointPart]:
    """The parts in the order of `split_of`."""
    return sorted(point.parts, key=lambda part: (part.job, part.share_percent))


def measurement_of(point: PairPoint) -> tuple[str, ...]:
    """Which measurement a point is of: its jobs, GPU model, card and run."""
    return (*point.jobs, point.gpu_model, point.gpu_uuid, point.run)


def _are_nine(splits: set[Split], beside_itself: bool) -> bool:
    few = len(splits) <= how_many(beside_itself=beside_itself)
    return few and is_full(splits, beside_itself=beside_itself)


def uses_the_gpu(point: PairPoint) -> bool:
    """Whether it is of two jobs with limits, and together about the whole GPU but not more."""
    if len(point.parts) > 2 or _by_itself(point) in ("uncapped", "time-sliced"):
        return False
    return LEAST_USED <= _used(point) <= 1


def _used(point: PairPoint) -> float:
    units = [part.units or 0 for part in point.parts]
    if point.units_total and all(units):
        return sum(units) / point.units_total
    return sum(point.shares_percent) / 100


def _by_itself(point: PairPoint) -> SplitKind:
    """The kind of a point without a look at the others of its run."""
    if (sharing := _sharing(point)) != "limited":
        return sharing
    shares = point.shares_percent
    if sum(shares) == 100 and all(share % 10 == 0 for share in shares):
        return "nine"
    if point.units_total and sum(part.units or 0 for part in point.parts) == point.units_total:
        return "grid"
    return "over-subscribed" if sum(shares) > 100 else "other"


def _sharing(point: PairPoint) -> Literal["limited", "uncapped", "time-sliced"]:
    """How the jobs of a point shared the GPU; limits of 100 % each are none."""
    if point.mode == "time-sliced":
        return "time-sliced"
    whole = all(share == WHOLE for share in point.shares_percent)
    return "uncapped" if point.mode == "uncapped" or whole else "limited"
