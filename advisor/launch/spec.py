"""A launch: the spec of what is to be started and expected, its status, and its ledger.

Status and ledger are of the time in which jobs ran: neither holds a start, which each job has alone
as well.
"""

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from advisor.core.gpu import WHOLE, MemoryFit, Share, Sharing, Split
from advisor.core.job import Job, Verdict, WhenOneEnds, WhenP99Breaks
from advisor.core.objectives import Interval, Prices, shrunk
from advisor.core.wording import listed
from advisor.runtime.backend import Proof
from advisor.validity.points import FASTEST


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """What a model expects of one of the jobs.

    Attributes:
        rate: Progress per second, in the job's own unit.
        solo_rate: Rate alone on the whole GPU; relative speeds divide by it.
        rest_energy_saved: Part of the energy saved for what the job does under its limit once the
            others have ended, against the whole GPU; None where nothing is known of it.
    """

    rate: Interval
    solo_rate: float
    rest_energy_saved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a model expects of jobs together, to be shown next to what is observed.

    Attributes:
        jobs: In the order of the jobs.
        work_per_joule: Sum of relative speeds per watt, so relative work per joule.
        energy_saved: Part of the energy saved for the same work, against one after the other,
            while all run; None where one of them may stand still.
        coverage: Part of such values that the intervals are to hold.
    """

    model_version: str
    jobs: tuple[JobForecast, ...]
    power_w: Interval
    work_per_joule: Interval
    coverage: float
    energy_saved: Interval | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """Observed over promised in one launch, as the `ratio` of a `DriftedJob` is of many.

    Attributes:
        low, high: Bounds of the promise over its value: between them it is kept.
    """

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, observed: float | None, promised: Interval) -> "Drift | None":
        """None where nothing is observed, or nothing was promised."""
        if observed is None or promised.value <= 0:
            return None
        return cls(*(value / promised.value for value in (observed, promised.low, promised.high)))

    @property
    def text(self) -> str:
        """In percent, with what was promised."""
        return f"{100 * self.ratio:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPart:
    """One of the jobs, and what its profile knows.

    Attributes:
        job: As its file was when the launch was asked for.
        solo_rate: Rate alone on the whole GPU; None without a profile.
        share_rate: Rate alone at its share.
        solo_power_w: Power of the GPUs that it holds while it runs alone on all of them.
        idle_power_w: Power of these before it started.
        host_spread: Standard deviation of the log of its rate alone here over `solo_rate`, which is
            of another host; 0: it was measured on this one, or serves a demand.
        window_spread: The same between two windows of some seconds on one host.
        reported: First values that the job reported on the whole GPU, as points keep them; its
            results are compared with them. None: not known.
        min_speed: Minimum relative speed, also beside jobs that join later.
        max_p99_ms: Longest p99 latency that was asked for, or that its file promises.
        max_power_w: Most power of all on the GPU that was asked for when it was launched.
        units: SMs or CUs that its share comes to; None: not known before it starts.
        limit_memory: Its memory is bounded where it is known, and MPS shares the GPU.
        memory_bound: With which its profile measured its memory.
        time_limit_s: The job is ended, as failed, once it has run for so long; None: never.
        done: Steps that it did in this launch before it was started again, to go on.
    """

    job: Job
    solo_rate: float | None = None
    share_rate: float | None = None
    solo_power_w: float | None = None
    idle_power_w: float | None = None
    host_spread: float = 0.0
    window_spread: float = 0.0
    reported: str | None = None
    min_speed: float | None = None
    max_p99_ms: float | None = None
    max_power_w: float | None = None
    units: int | None = None
    limit_memory: bool = True
    memory_bound: str | None = None
    time_limit_s: float | None = None
    done: float = 0.0

    @property
    def promised_p99_ms(self) -> float | None:
        """What its users were promised, by its file or when it was launched."""
        return self.job.max_p99_ms if self.max_p99_ms is None else self.max_p99_ms

    def is_foreign(self, speed: float | None) -> bool:
        """Whether it runs faster than alone by a profile of another host.

        What its work takes alone on this one is not known then.
        """
        return bool(self.host_spread) and (speed or 0.0) > FASTEST


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSet:
    """Jobs that share the GPU, and how.

    Attributes:
        parts: One for each share of the split.
        forecast: None where no profile or no model was at hand.
        open_percent: Largest share of a later join, which may exceed that of every first job.
        alone_s: Each job with a gate first runs alone for so long, one after the other, s; None:
            none does, or all have.
        ran_s: How long they ran together before, at another split, s.
    """

    split: Split
    parts: tuple[LaunchPart, ...]
    forecast: Forecast | None = None
    open_percent: float = 0.0
    alone_s: float | None = None
    ran_s: float = 0.0

    @property
    def jobs(self) -> tuple[Job, ...]:
        """In the order of the shares."""
        return tuple(part.job for part in self.parts)

    @property
    def stays(self) -> str:
        """Why its jobs are not started again at another split; empty: they may be."""
        if once := listed(job.name for job in self.jobs if not job.restartable):
            return f"{once}: the job file does not say restartable: true"
        if self.split.gpus:
            return "one of its jobs holds two GPUs"
        return "`advisor run` places these jobs" if self.open_percent else ""

    def memory(self, card_mib: float | None) -> tuple[MemoryFit, ...]:
        """What they need of the memory of each card."""
        return tuple(
            MemoryFit(tuple(self.jobs[n].memory_mib for n in on), card_mib)
            for on in self.split.each_gpu
        )

    def shares(self, card_mib: float | None) -> tuple[Share, ...]:
        """Of units and of the memory of a card, if it is known, in the same order."""
        most_mib: dict[int, list[int]] = {}
        for on, memory in zip(self.split.each_gpu, self.memory(card_mib), strict=True):
            for place, n in enumerate(on):
                if card_mib and self.parts[n].limit_memory and (mib := memory.limit_mib(place)):
                    most_mib.setdefault(n, []).append(mib)
        return tuple(
            replace(share, memory_mib=min(most_mib.get(n, ()), default=None))
            for n, share in enumerate(self.split.each_share)
        )

    def places(self, number: int) -> tuple[str, ...]:
        """Names of the jobs' folders in that of the launch, whose set this is by its number."""
        return tuple(f"{number}-{letter}" for letter in string.ascii_lowercase[: len(self.parts)])

    @property
    def cap_percent(self) -> int:
        """The largest share, as a whole number: what the control program of MPS is given."""
        return math.ceil(max(*self.split.shares, self.open_percent))


