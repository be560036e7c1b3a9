"""What jobs do to each other: a fault that takes others down, a promised p99 that breaks.

A fault on an MPS server ends all its clients.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.core.job import WhenP99Breaks
from advisor.core.wording import listed
from advisor.launch.monitor.job_monitor import JobMonitor
from advisor.launch.monitor.p99_watch import P99Watch
from advisor.launch.records.spec import LaunchPart
from advisor.runtime.backends.backend import Backend

FAULT_S = 3.0
"""A fault on an MPS server reaches all its clients within this time."""

_FAULT_WORDS = re.compile(r"cuda|illegal memory access|unspecified launch failure|mps", re.I)
_SHARED_FAULT = (
    "a fault on the MPS server took {} down; which one caused it the driver does not tell. "
    "Jobs that fault must not share a GPU: run each alone to find it"
)
_KNOWN_FAULT = (
    "a fault of {} took {} down with it: the log of the MPS server names its process {}. {} "
    "must not share a GPU before that is mended; run it alone to find it"
)
_OWN_FAULT = "a fault on the MPS server took {} down, which had the GPU for itself by then"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Jobs that failed, and those that ran beside them: perhaps a fault of the MPS server.

    Attributes:
        since_s: When the jobs were seen to have failed.
    """

    struck: tuple[JobMonitor, ...]
    since_s: float

    def is_fault(self, answered_s: float, now_s: float) -> bool | None:
        """Whether it was one that the server does not show; None: that is not known yet.

        Args:
            answered_s: When the server was asked last and answered.
            now_s: The time.
        """
        gone = all(one.job.exit_code is not None for one in self.struck)
        # A server whose clients have all ended recovers at once, and shows nothing any more.
        if gone and len(self.struck) > 1 and _all_speak_of_the_gpu(self.struck):
            return True
        answered = gone and answered_s >= self.since_s
        return False if answered or now_s - self.since_s > FAULT_S else None


def take_down(struck: Sequence[JobMonitor], backend: Backend) -> None:
    """Note that a fault has struck these; the job that caused it has failed, where it is known."""
    guilty, fault = _author(struck, backend)
    for one in struck:
        one.exit_code = one.job.exit_code
        said = f"; the end of its output:\n{one.job.tail() or '(nothing)'}"
        one.end("failed" if one is guilty else "taken-down", "mps-fault", fault + said)


def _author(struck: Sequence[JobMonitor], backend: Backend) -> tuple[JobMonitor | None, str]:
    """Who caused a fault, None where nobody can tell, and what is said of it.

    Only a log that names processes of one job and of no other is evidence.
    """
    names = listed(one.job.job.name for one in struck)
    if len(struck) == 1:
        return None, _OWN_FAULT.format(names)
    blamed = backend.blamed()
    found = [one for one in struck if one.job.seen_pids & blamed]
    if len(found) != 1:
        return None, _SHARED_FAULT.format(names)
    guilty = found[0]
    name, pid = guilty.job.job.name, min(guilty.job.seen_pids & blamed)
    others = listed(one.job.job.name for one in struck if one is not guilty)
    return guilty, _KNOWN_FAULT.format(name, others, pid, name)


def _all_speak_of_the_gpu(struck: Sequence[JobMonitor]) -> bool:
    return all(one.job.exit_code != 0 and _FAULT_WORDS.search(one.job.tail()) for one in struck)


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A server that has been above its p99 for some windows.

    Attributes:
        ends: Who is to be ended for it; None: nobody.
    """

    why: str
    ends: JobMonitor | None

    @property
    def text(self) -> str:
        """What is told of it."""
        return self.why if self.ends is None else f"{self.ends.job.job.name} was ended: {self.why}"


def watch_promises(jobs: Sequence[JobMonitor], parts: Sequence[LaunchPart], now_s: float) -> None:
    """Begin anew for all that have promised a p99: who has come or gone changes it."""
    for one, part in zip(jobs, parts, strict=True):
        if (promised_ms := part.promised_p99_ms) is not None:
            one.tail = one.tail or P99Watch(one.job, promised_ms, now_s)
            one.tail.begin(now_s)


def unsure_promises(running: Sequence[JobMonitor]) -> Iterator[str]:
    """What nobody can tell of those that run; once of each."""
    for one in running:
        if one.tail is not None and (told := one.tail.unsure(one.job.job.name)):
            yield told


def broken_promise(
    running: Sequence[JobMonitor], now_s: float, when_p99_breaks: WhenP99Breaks
) -> BrokenPromise | None:
    """The first that is found broken now."""
    for one in running:
        if one.tail is not None and one.tail.look(now_s):
            ends = _newest_batch(running) if when_p99_breaks == "end-newest" else None
            return BrokenPromise(one.tail.text(one.job.job.name), ends)
    return None


def _newest_batch(running: Sequence[JobMonitor]) -> JobMonitor | None:
    """The last one that began or joined and serves nobody."""
    batch = [one for one in running if one.tail is None and one.job.job.offered_rate is None]
    return batch[-1] if batch else None
