"""What is to be launched: jobs together, their split, and what is expected of them."""

import math
import string
from dataclasses import dataclass, replace

from advisor.core.gpu import MemoryFit, Share, Split, split_shares
from advisor.core.job import Job, WhenOneEnds, WhenP99Breaks
from advisor.core.objectives import Interval


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPart:
    """One of the jobs, and what its profile knows.

    Attributes:
        job: As its file was when the launch was asked for.
        solo_rate: Rate alone on the whole GPU; None without a profile.
        share_rate: Rate alone at its share.
        solo_power_w: Power of the GPU while it runs alone on all of it.
        idle_power_w: Power of the GPU before it started.
        reported: First values that the job reported on the whole GPU, as points keep them; its
            results are compared with them. None: not known.
        min_speed: Relative speed that was asked for; who joins later leaves it so much.
        max_p99_ms: Longest p99 latency that was asked for, or that its file promises.
        max_power_w: Most power of all on the GPU that was asked for when it was launched.
        units: SMs or CUs that its share comes to; None: not known before it starts.
        limit_memory: Its memory is bounded where it is known, and MPS shares the GPU.
        time_limit_s: The job is ended, as failed, once it has run for so long; None: never.
    """

    job: Job
    solo_rate: float | None = None
    share_rate: float | None = None
    solo_power_w: float | None = None
    idle_power_w: float | None = None
    reported: str | None = None
    min_speed: float | None = None
    max_p99_ms: float | None = None
    max_power_w: float | None = None
    units: int | None = None
    limit_memory: bool = True
    time_limit_s: float | None = None

    @property
    def promised_p99_ms(self) -> float | None:
        """What its users were promised, by its file or when it was launched."""
        return self.job.max_p99_ms if self.max_p99_ms is None else self.max_p99_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSet:
    """Jobs that share the GPU, and how.

    Attributes:
        parts: One for each share of the split.
        forecast: None where no profile or no model was at hand.
        open_percent: Who joins may get so much, though nobody who begins has as much.
    """

    split: Split
    parts: tuple[LaunchPart, ...]
    forecast: Forecast | None = None
    open_percent: float = 0.0

    @property
    def jobs(self) -> tuple[Job, ...]:
        """In the order of the shares."""
        return tuple(part.job for part in self.parts)

    def memory(self, card_mib: float | None) -> MemoryFit:
        """What they need of the memory of a card."""
        return MemoryFit(tuple(job.memory_mib for job in self.jobs), card_mib)

    def shares(self, card_mib: float | None) -> tuple[Share, ...]:
        """Of units and of the memory of a card, in the same order."""
        memory = self.memory(card_mib)
        return tuple(
            replace(share, memory_mib=memory.limit_mib(job) if part.limit_memory else None)
            for job, (share, part) in enumerate(
                zip(split_shares(self.split), self.parts, strict=True)
            )
        )

    def places(self, number: int) -> tuple[str, ...]:
        """Names of the jobs' folders in that of the launch, whose set this is by its number."""
        return tuple(f"{number}-{letter}" for letter in string.ascii_lowercase[: len(self.parts)])

    @property
    def cap_percent(self) -> int:
        """The largest share, as a whole number: what the control program of MPS is given."""
        return math.ceil(max(*self.split.shares, self.open_percent))


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
        asked_by: Who asked: a user's name, or the name of a token.
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
    asked_by: str = ""
    notes: tuple[str, ...] = ()
