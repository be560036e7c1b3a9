"""Measures windows block by block; a solo sweep is a campaign with one job.

The clients of a block are started together, then its windows follow one another. Every point is
written as soon as it is known. A window that failed is tried once more with its own clients alone.
"""

import platform
from collections.abc import Sequence

from advisor.core.records import REPLAY_SOURCE, Point, SoloPoint
from advisor.core.wording import count_of
from advisor.errors import AdvisorError, JobError, LimitBrokenError
from advisor_data import Store
from advisor_profiling.campaign.blocks import Block
from advisor_profiling.campaign.outcome import Cost, Failure, Outcome, Reporter
from advisor_profiling.campaign.patience import Patience
from advisor_profiling.campaign.verdicts import References
from advisor_profiling.testbed.bench import Bench
from advisor_profiling.testbed.crew import Crew
from advisor_profiling.testbed.take import take
from advisor_profiling.window.points import Conditions, failed_point, to_point
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.targets import Runner, Target
from advisor_profiling.window.window import measure_idle


def conditions_on(
    bench: Bench, run: str, rules: WindowRules, idle_power_w: float | None = None
) -> Conditions:
    """Measure what is the same for all windows; no job may run yet.

    Args:
        bench: The GPU.
        run: Name of the run.
        rules: When windows begin and end.
        idle_power_w: Where it is known from before the first job: the card needs seconds to cool.
    """
    if idle_power_w is None:
        idle_power_w = measure_idle(bench.source, bench.clock, rules)
    return Conditions(
        gpu=bench.gpu,
        rules=rules,
        run=run,
        mode=bench.mode,
        source=bench.source.name,
        host=platform.node(),
        idle_power_w=idle_power_w,
    )


def measure_blocks(
    blocks: Sequence[Block], conditions: Conditions, bench: Bench, store: Store, reporter: Reporter
) -> Outcome:
    """Measure all windows of the blocks, then once more those that failed, alone.

    Raises:
        LimitNotProvenError: a share is not in force before a job starts.
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
    """
    begun_s = bench.clock.now_s()
    with Crew(bench) as crew:
        task = _Task(conditions, bench, store, reporter, sum(len(b.targets) for b in blocks), crew)
        for block in blocks:
            task.measure(block)
        for failure in task.take_failures():
            task.try_again(failure)
        for failure in task.failures:
            task.give_up(failure)
        cost = Cost(
            duration_s=bench.clock.now_s() - begun_s,
            measuring_s=task.measuring_s,
            window_s=sum(point.window_s for point in task.points),
            starting_s=crew.starting_s,
            waiting_s=crew.waiting_s + task.waiting_s,
            starts=crew.starts,
        )
    return Outcome(tuple(task.points), tuple(task.failures), cost)


