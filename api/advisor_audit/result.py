"""What an audit says, as programs read it.

Three words are kept apart everywhere: `measured` is what the series show, `estimated` what follows
from one window of a job on the whole GPU, and `predicted` what follows from its full profile. Both
of the latter are for a launch to prove.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.core.interval import Interval

AuditBasis: TypeAlias = Literal["measured", "estimated", "predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpan:
    """What was read.

    Attributes:
        slot_s: Length of the slots in which jobs are packed.
        requests: Asked of the server.
        waits: How often it was busy, or not there.
    """

    source: str
    begin: str
    end: str
    step_s: float
    slot_s: float
    within: str
    objective: str
    min_speed: float
    requests: int
    received_bytes: int
    waits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What jobs hold today, measured.

    Attributes:
        gpus: That were seen at all.
        cards: Held at the same time, at most.
        gpu_hours: Held.
        paused_hours: Of these without any work.
        free_hours: Held by nobody, outside of everything here.
        kwh: Of the GPUs while they are held; None: no power was read.
        cost: None: nothing has a price, or no power was read.
    """

    gpus: int
    cards: int
    gpu_hours: float
    paused_hours: float
    free_hours: float
    unseen_hours: float
    kwh: float | None
    free_kwh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the same work would have taken, with ranges of 90 %.

    Attributes:
        cards: That would have been enough.
        kwh: With freed cards off; None: no power was read.
        kwh_idle: With freed cards idle; as `kwh`.
        apart_hours: GPU hours of jobs that stay as they are, by why.
    """

    basis: AuditBasis
    cards: Interval
    gpu_hours: Interval
    kwh: Interval | None
    kwh_idle: Interval | None
    cost: Interval | None
    predicted_hours: float
    apart_hours: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSet:
    """Jobs that could have shared a card.

    Attributes:
        hours: In which they ran at the same time and are taken to share.
        speeds: Of each, relative to its own alone.
        limits_percent: MPS share of each; 100 is no limit.
        saved_w: For the same work, freed cards off.
    """

    basis: AuditBasis
    jobs: tuple[str, ...]
    group: str
    gpu_model: str
    hours: float
    speeds: tuple[float, ...]
    limits_percent: tuple[float, ...]
    power_w: float
    saved_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job as it was seen.

    Attributes:
        basis: What its speeds beside others are from.
        activity_percent: Of the SMs, else of the GPU, at work; measured. None: not read.
        fills: Whether it fills the card; None: nobody knows.
        is_server: Whether it looks like one.
        several_gpus: Whether it held several at once: it is left as it is.
        shared_hours: Of its GPU hours those in which it could share.
        tail: Times its p99 alone beside the others, of what looks like a server; None: alone.
    """

    basis: AuditBasis
    job: str
    group: str
    gpu_model: str
    pods: int
    gpu_hours: float
    paused_hours: float
    kwh: float
    activity_percent: float | None
    spread: float
    memory_mib: float
    fills: bool | None
    is_server: bool
    several_gpus: bool
    shared_hours: float
    tail: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextProfile:
    """A job whose profile would narrow the ranges."""

    job: str
    group: str
    shared_hours: float
    part_of_doubt: float
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All of it.

    Attributes:
        left_out: Jobs that are not listed, since there are many.
        not_seen: Sentences: what the series do not show.
        to_prove: Sentences: what only a launch would show.
    """

    made_at: str
    span: ReadSpan
    now: Now
    shared: Shared
    sets: tuple[SharingSet, ...]
    jobs: tuple[SeenJob, ...]
    left_out: int
    profile_next: tuple[NextProfile, ...]
    not_seen: tuple[str, ...]
    to_prove: tuple[str, ...]
