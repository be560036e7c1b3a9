"""Jobs, measurements, models and the audit log as the service lists them, typed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.client.answers import Json
from advisor.core.records import PairPoint, SoloPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job on one GPU model; a job that was never measured has none.

    Attributes:
        shares: Measured, percent.
        points: How many.
        measured_at: When the last one was.
        flags: Of any of them.
        source: `stored`: measured by the service's owner; `bundled`: came with advisor.
        launchable: The service has a job file of that name.
    """

    job: str
    gpu_model: str | None
    shares: tuple[float, ...]
    points: int
    measured_at: str | None
    flags: tuple[str, ...]
    source: str | None
    launchable: bool
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The solo points that predictions of a job are made from, the newest first.

    Attributes:
        gpu_models: All that it was measured on.
        source: As of `JobRow`.
    """

    job: str
    gpu_models: tuple[str, ...]
    source: str
    points: tuple[SoloPoint, ...]
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPoints:
    """What was measured of two jobs together, the newest first.

    Attributes:
        stored: By the service's owner.
        bundled: Came with advisor.
    """

    jobs: tuple[str, ...]
    stored: tuple[PairPoint, ...]
    bundled: tuple[PairPoint, ...]
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """How many records were sent, and how many of them the service did not have."""

    read: int
    new: int

    def __add__(self, other: "TakenIn") -> "TakenIn":
        return TakenIn(read=self.read + other.read, new=self.new + other.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model of the service.

    Attributes:
        model: What it is called in requests; `bundled` came with advisor.
        champion: Predictions are made with it.
        pairs: How many it was learned from.
        figures: How good it is on jobs that it has not seen.
        error: What is wrong with a damaged one.
    """

    model: str
    champion: bool
    version: str | None
    created_at: str | None
    gpu_models: tuple[str, ...]
    pairs: int | None
    figures: Mapping[str, float]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A promotion, or its taking back; with the figures of the champion since."""

    at: str
    action: str
    version: str
    replaced: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models of the service, the champion first, and what became of them, the newest first."""

    models: tuple[ModelRow, ...]
    history: tuple[Change, ...]
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """All that is known of one model; docs/models.md explains the manifest."""

    model: str
    champion: bool
    manifest: Json
    history: tuple[Change, ...]
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The model that predictions are made with from now on, and the one before."""

    champion: str
    replaced: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line of the audit log: something was begun, done, or ended with the code of an error."""

    number: int | None
    at: str
    who: str
    action: str
    subject: str
    outcome: str
    request_id: str
    client: str
