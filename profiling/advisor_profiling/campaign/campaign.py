"""Measures windows block by block; a solo sweep is a campaign with one job.

The processes of a block are started together, then its windows follow one another. Every point is
written as soon as it is known. A window that failed is tried once more with its own processes
alone.
"""

import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Protocol

from advisor.core.gpu import MEMORY_PART, WHOLE, Gpu, Share
from advisor.core.job import Job, ProgressSettings, Reported, ResultsSettings
from advisor.core.records import (
    CPU_BOUND,
    REPLAY_SOURCE,
    PairPoint,
    Point,
    PointPart,
    SoloPoint,
    grouped,
)
from advisor.core.telemetry import MEMORY_USED
from advisor.core.wording import count_of
from advisor.errors import AdvisorError, InputError, JobError, LimitBrokenError, LimitNotProvenError
from advisor.predict.kernels import MeanEstimate, computes_in_bursts, kernels_beside
from advisor.runtime.job_process import stop_all
from advisor.runtime.processes import cpu_steal_s
from advisor.settings import python, workload_path
from advisor_data import Store
from advisor_profiling.testbed import Testbed, WarmProcess
from advisor_profiling.window import (
    MeasuredWindow,
    ProcessSpec,
    RunConditions,
    Target,
    WindowInputs,
    WindowResult,
    WindowRules,
    measure,
    measure_idle,
    solo,
    together,
)

_Clients = frozenset[ProcessSpec]
_Fits = Callable[[_Clients], bool]


@dataclass(frozen=True, slots=True)
class _Part:
    """Windows of the same jobs that are measured in the same group."""

    targets: tuple[Target, ...]
    processes: _Clients


def _pack(targets: Iterable[Target], fits: _Fits) -> list[list[Target]]:
    """Groups of windows whose processes can stand ready together.

    Greedy: a group takes in the pair that needs fewest processes more for each of the windows that
    can then be measured, until nothing fits.

    Each target comes once; of those of the same jobs that do not fit together the first ones come
    into the first group.
    """
    begun, left = list[_Part](), list[_Part]()
    for parts in _parts(targets, fits):
        # Parts of a pair that had to be cut each begin a group, so that no two cut pairs share one
        # and each can be kept on one card without many others.
        (left if len(parts) == 1 and fits(parts[0].processes) else begun).extend(parts)
    groups = list[list[Target]]()
    while begun or left:
        inside = [begun.pop(0)] if begun else []
        processes = inside[0].processes if inside else _Clients()
        while fits(processes) and (wider := _wider(processes, left, fits)):
            processes = wider
            inside += [part for part in left if part.processes <= processes]
            left = [part for part in left if not part.processes <= processes]
        groups.append([target for part in inside for target in part.targets])
    return groups


def _fits(max_clients: int, memory_mib: float | None, used_mib: float, processes: _Clients) -> bool:
    """Whether all of them can stand ready on the GPU together."""
    if len(processes) > max_clients or not all(r.job.progress.gate for r in processes):
        return False
    needs_mib = (spec.job.memory_mib or used_mib for spec in processes)
    return memory_mib is None or sum(needs_mib) <= MEMORY_PART * memory_mib


def _parts(targets: Iterable[Target], fits: _Fits) -> list[list[_Part]]:
    """For each pair all its targets as one part, or as few parts as fit."""
    by_jobs: dict[tuple[str, ...], list[list[Target]]] = {}
    for target in targets:
        parts = by_jobs.setdefault(target.jobs, [[]])
        if parts[-1] and not fits(_processes([*parts[-1], target])):
            parts.append([])
        parts[-1].append(target)
    return [[_Part(tuple(p), _processes(p)) for p in parts] for parts in by_jobs.values()]


def _wider(processes: _Clients, left: Sequence[_Part], fits: _Fits) -> _Clients | None:
    """The processes with those of one more part."""

    def starts_per_window(wider: _Clients) -> float:
        return len(wider - processes) / sum(len(p.targets) for p in left if p.processes <= wider)

    choices = dict.fromkeys(processes | part.processes for part in left)
    return min(filter(fits, choices), key=starts_per_window, default=None)


