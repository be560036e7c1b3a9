"""What is said of jobs, measurements, models and the audit log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from advisor.core.records import Observation, PairPoint, SoloPoint

PointsOrigin = Literal["stored", "bundled"]
"""Measured here, or came with advisor."""

Action = Literal["promote", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job on one GPU model; a job that was never measured has none.

    Attributes:
        shares: Measured, percent.
        points: How many.
        measured_at: When the last one was, ISO 8601, UTC.
        flags: Of any of them.
        launchable: There is a job file of that name.
    """

    job: str
    gpu_model: str | None = None
    shares: tuple[float, ...] = ()
    points: int = 0
    measured_at: str | None = None
    flags: tuple[str, ...] = ()
    source: PointsOrigin | None = None
    launchable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """The jobs that are defined or measured, by name."""

    jobs: tuple[JobRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePoints:
    """The solo points that a job's profile is made of, the newest first.

    Attributes:
        gpu_models: All that it was measured on.
        next: The `cursor` of the next page; None: this is the last one.
    """

    job: str
    gpu_models: tuple[str, ...]
    source: PointsOrigin
    points: tuple[SoloPoint, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPoints:
    """What was measured of jobs together, the newest first.

    Attributes:
        jobs: Their names, in order.
        stored: Measured here.
        bundled: Came with advisor.
        next: The `cursor` of the next page; None: this is the last one.
    """

    jobs: tuple[str, ...]
    stored: tuple[PairPoint, ...]
    bundled: tuple[PairPoint, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What launched jobs really did, the newest first.

    Attributes:
        next: The `cursor` of the next page; None: this is the last one.
    """

    observations: tuple[Observation, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How many points are stored now."""

    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """How many points are gone."""

    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """How many records came, and how many of them were new."""

    read: int
    new: int

    def __add__(self, other: "TakenIn") -> "TakenIn":
        return TakenIn(read=self.read + other.read, new=self.new + other.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsTakenIn(TakenIn):
    """The same of each kind."""

    solo: TakenIn
    pairs: TakenIn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model.

    Attributes:
        model: What it is called in requests; `bundled` came with advisor.
        champion: Predictions are made with it.
        pairs: How many it was learned from.
        figures: How good it is on jobs that it has not seen.
        error: What is wrong with a damaged one.
    """

    model: str
    champion: bool
    version: str | None = None
    created_at: str | None = None
    gpu_models: tuple[str, ...] = ()
    pairs: int | None = None
    figures: Mapping[str, float]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionChange:
    """One change of the champion: a promotion, or its taking back.

    Attributes:
        at: ISO 8601, UTC.
        version: The champion since; `replaced` is the one before.
        figures: Of the champion since.
    """

    at: str
    action: Action
    version: str
    replaced: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """The models, the champion first, and what became of them, the newest first."""

    models: tuple[ModelRow, ...]
    history: tuple[ChampionChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDetails:
    """All that is known of one model; docs/models.md explains the manifest."""

    model: str
    champion: bool
    manifest: Mapping[str, Any]
    history: tuple[ChampionChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The model that predictions are made with from now on, and the one before."""

    champion: str
    replaced: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Something that was begun, or how it ended. None of it may hold a secret.

    Attributes:
        at: ISO 8601, UTC.
        who: Name of a token, or of a user of the host.
        action: What was asked for, such as `profile.replace`.
        subject: What it was done to, such as a job or a launch.
        outcome: `begun`, `done`, or the code of the error.
        request_id: As in the log of the service; empty at the command line.
        client: Address that the request came from; empty at the command line.
        number: Place in the log, from 1; the log gives it.
    """

    at: str
    who: str
    action: str
    subject: str
    outcome: str
    request_id: str = ""
    client: str = ""
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLog:
    """The newest first."""

    entries: tuple[AuditEntry, ...]
