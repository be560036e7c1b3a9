"""Power of a matrix product by its data: measured points, what is asked, and what is expected."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from advisor.core.interval import Interval
from advisor.wire.bounds import Bounds, GpuModel

FEATURES = (
    "a_weight", "a_along", "a_across", "a_signs", "a_zeros", "a_distinct",
    "b_weight", "b_along", "b_across", "b_signs", "b_zeros", "b_distinct",
    "product_weight", "product_switching", "product_signs", "zero_products",
    "sum_switching", "sum_non_finite",
)  # fmt: skip
"""The numbers of a fingerprint, those of both operands with their letter; each from 0 to 1."""

MOST_OPERANDS = 2000
"""Characters of operands."""

MOST_INPUTS = 64
"""Products of one request."""

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
class InputAsked:
    """A product whose power is asked for: its operands as text, or their fingerprint.

    Attributes:
        operands: In the input language; None: `features` are given.
        features: The fingerprint of both matrices, as `advisor power tensor --json` prints it.
        shape: m, n, k: A is m by k, B is k by n.
        dtype: What it computes in.
        units: SMs; None: the most that were measured.
        gpu_model: None: the one that was measured.
    """

    operands: Annotated[str, Bounds(min_length=1, max_length=MOST_OPERANDS)] | None = None
    features: Mapping[str, Fraction] | None = None
    shape: tuple[MatrixSide, MatrixSide, MatrixSide]
    dtype: Annotated[str, Bounds(pattern=r"^[a-z0-9_]{1,20}$")]
    units: Annotated[int, Bounds(ge=1, le=10_000)] | None = None
    gpu_model: GpuModel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPowerRequest:
    """Products whose power is asked for."""

    inputs: Annotated[tuple[InputAsked, ...], Bounds(min_length=1, max_length=MOST_INPUTS)]


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
