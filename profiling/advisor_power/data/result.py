"""What was measured of one case: power, speed, clock, and whether input and output are sound."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from advisor.core.telemetry import NEAR_LIMIT, POWER_CAPS
from advisor.errors import InputError
from advisor.files import open_home
from advisor.formats.kept import RecordLines, slug
from advisor.formats.wire import read, to_plain
from advisor.wire.power import Estimate
from advisor_power.data.fill import pinned
from advisor_power.data.fingerprint import Fingerprint
from advisor_power.data.language import USUAL, OperandPair, parse_operands
from advisor_power.gpu_worker import Conditions
from advisor_power.kernels.runs import STANDARD_ERRORS_95, around, standard_error

ProductShape: TypeAlias = tuple[int, int, int]
"""m, n, k: A is m by k, B is k by n."""

_MULTIPLES = {"fp8": 16, "int8": 8}
"""Of n and k; of m as well where it is fp8. The library refuses other sizes of these types."""

_INT8_LEAST_M = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCase:
    """A product of matrices of a shape and a type (of `language.DTYPES`), filled as operands say.

    Attributes:
        operands: Canonical text of both matrices.
        work: Something else in results that were kept before, such as a copy.
    """

    operands: str
    shape: ProductShape
    dtype: str
    work: str = "product"

    @property
    def pair(self) -> OperandPair:
        """The operands."""
        return parse_operands(self.operands)

    @property
    def launch_work(self) -> float:
        """Arithmetic operations of one launch."""
        return 2.0 * math.prod(self.shape)

    def __str__(self) -> str:
        m, n, k = self.shape
        return f"{self.operands} {m}x{n}x{k} {self.dtype}"


def case_of(operands: str, shape: ProductShape, dtype: str) -> InputCase:
    """A case that can be computed, by its canonical text."""
    text = str(pinned(parse_operands(operands)))
    _check_shape(shape, dtype)
    return InputCase(operands=text, shape=shape, dtype=dtype)


def parse_shape(text: str) -> ProductShape:
    """m, n, k of `MxNxK` or `M,N,K`.

    Raises:
        InputError: it is no shape.
    """
    sizes = text.lower().replace(",", "x").split("x")
    if len(sizes) != 3 or not all(s.strip().isdecimal() and 0 < int(s) < 2**31 for s in sizes):
        raise InputError(
            f"--shape {text} is no shape",
            why="it takes three sizes: rows of A, columns of B, and what both share",
            fix="write --shape 4096x4096x4096",
        )
    m, n, k = (int(size) for size in sizes)
    return m, n, k


def _check_shape(shape: ProductShape, dtype: str) -> None:
    m, n, k = shape
    multiple = _MULTIPLES.get(dtype, 1)
    sizes = (m, n, k) if dtype == "fp8" else (n, k)
    odd = [size for size in sizes if size % multiple]
    if odd:
        raise InputError(
            f"a product of {m}x{n}x{k} in {dtype} has a side of {odd[0]}",
            why=f"cuBLAS multiplies {dtype} only in multiples of {multiple}",
            fix=f"take multiples of {multiple}, or another --dtype",
        )
    if dtype == "int8" and m < _INT8_LEAST_M:
        raise InputError(
            f"a product of int8 with {m} rows",
            why=f"PyTorch multiplies int8 from {_INT8_LEAST_M} rows on",
            fix="take more rows, or another --dtype",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """What the output was, as the workload found it.

    Attributes:
        elements: Of the output, all of which were looked at.
        saturated: Elements at an end of the range of their type.
        unwritten: Elements that no launch wrote.
        rows: Computed again in float64 on the CPU.
        compared: Elements of them that are finite there and within the range of sums.
        error: Largest difference of those, relative to the sum of absolute products; 1e9 where one
            is not finite.
        allowed: Largest that is rounding.
    """

    elements: int
    type: str
    nan: int
    infinite: int
    saturated: int
    unwritten: int
    rows: int
    compared: int
    error: float
    allowed: float

    @property
    def finite(self) -> bool:
        """Whether every element is."""
        return not (self.nan or self.infinite)

    @property
    def right(self) -> bool:
        """Whether nothing shows that it is wrong."""
        return not self.unwritten and self.error <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandState:
    """What filling a matrix did: saturated values of int8 became ends of its range."""

    non_finite: int
    saturated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPower:
    """One case on one card; readings that were not available are None.

    Attributes:
        session: Cases of one process, with the references between them.
        measured_at: Begin of the window, ISO 8601, UTC.
        rate: Launches per second.
        counter_power_w: By the energy counter, from tick to tick.
        idle_w: The card with a context before the session, without work.
        temperature_c: At the end of the window.
        settled: Whether power and rate were flat before the window.
        reference_ratio: Power over that of the reference at the same time, by interpolation
            between those whose clock nothing held back; None where there is none.
    """

    case: InputCase
    conditions: Conditions
    session: str
    is_reference: bool
    measured_at: str
    power_w: Estimate
    rate: Estimate
    counter_power_w: float | None
    memory_power_w: float | None
    idle_w: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    power_limit_w: float | None
    throttle_reasons: tuple[str, ...] | None
    settled: bool
    settle_s: float
    window_s: float
    a: OperandState
    b: OperandState | None
    fingerprint: Fingerprint | None
    outputs: OutputCheck
    reference_ratio: Estimate | None = None

    @property
    def energy_pj(self) -> float:
        """Of one operation, pJ."""
        return self.power_w.value * self._pj_per_watt

    @property
    def energy_above_idle_pj(self) -> float | None:
        """The same, less the power of the idle card."""
        return (
            None
            if self.idle_w is None
            else (self.power_w.value - self.idle_w) * (self._pj_per_watt)
        )

    @property
    def at_limit(self) -> bool:
        """Whether the power limit holds the clock back: data show as speed, then."""
        limit_w = self.power_limit_w
        near = limit_w is not None and self.power_w.value >= NEAR_LIMIT * limit_w
        return near or not POWER_CAPS.isdisjoint(self.throttle_reasons or ())

    @property
    def throttled(self) -> bool:
        """Whether heat, or anything else but the power limit, holds the clock back."""
        return bool(set(self.throttle_reasons or ()) - POWER_CAPS)

    @property
    def held_back(self) -> bool:
        """Whether the clock was: then data show as speed, and power is no measure of them."""
        return self.at_limit or self.throttled

    @property
    def moment_s(self) -> float:
        """When it was measured, in seconds."""
        return datetime.fromisoformat(self.measured_at).timestamp()

    @property
    def flags(self) -> tuple[str, ...]:
        """What one must know to use it."""
        operands = [operand for operand in (self.a, self.b) if operand is not None]
        found = {
            "non-finite-operands": any(operand.non_finite for operand in operands),
            "saturated-operands": any(operand.saturated for operand in operands),
            "non-finite-outputs": not self.outputs.finite,
            "wrong-outputs": not self.outputs.right,
            "power-limit": self.at_limit,
            "throttled": self.throttled,
            "not-settled": not self.settled,
        }
        return tuple(name for name, is_so in found.items() if is_so)

    @property
    def _pj_per_watt(self) -> float:
        return 1e12 / (self.rate.value * self.case.launch_work)

    def as_json(self) -> dict[str, Any]:
        """All of it, with what follows from it."""
        case, outputs = to_plain(self.case), to_plain(self.outputs)
        m, n, k = self.case.shape
        return {
            **case,
            "shape": {"m": m, "n": n, "k": k},
            **{name: value for name, value in to_plain(self).items() if name != "case"},
            "outputs": outputs | {"finite": self.outputs.finite, "right": self.outputs.right},
            "unit": "operation",
            "work_per_s": self.rate.value * self.case.launch_work,
            "energy_pj": self.energy_pj,
            "energy_above_idle_pj": self.energy_above_idle_pj,
            "at_limit": self.at_limit,
            "flags": list(self.flags),
        }


_INPUTS_FOLDER = "inputs"
"""In the advisor's home."""