def _processes(targets: Iterable[Target]) -> _Clients:
    return _Clients(spec for target in targets for spec in target.specs)


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
    used_mib: float = math.inf,
) -> list[Block]:
    """Blocks that hold each target once, with few starts.

    All targets of the same jobs are in one block, where their processes fit. A target whose
    processes cannot stand ready next to others is a block of its own: a job has no gate, or two
    processes alone are too many. A block follows the one with which it has most processes in
    common. The windows of a pair follow one another, so that few pairs are cut in two where the GPU
    is taken away; their order is random, so that a drift of the card does not look like an effect
    of the split, but the same for the same targets and seed.

    With `alone` each block has, for every job with a process at 100 %, a solo window with the
    block's number (from 0) as `repeat`: a reference of the same card and hour. With `profiles`
    every other process has one as well.

    Without `memory_mib`, the GPU's free memory, memory is not looked at. A process whose job file
    has no memory needs `used_mib`, by default more than there is.
    """
    order = sorted(
        dict.fromkeys(targets),
        key=lambda of: (of.jobs, [spec.share.percent for spec in of.specs], of.repeat),
    )
    random.Random(seed).shuffle(order)
    fits = partial(_fits, max_clients, memory_mib, used_mib)
    blocks = _chained(map(_block, _pack(order, fits)))
    if alone:
        blocks = [_with_references(b, number, profiles) for number, b in enumerate(blocks)]
    return [_shuffled(block, f"{seed} {number}") for number, block in enumerate(blocks)]


def remaining(blocks: Iterable[Block], done: Collection[Target]) -> list[Block]:
    """The remaining blocks, without processes that no window needs any more.

    Cut and shard the whole plan first: then numbers and places do not depend on what is done.
    """
    finished = frozenset(done)
    left = [[t for t in block.targets if t not in finished] for block in blocks]
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
    # Each is the pairs and the blocks that share one of them.
    units: list[tuple[frozenset[tuple[str, ...]], list[Block]]] = []
    for block in blocks:
        pairs, joined = block.pairs, [block]
        for unit in [unit for unit in units if not pairs.isdisjoint(unit[0])]:
            units.remove(unit)
            pairs, joined = pairs | unit[0], unit[1] + joined
        units.append((pairs, joined))
    for unit in sorted((joined for _, joined in units), key=_alone_s, reverse=True):
        least = taken_s.index(min(taken_s))
        parts[least] += unit
        taken_s[least] += _alone_s(unit)
    return _chained(sorted(parts[index - 1], key=lambda block: _alone_s([block]), reverse=True))


def estimate_s(blocks: Iterable[Block], rules: WindowRules) -> float:
    """Seconds that the blocks take one after the other on one GPU, when nothing fails."""
    # 668 windows on four H200 (docs/measurements/pairs.md): each of 2 to 5 s was 3.2 s long in the
    # mean, since errors of jobs at the power limit, or bound by launches, take longer to fall. From
    # a window's end to the next settling were 0.4 s, and 0.2 s of settling beyond its least.
    measured_s = rules.least_s + 0.4 * max(0.0, rules.most_s - rules.least_s)
    window_s = rules.settle_least_s + measured_s + 0.6
    in_order = [Block((), ()), *blocks]
    starts = sum(len({*block.specs} - before.kept) for before, block in pairwise(in_order))
    # On an H200 40 processes were ready after about 60 s, while other start-ups shared 16 cores.
    return starts * 1.5 + windows_in(in_order) * window_s


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
    # First each job once alone on the whole GPU: with that its other results are compared.
    first: dict[tuple[str, ...], Target] = {}
    for target in targets:
        if len(target.specs) == 1 and target.specs[0].share == _FULL:
            first.setdefault(target.jobs, target)
    others = (target for target in targets if first.get(target.jobs) != target)
    return Block(block.specs, (*first.values(), *others))


def _chained(blocks: Iterable[Block]) -> list[Block]:
    """The first, then always the one that needs most of what the one before keeps."""
    left, kept, chain = list(blocks), frozenset[ProcessSpec](), list[Block]()
    while left:
        in_common = [len(kept & block.kept) for block in left]
        chain.append(left.pop(in_common.index(max(in_common))))
        kept = chain[-1].kept
    return chain


def _alone_s(blocks: Iterable[Block]) -> float:
    """Seconds of the blocks, each with all its starts."""
    return sum(estimate_s([block], WindowRules()) for block in blocks)


