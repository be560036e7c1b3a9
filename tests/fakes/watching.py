"""A reporter that remembers what it was told."""

from dataclasses import dataclass, field

from advisor.records import SoloPoint
from advisor_profiling.sweep import Failure


@dataclass
class Watching:
    """Everything that a sweep said, in order."""

    phases: list[str] = field(default_factory=list)
    points: list[tuple[SoloPoint, int, int, float]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def point(self, point: SoloPoint, done: int, total: int, eta_s: float) -> None:
        self.points.append((point, done, total, eta_s))

    def failure(self, failure: Failure) -> None:
        self.failures.append(failure)
