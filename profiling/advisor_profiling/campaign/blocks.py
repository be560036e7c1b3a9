"""Cuts a campaign into blocks: processes started together, and the windows between them."""

import itertools
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from advisor.core.gpu import MEMORY_PART, Share
from advisor.core.records import grouped
from advisor.errors import InputError
from advisor_profiling.window import ProcessSpec, Target, WindowRules, solo

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


_FULL = Share(100.0)


@dataclass(frozen=True, slots=True)
class Block:
    """Processes that stand ready together, and the windows that are measured with them in turn."""

    specs: tuple[ProcessSpec, ...]
    targets: tuple[Target, ...]

    @property
    def pairs(self) -> frozenset[tuple[str, ...]]:
        """Names of the jobs of each window of two."""
        return frozenset(target.jobs for target in self.targets if len(target.specs) > 1)

    @property
    def kept(self) -> frozenset[ProcessSpec]:
        """Processes that the next block may use too; one without a gate never stands still."""
        return frozenset(spec for spec in self.specs if spec.job.progress.gate)


def cut(
    targets: Iterable[Target],
    max_clients: int,
    memory_mib: float | None,
    seed: str,
    *,
    alone: bool = True,
    profiles: bool = False,
) -> list[Block]:
    """Blocks that hold each target once, with few starts.

    All targets of the same jobs are in one block, where their processes fit. A target whose
    processes cannot stand ready next to others is a block of its own: a job has no gate or, where
    memory counts, does not tell how much it needs; or two processes alone are too many. A block
    follows the one with which it has most processes in common. The windows of a pair follow one
    another, so that few pairs are cut in two where the GPU is taken away; their order is random, so
    that a drift of the card does not look like an effect of the split, but the same for the same
    targets and seed.

    With `alone` each block has, for every job with a process at 100 %, a solo window with the
    block's number (from 0) as `repeat`: a reference of the same card and hour. With `profiles`
    every other process has one as well.
    """
    order = sorted(
        dict.fromkeys(targets),
        key=lambda of: (of.jobs, [spec.share.percent for spec in of.specs], of.repeat),
    )
    random.Random(seed).shuffle(order)
    blocks = _chained(map(_block, pack(order, max_clients, memory_mib)))
    if alone:
        blocks = [_with_references(b, number, profiles) for number, b in enumerate(blocks)]
    return [_shuffled(block, f"{seed} {number}") for number, block in enumerate(blocks)]


def remaining(blocks: Iterable[Block], done: Collection[Target]) -> list[Block]:
    """What is left of the blocks, without the processes that nobody needs any more.

    Cut and shard the whole plan first: then numbers and places do not depend on what is done.
    """
    known = frozenset(done)
    left = [[t for t in block.targets if t not in known] for block in blocks]
    return [_block(targets) for targets in left if targets]


def shard(blocks: Sequence[Block], index: int, count: int) -> list[Block]:
    """The `index`-th (from 1) of `count` parts that can be measured side by side.

    Windows of one pair stay on one card: blocks that share a pair come in one part. Parts take
    about equally long. Each begins with its longest block, since the GPUs of a host start their
    blocks together.

    Raises:
        InputError: there is no such part.
    """
    if not 1 <= index <= count:
        raise InputError(f"there is no shard {index} of {count}", fix=f"count from 1 to {count}")
    parts: list[list[Block]] = [[] for _ in range(count)]
    taken_s = [0.0] * count
    for unit in sorted(_units(blocks), key=_alone_s, reverse=True):
        least = taken_s.index(min(taken_s))
        parts[least] += unit
        taken_s[least] += _alone_s(unit)
    longest_first = sorted(parts[index - 1], key=lambda block: _alone_s([block]), reverse=True)
    return _chained(longest_first)


def estimate_s(blocks: Iterable[Block], rules: WindowRules) -> float:
    """Seconds that the blocks take one after the other on one GPU, when nothing fails."""
    # 668 windows on four H200 (docs/measurements/pairs.md): each of 2 to 5 s was 3.2 s long in the
    # mean, since errors of jobs at the power limit, or bound by launches, take longer to fall. From
    # a window's end to the next settling were 0.4 s, and 0.2 s of settling beyond its least.
    measured_s = rules.least_s + 0.4 * max(0.0, rules.most_s - rules.least_s)
    window_s = rules.settle_least_s + measured_s + 0.6
    starts, windows, ready = 0, 0, frozenset[ProcessSpec]()
    for block in blocks:
        starts += len(frozenset(block.specs) - ready)
        windows += len(block.targets)
        ready = block.kept
    # On an H200 40 processes were ready after about 60 s, while other start-ups shared 16 cores.
    return starts * 1.5 + windows * window_s


def _block(targets: Sequence[Target]) -> Block:
    specs = dict.fromkeys(spec for target in targets for spec in target.specs)
    return Block(tuple(specs), tuple(targets))


def _with_references(block: Block, number: int, profiles: bool) -> Block:
    """The block with its solo windows; next to a job without a gate nothing runs alone."""
    if len(block.kept) < len(block.specs):
        return block
    alone = [r for r in block.specs if (profiles or r.share == _FULL) and not r.copy]
    return Block(block.specs, (*block.targets, *(solo(r.job, r.share, number) for r in alone)))


def _shuffled(block: Block, seed: str) -> Block:
    """The jobs in random order, and the windows of the same jobs, which follow one another."""
    chance, by_jobs = random.Random(seed), grouped(block.targets, lambda target: target.jobs)
    groups = chance.sample(list(by_jobs.values()), len(by_jobs))
    targets = [target for group in groups for target in chance.sample(group, len(group))]
    return Block(block.specs, tuple(_references_first(targets)))


def _references_first(targets: Sequence[Target]) -> list[Target]:
    """First each job once alone on the whole GPU: with that its other results are compared."""
    first: dict[tuple[str, ...], Target] = {}
    for target in targets:
        if len(target.specs) == 1 and target.specs[0].share == _FULL:
            first.setdefault(target.jobs, target)
    return [*first.values(), *(t for t in targets if first.get(t.jobs) != t)]


def _chained(blocks: Iterable[Block]) -> list[Block]:
    """The first, then always the one that needs most of what the one before keeps."""
    left, kept, chain = list(blocks), frozenset[ProcessSpec](), list[Block]()
    while left:
        in_common = [len(kept & block.kept) for block in left]
        chain.append(left.pop(in_common.index(max(in_common))))
        kept = chain[-1].kept
    return chain


def _units(blocks: Iterable[Block]) -> list[list[Block]]:
    """The blocks, those together that share a pair."""
    units: list[tuple[frozenset[tuple[str, ...]], list[Block]]] = []
    for block in blocks:
        pairs, together = block.pairs, [block]
        for unit in [unit for unit in units if not pairs.isdisjoint(unit[0])]:
            units.remove(unit)
            pairs, together = pairs | unit[0], unit[1] + together
        units.append((pairs, together))
    return [together for _, together in units]


def _alone_s(blocks: Iterable[Block]) -> float:
    """Seconds of the blocks, each with all its starts."""
    return sum(estimate_s([block], WindowRules()) for block in blocks)
