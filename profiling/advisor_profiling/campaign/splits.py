"""Splits as a plan writes them: how two jobs share a GPU, which may not be known yet."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from advisor.core.gpu import Gpu
from advisor.core.split import (
    NINE,
    TIME_SLICED,
    UNCAPPED,
    Split,
    parse_split,
    split_of_units,
)
from advisor.core.units import quantum
from advisor.errors import InputError

PAIR = 2
"""Jobs that a plan measures together."""

_LEAST_REACH = 2
"""Units that "around-best" must reach: with fewer it would be the best split alone."""


@dataclass(frozen=True, slots=True)
class UnitSplit:
    """Exact counts of units that sum to a GPU's.

    Attributes:
        where: Where it was written, for messages.
    """

    first: int
    second: int
    where: str = field(default="splits", compare=False)

    def __str__(self) -> str:
        return f"{self.first}+{self.second} units"

    def on(self, gpu: Gpu) -> Split:
        """The split in percent of `gpu`.

        Raises:
            InputError: the counts do not sum to the GPU's units, or it cannot grant them.
        """
        total = units_of(gpu)
        if self.first + self.second != total:
            raise InputError(
                f"{self.where}: expected counts that sum to the {total} units of {gpu.model}, "
                f"got {self} ({self.first + self.second})",
                fix=f"{self.first}+{total - self.first} units" if self.first < total else "",
            )
        try:
            return on_units(self.first, gpu)
        except InputError as error:
            raise InputError(
                f"{self.where}: {self}: {error.what}", why=error.why, fix=error.fix
            ) from error


@dataclass(frozen=True, slots=True)
class AroundBest:
    """Counts in steps of the GPU's quantum, up to `units` away from the best one so far."""

    units: int

    def __str__(self) -> str:
        return f"around-best {self.units}"

    def on(self, gpu: Gpu, best: int) -> tuple[Split, ...]:
        """The splits in percent of `gpu`; at the best one the first job has `best` units."""
        total = units_of(gpu)
        step = quantum(total, gpu.vendor)
        grid = range(best % step, total, step)
        near = [count for count in grid if abs(count - best) <= self.units]
        return tuple(on_units(count, gpu) for count in near if _grantable(count, gpu))


SplitRequest = Split | UnitSplit | AroundBest

_WORDS: dict[str, tuple[Split, ...]] = {
    "nine": NINE,
    "uncapped": (UNCAPPED,),
    "time-sliced": (TIME_SLICED,),
}

_EXPECTED = "nine, uncapped, time-sliced, 70/30 (percent), 66+66 units or around-best 8 (units)"


def read_split(text: str, where: str) -> tuple[SplitRequest, ...]:
    """The splits that a word of a plan stands for; messages say `where` it is.

    Raises:
        InputError: it stands for none.
    """
    if text in _WORDS:
        return _WORDS[text]
    if "/" in text:
        return (_percentages(text, where),)
    if found := re.fullmatch(r"(\d{1,6}) ?\+ ?(\d{1,6}) units", text):
        return (UnitSplit(int(found[1]), int(found[2]), where),)
    found = re.fullmatch(r"around-best (\d{1,6})", text)
    if found and int(found[1]) >= _LEAST_REACH:
        return (AroundBest(int(found[1])),)
    near = difflib.get_close_matches(text, [*_WORDS, "around-best 8"], n=1)
    raise InputError(
        f"{where}: expected {_EXPECTED}, got {text!r}",
        fix=f"the nearest is {near[0]}" if near else "",
    )


def write_splits(splits: Iterable[SplitRequest]) -> list[str]:
    """The shortest words that `read_split` reads as these splits."""
    left = dict.fromkeys(splits)
    words = list[str]()
    if left.keys() >= set(NINE):
        words.append("nine")
        left = dict.fromkeys(split for split in left if split not in NINE)
    return words + [str(split) for split in left]


def on_units(first: int, gpu: Gpu) -> Split:
    """`first` units for one job, all others for the other.

    Raises:
        InputError: the GPU cannot grant these counts.
    """
    total = units_of(gpu)
    return split_of_units((first, total - first), total, gpu.vendor)


def units_of(gpu: Gpu) -> int:
    """Units of the whole GPU.

    Raises:
        InputError: they were not read.
    """
    if gpu.units_total is None:
        raise InputError(
            f"the number of units of {gpu.model} is not known", fix="run `advisor doctor`"
        )
    return gpu.units_total


def _percentages(text: str, where: str) -> Split:
    """Shares of two jobs: plans measure pairs."""
    why, fix = "a plan measures two jobs at a time", ""
    try:
        if len((split := parse_split(text)).shares) == PAIR:
            return split
    except InputError as error:
        why, fix = error.why, error.fix if error.why else ""
    raise InputError(f"{where}: expected {_EXPECTED}, got {text!r}", why=why, fix=fix)


def _grantable(first: int, gpu: Gpu) -> bool:
    try:
        on_units(first, gpu)
    except InputError:
        return False
    return True
