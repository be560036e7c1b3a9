"""A made week as a source of series, without a server."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from week import MINUTE_S, Written

from advisor_audit.sources.prometheus import PAGE_S, Asked
from advisor_audit.sources.series import Series


@dataclass(frozen=True)
class Straight:
    """A week as a source, without a server."""

    written: Written
    lacking: Collection[str] = ()
    url: str = "made"
    step_s: float = MINUTE_S
    page_s: float = PAGE_S
    exporters: frozenset[str] = frozenset(["nvidia-dcgm-exporter"])
    asked: Asked = field(default_factory=Asked)

    @property
    def begin_s(self) -> float:
        """Of the week."""
        return self.written.begin_s

    @property
    def end_s(self) -> float:
        """Of the week."""
        return self.begin_s + self.written.week.minutes * MINUTE_S

    @property
    def metrics(self) -> dict[str, tuple[str, float]]:
        """What is collected."""
        return {k: v for k, v in self.written.metrics.items() if k not in self.lacking}

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """All GPUs at once."""
        return (tuple(map(str, range(self.written.week.gpus))),)

    def read(self, group: int, begin_s: float, end_s: float) -> Iterator[Series]:
        """All series between two moments."""
        begin, end = (round((t - self.begin_s) / MINUTE_S) for t in (begin_s, end_s))
        names = {name for name, _ in self.metrics.values()}
        for one in self.written.series(map(int, self.groups[group]), begin, end):
            if one.metric in names:
                yield one
