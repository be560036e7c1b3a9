"""The processes that stand ready on a testbed: started together, ended together."""

from collections.abc import Callable, Collection
from typing import Self

from advisor.errors import AdvisorError, JobError, LimitNotProvenError
from advisor.runtime.job_process import stop_all
from advisor_profiling.testbed.testbed import Testbed, WarmProcess
from advisor_profiling.window.targets import ProcessSpec

_READY_POLL_S = 0.05


class ProcessPool:
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
        self.starts = 0
        self.starting_s, self.waiting_s = 0.0, 0.0

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
        asked_s = self._testbed.clock.now_s()
        with self._testbed.phase_lock.starting():
            begun_s = self._testbed.clock.now_s()
            self.waiting_s += begun_s - asked_s
            self._change(wanted)
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

    def lose_jobs(self, names: Collection[str], error: AdvisorError) -> None:
        """Stop every process of these jobs, and keep the reason."""
        for spec in [spec for spec in self.processes if spec.job.name in names]:
            self.lose(spec, error)

    def dead(self) -> list[ProcessSpec]:
        """Processes that ended without being asked, as a fault of a neighbour makes them."""
        return [spec for spec, process in self.processes.items() if not _lives(process)]

    def _change(self, wanted: Collection[ProcessSpec]) -> None:
        if self._testbed.spoiled():
            self.end(list(self.processes))
        self.end([r for r in self.processes if r not in wanted or not r.job.progress.gate])
        known = self.processes.keys() | self.errors.keys()
        missing = [spec for spec in wanted if spec not in known]
        starts = {spec: self._testbed.prove(spec.job, spec.share) for spec in missing}
        for spec, start in starts.items():
            self._start(spec, start)
        for spec in missing:
            self._await(spec)

    def _start(self, spec: ProcessSpec, start: Callable[[], WarmProcess]) -> None:
        try:
            self.processes[spec] = start()
        except JobError as error:
            self.errors[spec] = error
        else:
            self.starts += 1

    def _await(self, spec: ProcessSpec) -> None:
        if (process := self.processes.get(spec)) is None:
            return
        try:
            while not process.ready():
                self._testbed.clock.sleep(_READY_POLL_S)
            process.check_limit()
        except (JobError, LimitNotProvenError) as error:
            # It may still be starting, and must not go on next to an open window.
            self.lose(spec, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end(list(self.processes))


def _lives(process: WarmProcess) -> bool:
    try:
        process.check()
    except JobError:
        return False
    return True