MAX_FAILURES = 3  # failures in a row that are enough


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that could not be measured.

    Attributes:
        reason: In a line without paths, as a point keeps it.
        cause: What was raised; its text also says where to look.
    """

    target: Target
    reason: str
    cause: AdvisorError


@dataclass(frozen=True, slots=True)
class Cost:
    """What a campaign took on one GPU.

    Attributes:
        duration_s: From its first process's start to its last window's end.
        measuring_s: Of it, time with a job running in a window or settling for one.
        window_s: Of it, time inside windows.
        starting_s: Time in which processes were ended and started.
        waiting_s: Time in which the windows and starts of other GPUs of the host were waited for.
        starts: Processes that were started.
    """

    duration_s: float = 0.0
    measuring_s: float = 0.0
    window_s: float = 0.0
    starting_s: float = 0.0
    waiting_s: float = 0.0
    starts: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class CampaignOutcome:
    """What was measured in this process; points of an earlier part are in the store."""

    points: tuple[Point, ...]
    failures: tuple[Failure, ...]
    cost: Cost


class Reporter(Protocol):
    """What watches a campaign."""

    def phase(self, text: str) -> None:
        """Something begins that takes a while."""

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        """A point was measured and written."""

    def failure(self, failure: Failure) -> None:
        """A window failed for good."""


class RetryLimit:
    """Counts failures by the jobs that ran: a faulty job takes healthy neighbours down.

    So a job is given up when it failed alone, or when no other was in all of its failures; jobs
    that failed together as often are given up as a set, without a verdict on each.
    """

    def __init__(self) -> None:
        self._beside: defaultdict[str, list[set[str]]] = defaultdict(list)
        self._sets: Counter[tuple[str, ...]] = Counter()

    def failed(self, jobs: tuple[str, ...]) -> None:
        """A window of these jobs, one or more, failed."""
        self._sets[jobs] += 1
        # A job next to itself failed once.
        for job in set(jobs):
            self._beside[job].append(set((Counter(jobs) - Counter([job])).elements()))

    def worked(self, jobs: tuple[str, ...]) -> None:
        """A window of these jobs was measured: what was before is forgotten."""
        self._sets.pop(jobs, None)
        for job in jobs:
            self._beside.pop(job, None)

    def verdict(self, jobs: tuple[str, ...]) -> str | None:
        """Why these are not tried again; None while they are."""
        for job in jobs:
            beside = self._beside.get(job, list[set[str]]())
            if len(beside) >= MAX_FAILURES and not beside[0].intersection(*beside):
                return f"{job} failed {len(beside)} times in a row before"
        if self._sets[jobs] >= MAX_FAILURES:
            return f"{' with '.join(jobs)} failed {self._sets[jobs]} times in a row before"
        return None


def _judged(result: WindowResult, whole_gpu: dict[str, Reported]) -> WindowResult:
    """The window with a verdict for each of its jobs, by what they reported on the whole GPU.

    Where it is of a job alone there, that is known from now on.
    """
    target = result.target
    if (
        [spec.share.percent for spec in target.specs] == [WHOLE]
        and result.reported[0].count
        and not result.reported[0].not_finite
    ):
        whole_gpu[target.specs[0].job.job_hash] = result.reported[0]
    verdicts = (
        reported.judge(
            whole_gpu.get(spec.job.job_hash), (spec.job.results or ResultsSettings()).tolerance
        )
        for spec, reported in zip(target.specs, result.reported, strict=True)
    )
    parts = zip(result.parts, verdicts, strict=True)
    return replace(result, parts=tuple(replace(part, results=verdict) for part, verdict in parts))


class ProcessPool(AbstractContextManager["ProcessPool"]):
    """Processes at their gates, by what they were started as.

    Attributes:
        processes: Those that are ready.
        errors: Why others are not; those are not started again until this is cleared.
        starts: How many were started so far.
        starting_s: How long that took, with the end of those before.
        waiting_s: How long starts waited for open windows of other GPUs.
    """

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self.processes: dict[ProcessSpec, WarmProcess] = {}
        self.errors: dict[ProcessSpec, AdvisorError] = {}
        self.starts, self.starting_s, self.waiting_s = 0, 0.0, 0.0

    def change(self, wanted: Collection[ProcessSpec]) -> None:
        """End the processes that are not wanted any more, start those that are missing, wait.

        A process without a gate has run since its start, so it is never kept. Both happen while no
        window is open anywhere on the host. All shares are proven before the first job starts,
        while nothing else holds the driver's locks. A job that lifts its own limit is ended, with
        the reason in `errors`.

        Raises:
            LimitNotProvenError: a share is not in force before a job starts.
            PartitionError: what enforces the shares is gone.
        """
        requested_s = self._testbed.clock.now_s()
        with self._testbed.phase_lock.starting():
            begun_s = self._testbed.clock.now_s()
            self.waiting_s += begun_s - requested_s
            if self._testbed.spoiled():
                self.end(list(self.processes))
            self.end([r for r in self.processes if r not in wanted or not r.job.progress.gate])
            started = self.processes.keys() | self.errors.keys()
            missing = [spec for spec in wanted if spec not in started]
            starts = {spec: self._testbed.prove(spec.job, spec.share) for spec in missing}
            for spec, start in starts.items():
                try:
                    self.processes[spec] = start()
                    self.starts += 1
                except JobError as error:
                    self.errors[spec] = error
            for spec in [spec for spec in missing if spec in self.processes]:
                process = self.processes[spec]
                try:
                    while not process.ready():
                        self._testbed.clock.sleep(0.05)
                    process.check_limit()
                except (JobError, LimitNotProvenError) as error:
                    # It may still be starting, and must not go on next to an open window.
                    self.lose(spec, error)
            self.starting_s += self._testbed.clock.now_s() - begun_s

    def end(self, specs: Collection[ProcessSpec]) -> None:
        """Stop these processes; all are asked to leave before the first is waited for."""
        leaving = [self.processes.pop(spec) for spec in specs if spec in self.processes]
        for error in stop_all(leaving):
            raise error

    def lose(self, spec: ProcessSpec, error: AdvisorError) -> None:
        """Stop a process that failed, and keep the reason."""
        self.errors[spec] = error
        self.end([spec])

    def dead(self) -> list[ProcessSpec]:
        """Processes that ended without being asked, as a fault of a neighbour makes them."""
        return [spec for spec, process in self.processes.items() if not _lives(process)]

    def __exit__(self, *exc_info: object) -> None:
        self.end(list(self.processes))


def _lives(process: WarmProcess) -> bool:
    try:
        process.check()
    except JobError:
        return False
    return True


def measure_target(
    target: Target, processes: Sequence[WarmProcess], testbed: Testbed, rules: WindowRules
) -> WindowResult:
    """Let the processes run together and measure; they run on afterwards.

    Raises:
        JobError: one of them ended before the window did, or made fewer than two steps.
        LimitBrokenError: something computed that was not under its limit.
    """
    for slot, process in enumerate(processes):
        process.go(slot)
    testbed.check_limits()
    begun_s, steal_s = testbed.clock.now_s(), cpu_steal_s()
    cpu_s = [process.cpu_s() for process in processes]
    inputs = WindowInputs(
        counts=[process.count for process in processes],
        source=testbed.source,
        clock=testbed.clock,
        latencies=[process.latencies for process in processes],
        offered=[spec.job.offered_rate for spec in target.specs],
        check=lambda: _check(processes),
    )
    window = measure(inputs, rules)
    # One that ended in the last moments would leave its partner's time alone in the window.
    _check(processes)
    time_s = testbed.clock.now_s() - begun_s
    testbed.check_limits()
    parts = [
        _part(spec, process, window, slot, cpu_s[slot], time_s)
        for slot, (spec, process) in enumerate(zip(target.specs, processes, strict=True))
    ]
    cores_s = time_s * (os.cpu_count() or 1)
    return WindowResult(
        target=target,
        parts=tuple(parts),
        reported=tuple(process.reported() for process in processes),
        window=window,
        cpu_steal_percent=max(0.0, 100 * (cpu_steal_s() - steal_s) / cores_s),
        held=processes[0].held() if len(processes) == 1 else {},
    )


def _check(processes: Sequence[WarmProcess]) -> None:
    for process in processes:
        process.check()


def _part(
    spec: ProcessSpec,
    process: WarmProcess,
    window: MeasuredWindow,
    slot: int,
    cpu_before_s: float | None,
    time_s: float,
) -> PointPart:
    cpu_s = process.cpu_s()
    if (rate := window.rates[slot]) is None:
        raise JobError(
            f"{spec} made fewer than two steps in its window of {window.window_s:.0f} s",
            why="it is too slow, or starved by the job next to it" if len(window.rates) > 1 else "",
            fix="give it more time with --window",
        )
    p50_ms, p99_ms = window.latencies[slot]
    return spec.part(
        units=process.granted.units,
        rate=rate.mean,
        rate_stderr=rate.stderr,
        memory_used_mib=process.memory_mib(),
        cpu_percent=None
        if cpu_s is None or cpu_before_s is None
        else max(0.0, 100 * (cpu_s - cpu_before_s) / time_s),
        latency_p50_ms=p50_ms,
        latency_p99_ms=p99_ms,
    )


def conditions_on(
    testbed: Testbed, run: str, rules: WindowRules, idle_power_w: float | None = None
) -> RunConditions:
    """Measure what is the same for all windows; no job may run yet.

    Idle power may be known from before the first job: the card needs seconds to cool.
    """
    if idle_power_w is None:
        idle_power_w = measure_idle(testbed.source, testbed.clock, rules)
    return RunConditions(
        gpu=testbed.gpu,
        rules=rules,
        run=run,
        mode=testbed.mode,
        source=testbed.source.name,
        host=os.uname().nodename,
        idle_power_w=idle_power_w,
    )


def windows_in(blocks: Iterable[Block]) -> int:
    """How many the blocks have."""
    return sum(len(block.targets) for block in blocks)


def measure_blocks(
    blocks: Sequence[Block],
    conditions: RunConditions,
    testbed: Testbed,
    store: Store,
    reporter: Reporter,
    then: Callable[[Sequence[Point]], Sequence[Block]] = lambda _: (),
) -> CampaignOutcome:
    """Measure all windows of the blocks, then once more those that failed, alone.

    `then` says what is to be measured after the blocks, by the points so far.

    Raises:
        LimitNotProvenError: a share is not in force before a job starts.
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
    """
    begun_s = testbed.clock.now_s()
    with ProcessPool(testbed) as pool:
        task = _Task(conditions, testbed, store, reporter, pool)
        task.plan = lambda: [*blocks, *then(task.points)]
        for block in blocks:
            task.measure(block)
        planned = task.plan()
        task.plan = lambda: planned
        for block in planned[len(blocks) :]:
            task.measure(block)
        first = len(task.failures)
        for failure in task.failures[:first]:
            if task.retry_limit.verdict(failure.target.jobs):
                task.failures.append(failure)
            else:  # with nothing but its own processes on the GPU
                task.measure(Block(failure.target.specs, (failure.target,)), alone=True)
        failures = task.failures[first:]
        # Report what failed twice. A failed pair leaves a point with its error.
        for failure in failures:
            if _is_probed(failure.target):
                continue
            reporter.failure(failure)
            if len(failure.target.specs) > 1:
                moment = testbed.clock.utc()
                store.add([failure.target.failed(task.conditions, moment, failure.reason)])
        cost = Cost(
            duration_s=testbed.clock.now_s() - begun_s,
            measuring_s=task.measuring_s,
            window_s=sum(point.window_s for point in task.points),
            starting_s=pool.starting_s,
            waiting_s=pool.waiting_s + task.waiting_s,
            starts=pool.starts,
        )
    return CampaignOutcome(tuple(task.points), tuple(failures), cost)


class _Task:
    def __init__(
        self,
        conditions: RunConditions,
        testbed: Testbed,
        store: Store,
        reporter: Reporter,
        pool: ProcessPool,
    ) -> None:
        self.conditions, self._testbed, self._pool = conditions, testbed, pool
        self._store, self._reporter = store, reporter
        # All blocks, finished ones included, as planned by now.
        self.plan: Callable[[], Sequence[Block]] = list[Block]
        self._begun_s, self._blocks_begun = testbed.clock.now_s(), 0
        self.retry_limit = RetryLimit()
        read = (
            (point.job_hash, Reported.read(point.reported))
            for point in store.solo_points(gpu_model=testbed.gpu.model)
            if point.share_percent == WHOLE and point.results == "right"
            # Another driver may round otherwise.
            if point.driver == testbed.gpu.driver and point.source != REPLAY_SOURCE
        )
        # What jobs reported on the whole GPU where it was right, by hash of the job.
        self._right = {job: of for job, of in read if job is not None and of is not None}
        self.points: list[Point] = []
        self.failures: list[Failure] = []
        self.measuring_s, self.waiting_s = 0.0, 0.0

    def measure(self, block: Block, *, alone: bool = False) -> None:
        """Start the processes of a block, `alone` those of one window, and take its windows."""
        self._pool.errors.clear()
        self._blocks_begun += 1
        left = list(block.targets)
        while left:
            tried = [t for t in left if not self.retry_limit.verdict(t.jobs)]
            # One that stands is kept: a later block may need it.
            needed = _processes(tried) | (block.kept & self._pool.processes.keys())
            missing = self._start([spec for spec in block.specs if spec in needed])
            # One failure for a job none of whose processes came up: its time-out is long.
            for job in () if alone else {spec.job.name for spec in missing}:
                if all(r in self._pool.errors for r in missing if r.job.name == job):
                    self.retry_limit.failed((job,))
            requested_s = self._testbed.clock.now_s()
            with self._testbed.phase_lock.measuring():
                self.waiting_s += self._testbed.clock.now_s() - requested_s
                if missing:
                    power_w, ready = None, self._pool.processes
                    # What open contexts draw: clocks stay up for them. A job without a gate works
                    # already.
                    if ready and all(spec.job.progress.gate for spec in ready):
                        source, rules = self._testbed.source, self.conditions.rules
                        power_w = measure_idle(source, self._testbed.clock, rules)
                    self.conditions = replace(self.conditions, active_idle_power_w=power_w)
                left = self._windows(left, alone)

    def _start(self, specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
        """Bring the pool to these processes; those that had to be started."""
        missing = [r for r in specs if r not in self._pool.processes]
        if missing:
            given_s = max(spec.job.start_timeout_s for spec in missing)
            self._reporter.phase(f"starting {_names(missing)}, each ready within {given_s:g} s")
        before_s = self._pool.starting_s
        self._pool.change(specs)
        for spec in missing:
            if error := self._pool.errors.get(spec):
                self._reporter.phase(f"{_names([spec])} did not start: {error.what}")
        if missing:
            took_s = self._pool.starting_s - before_s
            self._reporter.phase(
                f"{count_of(len(self._pool.processes), 'process')} ready after {took_s:.0f} s"
            )
        return missing

    def _windows(self, targets: Sequence[Target], alone: bool) -> list[Target]:
        """Take the windows; those that are left when processes must be started again."""
        for number, target in enumerate(targets, start=1):
            if error := self._hopeless(target):
                self._fail(target, error)
                # Beside others a job may fail to start for want of memory; alone it is its fault.
                if alone:
                    self.retry_limit.failed(target.jobs)
            elif not self._try(target) and (lost := self._lost(target)):
                self._pool.end(lost)
                return list(targets[number:])
        return []

    def _hopeless(self, target: Target) -> AdvisorError | None:
        if verdict := self.retry_limit.verdict(target.jobs):
            # What was given up before says the same, and why.
            reasons = (
                f.cause.why if f.cause.what == verdict else f.reason
                for f in reversed(self.failures)
                if f.target.jobs == target.jobs
            )
            return JobError(verdict, why=next(reasons, ""))
        return next(filter(None, (self._pool.errors.get(spec) for spec in target.specs)), None)

    def _lost(self, target: Target) -> list[ProcessSpec]:
        """Processes that must be started again after a window failed."""
        if not self._testbed.spoiled():
            return self._pool.dead()
        # The fault has no known author, and processes at their gates have not seen it yet.
        for spec in target.specs:
            self._pool.errors.pop(spec, None)
        return list(self._pool.processes) or list(target.specs)

    def _fail(self, target: Target, error: AdvisorError) -> None:
        # Of the fix only the last line of the job's output, which is below the first: no paths.
        reason = "; ".join(filter(None, (error.what, error.why, *error.fix.splitlines()[1:][-1:])))
        self.failures.append(Failure(target, reason, error))

    def _try(self, target: Target) -> bool:
        begun_s = self._testbed.clock.now_s()
        processes = [self._pool.processes[spec] for spec in target.specs]
        try:
            result = measure_target(target, processes, self._testbed, self.conditions.rules)
        except (JobError, LimitBrokenError) as error:
            self._reporter.phase(f"{target} failed, it is tried again at the end: {error.what}")
            self._fail(target, error)
            self.retry_limit.failed(target.jobs)
            if isinstance(error, LimitBrokenError):
                for spec in [s for s in self._pool.processes if s.job.name in error.jobs]:
                    self._pool.lose(spec, error)
            self._rest(target)
            return False
        self.measuring_s += self._testbed.clock.now_s() - begun_s
        self._rest(target)
        self._testbed.check_alive()
        point = _judged(result, self._right).point(self.conditions)
        # Of a window with the probe only kernels are kept, with the job's own point.
        if not _is_probed(target):
            self._store.add([point])
        self.points.append(point)
        planned = self.plan()
        self._reporter.point(point, len(self.points), windows_in(planned), self._eta_s(planned))
        self.retry_limit.worked(target.jobs)
        return True

    def _eta_s(self, planned: Sequence[Block]) -> float:
        """Seconds left, by the mean times of a window and of a block's starts."""
        done, starting_s = len(self.points), self._pool.starting_s
        measuring_s = self._testbed.clock.now_s() - self._begun_s - starting_s
        windows_s = measuring_s / done * (windows_in(planned) - done)
        # A window that is tried again is in no planned block.
        blocks_left = max(0, len(planned) - self._blocks_begun)
        return windows_s + starting_s / self._blocks_begun * blocks_left

    def _rest(self, target: Target) -> None:
        """Bring the jobs of a window to rest; one that will not, or is gone, is ended."""
        for spec in target.specs:
            if (process := self._pool.processes.get(spec)) is None:
                continue
            try:
                process.check()
                process.hold()
            except JobError as reason:
                self._pool.lose(spec, reason)


