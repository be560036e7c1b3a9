"""Measures windows block by block; a solo sweep is a campaign with one job.

The processes of a block are started together, then its windows follow one another. Every point is
written as soon as it is known. A window that failed is tried once more with its own processes
alone.
"""

import platform
from collections.abc import Sequence
from dataclasses import replace

from advisor.core.records import REPLAY_SOURCE, Point, SoloPoint
from advisor.core.wording import count_of
from advisor.errors import AdvisorError, JobError, LimitBrokenError
from advisor_data import Store
from advisor_profiling.campaign.blocks import Block
from advisor_profiling.campaign.outcome import (
    CampaignOutcome,
    Cost,
    Failure,
    References,
    Reporter,
    RetryLimit,
)
from advisor_profiling.testbed.measure_target import measure_target
from advisor_profiling.testbed.process_pool import ProcessPool
from advisor_profiling.testbed.testbed import Testbed
from advisor_profiling.window.points import RunConditions, failed_point, to_point
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.targets import ProcessSpec, Target
from advisor_profiling.window.window import measure_idle


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
        host=platform.node(),
        idle_power_w=idle_power_w,
    )


def measure_blocks(
    blocks: Sequence[Block],
    conditions: RunConditions,
    testbed: Testbed,
    store: Store,
    reporter: Reporter,
) -> CampaignOutcome:
    """Measure all windows of the blocks, then once more those that failed, alone.

    Raises:
        LimitNotProvenError: a share is not in force before a job starts.
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
    """
    begun_s = testbed.clock.now_s()
    with ProcessPool(testbed) as pool:
        task = _Task(
            conditions, testbed, store, reporter, sum(len(b.targets) for b in blocks), pool
        )
        for block in blocks:
            task.measure(block)
        for failure in task.take_failures():
            task.try_again(failure)
        for failure in task.failures:
            task.give_up(failure)
        cost = Cost(
            duration_s=testbed.clock.now_s() - begun_s,
            measuring_s=task.measuring_s,
            window_s=sum(point.window_s for point in task.points),
            starting_s=pool.starting_s,
            waiting_s=pool.waiting_s + task.waiting_s,
            starts=pool.starts,
        )
    return CampaignOutcome(tuple(task.points), tuple(task.failures), cost)


