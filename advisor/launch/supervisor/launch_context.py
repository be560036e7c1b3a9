"""What a launch needs of its host; the command line makes it of drivers, locks and daemons."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from advisor.core.gpu import Gpu
from advisor.core.observations import Observation
from advisor.core.split import Sharing
from advisor.core.telemetry import TelemetrySource
from advisor.runtime.backends.backend import Backend

LAUNCH_MARK = "ADVISOR_LAUNCH"
"""Every job of a launch carries the folder of its launch in this variable, so that it is found."""


class Guard(Protocol):
    """Ends the jobs of a launch, should its supervisor be killed or hang."""

    def beat(self) -> bool:
        """Say that the supervisor lives; whether the guard was gone, and another one watches."""
        ...

    def close(self) -> None:
        """The jobs are over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """A GPU that is held for one launch.

    Attributes:
        source: Telemetry of the GPU.
        environment: Of jobs, without limits and without secrets.
        open_backend: What enforces the shares of a pair; closed with each pair.
        guard: Watches over the jobs that this back-end limits.
        remember: Keeps an observation where others find it; may fail without harm.
    """

    gpu: Gpu
    source: TelemetrySource
    environment: Mapping[str, str]
    open_backend: Callable[[Sharing], Backend]
    guard: Callable[[Backend], Guard]
    remember: Callable[[Observation], None]