def with_part(pair: LaunchSet, number: int, **changes: Any) -> LaunchSet:
    """The set with one of its jobs changed."""
    before, (part, *after) = pair.parts[:number], pair.parts[number:]
    return replace(pair, parts=(*before, replace(part, **changes), *after))


def at_rate(pair: LaunchSet, number: int, factor: float, spread: float) -> LaunchSet:
    """The set where one of its jobs is so many times as fast on this host as was known of it.

    Power alone above idle is as many times as high: that is 15 % off where rates differ, and to
    leave it as it was 20 % (76 rates on other cards of H200 than the profile's). So what is not
    known of the rate is not known of the watts either, nor of the energy for work by old rates.

    Args:
        pair: Of which rates and the forecast are scaled.
        number: Of the job, from 0.
        factor: Above 0.
        spread: Standard deviation of its logarithm; it replaces the earlier one.
    """
    part = pair.parts[number]
    if (forecast := pair.forecast) is not None:
        before, (job, *after) = forecast.jobs[:number], forecast.jobs[number:]
        more = spread**2 - part.host_spread**2
        forecast = _at_watts(pair, forecast, number, factor, more)
        job = replace(
            job, rate=job.rate.times(factor).spread_by(more), solo_rate=factor * job.solo_rate
        )
        pair = replace(pair, forecast=replace(forecast, jobs=(*before, job, *after)))
    idle_w = part.idle_power_w or 0.0
    return with_part(
        pair,
        number,
        solo_rate=part.solo_rate and factor * part.solo_rate,
        share_rate=part.share_rate and factor * part.share_rate,
        solo_power_w=part.solo_power_w and idle_w + factor * (part.solo_power_w - idle_w),
        host_spread=spread,
    )