def input_lines(home: Path, gpu_uuid: str) -> RecordLines[InputPower]:
    """The results of one card."""
    return _lines(open_home(home, _INPUTS_FOLDER) / f"{slug(gpu_uuid)}.jsonl")


def kept_inputs(home: Path) -> list[InputPower]:
    """Everything that was measured on this host, card by card."""
    files = sorted((home / _INPUTS_FOLDER).glob("*.jsonl"))
    return [result for file in files for result in read_kept(file)]


def read_kept(path: Path) -> list[InputPower]:
    """The same of any file, which is left as it is: it may be written meanwhile."""
    return _lines(path).read()


def newest_of(
    kept: Iterable[InputPower], cases: Iterable[InputCase], conditions: Conditions
) -> dict[InputCase, InputPower]:
    """The newest result of each case that was measured under the conditions."""
    wanted = set(cases)
    return {
        result.case: result
        for result in kept
        if result.case in wanted and result.conditions == conditions
    }


def _lines(path: Path) -> RecordLines[InputPower]:
    return RecordLines(path, "advisor power input", _result)


def _result(line: bytes) -> InputPower:
    """What a line says; a fingerprint of before signs were counted is none."""
    if b'"fingerprint"' in line and b'"product_signs"' not in line:
        line = json.dumps({**json.loads(line), "fingerprint": None}).encode()
    return read(InputPower, line)


