"""One job of a launched pair, from the opening of its gate to its end.

No fault of observation ends a job: what cannot be read now is unknown, with the reason and the
time, until it can be read again.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from advisor.core.job import (
    VERDICT_FLAGS,
    Reported,
    ResultsSettings,
    Verdict,
    judge,
    largest_gap,
    read_first,
)
from advisor.core.objectives import Interval
from advisor.core.records import SETTLE_S
from advisor.errors import AdvisorError, JobError
from advisor.formats.moments import duration_text
from advisor.formats.moments import now as now_text
from advisor.launch.meter import Moment, RateMeter
from advisor.launch.spec import JobOutcome, JobStatus, LaunchPart
from advisor.progress import LATENCY_STEP
from advisor.runtime.backend import Proof
from advisor.runtime.counting import percentile_ms, range_ms
from advisor.runtime.processes import is_stopped
from advisor.runtime.running_job import RunningJob

T = TypeVar("T")

RECENT_S = 5.0
"""Length of the mean that is shown, s."""

# The demand has changed where the mean of so many seconds is off by so much, and by more than
# chance, so many times in a row. A median latency of so many times the least of a minute so far
# is of a server that is starved: that it answers less says nothing of what arrives.
_DEMAND_S, _DEMAND_OFF, _DEMAND_TIMES, _LATE = 60.0, 0.2, 3, 1.5


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a job had counted at one moment.

    Attributes:
        gone: It had ended before.
        beats: How often it has said that it lives.
        error: Why it could not be counted; `steps` and `beats` are then those of before.
    """

    gone: bool
    steps: float
    beats: int
    error: AdvisorError | None = None


class _Reading:
    """Reads something of a job that cannot be read at times.

    Attributes:
        error: Why it could not be read the last time; None: it could.
    """

    def __init__(self) -> None:
        self.error: JobError | None = None
        self._retry_s = -math.inf

    def read(self, call: Callable[[], T], clock_s: Callable[[], float], *, now: bool) -> T | None:
        """What the call returns; None: it fails, or has failed and is not due yet.

        Args:
            call: Raises JobError where it cannot be read.
            clock_s: The time, s.
            now: Call it also where it is not due.
        """
        if (begun_s := clock_s()) < self._retry_s and not now:
            return None
        try:
            found, self.error = call(), None
        except JobError as error:
            self.error, ended_s = error, clock_s()
            # A slow pattern may not take all the time of the supervisor: a tenth of it.
            self._retry_s = ended_s + 9 * (ended_s - begun_s)
            return None
        return found


