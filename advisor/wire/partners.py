"""What a single job can do on its GPU model: beside which jobs, alone, and beside itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.core.interval import Interval
from advisor.frames import Tabular, row_of
from advisor.wire.recommendation import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """One other job, and the best way of sharing with it; parts are against one after the other.

    Attributes:
        split: Shares of the job and of the other, or `uncapped`.
        speed: Relative speed of the job; `partner_speed` is the other's.
        cost_saved: None: no prices are set.
    """

    partner: str
    verdict: Verdict
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
