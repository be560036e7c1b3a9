"""A split: which share of one GPU each of several jobs gets, or that they share it without limits.

The text of a split is what people write and read everywhere: `30/70`, `20/30/50`, `uncapped`,
`time-sliced` or `exclusive`. `:low` behind a share runs that job below normal priority:
`100:low/100`.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from advisor.core.gpu import (
    BELOW_NORMAL,
    WHOLE,
    Share,
    Vendor,
    check_percent,
    grantable,
    quantum,
    share_environment,
    share_for_units,
)
from advisor.errors import InputError

Sharing = Literal["limited", "uncapped", "time-sliced", "exclusive"]
"""How jobs use one GPU. limited: side by side, each under its share; uncapped: side by side under
MPS without limits; time-sliced: without MPS, in turns of the driver; exclusive: one job after the
other, each alone on the whole GPU."""

SHARINGS: tuple[Sharing, ...] = get_args(Sharing)
"""In a tie the first one is taken: under limits no job can take another's units."""

ADVISED_JOBS = 2
"""How many jobs on one GPU are predicted and advised: what models have learned from."""

MOST_MASKS = 2
"""Jobs with a CU mask on one GPU: masks begin at one of two ends."""

MOST_JOBS = 7
"""Of a set on one GPU: each process wants a core or two of its own, of about 16 for each card of a
host."""

ISOLATING: tuple[Sharing, ...] = ("time-sliced", "exclusive")
"""Where a fault of one job leaves the others running; clients of one MPS server all end with it."""

