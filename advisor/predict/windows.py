"""What was measured of jobs together on a GPU model, as predictions take it in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from advisor.core.split import Split
from advisor.predict.profiles import Profile


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs together at one split: a measured window, or a launch.

    Attributes:
        rates: Of each job, in its own unit per second; None: not known.
        gpu_uuid: The card.
        started_at: ISO 8601, UTC.
        is_launch: Observed while jobs did their work.
        is_bundled: It came with advisor.
        latencies_p99_ms: Of each job that answers requests, else None; empty: of none.
    """

    split: Split
    rates: tuple[float | None, ...]
    power_w: float | None
    gpu_uuid: str
    started_at: str = ""
    is_launch: bool = False
    is_bundled: bool = False
    latencies_p99_ms: tuple[float | None, ...] = ()

    def turned(self) -> "Window":
        """The same with the jobs in the opposite order."""
        return replace(
            self,
            split=self.split.turned(),
            rates=self.rates[::-1],
            latencies_p99_ms=self.latencies_p99_ms[::-1],
        )


Windows: TypeAlias = Mapping[tuple[str, ...], Sequence[Window]]
"""By the names of the jobs, in their order, as a window has them."""


def windows_of(profiles: Sequence[Profile], windows: Windows) -> list[Window]:
    """Those of jobs, in the order of the profiles; a job beside itself has each both ways."""
    names = [profile.job for profile in profiles]
    own = list(windows.get(tuple(sorted(names)), ()))
    if len(set(names)) == 1:
        return own + [w.turned() for w in own if w.split != w.split.turned()]
    return own if names == sorted(names) else [w.turned() for w in own]
