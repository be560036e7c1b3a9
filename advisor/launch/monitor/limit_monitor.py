"""Whether the limits of a running set hold, asked of the driver about once a second."""

from collections.abc import Sequence

from advisor.errors import LimitBrokenError, LimitNotProvenError
from advisor.runtime.backends.backend import Backend
from advisor.runtime.host.processes import name_of
from advisor.runtime.jobs.computing import check_limits, is_seen
from advisor.runtime.jobs.running_job import RunningJob

_STRANGER = (
    "process {} ({}) computes on the GPU and is of no job: while it does, the jobs have less than "
    "their parts, and what is observed of them teaches nothing; --strict ends a launch for that"
)
_MOST_TOLD = 10
"""Strangers that are told of one after the other; all are in the flag."""

_UNSEEN_S = 5.0
_UNSEEN = (
    "NVML names no process of these jobs, as in a container with process numbers of its own: what "
    "computes on the GPU outside of MPS cannot be seen"
)


class LimitMonitor:
    """The limits of one set.

    Args:
        backend: What enforces them.
        cap_percent: At which the back-end holds all that starts.
        begun_s: When the gates opened, monotonic.
        strict: A stranger on the GPU breaks them, too.

    Attributes:
        strangers: Who was seen on the GPU the last time, and is of no job.
    """

    def __init__(self, backend: Backend, cap_percent: int, begun_s: float, *, strict: bool) -> None:
        self._backend, self._cap_percent, self._begun_s = backend, cap_percent, begun_s
        self._strict, self._told = strict, set[int]()
        self.strangers: tuple[int, ...] = ()
        self._seen = False

    def check(self, jobs: Sequence[RunningJob], now_s: float) -> list[str]:
        """Look once; what is to be said about it.

        Raises:
            LimitBrokenError: something computes, or may soon, that is not under its limit.
            PartitionError: what enforces the limits does not answer.
        """
        self._check_cap()
        self.strangers = check_limits(jobs, strict=self._strict, known=self.strangers)
        for job in jobs:
            try:
                job.check_variables()
            except LimitNotProvenError as error:
                raise broken(error, job) from error
        return self._alarms(jobs, now_s)

    def _check_cap(self) -> None:
        given = self._backend.given_percent()
        if given is not None and given > self._cap_percent:
            raise LimitBrokenError(
                f"the MPS server gives {given:g} % to what starts now, and was set to "
                f"{self._cap_percent} %",
                why="somebody of this user has changed it through the MPS control program",
                fix="leave the MPS daemon of advisor alone",
            )

    def _alarms(self, jobs: Sequence[RunningJob], now_s: float) -> list[str]:
        """Say once who is a stranger, and where NVML does not know the jobs.

        One that is ready may have no context yet.
        """
        new = [pid for pid in self.strangers if pid not in self._told]
        told = new[: _MOST_TOLD - len(self._told)]
        self._told.update(told)
        alarms = [_STRANGER.format(pid, name_of(pid)) for pid in told]
        if self._seen or is_seen(jobs):
            self._seen = True
        elif now_s - self._begun_s > _UNSEEN_S:
            self._seen = True
            alarms.append(_UNSEEN)
        return alarms


def broken(error: LimitNotProvenError, job: RunningJob) -> LimitBrokenError:
    """The same error, of a job that was under its limit before."""
    jobs = frozenset({job.job.name})
    return LimitBrokenError(error.what, why=error.why, fix=error.fix, jobs=jobs)
