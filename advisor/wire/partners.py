"""What jobs can do on a GPU model: beside which others, alone, and beside themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.core.interval import Interval
from advisor.wire.frames import Tabular, row_of
from advisor.wire.recommendation import SharingVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """One other job, and the best way of sharing with it; parts are against one after the other.

    Attributes:
        split: Shares of the job and of the other, or `uncapped`.
        speed: Relative speed of the job; `partner_speed` is the other's.
        cost_saved: None: no prices are set.
    """

    partner: str
    verdict: SharingVerdict
    split: str
    speed: Interval
    partner_speed: Interval
    gpu_time_saved: Interval
    energy_saved: Interval
    cost_saved: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The smallest measured share at which a job alone keeps nearly all of its speed.

    Attributes:
        speed: Relative to the whole GPU.
        latency_p99_ms: Of a job that answers requests; None: not known.
    """

    share_percent: float
    speed: float
    latency_p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partners(Tabular):
    """The best partners of a job, the best first.

    Attributes:
        looked_at: How many jobs were looked at.
        size: None: no share below the whole GPU keeps enough.
        copies_by_memory: How many of the job fit into the memory of the card; None: not known.
    """

    job: str
    gpu_model: str
    looked_at: int
    partners: tuple[Partner, ...]
    size: Size | None
    copies_by_memory: int | None

    def rows(self) -> Iterator[dict[str, Any]]:
        """The partners, the best first."""
        return map(row_of, self.partners)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """A job alone on a GPU model: what it draws, and how its speed follows its share.

    Attributes:
        rate: On the whole GPU, per second, in its unit.
        shares: Measured, percent, ascending.
        speeds: At these shares, relative to the whole GPU.
        size: None: it fills the card, as no share below the whole GPU keeps enough of its speed.
        bundled: Its profile came with advisor.
    """

    job: str
    rate_unit: str
    rate: float
    power_w: float
    shares: tuple[float, ...]
    speeds: tuple[float, ...]
    size: Size | None
    bundled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What pairs of jobs gain on a GPU model, in columns: of hundreds of pairs it is one answer.

    Each of the columns has a value for each pair: of `beside` with each of `jobs`, in their order;
    without it, of the first with itself and all after it, of the second with itself and all after
    it, and so on. Parts saved are against one after the other.

    Attributes:
        jobs: By name; those measured here, then those that came with advisor, as many as are told.
        left_out: How many more jobs there are on this GPU model.
        verdicts: None: nothing keeps every limit.
        splits: Of the way that the verdict is about; None: they do not share.
        speeds: Relative, of both jobs there.
    """

    gpu_model: str
    objective: str
    beside: str | None
    jobs: tuple[JobCurve, ...]
    left_out: int
    verdicts: tuple[SharingVerdict | None, ...]
    splits: tuple[str | None, ...]
    gpu_time_saved: tuple[float | None, ...]
    energy_saved: tuple[float | None, ...]
    speeds: tuple[tuple[float, float] | None, ...]
