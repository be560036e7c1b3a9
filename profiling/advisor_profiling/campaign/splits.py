"""Splits as a plan writes them: how two jobs share a GPU, which may not be known yet."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from advisor.core.gpu import Gpu, Share
from advisor.core.units import quantum, share_for_units
from advisor.errors import InputError

SplitMode = Literal["mps", "uncapped", "time-sliced"]

_LEAST_REACH = 2
"""Units that "around-best" must reach: with fewer it would be the best split alone."""


@dataclass(frozen=True, slots=True)
class Split:
    """A share for each of two jobs.

    Attributes:
        mode: "mps": each job under its share, or its CU mask; "uncapped": side by side without
            limits; "time-sliced": without MPS, in turns.
    """

    first: Share
    second: Share
    mode: SplitMode = "mps"

    def __str__(self) -> str:
        return f"{self.first}/{self.second}" if self.mode == "mps" else self.mode


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
            return split_of_units(self.first, gpu)
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
        return tuple(split_of_units(count, gpu) for count in near if _grantable(count, gpu))


SplitWish = Split | UnitSplit | AroundBest

NINE = tuple(Split(Share(p), Share(100.0 - p)) for p in map(float, range(10, 100, 10)))
UNCAPPED = Split(Share(100.0), Share(100.0), "uncapped")
TIME_SLICED = Split(Share(100.0), Share(100.0), "time-sliced")

_WORDS: dict[str, tuple[Split, ...]] = {
    "nine": NINE,
    "uncapped": (UNCAPPED,),
    "time-sliced": (TIME_SLICED,),
}

_NUMBER = r"(\d{1,3}(?:\.\d{1,3})?)"
_EXPECTED = "nine, uncapped, time-sliced, 70/30 (percent), 66+66 units or around-best 8 (units)"


def read_split(text: str, where: str) -> tuple[SplitWish, ...]:
    """The splits that a word of a plan stands for.

    Args:
        text: Such as "nine", "70/30", "66+66 units" or "around-best 8".
        where: Where it stands, for messages.

    Raises:
        InputError: it stands for none.
    """
    if text in _WORDS:
        return _WORDS[text]
    if found := re.fullmatch(rf"{_NUMBER} ?/ ?{_NUMBER}", text):
        first, second = map(float, found.groups())
        if first == second == 100:
            return (UNCAPPED,)
        if 0 < first <= 100 and 0 < second <= 100:
            return (Split(Share(first), Share(second)),)
        raise InputError(f"{where}: expected shares above 0 and at most 100 %, got {text!r}")
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


def write_splits(splits: Iterable[SplitWish]) -> list[str]:
    """The shortest words that `read_split` reads as these splits."""
    left = dict.fromkeys(splits)
    words = list[str]()
    if left.keys() >= set(NINE):
        words.append("nine")
        left = dict.fromkeys(split for split in left if split not in NINE)
    return words + [str(split) for split in left]


def split_of_units(first: int, gpu: Gpu) -> Split:
    """`first` units for one job, all others for the other.

    Raises:
        InputError: the GPU cannot grant these counts.
    """
    total = units_of(gpu)
    counts = first, total - first
    a, b = (Share(share_for_units(units, total, gpu.vendor)) for units in counts)
    return Split(a, b)


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


def _grantable(first: int, gpu: Gpu) -> bool:
    try:
        split_of_units(first, gpu)
    except InputError:
        return False
    return True
