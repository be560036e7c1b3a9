"""The clients that stand ready on a bench: started together, ended together."""

from collections.abc import Callable, Collection
from typing import Self

from advisor.errors import AdvisorError, JobError, LimitNotProvenError
from advisor.runtime.jobs.stopping import stop_all
from advisor_profiling.testbed.bench import Bench, Client
from advisor_profiling.window.targets import Runner

_READY_POLL_S = 0.05


class Crew:
    """Clients at their gates, by what they were started as.

    Attributes:
        clients: Those that are ready.
        errors: Why others are not; those are not started again until this is cleared.
        starts: How many were started so far.
        starting_s: How long that took, with the end of those before.
        waiting_s: How long starts waited for open windows of other GPUs.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.clients: dict[Runner, Client] = {}
        self.errors: dict[Runner, AdvisorError] = {}
        self.starts = 0
        self.starting_s, self.waiting_s = 0.0, 0.0

    def change(self, wanted: Collection[Runner]) -> None:
        """End the clients that are not wanted any more, start those that are missing, wait.

        A client without a gate has run since its start, so it is never kept. Both happen while no
        window is open anywhere on the host. All shares are proven before the first job starts,
        while nothing else holds the driver's locks. A job that lifts its own limit is ended, with
        the reason in `errors`.

        Raises:
            LimitNotProvenError: a share is not in force before a job starts.
            PartitionError: what enforces the shares is gone.
        """
        asked_s = self._bench.clock.now_s()
        with self._bench.quiet.starting():
            begun_s = self._bench.clock.now_s()
            self.waiting_s += begun_s - asked_s
            self._change(wanted)
            self.starting_s += self._bench.clock.now_s() - begun_s

    def end(self, runners: Collection[Runner]) -> None:
        """Stop these clients; all are asked to leave before the first is waited for."""
        leaving = [self.clients.pop(runner) for runner in runners if runner in self.clients]
        for error in stop_all(leaving):
            raise error

    def lose(self, runner: Runner, error: AdvisorError) -> None:
        """Stop a client that failed, and keep the reason."""
        self.errors[runner] = error
        self.end([runner])

    def lose_jobs(self, names: Collection[str], error: AdvisorError) -> None:
        """Stop every client of these jobs, and keep the reason."""
        for runner in [runner for runner in self.clients if runner.job.name in names]:
            self.lose(runner, error)

    def dead(self) -> list[Runner]:
        """Clients that ended without being asked, as a fault of a neighbour makes them."""
        return [runner for runner, client in self.clients.items() if not _lives(client)]

    def _change(self, wanted: Collection[Runner]) -> None:
        if self._bench.spoiled():
            self.end(list(self.clients))
        self.end([r for r in self.clients if r not in wanted or not r.job.progress.gate])
        known = self.clients.keys() | self.errors.keys()
        missing = [runner for runner in wanted if runner not in known]
        starts = {runner: self._bench.prove(runner.job, runner.share) for runner in missing}
        for runner, start in starts.items():
            self._start(runner, start)
        for runner in missing:
            self._await(runner)

    def _start(self, runner: Runner, start: Callable[[], Client]) -> None:
        try:
            self.clients[runner] = start()
        except JobError as error:
            self.errors[runner] = error
        else:
            self.starts += 1

    def _await(self, runner: Runner) -> None:
        if (client := self.clients.get(runner)) is None:
            return
        try:
            while not client.ready():
                self._bench.clock.sleep(_READY_POLL_S)
            client.check_limit()
        except (JobError, LimitNotProvenError) as error:
            # It may still be starting, and must not go on beside an open window.
            self.lose(runner, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end(list(self.clients))


def _lives(client: Client) -> bool:
    try:
        client.check()
    except JobError:
        return False
    return True