class _Task:
    """The state of one campaign."""

    def __init__(
        self,
        conditions: Conditions,
        bench: Bench,
        store: Store,
        reporter: Reporter,
        total: int,
        crew: Crew,
    ) -> None:
        self._conditions, self._bench, self._crew = conditions, bench, crew
        self._store, self._reporter = store, reporter
        self._total, self._begun_s = total, bench.clock.now_s()
        self._patience = Patience()
        self._references = References(_comparable(store, bench))
        self.points: list[Point] = []
        self.failures: list[Failure] = []
        self._told: list[Failure] = []
        self.measuring_s, self.waiting_s = 0.0, 0.0

    def measure(self, block: Block, *, alone: bool = False) -> None:
        """Start the clients of a block, then take its windows one after the other.

        Args:
            block: What to measure.
            alone: It holds the clients of one window only.
        """
        self._crew.errors.clear()
        left = list(block.targets)
        while left:
            tried = [t for t in left if not self._patience.verdict(t.jobs)]
            runners = [r for r in block.runners if any(r in t.runners for t in tried)]
            missing = self._start(runners)
            if not alone:
                self._count_jobs_that_never_start(missing)
            asked_s = self._bench.clock.now_s()
            with self._bench.quiet.measuring():
                self.waiting_s += self._bench.clock.now_s() - asked_s
                left = self._windows(left, alone)

    def try_again(self, failure: Failure) -> None:
        """Measure a window that failed, with nothing but its own clients on the GPU."""
        if self._patience.verdict(failure.target.jobs):
            self.failures.append(failure)
            return
        self.measure(Block(failure.target.runners, (failure.target,)), alone=True)

    def take_failures(self) -> list[Failure]:
        """The failures so far, which are forgotten."""
        failures, self.failures = self.failures, []
        return failures

    def give_up(self, failure: Failure) -> None:
        """Tell a failure that stays; a pair keeps a marked point."""
        self._reporter.failure(failure)
        if len(failure.target.runners) > 1:
            moment = self._bench.clock.utc()
            reason = failure.reason or failure.error
            self._store.add([failed_point(failure.target, self._conditions, moment, reason)])

    def _start(self, runners: Sequence[Runner]) -> list[Runner]:
        """Bring the crew to these clients; those that had to be started."""
        missing = [r for r in runners if r not in self._crew.clients]
        if missing:
            self._reporter.phase(f"starting, when no window is open here: {_names(missing)}")
        before_s = self._crew.starting_s
        self._crew.change(runners)
        if missing:
            took_s = self._crew.starting_s - before_s
            ready = count_of(len(self._crew.clients), "client")
            self._reporter.phase(f"{ready} ready after {took_s:.0f} s")
        return missing

    def _count_jobs_that_never_start(self, missing: Sequence[Runner]) -> None:
        """One failure for a job none of whose clients came up: its time-out is long."""
        for job in {runner.job.name for runner in missing}:
            if all(r in self._crew.errors for r in missing if r.job.name == job):
                self._patience.failed((job,))

    def _windows(self, targets: Sequence[Target], alone: bool) -> list[Target]:
        """Take the windows; those that are left when clients must be started again."""
        for number, target in enumerate(targets, start=1):
            if error := self._hopeless(target):
                self._fail(target, error)
                # Beside others a job may fail to start for want of memory; alone it is its fault.
                if alone:
                    self._patience.failed(target.jobs)
            elif not self._try(target) and (lost := self._lost(target)):
                self._crew.end(lost)
                return list(targets[number:])
        return []

    def _hopeless(self, target: Target) -> AdvisorError | None:
        if verdict := self._patience.verdict(target.jobs):
            last = next(
                (f.reason for f in reversed(self._told) if f.target.jobs == target.jobs), ""
            )
            return JobError(verdict, why=last)
        errors = (self._crew.errors.get(runner) for runner in target.runners)
        return next(filter(None, errors), None)

    def _lost(self, target: Target) -> list[Runner]:
        """Clients that must be started again after a window failed."""
        if not self._bench.spoiled():
            return self._crew.dead()
        # The fault has no known author, and clients at their gates have not seen it yet.
        for runner in target.runners:
            self._crew.errors.pop(runner, None)
        return list(self._crew.clients) or list(target.runners)

    def _fail(self, target: Target, error: AdvisorError) -> None:
        failure = Failure(target, str(error), _reason(error), error)
        self.failures.append(failure)
        self._told.append(failure)

    def _try(self, target: Target) -> bool:
        begun_s = self._bench.clock.now_s()
        clients = [self._crew.clients[runner] for runner in target.runners]
        try:
            taken = take(target, clients, self._bench, self._conditions.rules)
        except (JobError, LimitBrokenError) as error:
            self._reporter.phase(f"{target} failed, it is tried again at the end: {error.what}")
            self._fail(target, error)
            self._patience.failed(target.jobs)
            if isinstance(error, LimitBrokenError):
                self._crew.lose_jobs(error.jobs, error)
            self._rest(target)
            return False
        self.measuring_s += self._bench.clock.now_s() - begun_s
        self._rest(target)
        self._bench.check_alive()
        self._keep(to_point(self._references.judged(taken), self._conditions))
        self._patience.worked(target.jobs)
        return True

    def _rest(self, target: Target) -> None:
        """Bring the jobs of a window to rest; one that will not, or is gone, is ended."""
        for runner in target.runners:
            if (client := self._crew.clients.get(runner)) is None:
                continue
            try:
                client.check()
                client.hold()
            except JobError as reason:
                self._crew.lose(runner, reason)

    def _keep(self, point: Point) -> None:
        self._store.add([point])
        self.points.append(point)
        done = len(self.points)
        elapsed_s = self._bench.clock.now_s() - self._begun_s
        self._reporter.point(point, done, self._total, elapsed_s / done * (self._total - done))


def _comparable(store: Store, bench: Bench) -> list[SoloPoint]:
    """Earlier points whose results may be compared with: another driver may round otherwise."""
    points = store.solo_points(gpu_model=bench.gpu.model)
    return [p for p in points if p.driver == bench.gpu.driver and p.source != REPLAY_SOURCE]


def _reason(error: AdvisorError) -> str:
    """What and why, and the last line of the job's output where it is told, without paths."""
    lines = error.fix.splitlines()
    last = lines[-1] if len(lines) > 1 else ""
    return "; ".join(filter(None, (error.what, error.why, last)))


def _names(runners: Sequence[Runner]) -> str:
    """The jobs, each with its shares."""
    shares: dict[str, list[str]] = {}
    for runner in runners:
        shares.setdefault(runner.job.name, []).append(f"{runner.share} %")
    return "; ".join(f"{name} at {', '.join(items)}" for name, items in shares.items())