def _names(specs: Sequence[ProcessSpec]) -> str:
    return "; ".join(
        f"{name} at {', '.join(f'{spec.share} %' for spec in its)}"
        for name, its in grouped(specs, lambda spec: spec.job.name).items()
    )


DEFAULT_SHARES = tuple(Share(float(percent)) for percent in range(10, 101, 10))

IDLE_DRIFT_W = 5
"""Idle power that moved by more than this between start and end is worth a word."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep measured.

    Attributes:
        points: Of the run, earlier ones included.
    """

    run: str
    points: tuple[SoloPoint, ...]
    failures: tuple[Failure, ...]
    idle_before_w: float | None
    idle_after_w: float | None
    duration_s: float


def plan(job: Job, shares: Iterable[Share], repeats: int, run: str) -> list[Target]:
    """All windows in an order that is random but the same for the same run."""
    targets = [solo(job, share, repeat) for share in shares for repeat in range(repeats)]
    random.Random(run).shuffle(targets)
    return targets


def new_run(moment: str) -> str:
    """Name of a run: its start and four random hex digits."""
    return f"{datetime.fromisoformat(moment):%Y%m%dT%H%M%S}-{os.urandom(2).hex()}"


def unfinished_run(
    points: Sequence[SoloPoint], job: Job, gpu: Gpu, mode: str
) -> tuple[str, list[SoloPoint]] | None:
    """The newest run of exactly this job on this card, with its points."""
    same = [
        p
        for p in points
        if (p.job_hash, p.gpu_uuid, p.mode) == (job.job_hash, gpu.uuid, mode)
        and p.driver == gpu.driver
    ]
    if not same:
        return None
    run = max(same, key=lambda p: p.started_at).run
    return run, [p for p in same if p.run == run]