def reference_for(shape: ProductShape, dtype: str) -> InputCase:
    """Normal random numbers: what nearly everybody measures with."""
    operands = str(next(iter(USUAL.pairs(dtype).values())))
    return InputCase(operands=operands, shape=shape, dtype=dtype)


def with_ratios(results: Iterable[InputPower]) -> list[InputPower]:
    """Each result with its ratio to the references of its session around it, if there are any."""
    ordered = sorted(results, key=lambda r: (r.session, r.moment_s))
    found: list[InputPower] = []
    for _, group in groupby(ordered, key=lambda r: r.session):
        of_session = list(group)
        references = [r for r in of_session if r.is_reference and not r.held_back]
        found += [_with_ratio(result, references) for result in of_session]
    return sorted(found, key=lambda r: r.moment_s)


def _with_ratio(result: InputPower, references: Sequence[InputPower]) -> InputPower:
    same = [r for r in references if _kind(r) == _kind(result)]
    # A reference is compared with its neighbours: how far it is off 1 is the noise of ratios.
    others = [r for r in same if r.measured_at != result.measured_at]
    if not others:
        return result
    reference_w, error_w = _at(result.moment_s, others)
    ratio = result.power_w.value / reference_w
    of_windows = standard_error(result.power_w) / result.power_w.value, error_w / reference_w
    relative = math.hypot(*of_windows, _scatter(same))
    return replace(result, reference_ratio=around(ratio, STANDARD_ERRORS_95 * ratio * relative))


def _scatter(references: Sequence[InputPower]) -> float:
    """How far a reference is off what its neighbours let expect, root mean square, as a part.

    A window is read to a thousandth, but a card that was cool a moment ago draws less.
    """
    # The scatter of fewer says nothing.
    if len(references) < 3:
        return 0.0
    off = (
        one.power_w.value / _at(one.moment_s, [r for r in references if r is not one])[0] - 1
        for one in references
    )
    return math.sqrt(statistics.fmean(x * x for x in off))


def _kind(result: InputPower) -> tuple[object, ...]:
    case = result.case
    return result.conditions, case.shape, case.dtype, case.work


def _at(moment_s: float, references: Sequence[InputPower]) -> tuple[float, float]:
    """Power of the reference at a moment, and its standard error."""
    before = [r for r in references if r.moment_s <= moment_s][-1:]
    after = [r for r in references if r.moment_s > moment_s][:1]
    if not (before and after):
        (only,) = before or after
        return only.power_w.value, standard_error(only.power_w)
    first, last = before[0], after[0]
    part = (moment_s - first.moment_s) / (last.moment_s - first.moment_s)
    watts = (1 - part) * first.power_w.value + part * last.power_w.value
    errors = (1 - part) * standard_error(first.power_w), part * standard_error(last.power_w)
    return watts, math.hypot(*errors)
