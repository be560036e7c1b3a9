"""What launched jobs really did: one frozen record per group that ran, next to the measured points.

A reading that was not available is None, never 0, as in advisor/core/records.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.core.flags import DOUBTFUL
from advisor.core.interval import Interval
from advisor.core.records import (
    PairPoint,
    PointPart,
    SoloPoint,
    column,
    identity,
    in_name_order,
    reading,
)

SETTLE_S = 3.0
"""The first seconds together are in no mean: clocks and caches find their level."""

JUDGE_S = 5.0
"""Means of a shorter time are not held against a prediction."""

MARGIN = 0.1
"""Within a tenth of the expected value a prediction was good, however narrow its interval."""

OBSERVATION_WORDS = {
    "mode": ("mps", "cu_mask", "uncapped", "time-sliced"),
    "state": ("finished", "stopped", "failed"),
}
"""Columns whose values are one of some words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPart:
    """What one job of a launch did next to the others."""

    job: str = column("name of the job")
    share_percent: float = column("share asked for; 100 without limits", "%")
    units: int | None = reading("SMs or CUs read back under the limit", "units")
    rate: float | None = reading("progress per second, mean over the overlap", "rate_unit/s")
    rate_unit: str = column("what one step of progress is", default="steps")
    solo_rate: float | None = reading(
        "rate alone on the whole GPU, from the profile", "rate_unit/s"
    )
    solo_power_w: float | None = reading(
        "power of the GPU while the job runs alone on all of it, from the profile", "W"
    )
    predicted_rate: float | None = reading("what the model expected", "rate_unit/s")
    results: str | None = reading(
        "the job's own results against those at the full GPU: right, wrong or differ"
    )
    job_hash: str | None = reading("SHA-256 of the job's fields, first 16 digits")
    libraries: str | None = reading(
        "versions of the GPU libraries that it had loaded: cublas 130100, torch 2.11.0"
    )
    rest_rate: float | None = reading(
        "progress per second after another job had ended, under the limit that stayed",
        "rate_unit/s",
    )
    latency_p50_ms: float | None = reading("median time to answer a request", "ms")
    latency_p99_ms: float | None = reading("99th percentile of the time to answer a request", "ms")
    energy_j: float | None = reading(
        "part of the GPU's energy over the overlap that is the job's, by a rule", "J"
    )
    energy_low_j: float | None = reading("least that it can be", "J")
    energy_high_j: float | None = reading("most that it can be", "J")
    ended_first: bool = column(
        "ended by itself before the others, or together with others; of no job: all ran until "
        "they were stopped",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Jobs that were launched together, from the start of the first to the end of the last.

    Attributes:
        parts: One for each job, in the order of their names, as in a pair point.
    """

    launch_id: str = column("the launch that the jobs belong to")
    stretch: int = column(
        "0: of all jobs, from the start; 1 and more: of those, two at least, who were left after "
        "an end; their time and energy are in the rest of 0, too",
        default=0,
    )
    parts: tuple[ObservedPart, ...]
    gpu_model: str = column("as the driver names it")
    gpu_uuid: str = column("the card")
    units_total: int | None = reading("SMs or CUs of the whole GPU", "units")
    power_limit_w: float | None = reading("enforced power limit", "W")
    driver: str | None = reading("GPU driver version")
    mode: str = column(
        "how the GPU was shared: mps or cu_mask (each job under its share), uncapped (MPS without "
        "limits) or time-sliced (no MPS)",
        default="mps",
    )
    power_w: float | None = reading("mean of the GPU over the overlap", "W")
    energy_j: float | None = reading("of the GPU over the overlap", "J")
    overlap_s: float = column("how long both jobs ran together", "s")
    settled_s: float | None = reading(
        "part of the overlap that rates and power_w are means of, after its first seconds", "s"
    )
    work_per_joule: float | None = reading(
        "sum of relative speeds over power, over the overlap", "1/J"
    )
    energy_saved: float | None = reading(
        "part of the energy saved for the same work, against one after the other, over the "
        "overlap; below 0 sharing cost energy"
    )
    rest_s: float | None = reading("how long one job went on after the other had ended", "s")
    rest_energy_j: float | None = reading("of the GPU in that time", "J")
    rest_energy_saved: float | None = reading(
        "as energy_saved, of the work in that time, against the whole GPU"
    )
    energy_saved_to_end: float | None = reading(
        "as energy_saved, from the start to the end of the last job"
    )
    stranded_unit_s: float = column(
        "SMs or CUs held for a job that had ended, times seconds", "unit s", default=0.0
    )
    model_version: str | None = reading("the model that predicted")
    predicted_power_w: float | None = reading("what it expected of the power", "W")
    predicted_work_per_joule: float | None = reading("what it expected of work_per_joule", "1/J")
    predicted_energy_saved: float | None = reading("what it expected of energy_saved")
    predicted_rest_energy_saved: float | None = reading(
        "what the profile of the job that went on says of rest_energy_saved"
    )
    state: str = column("how it ended: finished, stopped or failed")
    started_at: str = column("start of the pair, ISO 8601, UTC")
    host: str | None = reading("name of the host")
    tool_version: str | None = reading("version of advisor")
    written_by: str | None = reading("who sent it to a service, which signs it; empty: none did")
    flags: tuple[str, ...] = column("what was wrong; empty is good", default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", in_name_order(self.parts))

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs."""
        return tuple(part.job for part in self.parts)

    @property
    def point_id(self) -> str:
        """Stable identity: the same observation has the same id wherever it is brought in."""
        key = self.launch_id, *self.jobs, self.gpu_uuid, self.started_at
        return identity(*key, written_by=self.written_by)


Part = PointPart | ObservedPart
"""What records say of one of several jobs."""

Record = SoloPoint | PairPoint | Observation
"""What stores and files keep."""

PARTS: Mapping[type[Record], type[Part]] = {PairPoint: PointPart, Observation: ObservedPart}
"""Kinds of records that have parts, and of what kind these are."""


def doubt(seen: Observation) -> str | None:
    """Why an observation says nothing of what the jobs do at that split; None: it does."""
    if seen.state == "failed":
        return "it failed"
    if seen.overlap_s < SETTLE_S + JUDGE_S:
        return f"under {SETTLE_S + JUDGE_S:g} s together"
    if any(part.results in ("wrong", "differ") for part in seen.parts):
        return "results were wrong"
    return next((flag for flag in seen.flags if flag in DOUBTFUL), None)


def energy_to_end_j(seen: Observation) -> float | None:
    """Of the GPU to the end of the last job; None where a part of it was not read."""
    if seen.energy_j is None or (seen.rest_s and seen.rest_energy_j is None):
        return None
    return seen.energy_j + (seen.rest_energy_j or 0.0)


def energy_apart_j(seen: Observation) -> float | None:
    """What the same work takes one after the other, by the profiles."""
    whole_j, saved = energy_to_end_j(seen), seen.energy_saved_to_end
    return None if whole_j is None or saved is None or saved >= 1 else whole_j / (1 - saved)


def is_far(observed: float, predicted: Interval) -> bool:
    """Whether a value is outside of its interval, and by more than the margin off its middle."""
    outside = not predicted.low <= observed <= predicted.high
    return outside and abs(observed - predicted.value) > MARGIN * abs(predicted.value)
