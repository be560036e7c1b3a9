"""Splits as a plan writes them: how two jobs share a GPU, which may not be known yet."""

import difflib
import itertools
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.core.gpu import WHOLE, Gpu, Share, quantum
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import (
    MOST_JOBS,
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
    # With fewer units it would be the best split alone.
    if found and int(found[1]) >= 2:
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
        and point.mode in {"mps", "cu_mask"}
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


LIMITS = (Share(26.0), Share(50.0), Share(90.0))
"""For a job that fills the card: 34, 66 and 118 SMs of 132, where libraries computed right results
on H100 and H200 (docs/check.md)."""

_SMALL, _BIG = 7, 3
"""Jobs of each kind that are drawn for a round, so that few processes are started."""


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A job of a set, and its limit in percent of the GPU's units; 100: none."""

    job: str
    percent: float = WHOLE

    def __str__(self) -> str:
        return self.job if self.percent == WHOLE else f"{self.job}@{self.percent:g}"


JobSet = tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class DrawnSets:
    """So many sets, drawn by chance: the same ones for the same jobs and seed."""

    count: int
    seed: int = 1


def read_set(text: str, where: str) -> JobSet:
    """The set that a text stands for; messages say `where` it is.

    Raises:
        InputError: it stands for none.
    """
    found = [
        re.fullmatch(r"([^@\s]+)(?:@(\d{1,3}(?:\.\d{1,3})?))?", word.strip())
        for word in text.split("+")
    ]
    members = [Member(m[1], float(m[2] or WHOLE)) for m in found if m]
    if len(members) < len(found) or not 2 <= len(members) <= MOST_JOBS:
        raise InputError(
            f"{where}: expected two to {MOST_JOBS} jobs such as a+b+c, or a+b@50 with a limit for "
            f"b in percent, got {text!r}"
        )
    for member in members:
        Share(member.percent)
    return tuple(members)


def write_set(members: JobSet) -> str:
    """The text that `read_set` reads as this set."""
    return "+".join(map(str, members))


@dataclass(frozen=True, slots=True)
class _Shape:
    """How many jobs of each kind a set has; alike: they are copies of one job."""

    small: int = 0
    big: int = 0
    alike: bool = False


_ROUND = (
    _Shape(small=3), _Shape(small=1, big=1), _Shape(small=2, alike=True), _Shape(small=5),
    _Shape(small=2, big=1), _Shape(small=4), _Shape(small=3, alike=True), _Shape(small=3, big=1),
    _Shape(small=7), _Shape(big=2), _Shape(small=2), _Shape(small=4, big=1),
    _Shape(small=5, alike=True), _Shape(small=6), _Shape(small=1, big=1), _Shape(small=3),
    _Shape(small=2, alike=True), _Shape(small=5), _Shape(small=2, big=1), _Shape(small=1, big=2),
    _Shape(small=3, alike=True),
)  # fmt: skip
"""27 sets, since those with one big job come without and with a limit for it; the first ones of a
round are of every kind."""


def draw(
    wanted: DrawnSets,
    kinds: Mapping[str, Hashable],
    filling: Collection[str],
    limits: Callable[[str], Sequence[float]],
) -> list[JobSet]:
    """Sets of every size and kind, each once; fewer where the jobs make fewer.

    A round has jobs of as many kinds as it can, and each job is in about equally many rounds.

    Args:
        wanted: How many, by which seed.
        kinds: The jobs, each with a kind; those that resemble each other have the same.
        filling: Those that fill the GPU, and maybe others; the rest leaves most of it idle.
        limits: The limits in percent that a job that fills it may be given; empty: it has none.
    """
    chance, found = random.Random(wanted.seed), dict[JobSet, None]()
    small = {job: kind for job, kind in kinds.items() if job not in filling}
    big = {job: kind for job, kind in kinds.items() if job in filling}
    rounds = zip(_hands(small, _SMALL, chance), _hands(big, _BIG, chance), strict=True)
    for few, some in itertools.islice(rounds, wanted.count):
        for number, shape in enumerate(_ROUND):
            found |= dict.fromkeys(_drawn(shape, number, few, some, limits, chance))
        if len(found) >= wanted.count:
            break
    return list(found)[: wanted.count]


def _hands(kinds: Mapping[str, Hashable], most: int, chance: random.Random) -> Iterator[list[str]]:
    """The jobs of each round: of unlike kinds, and of those the ones that were drawn least."""
    drawn = Counter[str]()
    while True:
        hand = list[str]()
        left = chance.sample(sorted(kinds), len(kinds))
        while left and len(hand) < most:
            taken = Counter(kinds[job] for job in hand)
            hand.append(min(left, key=lambda job: (taken[kinds[job]], drawn[job])))
            left.remove(hand[-1])
        drawn.update(hand)
        yield hand


def _drawn(
    shape: _Shape, number: int, small: Sequence[str], big: Sequence[str],
    limits: Callable[[str], Sequence[float]], chance: random.Random,
) -> Iterator[JobSet]:  # fmt: skip
    """The sets of a shape, the `number`-th of its round; none where there are too few jobs."""
    if shape.alike:
        if small:
            # Every fourth or so is of copies: of another job each.
            yield (Member(small[number // 4 % len(small)]),) * shape.small
        return
    if shape.small > 2 * len(small) or shape.big > len(big):
        return
    # Some of them twice.
    others = [Member(name) for name in chance.sample([*small, *small], shape.small)]
    filling = [big[(number + k) % len(big)] for k in range(shape.big)]
    yield tuple(sorted([*map(Member, filling), *others]))
    if shape.big == 1 and (choices := limits(filling[0])):
        yield tuple(sorted([Member(filling[0], chance.choice(choices)), *others]))
