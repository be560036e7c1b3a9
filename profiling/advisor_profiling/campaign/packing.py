"""Puts windows into groups whose clients fit on a GPU together, so that few are started."""

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.gpu import MEMORY_PART
from advisor_profiling.window.targets import Runner, Target

_MOST_TRIES, _EFFORT = 8, 600
"""A small plan is packed so often, a larger one so often times its pairs, but twice at least: it
takes a second for a hundred pairs, and the best of several has some 5 % fewer starts."""


def pack(
    targets: Iterable[Target], max_clients: int, memory_mib: float | None, chance: random.Random
) -> list[list[Target]]:
    """Groups of windows whose clients can stand ready together, with few starts in all.

    Args:
        targets: Each once. Of those of the same jobs that do not fit together, the first ones
            come into the first group.
        max_clients: Most clients on the GPU at once.
        memory_mib: Memory of the GPU; None: not looked at.
        chance: Breaks ties.
    """
    room = _Room(max_clients, memory_mib)
    begun, whole = list[_Part](), list[_Part]()
    for pieces in _pieces(targets, room):
        together = len(pieces) == 1 and room.fits(pieces[0].clients)
        (whole if together else begun).extend(pieces)
    count = max(2, min(_MOST_TRIES, _EFFORT // max(1, len(whole))))
    tries = [
        _grow(begun, chance.sample(whole, len(whole)), room, open_first=bool(number % 2))
        for number in range(count)
    ]
    best = min(tries, key=_starts)
    return [[target for part in parts for target in part.targets] for parts in best]


@dataclass(frozen=True, slots=True)
class _Part:
    """Windows that are measured in the same group; `clients` as of `_Room`."""

    clients: int
    targets: tuple[Target, ...]


class _Room:
    """What can stand ready on the GPU; a set of clients is a number with one bit for each."""

    def __init__(self, max_clients: int, memory_mib: float | None) -> None:
        self._max_clients, self._memory_mib = max_clients, memory_mib
        self._runners: dict[Runner, int] = {}
        self._needs_mib: list[float] = []
        self._solitary = 0

    def clients(self, targets: Iterable[Target]) -> int:
        """The clients that take part."""
        bits = 0
        for runner in itertools.chain.from_iterable(target.runners for target in targets):
            if runner not in self._runners:
                self._enter(runner)
            bits |= 1 << self._runners[runner]
        return bits

    def fits(self, clients: int) -> bool:
        """All of them can stand ready together."""
        if clients & self._solitary or clients.bit_count() > self._max_clients:
            return False
        if self._memory_mib is None:
            return True
        needs_mib = itertools.compress(self._needs_mib, map(int, reversed(f"{clients:b}")))
        return sum(needs_mib) <= MEMORY_PART * self._memory_mib

    def _enter(self, runner: Runner) -> None:
        number = self._runners[runner] = len(self._runners)
        self._needs_mib.append(runner.job.memory_mib or 0)
        unknown = self._memory_mib is not None and runner.job.memory_mib is None
        if unknown or not runner.job.progress.gate:
            self._solitary |= 1 << number


def _pieces(order: Iterable[Target], room: _Room) -> list[list[_Part]]:
    """For each pair all its targets as one part, or as few parts as fit."""
    by_jobs: dict[tuple[str, ...], list[list[Target]]] = {}
    for target in order:
        pieces = by_jobs.setdefault(target.jobs, [[]])
        if pieces[-1] and not room.fits(room.clients([*pieces[-1], target])):
            pieces.append([])
        pieces[-1].append(target)
    return [
        [_Part(room.clients(piece), tuple(piece)) for piece in pieces]
        for pieces in by_jobs.values()
    ]


def _grow(
    begun: Iterable[_Part], whole: Iterable[_Part], room: _Room, *, open_first: bool
) -> list[list[_Part]]:
    """Groups that take in what gives most windows for each start, until nothing more fits.

    Args:
        begun: Parts that each begin a group: of pairs that had to be cut, so that no two of those
            share a group, and each can be kept on one card without many others.
        whole: All others.
        room: What fits.
        open_first: As for `_wider`.
    """
    begun, left, groups = list(begun), list(whole), list[list[_Part]]()
    while begun or left:
        inside = [begun.pop(0)] if begun else []
        clients = inside[0].clients if inside else 0
        if room.fits(clients):
            while wider := _wider(clients, left, room, open_first=open_first):
                clients = wider
            inside += [part for part in left if not part.clients & ~clients]
            left = [part for part in left if part.clients & ~clients]
        groups.append(inside)
    return groups


def _starts(groups: Iterable[Iterable[_Part]]) -> int:
    """How many clients are started for the groups."""
    starts = 0
    for group in groups:
        clients = 0
        for part in group:
            clients |= part.clients
        starts += clients.bit_count()
    return starts


def _wider(clients: int, left: Iterable[_Part], room: _Room, *, open_first: bool) -> int | None:
    """The clients with those of one more part: with fewest starts for each window gained.

    Of equal ones those that leave most (`open_first`) or fewest windows to other groups. Most finds
    the groups of a plan again; fewest fits all pairs of 13 jobs into 13 groups of four.
    """
    waiting = [part for part in left if part.clients & ~clients]

    def price(wider: int) -> tuple[float, int]:
        gained = left_open = 0
        for part in waiting:
            if not part.clients & ~wider:
                gained += len(part.targets)
            elif part.clients & wider:
                left_open += len(part.targets)
        starts = (wider & ~clients).bit_count()
        return starts / gained, -left_open if open_first else left_open

    choices = dict.fromkeys(clients | part.clients for part in waiting)
    return min(filter(room.fits, choices), key=price, default=None)
