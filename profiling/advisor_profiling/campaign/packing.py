"""Puts windows into groups whose processes fit on a GPU together, so that few are started."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.gpu import MEMORY_PART
from advisor_profiling.window.targets import ProcessSpec, Target

_Clients = frozenset[ProcessSpec]


@dataclass(frozen=True, slots=True)
class _Part:
    """Windows of the same jobs that are measured in the same group."""

    targets: tuple[Target, ...]
    processes: _Clients


@dataclass(frozen=True, slots=True)
class _Room:
    """What can stand ready on the GPU."""

    max_clients: int
    memory_mib: float | None

    def fits(self, processes: _Clients) -> bool:
        """All of them can stand ready together."""
        if len(processes) > self.max_clients or not all(r.job.progress.gate for r in processes):
            return False
        if self.memory_mib is None:
            return True
        needs_mib = [spec.job.memory_mib for spec in processes]
        known = [need for need in needs_mib if need is not None]
        return len(known) == len(needs_mib) and sum(known) <= MEMORY_PART * self.memory_mib


def pack(
    targets: Iterable[Target], max_clients: int, memory_mib: float | None
) -> list[list[Target]]:
    """Groups of windows whose processes can stand ready together.

    Greedy: a group takes in the pair that needs fewest processes more for each of the windows that
    can then be measured, until nothing fits.

    Each target comes once; of those of the same jobs that do not fit together the first ones come
    into the first group. Without `memory_mib` the memory is not looked at.
    """
    room = _Room(max_clients, memory_mib)
    begun, left = list[_Part](), list[_Part]()
    for parts in _parts(targets, room):
        # Parts of a pair that had to be cut each begin a group, so that no two cut pairs share one
        # and each can be kept on one card without many others.
        (left if len(parts) == 1 and room.fits(parts[0].processes) else begun).extend(parts)
    groups = list[list[Target]]()
    while begun or left:
        inside = [begun.pop(0)] if begun else []
        processes = inside[0].processes if inside else _Clients()
        while room.fits(processes) and (wider := _wider(processes, left, room)):
            processes = wider
            inside += [part for part in left if part.processes <= processes]
            left = [part for part in left if not part.processes <= processes]
        groups.append([target for part in inside for target in part.targets])
    return groups


def _parts(targets: Iterable[Target], room: _Room) -> list[list[_Part]]:
    """For each pair all its targets as one part, or as few parts as fit."""
    by_jobs: dict[tuple[str, ...], list[list[Target]]] = {}
    for target in targets:
        parts = by_jobs.setdefault(target.jobs, [[]])
        if parts[-1] and not room.fits(_processes([*parts[-1], target])):
            parts.append([])
        parts[-1].append(target)
    return [[_Part(tuple(p), _processes(p)) for p in parts] for parts in by_jobs.values()]


def _wider(processes: _Clients, left: Iterable[_Part], room: _Room) -> _Clients | None:
    """The processes with those of one more part."""
    left = list(left)

    def starts_per_window(wider: _Clients) -> float:
        return len(wider - processes) / sum(len(p.targets) for p in left if p.processes <= wider)

    choices = dict.fromkeys(processes | part.processes for part in left)
    return min(filter(room.fits, choices), key=starts_per_window, default=None)


def _processes(targets: Iterable[Target]) -> _Clients:
    return _Clients(itertools.chain.from_iterable(target.specs for target in targets))