class JobMonitor:
    """What is known of a running job.

    Attributes:
        part: What was asked for it, and what its profile knows.
        outcome: `running` until it is over.
        code: Stable name of what went wrong; None where nothing did.
        error: The same in words.
        steps: Progress so far, in the job's unit.
        rest: Its pace after another job had ended.
        results: What its own results were found to be so far.
        libraries: Versions of the GPU libraries that it has loaded; None: not known.
        tail: Watches the p99 that it has promised; None: it has promised none.
        too_fast: It makes more progress than its share allows by its profile.
        lost: Why its limit is not proven any more, and until when it was; None: it is.
        expected: Rate that was predicted beside those that ran when one joined last, or at first.
        uncounted: Why its progress cannot be read now; None: it can.
        demand: Requests per second that arrive, where that has changed; None: as declared.
        paused: It stands still, since a process of it is stopped by a signal.
    """

    def __init__(
        self,
        job: RunningJob,
        part: LaunchPart,
        now_s: float,
        join_id: str | None = None,
        proof: Proof | None = None,
    ) -> None:
        self._join_id, self._joined_at = join_id, now_text() if join_id else None
        self._ended_at: str | None = None
        self.expected: Interval | None = None
        self.tail: P99Watch | None = None
        self.too_fast = False
        self.lost: str | None = None
        self.demand: float | None = None
        self.paused = False
        self._minute, self._answered = RateMeter(), tuple[int, ...]()
        self._times_off, self._usual_ms = 0, math.inf
        self._proof: Proof = proof or job.proof()
        self.job, self.part, self._reference = job, part, read_first(part.reported)
        # For the last count.
        job.keeps_files = True
        self._tolerance = (job.job.results or ResultsSettings()).tolerance
        self.results: Verdict | None = None
        self.outcome: JobOutcome = "running"
        self.exit_code: int | None = None
        self.code: str | None = None
        self.error: str | None = None
        self.steps, self._beats = part.done, job.beats()
        self._counts_on: bool | None = None
        self.uncounted: str | None = None
        self._counting, self._judging = _Reading(), _Reading()
        self._not_begun = job.uncounted
        self._unread_since: str | None = None
        self.libraries: str | None = None
        self.rest = RateMeter()
        self._recent = RateMeter(RECENT_S)
        self._begun_s = now_s
        # Without a gate it has begun long ago.
        self._moved_s, self._moved_at, self._has_moved = now_s, now_text(), False
        self._is_stalled = False
        self._note(Moment(now_s), self.count(lambda: now_s))

    @property
    def over(self) -> bool:
        """Whether it runs no more."""
        return self.outcome != "running"

    def count(self, clock_s: Callable[[], float], *, last: bool = False) -> _Counted:
        """What it has counted now, which `look` takes."""
        # Counted after it was seen to have ended: its last steps are not lost.
        gone = self.job.exit_code is not None
        found = self._counting.read(
            lambda: (self.job.count(last=last), self.job.beats()), clock_s, now=last
        )
        if found is None:
            return _Counted(gone, self.steps, self._beats, self._counting.error)
        return _Counted(gone, self._in_all(found[0]), found[1], self._counting.error)

    def _in_all(self, counted: float) -> float:
        """A count since this start with what was done before it, which the job may count, too.

        Steps that it does again after its last checkpoint are no progress then.
        """
        if self._counts_on is None and counted:
            self._counts_on = counted > self.part.done / 2
        return max(self.part.done, counted) if self._counts_on else self.part.done + counted

    def look(self, now: Moment, counted: _Counted, hang_s: float | None) -> None:
        """See whether it ended, stalls, or has met a limit that its user chose.

        A server that is there, and that nobody asks, does not hang.

        Args:
            now: When it was counted.
            counted: By `count`.
            hang_s: End it after so long without progress; None: never.
        """
        self._note(now, counted)
        still_s, ran_s = now.at_s - self._moved_s, now.at_s - self._begun_s
        self._is_stalled = still_s > 120
        self.paused = still_s > RECENT_S and any(map(is_stopped, self.job.seen_pids))
        timeout_s = hang_s if self._has_moved else self.job.job.start_timeout_s
        if counted.gone:
            # By itself: well, or with an error.
            self.exit_code = self.job.exit_code
            if self.exit_code == 0:
                self.end("finished")
            else:
                try:
                    self.job.check()
                except JobError as error:
                    self.end("failed", error.code, str(error))
        elif self.over:
            return
        elif (limit_s := self.part.time_limit_s) is not None and ran_s > limit_s:
            limit = duration_text(limit_s)
            self.end("failed", "time-limit", f"{self.job.job.name} reached its limit of {limit}")
        elif hang_s is not None and timeout_s is not None and still_s > timeout_s:
            self.end(
                "hung",
                "job-hung",
                f"{self.job.job.name} made no progress for {still_s:.0f} s; its output is in "
                f"{self.job.output}; the end of it:\n{self.job.tail() or '(nothing)'}",
            )
        if self.over:
            self._is_stalled = self.paused = False

    def close(self, now: Moment) -> None:
        """Count what is left to be read of a job whose processes have ended."""
        self._note(now, self.count(lambda: now.at_s, last=True))
        self.job.close()

    def judge(self, clock_s: Callable[[], float]) -> str | None:
        """What is wrong with its results, in words, the first time that something is."""
        if self.results in VERDICT_FLAGS:
            return None
        reported = self._judging.read(self.job.reported, clock_s, now=False)
        self._note_unread()
        if reported is None:
            return None
        self.results = judge(reported, self._reference, self._tolerance)
        return self._alarm(reported) if self.results in VERDICT_FLAGS else None

    def end(self, outcome: JobOutcome, code: str | None = None, error: str | None = None) -> None:
        """It is over, for this reason."""
        self.outcome, self.code, self.error = outcome, code, error
        self._ended_at = self._ended_at or now_text()

    @property
    def unread(self) -> str | None:
        """Why its progress or its results cannot be read now; None: they can."""
        unjudged = self._judging.error
        return self.uncounted or (unjudged and str(unjudged))

    def rate(self) -> float | None:
        """Progress per second over the last seconds; None once it is over, or while unknown."""
        return None if self.over or self.uncounted else self._recent.rate()

    def relative_speed(self) -> float | None:
        """`rate` over its rate alone on the whole GPU."""
        return relative(self.rate(), self.demand or self.part.solo_rate)

    def demand_changed(self, now: Moment) -> bool:
        """Whether it is known from now on that another `demand` arrives; asked at each look."""
        expected = self.demand or self.job.job.offered_rate
        if expected is None or self.over or self.uncounted:
            return False
        self._minute.add(now, self.steps)
        if self._minute.span_s < _DEMAND_S:
            return False
        rate, self._minute, before = self._minute.rate(), RateMeter(), self._answered
        with suppress(OSError):
            self._answered = self.job.latencies()
        p50_ms = percentile_ms(before, self._answered, 50) or math.inf
        self._usual_ms = min(self._usual_ms, p50_ms)
        most = expected if p50_ms > _LATE * self._usual_ms or p50_ms == math.inf else 0.0
        chance = max(_DEMAND_OFF * expected, 3 * math.sqrt(expected / _DEMAND_S))
        is_off = rate is not None and rate > most and abs(rate - expected) > chance
        self._times_off = self._times_off + 1 if is_off else 0
        if self._times_off < _DEMAND_TIMES:
            return False
        self.demand, self._times_off = rate, 0
        return True

    def status(self) -> JobStatus:
        """As everybody reads it."""
        proven = not self.too_fast and self.lost is None
        return JobStatus(
            job=self.job.job.name,
            rate_unit=self.job.job.progress.unit,
            share_percent=self.job.share.percent,
            below_normal=self.job.share.below_normal,
            units_granted=self.job.granted.units,
            memory_limit_mib=self.job.granted.memory_mib,
            proven=proven,
            proof=self._proof if proven else None,
            outcome=self.outcome,
            exit_code=self.exit_code,
            code=self.code,
            error=self.error or self.lost,
            steps=self.steps,
            rate=self.rate(),
            relative_speed=self.relative_speed(),
            latency_p99_ms=self.tail and self.tail.p99_ms,
            max_p99_ms=self.tail and self.tail.promised_ms,
            demand=self.demand,
            results=self.results,
            predicted_rate=self.expected,
            paused=self.paused,
            unread=self.unread,
            unread_since=self._unread_since,
            stalled_since=self._moved_at if self._is_stalled else None,
            join_id=self._join_id,
            joined_at=self._joined_at,
            ended_at=self._ended_at,
        )

    def _alarm(self, reported: Reported) -> str:
        name, units = self.job.job.name, self.job.granted.units
        at = f"at {self.job.share} % ({units} units)"
        if self.results == "wrong":
            return f"{name} {at} reported a result that is not finite ({reported.last})"
        gap = largest_gap(reported, self._reference) if self._reference else None
        return (
            f"the results of {name} {at} differ from those on the whole GPU by "
            f"{100 * (gap or 0):.3g} %, more than its tolerance of {100 * self._tolerance:g} %"
        )

    def _note(self, now: Moment, counted: _Counted) -> None:
        moved = (counted.steps, counted.beats) != (self.steps, self._beats)
        self.steps, self._beats = counted.steps, counted.beats
        self._not_begun = None if moved else self._not_begun
        error = counted.error or self._not_begun
        self.uncounted = error and str(error)
        self._note_unread()
        if moved or error:
            self._moved_s, self._moved_at = now.at_s, now_text()
            self._has_moved = self._has_moved or moved
        if error:
            self._recent = RateMeter(RECENT_S)
        else:
            self._recent.add(now, self.steps)

    def _note_unread(self) -> None:
        self._unread_since = (self._unread_since or now_text()) if self.unread else None


