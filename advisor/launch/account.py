"""Jobs that run together: each from the opening of its gate to its end, and their account.

The account has time, energy and progress for each interval with the same jobs. No fault of
observation ends a job: what cannot be read now is unknown, with the reason and the time, until it
can be read again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from advisor.core.gpu import ADVISED_JOBS
from advisor.core.job import (
    VERDICT_FLAGS,
    Reported,
    ResultsSettings,
    Verdict,
)
from advisor.core.objectives import Interval
from advisor.core.records import (
    BACKLOG,
    JUDGE_S,
    PAUSED,
    SETTLE_S,
    UNCOUNTED,
    UNWATCHED,
    ObservedPart,
    is_catching_up,
)
from advisor.errors import AdvisorError, JobError
from advisor.formats.moments import duration_text, now as now_text, to_exact_text
from advisor.launch.meter import Metered, Moment, RateMeter
from advisor.launch.spec import (
    SILENT_S,
    Drift,
    Forecast,
    JobOutcome,
    JobStatus,
    LaunchPart,
    LaunchSet,
    Ledger,
)
from advisor.progress import LATENCY_STEP
from advisor.runtime.backend import Proof
from advisor.runtime.counting import percentile_ms, range_ms
from advisor.runtime.processes import T, is_frozen, is_stopped
from advisor.runtime.running_job import RunningJob

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
            reading, self.error = call(), None
        except JobError as error:
            self.error, ended_s = error, clock_s()
            # A slow pattern may not take all the time of the supervisor: a tenth of it.
            self._retry_s = ended_s + 9 * (ended_s - begun_s)
            return None
        return reading


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
        paused: It stands still, since a process of it is stopped by a signal, or it is frozen.
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
        self._ended_at = self._unread_since = self.demand = None
        self.expected: Interval | None = None
        self.tail: P99Watch | None = None
        self.too_fast = False
        self.lost: str | None = None
        self.paused, self._goes_on = False, 0
        self._minute, self._answered = RateMeter(), tuple[int, ...]()
        self._times_off, self._usual_ms = 0, math.inf
        self._proof: Proof = proof or job.proof()
        self.job, self.part, self._reference = job, part, Reported.read(part.reported)
        # For the last count.
        job.keeps_files = True
        self._tolerance = (job.job.results or ResultsSettings()).tolerance
        self.results: Verdict | None = None
        self.outcome: JobOutcome = "running"
        self.exit_code = self.code = self.error = None
        self.steps, self._beats = part.done, job.beats()
        self._counts_on = self.uncounted = None
        self._counting, self._judging = _Reading(), _Reading()
        self._not_begun = job.uncounted
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
        steps, beats = self._counting.read(
            lambda: (self._in_all(self.job.count(last=last)), self.job.beats()), clock_s, now=last
        ) or (self.steps, self._beats)
        return _Counted(gone, steps, beats, self._counting.error)

    def _in_all(self, counted: float) -> float:
        """A count since this start with what was done before it, which the job may count, too.

        Steps that it does again after its last checkpoint are no progress then.
        """
        if self._counts_on is None and counted:
            self._counts_on = counted > self.part.done / 2
        return max(self.part.done, counted) if self._counts_on else self.part.done + counted

    def look(self, now: Moment, counted: _Counted, hang_s: float | None) -> None:
        """See whether it ended, stalls, or has met a limit that its user chose.

        A server without requests does not hang.

        Args:
            now: When it was counted.
            counted: By `count`.
            hang_s: End it after so long without progress; None: never.
        """
        self._note(now, counted)
        still_s, ran_s = now.at_s - self._moved_s, now.at_s - self._begun_s
        self._is_stalled = still_s > 120
        # One that stands still may be stopped. One that has moved twice while a process of it was,
        # such as the shell that started it, runs.
        if still_s or self.paused or self._goes_on:
            pids = self.job.last_pids
            stopped = any(map(is_stopped, pids)) or is_frozen(min(pids, default=0))
            self._goes_on = self._goes_on + (not still_s) if stopped else 0
            self.paused = stopped and self._goes_on < 2
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
        elif (limit_s := self.part.time_limit_s) is not None and ran_s > limit_s:
            self.end(
                "failed",
                "time-limit",
                f"{self.job.job.name} reached its limit of {duration_text(limit_s)}",
            )
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
        self.results = reported.judge(self._reference, self._tolerance)
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
        """As in the status file."""
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
        gap = reported.largest_gap(self._reference) if self._reference else None
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

# One late window may be chance, or a job that starts; so many in a row are not.
WINDOWS = 3


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
        self._is_warned = False
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Begin anew, as after a join or an end: the first seconds are in no window."""
        self.late = 0
        self._begun_s = now_s + SETTLE_S
        self._before: tuple[int, ...] = ()

    def look(self, now_s: float) -> bool:
        """Whether the promise has been broken for some windows by now; told again after as many."""
        if now_s < self._begun_s:
            return False
        answered = self._job.latencies()
        if not self._before or not answered:
            self._before = self._before or answered
            return False
        if now_s - self._begun_s < WINDOW_S or sum(answered) - sum(self._before) < LEAST_REQUESTS:
            return False
        self.p99_ms = p99_ms = percentile_ms(self._before, answered, 99)
        self._begun_s, self._before = now_s, answered
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
        if self._is_warned or not (self.is_coarse and low < self.promised_ms < high):
            return ""
        self._is_warned = True
        return (
            f"the p99 of {name} is {self._said()}, the bounds of one bucket of its histogram: "
            f"whether it keeps the promised {self.promised_ms:g} ms is unknown"
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


@dataclass(frozen=True, slots=True)
class Trial:
    """What jobs did in one of the ways that are tried.

    Attributes:
        speeds: Of each job, relative to alone; a server does no more than its demand.
        p99_ms: Of each job; None: it answers no requests.
        power_w: Of the GPU.
    """

    pair: LaunchSet
    speeds: Sequence[float | None]
    p99_ms: Sequence[float | None]
    power_w: float | None

    @property
    def broken(self) -> tuple[str, ...]:
        """What they must keep and do not."""
        broken = list[str]()
        for part, speed, p99_ms in zip(self.pair.parts, self.speeds, self.p99_ms, strict=True):
            name, least, most_ms = part.job.name, part.min_speed or 0.0, part.max_p99_ms
            if speed is not None and speed < least:
                broken.append(f"{name} at {speed:.2f} of its speed, below {least:.2f}")
            if p99_ms is not None and p99_ms > (most_ms or math.inf):
                broken.append(f"{name} with a p99 of {p99_ms:.3g} ms, above {most_ms:.3g}")
        return tuple(broken)

    @property
    def work_per_joule(self) -> float | None:
        """Sum of relative speeds per watt; None: it was not measured."""
        return work_per_joule(self.speeds, self.power_w)

    @property
    def energy_saved(self) -> float | None:
        """Against one job after the other, each at its profile's power; None: that is not known."""
        parts = self.pair.parts
        rates = [
            of and part.solo_rate and of * part.solo_rate
            for of, part in zip(self.speeds, parts, strict=True)
        ]
        return energy_saved(self.power_w, rates, parts)

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Orders ways, the best last: measured ones, by what they break, then work per joule."""
        return self.work_per_joule is not None, -len(self.broken), self.work_per_joule or 0.0

    @property
    def text(self) -> str:
        """The way and what was seen of it."""
        work = (
            "not measured"
            if self.work_per_joule is None
            else f"{1e3 * self.work_per_joule:.3g} of work per kJ"
        )
        return ", ".join((f"{self.pair.split} {work}", *self.broken))


# Length of the mean that is held against a promise, s.
_LATELY_S = 300.0


class Account:
    """What jobs did since their gates opened, at `now`.

    Energy was read at the same moment as the progress of the jobs.

    Attributes:
        first: The stretch of all that began together, or of one that began alone.
        stretches: The first one; each next one is of the two or more jobs that ran together after
            a job had ended or joined.
        alone: That of the job that was left alone; None: none was.
        promised: Forecast of the running jobs; None: there is none.
        kept: What they did since then.
        renewed: Why it is promised since then; empty: since they began.
        rest_s: How long jobs have run after the first stretch.
        stranded_unit_s: Units held for a job that had ended, times seconds.
        unwatched_s: Seconds between two looks beyond 2 s, all together.
    """

    def __init__(
        self, pair: LaunchSet, jobs: Sequence[JobMonitor], metered: Metered | None, now: Moment
    ) -> None:
        self._pair, self._jobs = pair, jobs
        self._last_s = now.at_s
        self._recent_j = RateMeter(RECENT_S)
        self._begin = self._read = metered
        self.first = Stretch(jobs, range(len(jobs)), now.at_s, metered)
        self.stretches = [self.first]
        self.alone: Stretch | None = None
        self.promise(None, self.first.numbers)
        self._first_steps = self._shared_steps = self._read_steps = _steps(jobs)
        self._unread_steps = tuple(0.0 for _ in jobs)
        self.rest_s = self.stranded_unit_s = self.unwatched_s = 0.0
        self._freed_s = 0.0

    def add(self, now: Moment, metered: Metered | None, running: Sequence[JobMonitor]) -> None:
        """Count the time since the last look, in which these jobs were running.

        `metered` is the energy of the GPU so far.
        """
        passed_s = now.at_s - self._last_s
        self.unwatched_s += max(0.0, passed_s - 2.0)  # so long counts as watched
        if passed_s >= SILENT_S:
            self.stretches[-1].flags.add(UNWATCHED)
        if any(job.paused for job in running):
            self.stretches[-1].flags.add(PAUSED)
        self._add(now, metered, running)

    def _add(self, now: Moment, metered: Metered | None, running: Sequence[JobMonitor]) -> None:
        passed_s, before, self._read = now.at_s - self._last_s, self._read, metered
        if metered is not None and metered.at_s == now.at_s:
            self._begin = self._begin or metered
            self._recent_j.add(*metered.of_rate)
            # Steps of a time of which no energy is known.
            if before is None or metered.seconds == before.seconds:
                self._unread_steps = tuple(
                    map(sum, zip(self._unread_steps, self._since(self._read_steps), strict=True))
                )
            self._read_steps = _steps(self._jobs)
        self._freed_s += passed_s * max(0, len(running) - 1)
        numbers = tuple(n for n, monitor in enumerate(self._jobs) if monitor in running)
        if numbers == self.kept.numbers:
            self.kept.add(now, passed_s, self._read)
        if numbers != self.stretches[-1].numbers and len(numbers) >= ADVISED_JOBS:
            self.stretches.append(Stretch(self._jobs, numbers, self._last_s, before))
        if numbers == self.stretches[-1].numbers:
            self.stretches[-1].add(now, passed_s, self._read)
        elif len(numbers) == 1:
            if self.alone is None or self.alone.numbers != numbers:
                self.alone = Stretch(self._jobs, numbers, self._last_s, before)
            self.alone.add(now, passed_s, self._read)
        self._last_s = now.at_s
        if len(running) < len(self._jobs) or len(self._jobs) > len(self.first.numbers):
            self.rest_s += passed_s
            # Without limits the jobs that go on have the whole GPU.
            if self._pair.split.is_limited:
                ended = sum(
                    monitor.job.granted.units or 0
                    for monitor in self._jobs
                    if monitor not in running
                )
                # A joined job uses units that others held.
                joined = sum(
                    monitor.job.granted.units or 0
                    for monitor in self._jobs[len(self.first.numbers) :]
                    if monitor in running
                )
                self.stranded_unit_s += passed_s * max(0, ended - joined)
            for monitor in running:
                if not monitor.uncounted:
                    monitor.rest.add(now, monitor.steps)
        else:
            self._shared_steps = _steps(self._jobs)

    def promise(self, forecast: Forecast | None, numbers: Sequence[int], renewed: str = "") -> None:
        """Compare these running jobs with this promise from now on; `renewed` says why."""
        self.promised, self.renewed = forecast, renewed
        self.kept = Stretch(self._jobs, numbers, self._last_s, self._read, _LATELY_S)

    def drifts(self) -> tuple[dict[int, Drift], Drift | None]:
        """Of the rates over the last minutes, by job, and of all work per joule since then."""
        if self.promised is None or self.kept.settled_s() < JUDGE_S:
            return {}, None
        jobs, expected = self.promised.jobs, self.promised.work_per_joule
        speeds = [
            relative(rate, job.solo_rate) for rate, job in zip(self.kept.rates(), jobs, strict=True)
        ]
        return {
            n: drift
            for n, rate, job in zip(
                self.kept.numbers, self.kept.rates(lately=True), jobs, strict=True
            )
            if (drift := Drift.of(rate, job.rate)) is not None
        }, Drift.of(work_per_joule(speeds, self.kept.power_w()), expected)

    def close(self, now: Moment, metered: Metered | None, stopped: Sequence[JobMonitor]) -> None:
        """Take the last counts, once no process is left; `stopped` had run until now."""
        if stopped:
            self._add(now, metered, stopped)
        elif self._read is not None and self._read.at_s == self._last_s:
            # What they counted at last they did before the last look.
            self._read_steps = _steps(self._jobs)

    def join(self, pair: LaunchSet, jobs: Sequence[JobMonitor]) -> None:
        """Count jobs that run from now on, too: these are all that there have been."""
        more = _steps(jobs[len(self._jobs) :])
        self._pair, self._jobs = pair, jobs
        self._first_steps, self._shared_steps, self._read_steps = (
            (*before, *more) for before in (self._first_steps, self._shared_steps, self._read_steps)
        )
        self._unread_steps = (*self._unread_steps, *(0.0 for _ in more))

    @property
    def rest_energy_j(self) -> float | None:
        """Of the time after the first stretch; None before there is one."""
        whole, first_j = self._metered(), self.first.energy_j
        if whole is None or first_j is None or not self.rest_s:
            return None
        return whole.since(Metered(first_j, self.first.overlap_s, 0.0)).whole_j(self.rest_s)

    def power_w(self) -> float | None:
        """Of the GPU, mean over the last seconds."""
        was_read = self._read is not None and self._last_s - self._read.at_s <= RECENT_S
        return self._recent_j.rate() if was_read else None

    def recent_energy_saved(self) -> float | None:
        """Over the last seconds; a job that is over does nothing."""
        return energy_saved(
            None if self.foreign() else self.power_w(),
            [0.0 if monitor.over else monitor.rate() for monitor in self._jobs],
            self._pair.parts,
        )

    def rest_energy_saved(self) -> float | None:
        """Of the work after one job had ended; below 0 where the limit that stayed cost energy."""
        return energy_saved(
            self.rest_energy_j if self._is_counted else None,
            self._since(self._shared_steps),
            self._pair.parts,
        )

    def energy_saved_to_end(self) -> float | None:
        """Of all work since the opening of the gates, with what one job did alone at the end."""
        metered = self._metered() if self._is_counted else None
        return energy_saved(
            metered and metered.whole_j(self.first.overlap_s + self.rest_s),
            self._since(self._first_steps),
            self._pair.parts,
        )

    def mean_energy_saved(self) -> float | None:
        """While all ran, without the first seconds."""
        power_w = None if self.foreign() else self.first.power_w()
        # Later joins are no part of it.
        return energy_saved(power_w, (rates := self.first.rates()), self._pair.parts[: len(rates)])

    def foreign(self) -> dict[int, float]:
        """Jobs that `LaunchPart.is_foreign` is true of, and how fast they ran."""
        parts = self._pair.parts
        return {
            n: speed
            for stretch in self.stretches
            for n, rate in zip(stretch.numbers, stretch.rates(), strict=True)
            if parts[n].is_foreign(speed := relative(rate, parts[n].solo_rate) or 0.0)
        }

    def trial(self) -> Trial:
        """What the jobs that began together did, without the first seconds."""
        numbers, rates = self.first.numbers, self.first.rates()
        speeds = [
            speed if speed is None or part.job.offered_rate is None else min(speed, 1.0)
            for rate, part in zip(rates, self._pair.parts[: len(numbers)], strict=True)
            for speed in [relative(rate, part.solo_rate)]
        ]
        return Trial(
            self._pair,
            speeds,
            [self.first.latency_ms(number, 99) for number in numbers],
            self.first.power_w(),
        )

    def ledger(self) -> Ledger | None:
        """All of it, beside the same steps with a GPU for each; None where that is not known."""
        metered, parts, done = self._metered(), self._pair.parts, self._since(self._first_steps)
        alone, held_s = _work_alone(done, parts), self.first.overlap_s + self.rest_s
        gpus = max(part.job.gpus for part in parts)
        unread = map(sum, zip(self._unread_steps, self._since(self._read_steps), strict=True))
        alone_read = _work_alone(
            [max(0.0, all_ - less) for all_, less in zip(done, unread, strict=True)], parts
        )
        if not (self._is_counted and alone and alone_read and metered and metered.seconds):
            return None
        idle = [part.idle_power_w for part in parts if part.idle_power_w is not None]
        return Ledger(
            held_s=gpus * held_s,
            energy_j=metered.joules,
            alone_s=alone[0],
            alone_j=alone_read[1],
            freed_idle_j=self._freed_s * metered.seconds / held_s * min(idle) if idle else None,
            unread_s=gpus * (held_s - metered.seconds) if metered.whole_j(held_s) is None else 0.0,
        )

    @property
    def _is_counted(self) -> bool:
        """Whether the work of all jobs is known, here and alone: else nothing counts as saved."""
        return not (self.foreign() or any(monitor.uncounted for monitor in self._jobs))

    def _metered(self) -> Metered | None:
        return self._read and self._begin and self._read.since(self._begin)

    def _since(self, before: Sequence[float]) -> list[float]:
        # A count that began again is no work undone.
        return [max(0.0, now - then) for now, then in zip(_steps(self._jobs), before, strict=True)]


def energy_saved(
    energy: float | None, work: Sequence[float | None], parts: Sequence[LaunchPart | ObservedPart]
) -> float | None:
    """Part of the energy saved for the same work, against one after the other.

    Args:
        energy: What it took, J; or the power, W.
        work: Steps of the jobs in that time; or steps per second.
        parts: Rate and power of each job alone on the whole GPU.

    Returns:
        0.1 is a tenth less, below 0 is more; None where anything is not known, or nothing was done.
    """
    alone = _work_alone(work, parts)
    return None if energy is None or not alone or not alone[1] else 1 - energy / alone[1]


def _work_alone(
    work: Sequence[float | None], parts: Sequence[LaunchPart | ObservedPart]
) -> tuple[float, float] | None:
    """GPU time of work with each job alone on all that it holds, and energy, as `energy_saved`.

    None where anything is not known.
    """
    alone_s = alone_j = 0.0
    for done, part in zip(work, parts, strict=True):
        if done is None or not part.solo_rate or not part.solo_power_w:
            return None
        held = part.job.gpus if isinstance(part, LaunchPart) else 1
        alone_s += held * done / part.solo_rate
        alone_j += done / part.solo_rate * part.solo_power_w
    return alone_s, alone_j


def work_per_joule(speeds: Sequence[float | None], power_w: float | None) -> float | None:
    """Sum of relative speeds per watt; None where one of them is not known."""
    measured = [speed for speed in speeds if speed is not None]
    return sum(measured) / power_w if len(measured) == len(speeds) and power_w else None


def _steps(jobs: Sequence[JobMonitor]) -> tuple[float, ...]:
    return tuple(monitor.steps for monitor in jobs)


CATCHING_UP_S = 120.0
"""For so long no mean begins while a server starts or empties a queue; then it is flagged."""


def is_behind(
    offered_rate: float | None, rate: float | None, meter: RateMeter, *, silent: bool, again: bool
) -> bool:
    """Whether a server has not answered yet, or answers more than arrives.

    Args:
        offered_rate: Requests per second that arrive; None: it is no server.
        rate: Answered per second over the last `RECENT_S`; None: not known.
        meter: Answers since its means began.
        silent: It has not answered since it is watched.
        again: It was behind before: then its rate has to come down to the demand.
    """
    rates = [(rate, RECENT_S), (meter.rate(), meter.span_s)]
    return offered_rate is not None and (
        silent
        or any(
            is_catching_up(rate, offered_rate, span_s, errors=1.0 if again else 4.0)
            for rate, span_s in rates
            if rate
        )
    )


class Stretch:
    """What they did.

    Means leave out the first seconds, those in which a server catches up, and pauses of any job.

    Attributes:
        numbers: Which jobs of the launch, counted from 0.
        started_at: When it began, ISO 8601, UTC.
        updated_s: When it was looked at last.
        overlap_s: How long it has lasted.
        ended: Jobs that exited on their own by the end of the interval.
        flags: What was wrong in it, of `advisor.core.records`, as far as that was seen meanwhile.
        catching_up: Which servers start or empty a queue now.
    """

    def __init__(
        self,
        jobs: Sequence[JobMonitor],
        numbers: Sequence[int],
        now_s: float,
        metered: Metered | None,
        lately_s: float | None = None,
    ) -> None:
        self.numbers = tuple(numbers)
        self.started_at = to_exact_text(datetime.now(UTC))
        self.updated_s, self.overlap_s = now_s, 0.0
        self.ended: tuple[int, ...] = ()
        self.flags = set[str]()
        self._paces = {n: _Pace(jobs[n], lately_s) for n in self.numbers}
        self._begun_s = self._settles_s = now_s
        self._first, self._last = metered, metered
        self._stands, self._left_out_s, self._left_out = False, 0.0, Metered(0.0, 0.0, now_s)
        self._joules, self.catching_up = RateMeter(), tuple[int, ...]()

    @property
    def energy_j(self) -> float | None:
        """Of the GPU in that time; None: not all of it was read."""
        first, last = self._first, self._last
        return first and last and last.since(first).whole_j(self.overlap_s)

    def add(self, now: Moment, passed_s: float, metered: Metered | None) -> None:
        """Count the time since the last look; `metered` is the energy of the GPU so far."""
        self.updated_s = now.at_s
        self.overlap_s += passed_s
        last, self._last = self._last, metered
        self._first = self._first or metered
        self.ended = tuple(n for n, pace in self._paces.items() if pace.job.over)
        stands = any(pace.job.paused for pace in self._paces.values())
        # At the look that finds it going on it stood for a part of the time.
        stood, self._stands = stands or self._stands, stands
        if stood:
            self._left_out_s += passed_s
            for pace in self._paces.values():
                pace.leave_out()
            if last and metered:
                out, grown = self._left_out, metered.since(last)
                self._left_out = replace(
                    out, joules=out.joules + grown.joules, seconds=out.seconds + grown.seconds
                )
            return
        now = Moment(now.at_s - self._left_out_s, now.slack_s)
        metered = metered and metered.since(self._left_out)
        unread = [pace for pace in self._paces.values() if pace.job.unread]
        if unread:
            self.flags.add(UNCOUNTED)
        behind = tuple(
            n for n, pace in self._paces.items() if pace.catches_up(again=n in self.catching_up)
        )
        self.catching_up = behind if now.at_s - self._begun_s < CATCHING_UP_S else ()
        if self.catching_up:
            self._settles_s, self._joules = now.at_s, RateMeter()
            for pace in self._paces.values():
                pace.begin()
        # The look that finds a job at its end is in no mean: it ended at some time before.
        if now.at_s - self._settles_s < SETTLE_S or self.ended or unread:
            return
        if behind:
            self.flags.add(BACKLOG)
        for pace in self._paces.values():
            pace.note(now)
        if metered is not None:
            self._joules.add(*metered.of_rate)

    def power_w(self) -> float | None:
        """Of the GPU, mean of the time in which it was read."""
        return self._joules.rate()

    def rates(self, *, lately: bool = False) -> tuple[float | None, ...]:
        """Of these jobs, in the order of the launch; of its last `lately_s` alone."""
        return tuple(
            (pace.lately if lately else pace.steps).rate() for pace in self._paces.values()
        )

    def settled_s(self) -> float:
        """How long the time is that means are of."""
        return max(pace.steps.span_s for pace in self._paces.values())

    def latency_ms(self, number: int, percent: float) -> float | None:
        """Percentile of a job's request latencies, ms; None without latencies."""
        return percentile_ms(*self._paces[number].answered, percent)


class _Pace:
    def __init__(self, job: JobMonitor, lately_s: float | None) -> None:
        self.job, self._first_steps, self._lately_s = job, job.steps, lately_s
        self._last_steps, self._left_out = job.steps, 0.0
        self.begin()

    def begin(self) -> None:
        """Forget what was noted."""
        self.steps, self.lately = RateMeter(), RateMeter(self._lately_s)
        self.answered: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def catches_up(self, *, again: bool) -> bool:
        """Whether it is a server that `is_behind`."""
        offered_rate = None if self.job.over else self.job.demand or self.job.job.job.offered_rate
        return is_behind(
            offered_rate,
            self.job.rate(),
            self.steps,
            silent=self.job.steps == self._first_steps,
            again=again,
        )

    def note(self, now: Moment) -> None:
        self._last_steps = self.job.steps
        for meter in (self.steps, self.lately):
            meter.add(now, self._last_steps - self._left_out)
        answered = self.job.job.latencies()
        self.answered = (self.answered[0] or answered, answered)

    def leave_out(self) -> None:
        """What came since the last look is no part of it."""
        self._left_out += self.job.steps - self._last_steps
        self._last_steps, answered = self.job.steps, self.job.job.latencies()
        latencies = zip(*self.answered, answered, strict=False)
        self.answered = tuple(then + now - before for then, before, now in latencies), answered
