"""Splits as a plan writes them: how two jobs share a GPU, which may not be known yet."""

import difflib
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from advisor.core.gpu import WHOLE, Gpu, quantum
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import (
    NINE,
    TIME_SLICED,
    UNCAPPED,
    Split,
    parse_split,
    split_of_units,
)
from advisor.errors import InputError

PAIR = 2
"""Jobs that a plan measures together."""

_LIMITED = {"mps", "cu_mask"}
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
            return _on_units(self.first, gpu)
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
        return tuple(_on_units(count, gpu) for count in near if _grantable(count, gpu))


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


def check_set_splits(splits: Iterable[SplitRequest], where: str) -> None:
    """Refuse splits for sets of jobs, whose limits stand behind their names.

    Raises:
        InputError: one of them is not a word for sharing without limits.
    """
    if other := [split for split in splits if split not in (UNCAPPED, TIME_SLICED)]:
        raise InputError(
            f"{where}: sets are measured uncapped or time-sliced, got {other[0]}",
            fix="write a limit behind the job that has it, such as a+b@50+c",
        )


def write_splits(splits: Iterable[SplitRequest]) -> list[str]:
    """The shortest words that `read_split` reads as these splits."""
    left = dict.fromkeys(splits)
    words = list[str]()
    if left.keys() >= set(NINE):
        words.append("nine")
        left = dict.fromkeys(split for split in left if split not in NINE)
    return words + [str(split) for split in left]


def _on_units(first: int, gpu: Gpu) -> Split:
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


def best_units(
    names: tuple[str, str], pairs: Sequence[PairPoint], solo: Sequence[SoloPoint], gpu: Gpu
) -> int | str:
    """Units of the first job at the best measured split of a pair, or why it is not known.

    The points are of that GPU model.
    """
    a, b = sorted(names)
    alone_a, alone_b = _solo_rate(a, solo), _solo_rate(b, solo)
    if not alone_a or not alone_b:
        return f"{b if alone_a else a} has no solo point at 100 % on {gpu.model}"
    total = units_of(gpu)
    known = [
        (worth, units)
        for point in pairs
        if point.jobs == (a, b)
        and point.mode in _LIMITED
        and (units := point.parts[0].units) is not None
        and (other := point.parts[1].units) is not None
        and units + other <= total
        and (worth := _worth(point, alone_a, alone_b)) is not None
    ]
    if not known:
        return f"no other run has measured a split of the pair on {gpu.model}"
    units_a = max(known)[1]
    return units_a if names[0] == a else total - units_a


def _solo_rate(job: str, solo: Iterable[SoloPoint]) -> float | None:
    rates = [p.rate for p in solo if p.job == job and p.share_percent == WHOLE]
    return statistics.fmean(rates) if rates else None


def _worth(point: PairPoint, alone_a: float, alone_b: float) -> float | None:
    """Sum of relative speeds per watt; None where a reading is missing."""
    rates = [part.rate for part in point.parts]
    if None in rates or not point.power_w:
        return None
    alone = zip(rates, (alone_a, alone_b), strict=True)
    return sum((rate or 0.0) / solo for rate, solo in alone) / point.power_w


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
        _on_units(first, gpu)
    except InputError:
        return False
    return True