def relative(rate: float | None, solo_rate: float | None) -> float | None:
    """A rate over the rate alone on the whole GPU; None where one of them is not known."""
    return None if rate is None or not solo_rate else rate / solo_rate


WINDOW_S, LEAST_REQUESTS = 5.0, 200
"""The least of a window: of fewer requests the 99th percentile is that of one or two."""

WINDOWS = 3
"""One window that is late may be chance, or somebody who starts; so many in a row are not."""


class P99Watch:
    """The promise of one job.

    Attributes:
        p99_ms: Of the last whole window; None before there is one.
        between_ms: Bounds of the bucket that it fell into: it may be anywhere between.
        late: How many windows in a row have been above what is promised.
    """

    def __init__(self, job: RunningJob, promised_ms: float, now_s: float) -> None:
        self._job, self.promised_ms = job, promised_ms
        self.p99_ms: float | None = None
        self.between_ms = (0.0, math.inf)
        self._is_told = False
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Begin anew, as when somebody has come or gone: the first seconds are in no window."""
        self.late = 0
        self._begun_s = now_s + SETTLE_S
        self._before: tuple[int, ...] = ()

    def look(self, now_s: float) -> bool:
        """Whether the promise has been broken for some windows by now; told again after as many."""
        if now_s < self._begun_s:
            return False
        answered: tuple[int, ...] = ()
        # A file that cannot be read is found when the job is counted next.
        with suppress(OSError):
            answered = self._job.latencies()
        if not self._before or not answered:
            self._before = self._before or answered
            return False
        if now_s - self._begun_s < WINDOW_S or sum(answered) - sum(self._before) < LEAST_REQUESTS:
            return False
        self.p99_ms = p99_ms = percentile_ms(self._before, answered, 99)
        self._begun_s, self._before = now_s, answered
        with suppress(OSError):
            self.between_ms = range_ms(p99_ms or 0.0, self._job.latency_bounds_ms())
        # Latencies are known by buckets: late is one of which even the lower end is above.
        self.late = self.late + 1 if self.between_ms[0] >= self.promised_ms else 0
        return self.late > 0 and self.late % WINDOWS == 0

    def text(self, name: str) -> str:
        """What is wrong."""
        return (
            f"the p99 of {name} is {self._said()}, above the {self.promised_ms:g} ms "
            f"that are promised, in {self.late} windows in a row ({WINDOW_S:g} s or more, "
            f"{LEAST_REQUESTS} requests or more)"
        )

    def unsure(self, name: str) -> str:
        """Says once that a promise lies within a wide bucket: it may be kept or not."""
        low, high = self.between_ms
        if self._is_told or not (self.is_coarse and low < self.promised_ms < high):
            return ""
        self._is_told = True
        return (
            f"the p99 of {name} is {self._said()}, as one bucket of its histogram has it, so "
            f"nobody can say whether it keeps the {self.promised_ms:g} ms that are promised"
        )

    @property
    def is_coarse(self) -> bool:
        """Whether its server tells latencies apart less well than they are kept here."""
        low, high = self.between_ms
        return self.p99_ms is not None and high > low * LATENCY_STEP**2

    def _said(self) -> str:
        low, high = self.between_ms
        if not self.is_coarse:
            return f"{self.p99_ms or 0:.3g} ms"
        return f"above {low:.3g} ms" if high == math.inf else f"between {low:.3g} and {high:.3g} ms"
