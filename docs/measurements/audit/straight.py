"""A made week as a source of series, without a server."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from week import MINUTE_S
from written import Written

from advisor_audit.sources.prometheus import PAGE_S, Asked
from advisor_audit.sources.series import Series


@dataclass
class Straight:
    """A week as a source, all GPUs at once."""

    written: Written
    lacking: Collection[str] = ()
    url: str = "made"
    step_s: float = MINUTE_S
    page_s: float = PAGE_S
    exporters: frozenset[str] = frozenset(["nvidia-dcgm-exporter"])
    asked: Asked = field(default_factory=Asked)
    begin_s: float = field(init=False)
    end_s: float = field(init=False)
    groups: tuple[tuple[str, ...], ...] = field(init=False)
    metrics: dict[str, tuple[str, float]] = field(init=False)

    def __post_init__(self) -> None:
        week = self.written.week
        self.begin_s = self.written.begin_s
        self.end_s = self.begin_s + week.minutes * MINUTE_S
        self.groups = (tuple(map(str, range(week.gpus))),)
        self.metrics = {k: v for k, v in self.written.metrics.items() if k not in self.lacking}

    def read(self, group: int, begin_s: float, end_s: float) -> Iterator[Series]:
        """All series between two moments."""
        begin, end = (round((t - self.begin_s) / MINUTE_S) for t in (begin_s, end_s))
        names = {name for name, _ in self.metrics.values()}
        for one in self.written.series(map(int, self.groups[group]), begin, end):
            if one.metric in names:
                yield one
