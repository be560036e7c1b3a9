"""What is said of launches. docs/launch.md explains each key."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from advisor.core.job import WhenOneEnds
from advisor.core.split import Sharing
from advisor.launch.records.history import History
from advisor.launch.records.joins import JoinAnswer
from advisor.launch.records.spec import Forecast
from advisor.launch.records.status import LaunchStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(LaunchStatus):
    """A launch at one moment, as the service tells it.

    Attributes:
        host: Name of the host on which it runs; only a service there can stop it.
    """

    host: str


def launch_of(status: LaunchStatus, host: str) -> Launch:
    """A status with the host that it is of."""
    return Launch(host=host, **{f.name: getattr(status, f.name) for f in fields(LaunchStatus)})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJoin(JoinAnswer):
    """A job that joins a launch, as the service tells it.

    Attributes:
        state: `asked` until its supervisor has answered.
        notes: What was said of it before the supervisor was asked.
    """

    launch_id: str
    join_id: str
    state: Literal["asked", "joined", "refused"]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchHistory:
    """What a launch did over its time.

    Attributes:
        history: None: it has just begun, is of another host, or its folder was removed.
    """

    launch_id: str
    history: History | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchList:
    """The newest first."""

    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLaunches:
    """The launches of one host, the newest first."""

    launches: tuple[LaunchStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job of a launch that is planned.

    Attributes:
        units: SMs or CUs that its share comes to; None: not known before it starts.
        environment: Variables that limit it; at the command line all that it gets.
        command: As its file says; None over the network, as is `workdir`.
    """

    job: str
    rate_unit: str
    share_percent: float
    units: int | None
    environment: Mapping[str, str]
    command: tuple[str, ...] | None = None
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMemory:
    """Memory that the jobs need and may fill, MiB.

    Attributes:
        needs_mib: Of each job; None where it is not known.
        most_mib: What they may fill of the card; None: not known.
        fits: None where that is not known.
    """

    needs_mib: tuple[float | None, ...]
    most_mib: float | None
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPair:
    """Jobs that would share the GPU, and what is expected of them.

    Attributes:
        split: Shares as people write them, `uncapped` or `time-sliced`.
        forecast: None: no profile or no model was at hand.
    """

    split: str
    sharing: Sharing
    jobs: tuple[PlannedJob, ...]
    memory: PlannedMemory
    forecast: Forecast | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What a launch would run; nothing was started.

    Attributes:
        gpu: Index or UUID, as it was asked for.
        gpu_model: None: no GPU was seen.
        notes: What the caller should know.
    """

    dry_run: Literal[True] = True
    gpu: str
    gpu_uuid: str | None
    gpu_model: str | None
    when_one_ends: WhenOneEnds
    duration_s: float | None
    hang_s: float | None
    pairs: tuple[PlannedPair, ...]
    notes: tuple[str, ...]
