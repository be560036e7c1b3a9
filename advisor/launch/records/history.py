"""What a launch did over its time, in so few points that every list can draw it.

Its supervisor keeps it in the launch's folder, so it has no gap where a service was restarted, and
is there when the launch is over. When there are too many points, two and two become one.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from advisor.files import read_whole, replace_file
from advisor.launch.records.folder import LaunchFolder, dumps, loads
from advisor.launch.records.status import LaunchStatus

MOST_POINTS = 127
"""One more, and they are halved without a rest."""

FIRST_STEP_S = 1.0

_MOST_BYTES = 1 << 20
_DIGITS = 4

HistoryValues = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """One of the jobs.

    Attributes:
        speeds: Relative speed in each step.
        p99_ms: Of the answers of a server that has promised one; empty where there is none.
    """

    job: str
    speeds: HistoryValues = ()
    p99_ms: HistoryValues = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Means over equal steps of time, the oldest first; None: not known, or not there.

    Attributes:
        started_at: Begin of the first step, ISO 8601, UTC.
        step_s: Length of each.
        power_w: Of the GPU.
        energy_saved: Part of the energy saved for the same work.
        jobs: In the order of the launch's.
    """

    started_at: str
    step_s: float
    power_w: HistoryValues = ()
    energy_saved: HistoryValues = ()
    jobs: tuple[JobHistory, ...] = ()

    def thinned(self, most: int) -> "History":
        """The same in so many points at most."""
        found = self
        while len(found.power_w) > most:
            found = replace(
                found,
                step_s=2 * found.step_s,
                power_w=_pairs(found.power_w),
                energy_saved=_pairs(found.energy_saved),
                jobs=tuple(
                    replace(job, speeds=_pairs(job.speeds), p99_ms=_pairs(job.p99_ms))
                    for job in found.jobs
                ),
            )
        return found

    def compact(self, most: int) -> "History":
        """The same without series of which nothing is known: of most jobs there is no p99."""
        found = self.thinned(most)
        jobs = (replace(job, p99_ms=job.p99_ms if any(job.p99_ms) else ()) for job in found.jobs)
        return replace(found, jobs=tuple(jobs))


class HistoryKeeper:
    """Takes in statuses of one set, and keeps what is drawn of them."""

    def __init__(self, started_at: str, step_s: float = FIRST_STEP_S) -> None:
        self.history = History(started_at=started_at, step_s=step_s)
        self._open: list[LaunchStatus] = []

    def add(self, passed_s: float, status: LaunchStatus) -> bool:
        """A status so long after the begin; whether a step was completed by it."""
        self._open.append(status)
        done = len(self.history.power_w) * self.history.step_s
        if passed_s < done + self.history.step_s:
            return False
        # One that was not looked at for a while has no points of that time.
        missed = int((passed_s - done) / self.history.step_s) - 1
        self.history = _with_step(self.history, self._open, min(missed, MOST_POINTS))
        self._open = []
        self.history = self.history.thinned(MOST_POINTS)
        return True


def write_history(folder: LaunchFolder, history: History) -> None:
    """Keep it; on a full disk that of before stays."""
    with suppress(OSError):
        replace_file(folder.path / "history.json", dumps(history), durable=False)


def read_history(folder: LaunchFolder) -> History | None:
    """As far as it is kept; None: it is of an older version, or has just begun."""
    with suppress(OSError, ValueError):
        return loads(History, read_whole(folder.path / "history.json", _MOST_BYTES))
    return None


def _with_step(history: History, seen: Sequence[LaunchStatus], missed: int) -> History:
    gap = (None,) * missed
    before = len(history.power_w)
    jobs = dict(enumerate(history.jobs))
    for n, job in enumerate(seen[-1].jobs):
        known = jobs.get(n) or JobHistory(
            job=job.job, speeds=(None,) * before, p99_ms=(None,) * before
        )
        of = [status.jobs[n] for status in seen if n < len(status.jobs)]
        jobs[n] = replace(
            known,
            speeds=(*known.speeds, *gap, _mean([one.relative_speed for one in of])),
            p99_ms=(*known.p99_ms, *gap, _mean([one.latency_p99_ms for one in of])),
        )
    return replace(
        history,
        power_w=(*history.power_w, *gap, _mean([one.power_w for one in seen])),
        energy_saved=(*history.energy_saved, *gap, _mean([one.energy_saved for one in seen])),
        jobs=tuple(jobs.values()),
    )


def _pairs(series: HistoryValues) -> HistoryValues:
    # A last one without its other half would stand for a step that is not over: it waits for it.
    return tuple(_mean(series[n : n + 2]) for n in range(0, len(series) - 1, 2))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(f"{sum(known) / len(known):.{_DIGITS}g}") if known else None