SHORT_KERNELS = Job(
    name="advisor-short-kernels",
    command=(python(), str(workload_path("short_kernels.py"))),
    progress=ProgressSettings(unit="kernels", gate=True),
    start_timeout_s=60.0,
    memory_mib=600,
)
"""The probe beside which the kernels of a job are counted."""


def _is_probed(target: Target) -> bool:
    return SHORT_KERNELS.name in target.jobs


def _whole_again(job: Job, points: Iterable[Point]) -> list[Target]:
    """Further windows on the whole GPU of a gated job that waits for its host."""
    whole = [p for p in points if isinstance(p, SoloPoint) and p.share_percent == WHOLE]
    if not job.progress.gate or not any(CPU_BOUND in point.flags for point in whole):
        return []
    first = max(point.repeat for point in whole) + 1
    # Three in all: its rate moves by up to 30 % from one to the next
    # (docs/measurements/own/public/points.jsonl), and all its speeds are divided by it.
    return [solo(job, _FULL, n) for n in range(first, first + 3 - len(whole))]


def _needed_mib(points: Iterable[Point]) -> float:
    """Memory that a process of the job needs, by its windows; infinite: not measured."""
    used_mib = (p.memory_used_mib for p in points if isinstance(p, SoloPoint))
    # A quarter more: a job may grow after its first window.
    return 1.25 * max(filter(None, used_mib), default=math.inf)