class _Task:
    """The state of one campaign."""

    def __init__(
        self,
        conditions: RunConditions,
        testbed: Testbed,
        store: Store,
        reporter: Reporter,
        total: int,
        pool: ProcessPool,
    ) -> None:
        self._conditions, self._testbed, self._pool = conditions, testbed, pool
        self._store, self._reporter = store, reporter
        self._total, self._begun_s = total, testbed.clock.now_s()
        self._retry_limit = RetryLimit()
        self._references = References(_comparable(store, testbed))
        self.points: list[Point] = []
        self.failures: list[Failure] = []
        self._told: list[Failure] = []
        self.measuring_s, self.waiting_s = 0.0, 0.0

    def measure(self, block: Block, *, alone: bool = False) -> None:
        """Start the processes of a block, `alone` those of one window, and take its windows."""
        self._pool.errors.clear()
        left = list(block.targets)
        while left:
            tried = [t for t in left if not self._retry_limit.verdict(t.jobs)]
            specs = [r for r in block.specs if any(r in t.specs for t in tried)]
            missing = self._start(specs)
            if not alone:
                self._count_jobs_that_never_start(missing)
            asked_s = self._testbed.clock.now_s()
            with self._testbed.phase_lock.measuring():
                self.waiting_s += self._testbed.clock.now_s() - asked_s
                if missing:
                    self._measure_active_idle()
                left = self._windows(left, alone)

    def try_again(self, failure: Failure) -> None:
        """Measure a window that failed, with nothing but its own processes on the GPU."""
        if self._retry_limit.verdict(failure.target.jobs):
            self.failures.append(failure)
            return
        self.measure(Block(failure.target.specs, (failure.target,)), alone=True)

    def take_failures(self) -> list[Failure]:
        """The failures so far, which are forgotten."""
        failures, self.failures = self.failures, []
        return failures

    def give_up(self, failure: Failure) -> None:
        """Tell a failure that stays; a pair keeps a marked point."""
        self._reporter.failure(failure)
        if len(failure.target.specs) > 1:
            moment = self._testbed.clock.utc()
            reason = failure.reason or failure.error
            self._store.add([failed_point(failure.target, self._conditions, moment, reason)])

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
            ready = count_of(len(self._pool.processes), "process")
            self._reporter.phase(f"{ready} ready after {took_s:.0f} s")
        return missing

    def _measure_active_idle(self) -> None:
        """What open contexts draw: clocks stay up for them. A job without a gate works already."""
        ready = self._pool.processes
        power_w = None
        if ready and all(spec.job.progress.gate for spec in ready):
            testbed = self._testbed
            power_w = measure_idle(testbed.source, testbed.clock, self._conditions.rules)
        self._conditions = replace(self._conditions, active_idle_power_w=power_w)

    def _count_jobs_that_never_start(self, missing: Sequence[ProcessSpec]) -> None:
        """One failure for a job none of whose processes came up: its time-out is long."""
        for job in {spec.job.name for spec in missing}:
            if all(r in self._pool.errors for r in missing if r.job.name == job):
                self._retry_limit.failed((job,))

    def _windows(self, targets: Sequence[Target], alone: bool) -> list[Target]:
        """Take the windows; those that are left when processes must be started again."""
        for number, target in enumerate(targets, start=1):
            if error := self._hopeless(target):
                self._fail(target, error)
                # Beside others a job may fail to start for want of memory; alone it is its fault.
                if alone:
                    self._retry_limit.failed(target.jobs)
            elif not self._try(target) and (lost := self._lost(target)):
                self._pool.end(lost)
                return list(targets[number:])
        return []

    def _hopeless(self, target: Target) -> AdvisorError | None:
        if verdict := self._retry_limit.verdict(target.jobs):
            # What was given up before says the same, and why.
            reasons = (
                f.cause.why if f.cause and f.cause.what == verdict else f.reason
                for f in reversed(self._told)
                if f.target.jobs == target.jobs
            )
            last = next(reasons, "")
            return JobError(verdict, why=last)
        errors = (self._pool.errors.get(spec) for spec in target.specs)
        return next(filter(None, errors), None)

    def _lost(self, target: Target) -> list[ProcessSpec]:
        """Processes that must be started again after a window failed."""
        if not self._testbed.spoiled():
            return self._pool.dead()
        # The fault has no known author, and processes at their gates have not seen it yet.
        for spec in target.specs:
            self._pool.errors.pop(spec, None)
        return list(self._pool.processes) or list(target.specs)

    def _fail(self, target: Target, error: AdvisorError) -> None:
        failure = Failure(target, str(error), _reason(error), error)
        self.failures.append(failure)
        self._told.append(failure)

    def _try(self, target: Target) -> bool:
        begun_s = self._testbed.clock.now_s()
        processes = [self._pool.processes[spec] for spec in target.specs]
        try:
            result = measure_target(target, processes, self._testbed, self._conditions.rules)
        except (JobError, LimitBrokenError) as error:
            self._reporter.phase(f"{target} failed, it is tried again at the end: {error.what}")
            self._fail(target, error)
            self._retry_limit.failed(target.jobs)
            if isinstance(error, LimitBrokenError):
                self._pool.lose_jobs(error.jobs, error)
            self._rest(target)
            return False
        self.measuring_s += self._testbed.clock.now_s() - begun_s
        self._rest(target)
        self._testbed.check_alive()
        self._keep(to_point(self._references.judged(result), self._conditions))
        self._retry_limit.worked(target.jobs)
        return True

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

    def _keep(self, point: Point) -> None:
        self._store.add([point])
        self.points.append(point)
        done = len(self.points)
        elapsed_s = self._testbed.clock.now_s() - self._begun_s
        self._reporter.point(point, done, self._total, elapsed_s / done * (self._total - done))


def _comparable(store: Store, testbed: Testbed) -> list[SoloPoint]:
    """Earlier points whose results may be compared with: another driver may round otherwise."""
    points = store.solo_points(gpu_model=testbed.gpu.model)
    return [p for p in points if p.driver == testbed.gpu.driver and p.source != REPLAY_SOURCE]


def _reason(error: AdvisorError) -> str:
    """What and why, and the last line of the job's output where it is known, without paths."""
    lines = error.fix.splitlines()
    last = lines[-1] if len(lines) > 1 else ""
    return "; ".join(filter(None, (error.what, error.why, last)))


def _names(specs: Sequence[ProcessSpec]) -> str:
    """The jobs, each with its shares."""
    shares: dict[str, list[str]] = {}
    for spec in specs:
        shares.setdefault(spec.job.name, []).append(f"{spec.share} %")
    return "; ".join(f"{name} at {', '.join(items)}" for name, items in shares.items())