def _at_watts(
    pair: LaunchSet, forecast: Forecast, number: int, factor: float, variance: float
) -> Forecast:
    """With watts and energy where one is so much faster, and by so much more variance of that."""
    part, before = pair.parts[number], forecast.power_w
    kept = [job.rate.value / job.solo_rate for job in forecast.jobs]
    work = [speed * (of.solo_power_w or 0.0) for speed, of in zip(kept, pair.parts, strict=True)]
    if not work[number]:
        return forecast
    over_w = max(0.0, work[number] - kept[number] * (part.idle_power_w or 0.0))
    of_power, of_speeds = over_w / before.value, kept[number] / sum(kept)
    if (saved := forecast.energy_saved) is not None:
        work_for_1_j = Interval(*(1 / (1 - end) for end in (saved.value, saved.low, saved.high)))
        work_for_1_j = work_for_1_j.spread_by(variance * (work[number] / sum(work) - of_power) ** 2)
        saved = Interval(saved.value, 1 - 1 / work_for_1_j.low, 1 - 1 / work_for_1_j.high)
    return replace(
        forecast,
        power_w=before.times(1 + (factor - 1) * of_power).spread_by(variance * of_power**2),
        work_per_joule=forecast.work_per_joule.spread_by(variance * (of_speeds - of_power) ** 2),
        energy_saved=saved,
    )


def as_alone(
    pair: LaunchSet, number: int, rate: float | None, power_w: float | None
) -> tuple[LaunchSet, float]:
    """The set by what one of its jobs did alone under its share, and how much faster it counts as.

    One window of some seconds is shrunk towards what was known, by how much windows differ. Without
    a profile it is as fast as it was.
    """
    part, noise = pair.parts[number], pair.parts[number].window_spread
    if not (rate and part.share_rate and noise):
        return pair, 1.0
    log, stderr = shrunk([(math.log(rate / part.share_rate), noise**2)], part.host_spread or noise)
    pair = at_rate(pair, number, math.exp(log), part.host_spread and math.hypot(stderr, noise))
    measured = {"solo_power_w": power_w} if power_w and pair.split.shares[number] == WHOLE else {}
    return with_part(pair, number, **measured), math.exp(log)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One launch: it holds its GPU from the first set to the end of the last.

    Attributes:
        gpu: Index or UUID of the GPU.
        pairs: Of two to seven jobs. The first one starts at once, each other one when the one
            before it is over.
        duration_s: A set is stopped after this time together; None: when its jobs end.
        hang_s: A job without progress for so long is ended; None: none is, a job that makes none is
            shown as stalled.
        when_p99_breaks: What is done where a server breaks its promised p99.
        stop_on_wrong_results: The set is stopped when a job reports a wrong result; else there is
            an alarm.
        strict: The launch is ended where a process of no job computes on the GPU; else there is an
            alarm, and a flag.
        try_s: Each set is the same jobs in another way, which runs for so long; the best one then
            runs to its end. None: each set runs to its end.
        wait_s: How long it may wait for a GPU that another launch holds, s.
        power_limit_w: Of the GPU while it is held; None: as it is.
        asked_by: Name of the user or of the token.
        notes: What the caller should know, such as why there is no forecast.
    """

    launch_id: str
    gpu: str
    pairs: tuple[LaunchSet, ...]
    when_one_ends: WhenOneEnds = "keep"
    duration_s: float | None = None
    hang_s: float | None = None
    when_p99_breaks: WhenP99Breaks = "tell"
    stop_on_wrong_results: bool = False
    strict: bool = False
    try_s: float | None = None
    wait_s: float = 0.0
    power_limit_w: float | None = None
    asked_by: str = ""
    notes: tuple[str, ...] = ()


_KWH_J = 3.6e6
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Observed: counted steps, and the energy of the GPU; rates and power alone are of profiles.

    Attributes:
        held_s: How long jobs had the GPU.
        energy_j: Of the GPU in that time, as far as it was read.
        alone_s: How long the same steps hold a GPU, each job alone on all of one; none of a trial,
            after which jobs begin again.
        alone_j: Energy of that, for the steps of the time in which energy was read.
        freed_idle_j: What the cards that sharing frees draw meanwhile where they idle; None: the
            idle power is not known.
        unread_s: Part of `held_s` of which no energy is known; nothing counts as saved in it. 0
            where that is less than a hundredth.
        starts_s, starts_j: From taking the GPU to opening the gates, and its energy as far as it
            was read; not part of `held_s` and `energy_j`.
    """

    held_s: float
    energy_j: float
    alone_s: float
    alone_j: float
    freed_idle_j: float | None
    unread_s: float = 0.0
    starts_s: float = 0.0
    starts_j: float = 0.0

    def part(self, of: float) -> "Ledger":
        """As much of all, from 0 to 1."""
        return Ledger(
            held_s=of * self.held_s,
            energy_j=of * self.energy_j,
            alone_s=of * self.alone_s,
            alone_j=of * self.alone_j,
            freed_idle_j=None if self.freed_idle_j is None else of * self.freed_idle_j,
            unread_s=of * self.unread_s,
            starts_s=of * self.starts_s,
            starts_j=of * self.starts_j,
        )


