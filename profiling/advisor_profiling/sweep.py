"""The solo sweep: one job alone at each share, each point written as soon as it is known."""

import os
import platform
import random
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from advisor.errors import JobError
from advisor.gpu import Gpu, Share
from advisor.job import Job
from advisor.records import SoloPoint
from advisor.runtime.processes import cpu_steal_s
from advisor_data import Store
from advisor_profiling.bench import Bench, Client
from advisor_profiling.points import Conditions, Taken, Usage, solo_point
from advisor_profiling.window import Watch, WindowRules, measure, measure_idle

DEFAULT_SHARES = tuple(Share(float(percent)) for percent in range(10, 101, 10))

IDLE_DRIFT_W = 5
"""Idle power that moved by more than this between start and end is worth a word."""

_COOL_DOWN_S = 8
_READY_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """One window to measure: the `repeat`-th at this share."""

    share: Share
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that could not be measured."""

    target: Target
    error: str


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep measured in this process; points of an earlier part are in the store."""

    run: str
    points: tuple[SoloPoint, ...]
    failures: tuple[Failure, ...]
    idle_before_w: float | None
    idle_after_w: float | None
    duration_s: float


class Reporter(Protocol):
    """Whoever watches a sweep."""

    def phase(self, text: str) -> None:
        """Something begins that takes a while."""
        ...

    def point(self, point: SoloPoint, done: int, total: int, eta_s: float) -> None:
        """A point was measured and written."""
        ...

    def failure(self, failure: Failure) -> None:
        """A window failed for good."""
        ...


def plan(shares: Iterable[Share], repeats: int, run: str) -> list[Target]:
    """All windows in an order that is random but the same for the same run."""
    targets = [Target(share, repeat) for share in shares for repeat in range(repeats)]
    random.Random(run).shuffle(targets)
    return targets


def new_run(moment: str) -> str:
    """Name of a run: its start and four random hex digits."""
    start = datetime.fromisoformat(moment)
    return f"{start:%Y%m%dT%H%M%S}-{os.urandom(2).hex()}"


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


def sweep(
    job: Job,
    targets: Sequence[Target],
    run: str,
    bench: Bench,
    store: Store,
    reporter: Reporter,
    rules: WindowRules,
) -> SweepResult:
    """Measure `targets` on `bench`; what failed is tried once more, alone.

    Raises:
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
    """
    if not targets:
        return SweepResult(run, (), (), None, None, 0.0)
    begun_s = bench.clock.now_s()
    conditions = _conditions(job, run, bench, reporter, rules)
    task = _Sweep(conditions, bench, store, reporter, len(targets), begun_s)
    failed = task.measure_groups(targets, group_size(job, bench))
    failures = task.measure_groups([failure.target for failure in failed], 1)
    for failure in failures:
        reporter.failure(failure)
    reporter.phase("measuring idle power again")
    return SweepResult(
        run=run,
        points=tuple(task.points),
        failures=tuple(failures),
        idle_before_w=conditions.idle_power_w,
        idle_after_w=_idle_again(bench, rules, conditions.idle_power_w),
        duration_s=bench.clock.now_s() - begun_s,
    )


def _conditions(
    job: Job, run: str, bench: Bench, reporter: Reporter, rules: WindowRules
) -> Conditions:
    reporter.phase("measuring idle power")
    return Conditions(
        job=job,
        gpu=bench.gpu,
        rules=rules,
        run=run,
        mode=bench.mode,
        source=bench.source.name,
        host=platform.node(),
        idle_power_w=measure_idle(bench.source, bench.clock, rules),
    )


def _idle_again(bench: Bench, rules: WindowRules, before_w: float | None) -> float | None:
    """Idle power after the last job; the card takes some seconds to lower its clocks."""
    deadline_s = bench.clock.now_s() + _COOL_DOWN_S
    while True:
        after_w = measure_idle(bench.source, bench.clock, rules)
        if before_w is None or after_w is None or after_w <= before_w + IDLE_DRIFT_W:
            return after_w
        if bench.clock.now_s() >= deadline_s:
            return after_w


