"""A reporter that remembers what it was told."""

from dataclasses import dataclass, field

from advisor.core.records import Point
from advisor_profiling.campaign.campaign import Failure


@dataclass
class Watching:
    phases: list[str] = field(default_factory=list)
    points: list[tuple[Point, int, int, float]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        self.points.append((point, done, total, eta_s))

    def failure(self, failure: Failure) -> None:
        self.failures.append(failure)
