"""What launched pairs really did: one frozen record per pair that ran, beside the measured points.

A reading that was not available is None, never 0, as in advisor/core/records.py.
"""

from dataclasses import dataclass, fields

from advisor.core.records import PairPoint, SoloPoint, column, identity

OBSERVATION_WORDS = {
    "mode": ("mps", "cu_mask", "uncapped", "time-sliced"),
    "first_ended": ("job_a", "job_b", "both", "none"),
    "state": ("finished", "stopped", "failed"),
}
"""Columns whose values are one of some words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A launched pair, from the start of the first job to the end of the last.

    Its jobs stand in the order of their names, as in a pair point: who launched them the other
    way round swaps all that belongs to them.
    """

    launch_id: str = column("the launch that the pair belongs to")
    job_a: str = column("name of the first job")
    job_b: str = column("name of the second job")
    gpu_model: str = column("as the driver names it")
    gpu_uuid: str = column("the card")
    mode: str = column(
        "how the GPU was shared: mps or cu_mask (each job under its share), uncapped (MPS without "
        "limits) or time-sliced (no MPS)",
        default="mps",
    )
    share_a_percent: float = column("share asked for the first job; 100 without limits", "%")
    share_b_percent: float = column("share asked for the second job; 100 without limits", "%")
    units_a: int | None = column("SMs or CUs read back for the first job", "units", default=None)
    units_b: int | None = column("SMs or CUs read back for the second job", "units", default=None)
    rate_unit_a: str = column("what one step of the first job is", default="steps")
    rate_unit_b: str = column("what one step of the second job is", default="steps")
    rate_a: float | None = column(
        "progress of the first job per second, mean over the overlap", "rate_unit_a/s", default=None
    )
    rate_b: float | None = column(
        "progress of the second job per second, mean over the overlap",
        "rate_unit_b/s",
        default=None,
    )
    solo_rate_a: float | None = column(
        "rate of the first job alone on the whole GPU, from its profile",
        "rate_unit_a/s",
        default=None,
    )
    solo_rate_b: float | None = column(
        "rate of the second job alone on the whole GPU, from its profile",
        "rate_unit_b/s",
        default=None,
    )
    solo_power_a_w: float | None = column(
        "power of the GPU while the first job runs alone on all of it, from its profile",
        "W",
        default=None,
    )
    solo_power_b_w: float | None = column("as solo_power_a_w, of the second job", "W", default=None)
    power_w: float | None = column("mean of the GPU over the overlap", "W", default=None)
    energy_j: float | None = column("of the GPU over the overlap", "J", default=None)
    overlap_s: float = column("how long both jobs ran together", "s")
    work_per_joule: float | None = column(
        "sum of relative speeds over power, over the overlap", "1/J", default=None
    )
    energy_saved: float | None = column(
        "part of the energy saved for the same work, against one after the other, over the "
        "overlap; below 0 sharing cost energy",
        default=None,
    )
    first_ended: str = column(
        "job_a, job_b or both; none: both ran until they were stopped", default="none"
    )
    rest_s: float | None = column(
        "how long one job went on after the other had ended", "s", default=None
    )
    rest_energy_j: float | None = column("of the GPU in that time", "J", default=None)
    rest_energy_saved: float | None = column(
        "as energy_saved, of the work in that time, against the whole GPU", default=None
    )
    energy_saved_to_end: float | None = column(
        "as energy_saved, from the start to the end of the last job", default=None
    )
    stranded_unit_s: float = column(
        "SMs or CUs held for a job that had ended, times seconds", "unit s", default=0.0
    )
    model_version: str | None = column("the model that predicted", default=None)
    predicted_rate_a: float | None = column(
        "what it expected of the first job", "rate_unit_a/s", default=None
    )
    predicted_rate_b: float | None = column(
        "what it expected of the second job", "rate_unit_b/s", default=None
    )
    predicted_power_w: float | None = column("what it expected of the power", "W", default=None)
    predicted_work_per_joule: float | None = column(
        "what it expected of work_per_joule", "1/J", default=None
    )
    predicted_energy_saved: float | None = column("what it expected of energy_saved", default=None)
    predicted_rest_energy_saved: float | None = column(
        "what the profile of the job that went on says of rest_energy_saved", default=None
    )
    results_a: str | None = column(
        "the first job's own results against those at the full GPU: right, wrong or differ",
        default=None,
    )
    results_b: str | None = column("as results_a, of the second job", default=None)
    state: str = column("how it ended: finished, stopped or failed")
    started_at: str = column("start of the pair, ISO 8601, UTC")
    host: str | None = column("name of the host", default=None)
    tool_version: str | None = column("version of advisor", default=None)
    flags: tuple[str, ...] = column("what was wrong; empty is good", default=())

    @property
    def pair(self) -> tuple[str, str]:
        """Names of the two jobs."""
        return self.job_a, self.job_b

    @property
    def point_id(self) -> str:
        """Stable identity: the same observation has the same id wherever it is brought in."""
        return identity(self.launch_id, *self.pair, self.gpu_uuid, self.started_at)


Record = SoloPoint | PairPoint | Observation
"""What stores and files keep."""

OBSERVATION_COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(Observation))
