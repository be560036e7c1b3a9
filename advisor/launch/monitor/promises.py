"""What servers have promised, and who goes where a promise is broken."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.core.job import WhenP99Breaks
from advisor.launch.monitor.job_monitor import JobMonitor
from advisor.launch.monitor.p99_watch import P99Watch
from advisor.launch.records.spec import LaunchPart


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
