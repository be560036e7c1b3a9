"""One job of a launched pair, from the opening of its gate to its end."""

from dataclasses import dataclass

from advisor.core.interval import Interval
from advisor.core.job import ResultsSettings
from advisor.core.results import VERDICT_FLAGS, Reported, Verdict, judge, largest_gap
from advisor.errors import JobError
from advisor.formats.moments import now
from advisor.launch.monitor.p99_watch import P99Watch
from advisor.launch.monitor.rate_meter import RateMeter
from advisor.launch.monitor.timed import Moment
from advisor.launch.records.status import JobOutcome, JobStatus
from advisor.runtime.backends.backend import Proof
from advisor.runtime.jobs.running_job import RunningJob

RECENT_S = 5.0
"""What is shown is a mean over the last seconds."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a job had counted at one moment.

    Attributes:
        gone: It had ended before.
        beats: How often it has said that it lives.
        error: Why it could not be counted; `steps` and `beats` are then those of before.
    """

    gone: bool
    steps: float
    beats: int
    error: JobError | None = None


class JobMonitor:
    """What is known of a running job.

    Attributes:
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
    """

    def __init__(
        self,
        job: RunningJob,
        now_s: float,
        solo_rate: float | None,
        reference: Reported | None,
        joined_at: str | None = None,
    ) -> None:
        self._joined_at = joined_at
        self._ended_at: str | None = None
        self.expected: Interval | None = None
        self.tail: P99Watch | None = None
        self.too_fast = False
        self.lost: str | None = None
        self._proof: Proof = job.proof()
        self.job, self._reference = job, reference
        self._tolerance = (job.job.results or ResultsSettings()).tolerance
        self.results: Verdict | None = None
        self.outcome: JobOutcome = "running"
        self.exit_code: int | None = None
        self.code: str | None = None
        self.error: str | None = None
        self.steps, self._beats = job.count(), job.beats()
        self._uncounted: JobError | None = None
        self.libraries: str | None = None
        self.rest = RateMeter()
        self._solo_rate = solo_rate
        self._recent = RateMeter(RECENT_S)
        self._recent.add(Moment(now_s), self.steps)
        # Without a gate it has begun long ago.
        self._moved_s, self._has_moved = now_s, self.steps > 0

    @property
    def over(self) -> bool:
        """Whether it runs no more."""
        return self.outcome != "running"

    def count(self) -> Counted:
        """What it has counted now, which `look` takes."""
        # Counted after it was seen to have ended: its last steps are not lost.
        gone = self.job.exit_code is not None
        try:
            if self._uncounted is None:
                return Counted(gone, self.job.count(), self.job.beats())
        except JobError as error:
            # For good: the lines that it is of have been taken, and another try would hide it.
            self._uncounted = error
        return Counted(gone, self.steps, self._beats, self._uncounted)

    def look(self, now: Moment, counted: Counted, hang_s: float) -> None:
        """See whether it ended or hangs. A job that hangs or cannot be counted is over.

        A server that is there, and that nobody asks, does not hang.
        """
        if counted.error is not None:
            self.end("failed", counted.error.code, str(counted.error))
        else:
            self._note(now, counted)
        timeout_s = hang_s if self._has_moved else self.job.job.start_timeout_s
        if counted.gone:
            self.note_end()
        elif not self.over and now.at_s - self._moved_s > timeout_s:
            self.end("hung", "job-hung", self._hung(now.at_s))

    def judge(self) -> str | None:
        """What is wrong with its results, in words, the first time that something is."""
        if self.results in VERDICT_FLAGS:
            return None
        try:
            reported = self.job.reported()
        except JobError as error:
            self.end("failed", error.code, str(error))
            return None
        self.results = judge(reported, self._reference, self._tolerance)
        return self._alarm(reported) if self.results in VERDICT_FLAGS else None

    def end(self, outcome: JobOutcome, code: str | None = None, error: str | None = None) -> None:
        """It is over, for this reason."""
        self.outcome, self.code, self.error = outcome, code, error
        self._ended_at = self._ended_at or now()

    def lose_limit(self, until: str) -> None:
        """What holds its limit has failed, and answered last at this time."""
        self.lost = f"its limit was proven until {until}, when what holds it answered last"

    def note_end(self) -> None:
        """It has ended by itself: well, or with an error."""
        self.exit_code = self.job.exit_code
        if self.exit_code == 0:
            self.end("finished")
            return
        try:
            self.job.check()
        except JobError as error:
            self.end("failed", error.code, str(error))

    def rate(self) -> float | None:
        """Progress per second over the last seconds; None once it is over."""
        return None if self.over else self._recent.rate()

    def relative_speed(self) -> float | None:
        """`rate` over its rate alone on the whole GPU."""
        return relative(self.rate(), self._solo_rate)

    def status(self) -> JobStatus:
        """As everybody reads it."""
        proven = not self.too_fast and self.lost is None
        return JobStatus(
            job=self.job.job.name,
            rate_unit=self.job.job.progress.unit,
            share_percent=self.job.share.percent,
            units_granted=self.job.granted.units,
            memory_limit_mib=self.job.granted.memory_mib,
            proven=proven,
            proof=self._proof if proven else None,
            outcome=self.outcome,
            exit_code=self.exit_code,
            error=self.error or self.lost,
            steps=self.steps,
            rate=self.rate(),
            relative_speed=self.relative_speed(),
            latency_p99_ms=self.tail and self.tail.p99_ms,
            max_p99_ms=self.tail and self.tail.promised_ms,
            results=self.results,
            predicted_rate=self.expected,
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

    def _note(self, now: Moment, counted: Counted) -> None:
        if (counted.steps, counted.beats) != (self.steps, self._beats):
            self._moved_s, self._has_moved = now.at_s, True
        self.steps, self._beats = counted.steps, counted.beats
        self._recent.add(now, self.steps)

    def _hung(self, now_s: float) -> str:
        return (
            f"{self.job.job.name} made no progress for {now_s - self._moved_s:.0f} s; "
            f"its output is in {self.job.output}; the end of it:\n{self.job.tail() or '(nothing)'}"
        )


def relative(rate: float | None, solo_rate: float | None) -> float | None:
    """A rate over the rate alone on the whole GPU; None where one of them is not known."""
    return None if rate is None or not solo_rate else rate / solo_rate