def group_size(job: Job, bench: Bench) -> int:
    """How many clients of the job may stand ready together: gate, memory and client limit."""
    if not job.progress.gate or job.memory_mib is None:
        return 1
    used_mib = bench.source.state().memory_used_mib or 0
    free_mib = (bench.gpu.memory_mib or 0) - used_mib
    return max(1, min(bench.max_clients, int(0.95 * free_mib // max(1, job.memory_mib))))


class _Sweep:
    """The state of one sweep."""

    def __init__(
        self,
        conditions: Conditions,
        bench: Bench,
        store: Store,
        reporter: Reporter,
        total: int,
        begun_s: float,
    ) -> None:
        self._conditions, self._bench = conditions, bench
        self._store, self._reporter = store, reporter
        self._total, self._begun_s = total, begun_s
        self.points: list[SoloPoint] = []

    def measure_groups(self, targets: Sequence[Target], size: int) -> list[Failure]:
        """Start `size` clients, wait for all, then measure one after the other."""
        failures: list[Failure] = []
        for first in range(0, len(targets), size):
            with ExitStack() as stack:
                group = targets[first : first + size]
                clients = self._start(group, stack, failures)
                for target, client in clients:
                    self._try(target, client, failures)
        return failures

    def _start(
        self, group: Sequence[Target], stack: ExitStack, failures: list[Failure]
    ) -> list[tuple[Target, Client]]:
        shares = ", ".join(f"{target.share} %" for target in group)
        self._reporter.phase(f"starting {self._conditions.job.name} at {shares}")
        waiting: list[tuple[Target, Client]] = []
        with self._bench.quiet.starting():
            for target in group:
                client = self._bench.start(self._conditions.job, target.share)
                stack.callback(client.stop)
                waiting.append((target, client))
            return [(t, c) for t, c in waiting if self._await(t, c, failures)]

    def _await(self, target: Target, client: Client, failures: list[Failure]) -> bool:
        try:
            while not client.ready():
                self._bench.clock.sleep(_READY_POLL_S)
            client.check_limit()
        except JobError as error:
            failures.append(Failure(target, str(error)))
            # It may still be starting, and must not go on beside an open window.
            client.stop()
            return False
        return True

    def _try(self, target: Target, client: Client, failures: list[Failure]) -> None:
        try:
            with self._bench.quiet.measuring():
                client.go()
                point = self._measure(target, client)
        except JobError as error:
            failures.append(Failure(target, str(error)))
            client.stop()
            return
        self._bench.check_alive()
        self._keep(point)
        try:
            client.hold()
        except JobError:
            # Its point is good; it only must not run on beside the next one.
            client.stop()

    def _keep(self, point: SoloPoint) -> None:
        self._store.add([point])
        self.points.append(point)
        done = len(self.points)
        elapsed_s = self._bench.clock.now_s() - self._begun_s
        eta_s = elapsed_s / done * (self._total - done)
        self._reporter.point(point, done, self._total, eta_s)

    def _measure(self, target: Target, client: Client) -> SoloPoint:
        bench, rules = self._bench, self._conditions.rules
        begun_s, cpu_s, steal_s = bench.clock.now_s(), client.cpu_s(), cpu_steal_s()
        watch = Watch(
            count=client.count, source=bench.source, clock=bench.clock, check=client.check
        )
        window = measure(watch, rules)
        usage = _usage(client, bench.clock.now_s() - begun_s, cpu_s, steal_s)
        if window.rate is None:
            raise JobError(
                f"{self._conditions.job.name} at {target.share} % made fewer than two steps in "
                f"its window of {window.window_s:.0f} s",
                fix="give it more time with --window",
            )
        taken = Taken(
            share=target.share,
            repeat=target.repeat,
            granted=client.granted,
            window=window,
            rate=window.rate,
            usage=usage,
        )
        return solo_point(taken, self._conditions)


def _usage(
    client: Client, time_s: float, cpu_before_s: float | None, steal_before_s: float
) -> Usage:
    cpu_after_s = client.cpu_s()
    used = None if cpu_after_s is None or cpu_before_s is None else cpu_after_s - cpu_before_s
    cores = os.cpu_count() or 1
    return Usage(
        memory_used_mib=client.memory_mib(),
        job_cpu_percent=None if used is None else max(0.0, 100 * used / time_s),
        cpu_steal_percent=max(0.0, 100 * (cpu_steal_s() - steal_before_s) / (time_s * cores)),
    )