def add(ledger: Ledger | None, other: Ledger | None) -> Ledger | None:
    """Both together; what is not known of one is left out."""
    if ledger is None or other is None:
        return ledger or other
    idle = (ledger.freed_idle_j, other.freed_idle_j)
    return Ledger(
        held_s=ledger.held_s + other.held_s,
        energy_j=ledger.energy_j + other.energy_j,
        alone_s=ledger.alone_s + other.alone_s,
        alone_j=ledger.alone_j + other.alone_j,
        freed_idle_j=None if None in idle else sum(j for j in idle if j is not None),
        unread_s=ledger.unread_s + other.unread_s,
        starts_s=ledger.starts_s + other.starts_s,
        starts_j=ledger.starts_j + other.starts_j,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What launches saved in a time, observed; below 0 they took more.

    Attributes:
        since: Begin of the time, ISO 8601.
        launches: How many ran in it.
        uncounted: Those of them of which nothing is known: not every job has a profile, the
            energy could not be read, results were wrong, or a limit was broken.
        gpu_hours: For which the GPUs were held.
        gpu_hours_unread: Those of them of which no energy is known, and none counts as saved.
        kwh: Of these GPUs.
        gpu_hours_saved: Against each job alone on a whole GPU, for the same work.
        kwh_saved: The same, so that cards that become free are switched off.
        kwh_saved_idle: Where they idle; of `idle_known` launches, None where that is 0.
        idle_known: Launches of which the idle power is known.
        cost_saved: By the prices of the settings; None: nothing has a price.
    """

    since: str
    launches: int
    uncounted: int
    gpu_hours: float
    gpu_hours_unread: float
    kwh: float
    gpu_hours_saved: float
    kwh_saved: float
    kwh_saved_idle: float | None
    idle_known: int
    cost_saved: float | None


def saved(since: str, ledgers: Iterable[Ledger | None], prices: Prices) -> Saved:
    """The sum of launches; None: one of which nothing is known."""
    entries = [*ledgers]
    counted = [ledger for ledger in entries if ledger is not None]
    idle = [
        ledger.alone_j - ledger.energy_j - ledger.freed_idle_j
        for ledger in counted
        if ledger.freed_idle_j is not None
    ]
    held_s, energy_j, alone_s, alone_j, unread_s = (
        sum(getattr(ledger, name) for ledger in counted)
        for name in ("held_s", "energy_j", "alone_s", "alone_j", "unread_s")
    )
    cost = prices.of(alone_s, alone_j) - prices.of(held_s, energy_j)
    return Saved(
        since=since,
        launches=len(entries),
        uncounted=len(entries) - len(counted),
        gpu_hours=held_s / _HOUR_S,
        gpu_hours_unread=unread_s / _HOUR_S,
        kwh=energy_j / _KWH_J,
        gpu_hours_saved=(alone_s - held_s) / _HOUR_S,
        kwh_saved=(alone_j - energy_j) / _KWH_J,
        kwh_saved_idle=sum(idle) / _KWH_J if idle else None,
        idle_known=len(idle),
        cost_saved=cost if prices.are_set else None,
    )


State = Literal["accepted", "starting", "running", "stopping", "finished", "stopped", "failed"]
"""`finished`: all jobs ended by themselves, well. `stopped`: on request, or the time was up.
`failed`: anything else; `code` and `cause` say what."""

OVER: frozenset[State] = frozenset({"finished", "stopped", "failed"})

SILENT_S = 10.0
"""A supervisor writes once a second. What is older than this is shown as what it is: old."""

JobOutcome = Literal[
    "waiting",
    "starting",
    "running",
    "finished",
    "stopped",
    "failed",
    "hung",
    "taken-down",
    "refused",
]
"""`taken-down`: ended by a fault on the MPS server that the jobs share. Such a fault takes all
clients down and names no author, so none is called guilty, unless the server's log names one.
`refused`: it asked to join, and does not."""

_RESULTS: Mapping[Verdict | None, str] = {
    "wrong": "it reported a result that is not finite",
    "differ": "its results differ from those on the whole GPU by more than its tolerance",
}

GOING: tuple[JobOutcome, ...] = ("waiting", "starting", "running")
"""Of jobs that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One of the jobs that run now, or ran last.

    Attributes:
        below_normal: Whether it runs below normal priority under MPS: the variable is in the
            environment of its processes, and the driver does not report its effect.
        units_granted: SMs or CUs read back under the limit, before the job started.
        memory_limit_mib: GPU memory that a process of it can take, read back likewise; None: no
            limit, as where its need is not known, or MPS does not share the GPU.
        proven: The limit was shown to be in force, for the running job too, as far as `proof` says,
            until it ended. False where it was only for a time: `error` says until when.
        proof: `server`: the MPS server holds it, or there is none; `set`: it is set, and not read
            back from the job, which may have changed it before its first context.
        exit_code: Negative: the signal that ended it. None while it runs, and after a stop.
        code: Stable name of what went wrong (advisor.errors); None where nothing did.
        error: The same in a sentence; why it was ended, where it was for a server.
        steps: Progress so far, in the job's unit.
        rate: Progress per second over the last seconds; None before there are two readings, while
            `unread` says why, and once it is over.
        relative_speed: `rate` over its rate alone on the whole GPU; None without a profile.
        mean_rate: Mean while it ran with the jobs that it began or joined with, without the first
            seconds; it stays when the job is over, and is compared with the forecast.
        mean_speed: The same over the rate alone.
        mean_p99_ms: Of the requests in that time; None where it tells none.
        latency_p99_ms: Of the last window of requests of a job that has promised some.
        max_p99_ms: What it has promised.
        demand: Requests per second that arrive, where for minutes these were others than expected.
        results: What its own results were found to be; None where it reports none, or none that
            can be compared with those on the whole GPU.
        unread: Why its progress or its results cannot be read now; None: they can. Without progress
            `rate` and `relative_speed` are None.
        unread_since: Since when, ISO 8601, UTC.
        stalled_since: When it last made progress, where that is 120 s ago or more; ISO 8601, UTC.
        predicted_rate: What was expected of `rate`, beside those that ran when it began or when
            the last one joined.
        drift: Mean rate of the last five minutes over what is promised beside those that run.
        paused: A signal or a freezer has stopped it; that time is in no mean.
        join_id: Name of the request by which it joined; None: it began with the first.
        joined_at: When it joined the running jobs.
        ended_at: When it was seen to be over.
    """

    job: str
    rate_unit: str
    share_percent: float
    below_normal: bool = False
    units_granted: int | None = None
    memory_limit_mib: int | None = None
    proven: bool = False
    proof: Proof | None = None
    outcome: JobOutcome = "waiting"
    exit_code: int | None = None
    code: str | None = None
    error: str | None = None
    steps: float = 0.0
    rate: float | None = None
    relative_speed: float | None = None
    mean_rate: float | None = None
    mean_speed: float | None = None
    mean_p99_ms: float | None = None
    latency_p99_ms: float | None = None
    max_p99_ms: float | None = None
    demand: float | None = None
    results: Verdict | None = None
    unread: str | None = None
    unread_since: str | None = None
    stalled_since: str | None = None
    predicted_rate: Interval | None = None
    drift: Drift | None = None
    paused: bool = False
    join_id: str | None = None
    joined_at: str | None = None
    ended_at: str | None = None

    @property
    def share_text(self) -> str:
        """Its share and priority, for a person."""
        return f"{self.share_percent:g} %{' below normal' if self.below_normal else ''}"

    @property
    def trouble(self) -> str | None:
        """What went wrong with it, or with its results."""
        return self.error or _RESULTS.get(self.results)

    @property
    def speed(self) -> float | None:
        """Relative speed over the last seconds, of one that is over the mean."""
        return self.mean_speed if self.relative_speed is None else self.relative_speed


def split_of(jobs: Iterable[JobStatus], sharing: Sharing) -> Split:
    """The split that jobs run at."""
    seats = [(job.share_percent, job.below_normal) for job in jobs]
    return Split(
        tuple(share for share, _ in seats),
        sharing,
        tuple(n for n, (_, is_low) in enumerate(seats) if is_low),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resplit:
    """What those that run would do at another split, for which all of them have to start again.

    Attributes:
        split: As people write it.
        worth: Work per joule over that of now; above 1 with its whole range where it is offered.
        refused: Why they stay as they are; None: they are started again on request.
    """

    split: str = ""
    worth: Interval | None = None
    refused: str | None = None

    @property
    def text(self) -> str:
        """How much more."""
        of = self.worth or Interval.sure(1.0)
        low, value, high = (f"{100 * part - 100:.0f}" for part in (of.low, of.value, of.high))
        return f"{value} % more work per joule ({low} to {high})"


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
        history = self
        while len(history.power_w) > most:
            history = replace(
                history,
                step_s=2 * history.step_s,
                power_w=_pairs(history.power_w),
                energy_saved=_pairs(history.energy_saved),
                jobs=tuple(
                    replace(job, speeds=_pairs(job.speeds), p99_ms=_pairs(job.p99_ms))
                    for job in history.jobs
                ),
            )
        return history

    def compact(self, most: int) -> "History":
        """The same without series of which nothing is known: of most jobs there is no p99."""
        thinned = self.thinned(most)
        jobs = (job if any(job.p99_ms) else replace(job, p99_ms=()) for job in thinned.jobs)
        return replace(thinned, jobs=tuple(jobs))


def _pairs(series: HistoryValues) -> HistoryValues:
    # A last one without its other half would stand for a step that is not over: it waits for it.
    return tuple(mean_of_readings(series[n : n + 2]) for n in range(0, len(series) - 1, 2))


def mean_of_readings(values: Sequence[float | None]) -> float | None:
    """Of the known values, to four digits; None without any."""
    readings = [value for value in values if value is not None]
    return float(f"{sum(readings) / len(readings):.4g}") if readings else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStatus:
    """A launch at one moment.

    Attributes:
        code: Stable name of what went wrong first (advisor.errors, `job-hung`, `time-limit`,
            `mps-fault`, `supervisor-gone`, `system`, `internal`); None where nothing did.
        cause: The same in words.
        sharing: How these jobs use the GPU.
        try_s: These sets are ways of one set, each of which runs on trial for so long, s; None:
            none is on trial, or no more.
        pair_number: Counts the pairs and sets of the launch from 0.
        forecast: Of those that began together; what is expected since another has joined is in
            `predicted_rate` of each job, and in `predicted_power_w`.
        beside: UUIDs of its other GPUs.
        units_total: SMs or CUs of the whole GPU.
        power_limit_w: Of its GPUs, enforced.
        power_w: Of the GPU, mean over the last seconds; None once it is over.
        mean_power_w: Mean while all ran, without the first seconds; it stays.
        energy_j: Of the GPU, while all jobs of this pair or set ran together.
        work_per_joule: Sum of relative speeds per watt over the last seconds.
        promised_at: Since when what is promised of those that run is promised, ISO 8601, UTC; None:
            nothing is.
        promise_renewed: Why it is promised since then; None: since they began.
        speed_drift: Mean of the drifts of the jobs; None while one is paused.
        work_drift: Work per joule since `promised_at` over what is promised.
        resplit: Whether another split would do more; None: that was not looked at yet.
        energy_saved: Part of the energy saved for the same work, against one after the other,
            over the last seconds; None without profiles, and once it is over.
        mean_energy_saved: The same while all ran, without the first seconds; it stays.
        ledger: What it has taken since its start, the sets before this one too, beside what the
            same work takes with a GPU for each job; None without profiles. Sets with wrong results
            or a broken limit are left out.
        whole_energy_j: Of the GPU since the launch took it, with starts and ends and the sets
            before this one; None: not all of it was read.
        starts_energy_j: Part of it before the gates of a set opened; None likewise.
        unwatched_s: Seconds between two looks at the jobs beyond 2 s, of all sets.
        overlap_s: How long all of them have run together so far.
        rest_s: How long jobs have gone on after the first had ended, or another had joined.
        rest_energy_j: Of that time.
        stranded_unit_s: Compute units that were held for jobs that had ended, times seconds.
        host: Name of the host on which it runs, set by the service; only there it
            can be stopped.
        supervisor_pid: The process that watches the jobs.
        silent_s: How long that has not been heard of, where it is 10 s or more: it hangs, was
            stopped, or cannot write; or none has begun. All else is as of `updated_at` then, and
            nothing is proven.
        warnings: Notes of the spec, then what came up, such as a prediction that is far from what
            is observed.
        history: What it did over its time; only where that is asked for. None there: it has just
            begun, runs on another host, or its folder was removed.
    """

    launch_id: str
    state: State
    updated_at: str
    code: str | None = None
    cause: str | None = None
    gpu_uuid: str | None = None
    beside: tuple[str, ...] = ()
    gpu_model: str | None = None
    units_total: int | None = None
    power_limit_w: float | None = None
    try_s: float | None = None
    pair_number: int = 0
    pairs: int = 1
    sharing: Sharing = "limited"
    jobs: tuple[JobStatus, ...] = ()
    forecast: Forecast | None = None
    power_w: float | None = None
    mean_power_w: float | None = None
    predicted_power_w: Interval | None = None
    energy_j: float | None = None
    work_per_joule: float | None = None
    promised_at: str | None = None
    promise_renewed: str | None = None
    speed_drift: Drift | None = None
    work_drift: Drift | None = None
    resplit: Resplit | None = None
    energy_saved: float | None = None
    mean_energy_saved: float | None = None
    ledger: Ledger | None = None
    whole_energy_j: float | None = None
    starts_energy_j: float | None = None
    unwatched_s: float = 0.0
    overlap_s: float = 0.0
    rest_s: float = 0.0
    rest_energy_j: float | None = None
    stranded_unit_s: float = 0.0
    started_at: str | None = None
    ended_at: str | None = None
    host: str = ""
    supervisor_pid: int | None = None
    silent_s: int | None = None
    warnings: tuple[str, ...] = ()
    history: History | None = None

    def ran(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Begin and end of the time in which it ran so far; None: nothing of it ever did."""
        if self.started_at is None or not self.overlap_s:
            return None
        ended = datetime.fromisoformat(self.ended_at or self.updated_at) if self.over else now
        return datetime.fromisoformat(self.started_at), min(ended, now)

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of all its GPUs; none before it has one."""
        return (self.gpu_uuid, *self.beside) if self.gpu_uuid else ()

    @property
    def over(self) -> bool:
        """Nothing of it runs any more."""
        return self.state in OVER

    @property
    def watts(self) -> float | None:
        """Of the GPU over the last seconds, of a launch that is over the mean."""
        return self.mean_power_w if self.over else self.power_w

    @property
    def part_saved(self) -> float | None:
        """Of the energy, as `watts`."""
        return self.mean_energy_saved if self.over else self.energy_saved

    @property
    def standing(self) -> str:
        """The state for a person, with how old that is."""
        on_trial = f", way {self.pair_number + 1} of {self.pairs} on trial" if self.try_s else ""
        silent = "" if self.silent_s is None else f", not heard of for {self.silent_s} s"
        return self.state + on_trial + silent


def as_heard(status: LaunchStatus) -> LaunchStatus:
    """The same, of which nothing is proven where its supervisor has not been heard of."""
    # One of the future is of before the clock was set back.
    silent_s = abs((datetime.now(UTC) - datetime.fromisoformat(status.updated_at)).total_seconds())
    is_silent = silent_s >= SILENT_S and not status.over
    return replace(_unproven(status), silent_s=int(silent_s)) if is_silent else status


def _unproven(status: LaunchStatus) -> LaunchStatus:
    """The same with no limit proven, as after the supervisor is gone."""
    return replace(
        status, jobs=tuple(replace(job, proven=False, proof=None) for job in status.jobs)
    )


def abandoned(status: LaunchStatus) -> LaunchStatus:
    """The same where the supervisor is gone: with it, its jobs have ended."""
    return replace(
        status,
        jobs=tuple(
            replace(job, outcome="stopped", rate=None, relative_speed=None)
            if job.outcome in GOING
            else job
            for job in _unproven(status).jobs
        ),
        power_w=None,
        energy_saved=None,
        state="failed",
        code="supervisor-gone",
        cause="the process that watched the jobs was killed, or could not write its last word; "
        "the jobs ended with it",
    )
