"""What is to be launched: pairs of jobs, their split, and what is expected of them."""

import math
from dataclasses import dataclass
from typing import Literal

from advisor.core.interval import Interval
from advisor.core.job import Job
from advisor.core.split import Split

WhenOneEnds = Literal["keep", "stop"]
"""The other job goes on under its limit, or is stopped. Nothing is started in its place; the next
pair of the queue starts when both are over."""

LaunchWay = Literal["split", "uncapped", "time-sliced"]
"""Each job under its share; both under MPS without limits; both without MPS."""

HANG_S = 120.0
"""A job that made progress and then none for this long is taken to hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a model expects of a pair, to be shown beside what is observed.

    Attributes:
        rate_a: Progress of the first job per second, in its own unit.
        solo_rate_a: Rate of the first job alone on the whole GPU; relative speeds divide by it.
        work_per_joule: Sum of relative speeds per watt, so relative work per joule.
        energy_saved: Part of the energy saved for the same work, against one after the other,
            while both run; None in launches of older versions.
        rest_energy_saved_a: The same of what the first job does under its limit once the second
            has ended, against the whole GPU; None where nothing is known of it.
        rest_energy_saved_b: The same of the second job.
        coverage: Part of such values that the intervals are to hold.
    """

    model_version: str
    rate_a: Interval
    rate_b: Interval
    power_w: Interval
    solo_rate_a: float
    solo_rate_b: float
    work_per_joule: Interval
    coverage: float
    energy_saved: Interval | None = None
    rest_energy_saved_a: float | None = None
    rest_energy_saved_b: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two jobs and how they share the GPU.

    Attributes:
        job_a: The first job, as its file was when the launch was asked for.
        share_a_percent: 100 where there are no limits.
        solo_rate_a: Rate of the first job alone on the whole GPU; None without a profile.
        share_rate_a: Rate of the first job alone at its share, by its profile.
        solo_power_a_w: Power of the GPU while it runs alone on all of it.
        forecast: None where no profile or no model was at hand.
        reported_a: First values that the first job reported on the whole GPU, as points keep them;
            its results are compared with them. None: not known.
    """

    job_a: Job
    job_b: Job
    way: LaunchWay
    share_a_percent: float
    share_b_percent: float
    solo_rate_a: float | None = None
    solo_rate_b: float | None = None
    share_rate_a: float | None = None
    share_rate_b: float | None = None
    solo_power_a_w: float | None = None
    solo_power_b_w: float | None = None
    forecast: Forecast | None = None
    reported_a: str | None = None
    reported_b: str | None = None

    @property
    def jobs(self) -> tuple[Job, Job]:
        """Both."""
        return self.job_a, self.job_b

    @property
    def shares_percent(self) -> tuple[float, float]:
        """Of both."""
        return self.share_a_percent, self.share_b_percent

    @property
    def split(self) -> Split:
        """How the jobs share the GPU."""
        return Split(self.shares_percent, "limited" if self.way == "split" else self.way)

    @property
    def cap_percent(self) -> int:
        """The larger share, as a whole number: what the control program of MPS is given."""
        return math.ceil(max(self.shares_percent))

    @property
    def solo_rates(self) -> tuple[float | None, float | None]:
        """Of both."""
        return self.solo_rate_a, self.solo_rate_b

    @property
    def share_rates(self) -> tuple[float | None, float | None]:
        """Of both."""
        return self.share_rate_a, self.share_rate_b

    @property
    def solo_powers_w(self) -> tuple[float | None, float | None]:
        """Of both."""
        return self.solo_power_a_w, self.solo_power_b_w

    @property
    def name(self) -> str:
        """How the pair is shared: 30/70, `uncapped` or `time-sliced`."""
        shares = f"{self.share_a_percent:g}/{self.share_b_percent:g}"
        return shares if self.way == "split" else self.way


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One launch: it holds its GPU from the first pair to the end of the last.

    Attributes:
        gpu: Index or UUID of the GPU.
        pairs: The first one starts at once, each other one when the one before it is over.
        duration_s: A pair is stopped after this time together; None: when its jobs end.
        hang_s: See `HANG_S`.
        stop_on_wrong_results: The pair is stopped when a job reports a wrong result; else there is
            an alarm.
        asked_by: Who asked: a user's name, or the name of a token.
        notes: What whoever asked should know, such as why there is no forecast.
    """

    launch_id: str
    gpu: str
    pairs: tuple[Pair, ...]
    when_one_ends: WhenOneEnds = "keep"
    duration_s: float | None = None
    hang_s: float = HANG_S
    stop_on_wrong_results: bool = False
    asked_by: str = ""
    notes: tuple[str, ...] = ()
