"""Sets of jobs that share a GPU: how a plan writes them, and which are drawn by chance.

A set is `a+b@50+c`: names of two to seven jobs, a limit in percent behind those that have one.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE, Share
from advisor.core.split import MOST_JOBS
from advisor.errors import InputError

LIMITS = (Share(26.0), Share(50.0), Share(90.0))
"""For a job that fills the card: 34, 66 and 118 SMs of 132, where libraries computed right results
on H100 and H200 (docs/check.md)."""

_SMALL, _BIG = 7, 3
"""Jobs of each kind that are drawn for a round, so that few processes are started."""

_MEMBER = re.compile(r"([^@\s]+)(?:@(\d{1,3}(?:\.\d{1,3})?))?")


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
    found = [_MEMBER.fullmatch(word.strip()) for word in text.split("+")]
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
