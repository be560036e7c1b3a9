"""What was seen of a workload, all its pods together."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from advisor_audit.phases import Segment
from advisor_audit.sources.series import ACTIVITY, POWER, USED, Owner, workload_name

SERVER_SPREAD, SERVER_S = 0.3, 1800.0
"""What looks like a server: its activity goes up and down by so much of its mean, from minute to
minute, for so long. Training that is steady does not."""


class Workload(NamedTuple):
    """All pods of one name, or one batch job."""

    group: str
    name: str

    @property
    def known_as(self) -> str:
        """The name of its profile: as `advisor profile --name` is told it."""
        return self.name.removeprefix("job ")


def workload_of(owner: Owner) -> Workload:
    """The name without what is made up for each pod."""
    return Workload(owner.group, workload_name(owner.name))


@dataclass(slots=True)
class SeenWorkload:
    """What was seen of a workload.

    Attributes:
        activity: Seconds, mean, and sum of squared deviations times seconds.
        memory_mib: The most of one pod.
        pods: Hashes of their names: a name has fifty times as many bytes.
    """

    model: str = ""
    busy_s: float = 0.0
    paused_s: float = 0.0
    activity: tuple[float, float, float] = (0.0, 0.0, 0.0)
    energy_j: float = 0.0
    memory_mib: float = 0.0
    pods: set[int] = field(default_factory=set[int])

    @property
    def spread(self) -> float:
        """Standard deviation of its activity over the mean."""
        seconds, mean, squares = self.activity
        return math.sqrt(squares / seconds) / mean if mean > 0 else 0.0

    @property
    def is_server(self) -> bool:
        """Whether it looks like one."""
        return self.spread >= SERVER_SPREAD and self.activity[0] >= SERVER_S

    def add(self, one: Segment) -> None:
        """One more segment of it."""
        span_s = one.end_s - one.begin_s
        self.model = one.model
        self.pods.add(hash(one.owner))
        self.memory_mib = max(self.memory_mib, one.means.get(USED, 0.0))
        self.energy_j += span_s * one.means.get(POWER, 0.0)
        active = activity_of(one)
        if one.state == "paused":
            self.paused_s += span_s
        else:
            self.busy_s += span_s
            if active is not None:
                inside = (one.spread * active) ** 2
                self.activity = _joined(self.activity, one.seen_s, active, inside)


def activity_of(one: Segment) -> float | None:
    """Percent; None: it was not read."""
    return next((one.means[name] for name in ACTIVITY if name in one.means), None)


def _joined(
    before: tuple[float, float, float], seconds: float, mean: float, variance: float
) -> tuple[float, float, float]:
    total = before[0] + seconds
    if total <= 0:
        return before
    away = mean - before[1]
    squares = before[2] + variance * seconds + away * away * before[0] * seconds / total
    return total, before[1] + away * seconds / total, squares
