"""What is known of the power of one operation, as `advisor power kernel --json` says it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval; without bounds where one value is all there is."""

    value: float
    low: float | None
    high: float | None

    def times(self, factor: float) -> "Estimate":
        """The same of something that is so many times as much."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(self.value * factor, low, high)

    def text(self, shown: Callable[[float], str]) -> str:
        """Value [low, high], each as `shown`; the value alone where it has no bounds."""
        if self.low is None or self.high is None:
            return shown(self.value)
        return f"{shown(self.value)} [{shown(self.low)}, {shown(self.high)}]"


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many runs had which execution time; one more edge than counts."""

    edges_ms: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveBin:
    """One bin of the curve.

    Attributes:
        begin_ms: Since the start of the run.
        end_ms: Since the start of the run.
        power_w: Deconvolved.
        low_w: Of its 95 % band.
        high_w: Of its 95 % band.
        raw_w: Mean of what was read meanwhile; None where nothing was.
        readings: Whose window ended in the bin.
    """

    begin_ms: float
    end_ms: float
    power_w: float
    low_w: float
    high_w: float
    raw_w: float | None
    readings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The second instrument beside the first, over the same executions.

    Attributes:
        first: Execution from which on they are compared, counted from 1.
        last: Execution up to which they are compared.
        counter: Estimate of one execution, by difference of the counter.
        curve_j: The same by the curve; None where there is none.
        differ: (counter - curve) / curve.
    """

    first: int
    last: int
    counter: Estimate
    curve_j: float | None = None
    differ: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchPower:
    """The operation without a gap for seconds.

    Attributes:
        power_w: Of the whole GPU, from instant readings; None where the stretch cannot be used.
        memory_power_w: Of the memory's own sensor over the same time, mean between the lowest and
            the highest reading; None where it says nothing.
        no_memory_power: Why.
        execution_ms: Median.
        seconds: Length of the stretch.
        tensor_active_percent: Mean over the stretch; None where there is no such counter.
        dram_active_percent: As above.
        power_capped: Whether the power limit held the clock back.
    """

    power_w: Estimate | None
    memory_power_w: Estimate | None
    no_memory_power: str
    execution_ms: float
    seconds: float
    tensor_active_percent: float | None
    dram_active_percent: float | None
    power_capped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured on which card.

    Attributes:
        measured_at: ISO 8601, UTC.
    """

    gpu_model: str
    gpu_uuid: str
    driver: str
    measured_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport(Measurement):
    """Power and energy of one operation on one card, with all that one must know to use them.

    Attributes:
        before_w: Power before the runs; None where no reading fell there.
        execution_ms: Median execution time of golden runs from SSE on.
        sse_execution: First execution after which times fall no further, counted from 1.
        sse_power_w: Power of that execution with its interval, by the curve.
        ssp_execution: Executions of the shortest run that ends in steady power; None where none
            was found.
        ssp_power_w: Power at the end of such runs.
        settled_power_w: In the 50 ms after what was before has left the sensor, by the curve; None
            where there is no curve, or runs are shorter than that.
        sse_energy_j: Of the execution at SSE.
        ssp_energy_j: Of one execution in steady power.
        difference: By the energy counter; None where that says nothing.
        no_difference: Why.
        histogram: Execution times of the runs.
        bin_low_ms: Of the bin whose runs are golden.
        bin_high_ms: Of the bin whose runs are golden.
        runs: Made.
        golden_runs: Used.
        dropped: Number by reason.
        resolution_ms: Width of the curve's bins.
        sigma_w: sqrt(2) * (W / delta) * sigma_R / sqrt(m), with the readings m that there are.
        curve: Empty where there are not enough golden runs, or where it is not to be believed: its
            band leaves what a GPU can draw, or the energy counter says something else.
        no_curve: Why.
        stretch: Without a gap for seconds; None where another operation was before the runs.
        units: SMs that it had.
        launches: Of the operation in one execution.
        captured: Whether an execution is one CUDA graph.
        launch_flop: Floating point operations of one launch, by definition; None: not known.
        launch_bytes: That its operands hold, each once; None: not known.
        before: What ran before each run.
        libraries: Versions by name.
        window_ms: Of the sensor, as its record says; so are delay, noise and period.
        gpu_busy_s: Executions alone, those that looked for the length of a run not counted.
        seconds: Wall time of the command that measured it.
        launch_energy_j: Of one launch of the operation in steady power.
        source: live, replay or bundled.
    """

    before_w: float | None
    execution_ms: float
    sse_execution: int
    sse_power_w: Estimate | None
    ssp_execution: int | None
    ssp_power_w: Estimate | None
    settled_power_w: Estimate | None
    sse_energy_j: Estimate | None
    ssp_energy_j: Estimate | None
    difference: Difference | None
    no_difference: str
    histogram: Histogram
    bin_low_ms: float
    bin_high_ms: float
    runs: int
    golden_runs: int
    dropped: Mapping[str, int]
    resolution_ms: float
    sigma_w: float | None
    curve: tuple[CurveBin, ...]
    no_curve: str
    stretch: StretchPower | None
    operation: str
    units: int | None
    launches: int
    captured: bool
    launch_flop: float | None
    launch_bytes: float | None
    before: str
    libraries: Mapping[str, str]
    window_ms: float
    delay_ms: float
    noise_w: float
    period_ms: float
    gpu_busy_s: float
    seconds: float
    launch_energy_j: Estimate | None
    source: str = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReports:
    """Operations whose power was measured, the newest first.

    Attributes:
        next: The `cursor` of the next page; None: this is the last one.
    """

    kernels: tuple[KernelReport, ...]
    next: str | None
