"""What is known of the power of operations, of inputs and of sensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from advisor.core.objectives import Interval
from advisor.wire.requests import Bounds, GpuModel


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


FEATURES = (
    "a_weight", "a_along", "a_across", "a_signs", "a_zeros", "a_distinct",
    "b_weight", "b_along", "b_across", "b_signs", "b_zeros", "b_distinct",
    "product_weight", "product_switching", "product_signs", "zero_products",
    "sum_switching", "sum_non_finite",
)  # fmt: skip
"""The numbers of a fingerprint, those of both operands with their letter; each from 0 to 1."""

MatrixSide: TypeAlias = Annotated[int, Bounds(ge=1, le=2**31 - 1)]
Fraction: TypeAlias = Annotated[float, Bounds(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFingerprint:
    """What the matrices of a job hold.

    Attributes:
        dtype: What it computes in.
        operands: Canonical text of the input language.
        features: By the names of `FEATURES`.
    """

    dtype: str
    operands: str
    features: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product as it runs: its data, how fast and on what.

    Attributes:
        shape: (m, n, k).
        units: SMs that it runs on.
        features: By the names of `FEATURES`.
        idle_w: Power of the same GPU without the product.
        flop_per_s: Operations of the product per second; of int8 the same count of integer ones.
        clock_mhz: Mean clock of the SMs.
    """

    gpu_model: str
    dtype: str
    shape: tuple[int, int, int]
    units: int
    features: Mapping[str, float]
    idle_w: float
    flop_per_s: float
    clock_mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPoint(Product):
    """One measured input.

    Attributes:
        gpu_uuid: The card.
        driver: Its version.
        torch: The version of PyTorch that computed it.
        measured_at: Begin of the window, ISO 8601, UTC.
        expression: The canonical text of both operands.
        group: What is left out as one: the pattern of the operands, or the file of a tensor.
        real: Its operands are from a file, not drawn.
        is_reference: It is the reference: normal random numbers, measured again and again.
        power_w: Of the GPU.
        reference_w: Power of the same reference product shortly before or after; None: there was
            none, or its clock was held back.
        power_limit_w: None: not known.
        at_limit: The power limit held the clock back.
        throttled: Something else did, such as heat. The clock is then told by the rate: read a few
            times a second, one that goes up and down is off by some percent.
    """

    gpu_uuid: str
    driver: str = ""
    torch: str = ""
    measured_at: str
    expression: str
    group: str
    real: bool = False
    is_reference: bool = False
    power_w: float
    reference_w: float | None = None
    power_limit_w: float | None = None
    at_limit: bool = False
    throttled: bool = False

    @property
    def held_back(self) -> bool:
        """Whether the clock was: then data show as speed."""
        return self.at_limit or self.throttled


@dataclass(frozen=True, slots=True, kw_only=True)
class InputQuery:
    """A product whose power is asked for: its operands as text, or their fingerprint.

    Attributes:
        operands: In the input language; None: `features` are given.
        features: Fingerprint of both matrices, as `advisor power input --predict --json` prints it.
        shape: m, n, k: A is m by k, B is k by n.
        dtype: What it computes in.
        units: SMs; None: the most that were measured.
        gpu_model: None: the one that was measured.
    """

    operands: Annotated[str, Bounds(min_length=1, max_length=2000)] | None = None
    features: Mapping[str, Fraction] | None = None
    shape: tuple[MatrixSide, MatrixSide, MatrixSide]
    dtype: Annotated[str, Bounds(pattern=r"^[a-z0-9_]{1,20}$")]
    units: Annotated[int, Bounds(ge=1, le=10_000)] | None = None
    gpu_model: GpuModel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPowerRequest:
    """Products whose power is asked for."""

    inputs: Annotated[tuple[InputQuery, ...], Bounds(min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MostOf:
    """The feature that does most.

    Attributes:
        feature: One of the fingerprint.
        difference_w: How much more than normal random numbers the product draws by it.
    """

    feature: str
    difference_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPrediction:
    """What a product is expected to draw.

    Attributes:
        operands: Canonical text; None: a fingerprint was given.
        features: The fingerprint.
        power_w: Of the GPU, at most its power limit.
        work_per_s: Operations per second.
        energy_j: Of one product.
        usual_ratio: Power over that of normal random numbers.
        at_limit: The power limit is expected to hold the clock back: data show as speed.
        heat_w: Least power at which heat held back the clock of the measured card; None: never.
        most: None: its fingerprint is that of normal random numbers, or these were not measured.
        unmeasured: What of `shape`, `units` and `fingerprint` is unlike all that was measured. The
            intervals do not count what that adds.
    """

    operands: str | None
    shape: tuple[int, int, int]
    dtype: str
    gpu_model: str
    units: int
    features: Mapping[str, float]
    power_w: Interval
    work_per_s: Interval
    energy_j: Interval
    usual_ratio: float | None
    clock_mhz: float
    power_limit_w: float | None
    at_limit: bool
    heat_w: float | None
    most: MostOf | None
    unmeasured: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPredictions:
    """Predictions in the order of the request.

    Attributes:
        model: Version of the model.
        coverage: Part of the measured values that the intervals are to hold.
    """

    model: str
    coverage: float
    predictions: tuple[InputPrediction, ...]


@dataclass(frozen=True, slots=True)
class ReadingError:
    """Relative error of one way to read power, for kernels of one length.

    Attributes:
        median: Of the absolute relative errors.
        p95: Their 95th percentile.
        readings: How many there were.
    """

    kernel_s: float
    way: str
    median: float
    p95: float
    readings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCurve:
    """Readings of one channel while the load was switched, and what its window and delay predict.

    Attributes:
        channel: Its name.
        load: What the load did: step or wave.
        read_s: When each reading was seen, since the beginning of the stretch.
        read_w: What it was; as many.
        times_s: Of the prediction.
        predicted_w: Without noise; as many.
    """

    channel: str
    load: str
    read_s: tuple[float, ...]
    read_w: tuple[float, ...]
    times_s: tuple[float, ...]
    predicted_w: tuple[float, ...]
