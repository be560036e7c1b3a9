"""The result of one operation with all that one must know to use it."""

from dataclasses import dataclass
from typing import Any

from advisor.formats.wire import to_plain
from advisor_profiling.kernels.estimates import Estimate
from advisor_profiling.kernels.result import KernelPower


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """One operation on one card.

    Attributes:
        units: SMs that it had.
        launches: Of the operation in one execution.
        captured: Whether an execution is one CUDA graph.
        launch_flop: Floating point operations of one launch, by definition; None: not known.
        launch_bytes: That its operands hold, each once; None: not known.
        before: What ran before each run.
        libraries: Versions by name.
        window_ms: Of the sensor, as its record says; so are delay, noise and period.
        gpu_busy_s: Executions alone, those that looked for the length of a run not counted.
        seconds: Wall time of this command.
        measured_at: ISO 8601, UTC.
    """

    operation: str
    gpu_model: str
    gpu_uuid: str
    driver: str
    units: int | None
    launches: int
    captured: bool
    launch_flop: float | None
    launch_bytes: float | None
    before: str
    libraries: dict[str, str]
    window_ms: float
    delay_ms: float
    noise_w: float
    period_ms: float
    gpu_busy_s: float
    seconds: float
    measured_at: str
    power: KernelPower

    @property
    def launch_energy_j(self) -> Estimate | None:
        """Of one launch of the operation in steady power."""
        found = self.power.ssp_energy_j
        return found and found.times(1 / self.launches)

    def as_json(self) -> dict[str, Any]:
        """All of it on one level."""
        plain: dict[str, Any] = to_plain(self)
        power = plain.pop("power")
        return {**plain, "launch_energy_j": to_plain(self.launch_energy_j), **power}