def _probe_blocks(
    job: Job,
    targets: Iterable[Target],
    kept: Iterable[SoloPoint],
    testbed: Testbed,
    reporter: Reporter,
) -> list[Block]:
    """The probe alone and beside the job without limits; none where nothing is to be counted.

    The job needs a window on the whole GPU, planned or kept, and no such point may have kernels.
    Without MPS they are not dealt in turn, and a replay may lack the window.
    """
    whole = [point for point in kept if point.share_percent == WHOLE]
    alone, beside = solo(SHORT_KERNELS, _FULL), together([(job, _FULL), (SHORT_KERNELS, _FULL)])
    if (
        not (whole or any(spec.share == _FULL for target in targets for spec in target.specs))
        or any(point.kernels_per_unit for point in whole)
        or testbed.refuses(beside)
    ):
        return []
    if testbed.mode != "mps":
        reporter.phase("kernels per unit are not counted: that takes MPS")
        return []
    return [_block([alone, beside])] if job.progress.gate else [_block([alone]), _block([beside])]


def _with_kernels(
    points: Sequence[SoloPoint], windows: Sequence[Point], store: Store
) -> list[SoloPoint]:
    """The points, of which those on the whole GPU get kernels per unit, also in the store.

    Args:
        points: Of the job alone.
        windows: Those of the probe alone and beside the job among them.
        store: Of the points.
    """
    alone = next(w for w in windows if isinstance(w, SoloPoint) and w.job == SHORT_KERNELS.name)
    beside = next(window for window in windows if isinstance(window, PairPoint))
    job, probe = sorted(beside.parts, key=lambda part: part.job == SHORT_KERNELS.name)
    rates = [MeanEstimate(of.rate or 0.0, of.rate_stderr) for of in (job, alone, probe)]
    whole = {
        point: replace(
            point,
            **kernels_beside(
                MeanEstimate(point.rate, point.rate_stderr),
                *rates,
                busy_percent=point.gpu_busy_percent,
                pauses=None if computes_in_bursts(point) else False,
            ),
        )
        for point in points
        if point.share_percent == WHOLE
    }
    store.add(whole.values(), renew=True)
    return [whole.get(point, point) for point in points]