_WORDS: tuple[Sharing, ...] = SHARINGS[1:]
_LOW = ":low"
_SHARE = rf"\d{{1,3}}(?:\.\d{{1,3}})?(?:{_LOW})?"
_SHARES = re.compile(rf"{_SHARE}(?: ?/ ?{_SHARE})+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """A share for each job, in their order; of one alone for as long as nobody has joined it.

    Attributes:
        shares: Percent of the GPU's units, one for each job; 100 each where there are no limits.
        sharing: How the jobs use the GPU.
        below_normal: Places of the jobs that run below normal priority under MPS, ascending.

    Raises:
        InputError: no share, or one that the driver would take as no limit.
    """

    shares: tuple[float, ...]
    sharing: Sharing = "limited"
    below_normal: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.shares:
            raise InputError("a split of no shares is not possible", fix="write it as 30/70")
        for share in self.shares:
            check_percent(share)

    def __str__(self) -> str:
        if not (self.is_limited or self.below_normal):
            return self.sharing
        return "/".join(f"{share:g}{_LOW if low else ''}" for share, low in self.seats)

    @property
    def is_limited(self) -> bool:
        """Whether each job has a limit."""
        return self.sharing == "limited"

    @property
    def seats(self) -> tuple[tuple[float, bool], ...]:
        """Of each job its share, and whether it runs below normal priority."""
        return tuple((share, n in self.below_normal) for n, share in enumerate(self.shares))

    @property
    def gap_percent(self) -> float:
        """Largest less smallest share: 0 where all jobs get the same."""
        return max(self.shares) - min(self.shares)

    def ordered(self, order: Sequence[int]) -> "Split":
        """The same with the jobs in another order: which of the present ones stands where."""
        low = tuple(n for n, seat in enumerate(order) if seat in self.below_normal)
        return Split(tuple(self.shares[n] for n in order), self.sharing, low)

    def joined_by(self, share_percent: float) -> "Split":
        """With one more job, the last, at normal priority."""
        return replace(self, shares=(*self.shares, share_percent))


def without_limits(sharing: Sharing, jobs: int = 2) -> Split:
    """So many jobs sharing without limits: `uncapped`, `time-sliced` or `exclusive`."""
    return Split((WHOLE,) * jobs, sharing)


UNCAPPED = without_limits("uncapped")
TIME_SLICED = without_limits("time-sliced")
EXCLUSIVE = without_limits("exclusive")

EQUAL = Split((50.0, 50.0))

NINE: tuple[Split, ...] = tuple(Split((float(p), WHOLE - p)) for p in range(10, 100, 10))
"""10/90, 20/80 .. 90/10."""


def parse_split(text: str, jobs: int = 2) -> Split:
    """The split that a text stands for.

    How many jobs share only words need to be told; percentages say it themselves.

    Raises:
        InputError: it stands for none, or for a priority that is none; the message says how to
        write one.
    """
    if text in _WORDS:
        return without_limits(text, jobs)
    if not _SHARES.fullmatch(text):
        near = difflib.get_close_matches(text, _WORDS, n=1)
        raise InputError(
            f"{text!r} is not a split",
            why=f"the nearest is {near[0]}" if near else "",
            fix=f"write percentages such as 30/70 or 100{_LOW}/50, or {', '.join(_WORDS[:-1])} or "
            f"{_WORDS[-1]}",
        )
    seats = [seat.strip() for seat in text.split("/")]
    shares = tuple(float(seat.removesuffix(_LOW)) for seat in seats)
    low = tuple(n for n, seat in enumerate(seats) if seat.endswith(_LOW))
    if any(not 0 < share <= WHOLE for share in shares):
        raise InputError(
            f"the split {text!r} is not possible",
            why="the driver takes 0 and percentages above 100 as no limit at all",
            fix="give shares above 0 and at most 100 %",
        )
    if len(low) == len(shares):
        raise InputError(
            "all jobs below normal priority wait for each other as all at normal priority do",
            fix=f"leave one without {_LOW}, such as 100{_LOW}/100",
        )
    is_free = all(share == WHOLE for share in shares)
    return Split(shares, "uncapped" if is_free else "limited", low)


def fine_splits(units_total: int, vendor: Vendor) -> tuple[Split, ...]:
    """Every split of a GPU between two jobs in steps of its quantum, by the share of the first."""
    step, least = quantum(units_total, vendor), grantable(units_total, vendor)[0]
    together = units_total - units_total % step
    return tuple(
        split_of_units((units, together - units), units_total, vendor)
        for units in range(least, together - least + 1, step)
    )


def split_of_units(units: Iterable[int], units_total: int, vendor: Vendor) -> Split:
    """Exact counts of units as a split in percent.

    Raises:
        InputError: the GPU cannot grant one of them.
    """
    return Split(tuple(share_for_units(count, units_total, vendor) for count in units))


def split_shares(split: Split) -> tuple[Share, ...]:
    """The share of each job; CU masks of the first and the last limited one begin at opposite ends.

    So those of two jobs that get 100 % or less together have no CU in common.
    """
    limited = [n for n, percent in enumerate(split.shares) if percent < WHOLE]
    return tuple(
        Share(percent, upper=n in limited[1:] and n == limited[-1], below_normal=low)
        for n, (percent, low) in enumerate(split.seats)
    )


def check_masks(split: Split, vendor: Vendor) -> None:
    """Refuse on AMD limits for three jobs or more, whose CU masks would overlap, and priorities.

    Raises:
        InputError: there are such.
    """
    if vendor == "amd" and split.below_normal:
        raise InputError(
            f"{split} is not possible on an AMD GPU",
            why="priority is one of clients of MPS, which is NVIDIA's",
            fix="leave :low out",
        )
    if vendor == "amd" and not can_be_masked(split):
        raise InputError(
            f"{split} is not possible on an AMD GPU",
            why="CU masks begin at one of two ends of the GPU, so those of three jobs overlap",
            fix="limit two jobs, or let all share the GPU uncapped",
        )


def can_be_masked(split: Split) -> bool:
    """Whether CU masks hold its limits; jobs without one have no mask."""
    return sum(share < WHOLE for share in split.shares) <= MOST_MASKS


def split_environments(
    split: Split, units_total: int | None, vendor: Vendor
) -> tuple[dict[str, str], ...]:
    """Variables that hold each job to its share and priority; none of a job that has neither.

    Raises:
        InputError: an AMD GPU of which the CUs are not known, or cannot be shared so.
    """
    check_masks(split, vendor)
    return tuple(
        share_environment(share, units_total, vendor)
        if share.percent < WHOLE
        else dict(BELOW_NORMAL if share.below_normal else {})
        for share in split_shares(split)
    )


def best_within_tie(
    candidates: Iterable[T],
    value: Callable[[T], float],
    tie: float,
    rank: Callable[[T, float], Any],
) -> T:
    """The first candidate by rank among those within `tie` of the best value.

    The tie is the relative distance from the largest value that counts as equal to it, 0 up to
    below 1; rank orders those that are equal, the smallest first.

    Raises:
        InputError: no candidate, or a tie out of range.
    """
    if not 0 <= tie < 1:
        raise InputError(f"a tie of {tie} is not possible", fix="give 0 up to below 1")
    valued = [(value(candidate), candidate) for candidate in candidates]
    if not valued:
        raise InputError("there is no split to choose from")
    least = max(worth for worth, _ in valued) * (1 - tie)
    tied = [(worth, candidate) for worth, candidate in valued if worth >= least]
    return min(tied, key=lambda item: rank(item[1], item[0]))[1]


def check_advised(jobs: int) -> None:
    """Refuse advice for any other number of jobs than two.

    Raises:
        InputError: fewer or more.
    """
    if jobs != ADVISED_JOBS:
        raise InputError(
            f"there is no advice for {jobs} job{'s' if jobs != 1 else ''} on one GPU",
            why=f"models have learned from {ADVISED_JOBS} jobs side by side",
            fix=f"name {ADVISED_JOBS} jobs; for a queue of jobs ask for a plan: advisor place",
        )
