"""What comes of a campaign, what it costs, and what watches while it runs."""

from dataclasses import astuple, dataclass
from typing import Protocol

from advisor.core.records import Point
from advisor.errors import AdvisorError
from advisor_profiling.window.targets import Target


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that could not be measured.

    Attributes:
        error: The whole message, with where to look.
        reason: The same in a line without paths, as a point keeps it.
        cause: What was raised.
    """

    target: Target
    error: str
    reason: str = ""
    cause: AdvisorError | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a campaign took on one GPU.

    Attributes:
        duration_s: From its first process's start to its last window's end.
        measuring_s: Of it, time with a job running in a window or settling for one.
        window_s: Of it, time inside windows.
        starting_s: Time in which processes were ended and started.
        waiting_s: Time in which the windows and starts of other GPUs of the host were waited for.
        starts: Processes that were started.
    """

    duration_s: float = 0.0
    measuring_s: float = 0.0
    window_s: float = 0.0
    starting_s: float = 0.0
    waiting_s: float = 0.0
    starts: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        mine, others = astuple(self), astuple(other)
        return Cost(*(a + b for a, b in zip(mine, others, strict=True)))


@dataclass(frozen=True, slots=True)
class CampaignOutcome:
    """What was measured in this process; points of an earlier part are in the store."""

    points: tuple[Point, ...]
    failures: tuple[Failure, ...]
    cost: Cost


class Reporter(Protocol):
    """What watches a campaign."""

    def phase(self, text: str) -> None:
        """Something begins that takes a while."""
        ...

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        """A point was measured and written."""
        ...

    def failure(self, failure: Failure) -> None:
        """A window failed for good."""
        ...