def _with_declared_kernels(
    points: Sequence[SoloPoint], job: Job | None, store: Store, reporter: Reporter
) -> list[SoloPoint]:
    """The points with kernels per unit as the job's file declares them, where no probe counted."""
    whole = [point for point in points if point.share_percent == WHOLE and point.rate]
    per_unit = job.kernels_per_unit if job else None
    if not (whole and per_unit) or any(point.kernels_per_unit for point in whole):
        return [*points]
    renewed = {point: point.with_declared(per_unit) for point in whole}
    store.add(renewed.values(), renew=True)
    reporter.phase(f"kernels per unit are those of the job file: {per_unit:g}")
    return [renewed.get(point, point) for point in points]


def sweep(
    targets: Sequence[Target],
    run: str,
    testbed: Testbed,
    store: Store,
    reporter: Reporter,
    rules: WindowRules,
    *,
    kept: Sequence[SoloPoint] = (),
    counted: Job | None = None,
) -> SweepResult:
    """Measure `targets` on `testbed`; what failed is tried once more, alone.

    Args:
        targets: Windows of a job alone.
        run: Name of the run.
        testbed: With the GPU.
        store: Where points go to.
        reporter: Shows the progress.
        rules: When a window ends.
        kept: Points that the run has from before.
        counted: The job whose kernels per unit are counted after its points, and which has further
            windows on the whole GPU if it waits for its host. A failure of counting is told, and
            costs no point.

    Raises:
        LimitBrokenError: the job does not stay under its share, or a stranger computes.
        LimitNotProvenError: the share of the job is not in force.
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
    """
    probe = _probe_blocks(counted, targets, kept, testbed, reporter) if counted else []
    if not targets and not probe:
        points = _with_declared_kernels(kept, counted, store, reporter)
        return SweepResult(run, tuple(points), (), None, None, 0.0)
    begun_s = testbed.clock.now_s()
    reporter.phase("measuring idle power")
    conditions = conditions_on(testbed, run, rules)
    free_mib = testbed.gpu.memory_mib
    if free_mib is not None:
        free_mib -= testbed.source.read((MEMORY_USED,))[MEMORY_USED] or 0

    def packed(points: Sequence[Point]) -> list[Block]:
        """Blocks by the memory that the job used so far; the whole GPU comes first."""
        used_mib = _needed_mib([*kept, *points])
        blocks = cut(targets, testbed.max_clients, free_mib, run, alone=False, used_mib=used_mib)
        return sorted(blocks, key=lambda block: all(of.share != _FULL for of in block.specs))

    first = packed(())[:1]

    def then(points: Sequence[Point]) -> list[Block]:
        """The rest, then what is counted between the further windows, so that these lie apart."""
        begun = {target for block in first for target in block.targets}
        rest = [
            Block(block.specs, left)
            for block in packed(points)
            if (left := tuple(t for t in block.targets if t not in begun))
        ]
        again = _whole_again(counted, [*kept, *points]) if counted and probe else []
        between = [target for block in probe for target in block.targets]
        counting = [_block([*again[:1], *between, *again[1:]])] if again else probe
        return [*rest, *counting]

    outcome = measure_blocks(first, conditions, testbed, store, reporter, then)
    uncounted = [failure for failure in outcome.failures if _is_probed(failure.target)]
    failures = tuple(failure for failure in outcome.failures if failure not in uncounted)
    for failure in failures:
        # A job that lifts its limit is the only one here: no other share is believed either.
        if isinstance(failure.cause, LimitNotProvenError | LimitBrokenError):
            raise failure.cause
    points = [
        *kept,
        *(p for p in outcome.points if isinstance(p, SoloPoint) and p.job != SHORT_KERNELS.name),
    ]
    if uncounted:
        reporter.phase(f"kernels per unit are not counted: {uncounted[0].reason}")
    elif probe:
        points = _with_kernels(points, outcome.points, store)
    points = _with_declared_kernels(points, counted, store, reporter)
    reporter.phase("measuring idle power again")
    return SweepResult(
        run=run,
        points=tuple(points),
        failures=failures,
        idle_before_w=conditions.idle_power_w,
        idle_after_w=_idle_again(testbed, rules, conditions.idle_power_w),
        duration_s=testbed.clock.now_s() - begun_s,
    )


def _idle_again(testbed: Testbed, rules: WindowRules, before_w: float | None) -> float | None:
    """Idle power after the last job; the card takes some seconds to lower its clocks."""
    deadline_s = testbed.clock.now_s() + 8
    while True:
        after_w = measure_idle(testbed.source, testbed.clock, rules)
        cool = before_w is None or after_w is None or after_w <= before_w + IDLE_DRIFT_W
        if cool or testbed.clock.now_s() >= deadline_s:
            return after_w
