"""Measures cases: a reference, some cases, a reference again; each result is kept at once.

What is known of one case: power, speed, clock, and whether input and output are sound.
"""

import itertools
import json
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from advisor.core.records import grouped
from advisor.core.telemetry import NEAR_LIMIT, POWER_CAPS
from advisor.errors import AdvisorError, BusyError, InputError, JobError
from advisor.files import open_home
from advisor.formats.wire import RecordLines, read, slug, to_plain, write
from advisor.predict.kernels import MeanEstimate
from advisor.settings import Settings
from advisor.validity.sensor_record import power_timing, record_for
from advisor.wire.power import Estimate
from advisor_data.bundled import all_sensors
from advisor_power.data.operands import (
    USUAL,
    Fingerprint,
    OperandPair,
    fill_pair,
    fingerprint,
    parse_operands,
    pinned,
)
from advisor_power.gpu_worker import (
    Conditions,
    GpuWorker,
    WorkerPlace,
    WorkerReady,
    failed,
    open_worker,
)
from advisor_power.kernels import STANDARD_ERRORS_95, around, standard_error
from advisor_profiling.window import (
    Clock as LiveClock,
    MeasuredWindow,
    Step,
    WindowInputs,
    WindowRules,
    measure,
    measure_idle,
    rules_for,
)

# m, n, k: A is m by k, B is k by n.
_ProductShape: TypeAlias = tuple[int, int, int]

_INT8_LEAST_M = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCase:
    """A product of matrices of a shape and a type (of `operands.DTYPES`), filled as operands say.

    Attributes:
        operands: Canonical text of both matrices.
        work: Something else in results that were kept before, such as a copy.
    """

    operands: str
    shape: _ProductShape
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


def case_of(operands: str, shape: _ProductShape, dtype: str) -> InputCase:
    """A case that can be computed, by its canonical text."""
    text = str(pinned(parse_operands(operands)))
    m, n, k = shape
    # The library refuses other sizes of these types: of n and k; of m as well where it is fp8.
    multiple = {"fp8": 16, "int8": 8}.get(dtype, 1)
    sizes = (m, n, k) if dtype == "fp8" else (n, k)
    if odd := [size for size in sizes if size % multiple]:
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
    return InputCase(operands=text, shape=shape, dtype=dtype)


def parse_shape(text: str) -> _ProductShape:
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
            None if self.idle_w is None else (self.power_w.value - self.idle_w) * self._pj_per_watt
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
        signs = {
            "non-finite-operands": any(operand.non_finite for operand in operands),
            "saturated-operands": any(operand.saturated for operand in operands),
            "non-finite-outputs": not self.outputs.finite,
            "wrong-outputs": not self.outputs.right,
            "power-limit": self.at_limit,
            "throttled": self.throttled,
            "not-settled": not self.settled,
        }
        return tuple(name for name, is_so in signs.items() if is_so)

    @property
    def _pj_per_watt(self) -> float:
        return 1e12 / (self.rate.value * self.case.launch_work)

    def as_json(self) -> dict[str, Any]:
        """All of it, with what follows from it."""
        plain = to_plain(self)
        return {
            **plain.pop("case"),
            "shape": dict(zip("mnk", self.case.shape, strict=True)),
            **plain,
            "outputs": plain["outputs"]
            | {"finite": self.outputs.finite, "right": self.outputs.right},
            "unit": "operation",
            "work_per_s": self.rate.value * self.case.launch_work,
            "energy_pj": self.energy_pj,
            "energy_above_idle_pj": self.energy_above_idle_pj,
            "at_limit": self.at_limit,
            "flags": list(self.flags),
        }


# In the advisor's home.
_INPUTS_FOLDER = "inputs"


def input_lines(home: Path, gpu_uuid: str) -> RecordLines[InputPower]:
    """The results of one card."""
    return _lines(open_home(home, _INPUTS_FOLDER) / f"{slug(gpu_uuid)}.jsonl")


def kept_inputs(home: Path) -> list[InputPower]:
    """Everything that was measured on this host, card by card."""
    folder = home / _INPUTS_FOLDER
    return [result for file in sorted(folder.glob("*.jsonl")) for result in read_kept(file)]


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


def reference_for(shape: _ProductShape, dtype: str) -> InputCase:
    """Normal random numbers: what nearly everybody measures with."""
    (operands,) = USUAL.pairs(dtype).values()
    return InputCase(operands=str(operands), shape=shape, dtype=dtype)


def with_ratios(results: Iterable[InputPower]) -> list[InputPower]:
    """Each result with its ratio to the references of its session around it, if there are any."""
    ordered = sorted(results, key=lambda r: r.moment_s)
    references = grouped((r for r in ordered if r.is_reference and not r.held_back), _of_session)
    return [_with_ratio(result, references.get(_of_session(result), ())) for result in ordered]


def _with_ratio(result: InputPower, references: Sequence[InputPower]) -> InputPower:
    # A reference is compared with its neighbours: how far it is off 1 is the noise of ratios.
    others = [r for r in references if r.measured_at != result.measured_at]
    if not others:
        return result
    reference_w, error_w = _at(result.moment_s, others)
    ratio = result.power_w.value / reference_w
    of_window = standard_error(result.power_w) / result.power_w.value
    relative = math.hypot(of_window, error_w / reference_w, _scatter(references))
    return replace(result, reference_ratio=around(ratio, STANDARD_ERRORS_95 * ratio * relative))


def _scatter(references: Sequence[InputPower]) -> float:
    """How far a reference is off what its neighbours let expect, root mean square, as a part.

    A window is read to a thousandth, but a card that was cool a moment ago draws less.
    """
    # The scatter of fewer says nothing.
    if len(references) < 3:
        return 0.0
    off = (
        reference.power_w.value
        / _at(reference.moment_s, [r for r in references if r is not reference])[0]
        - 1
        for reference in references
    )
    return math.hypot(*off) / math.sqrt(len(references))


def _of_session(result: InputPower) -> tuple[object, ...]:
    """References of the same kind in the same session have it."""
    case = result.case
    return result.session, result.conditions, case.shape, case.dtype, case.work


def _at(moment_s: float, references: Sequence[InputPower]) -> tuple[float, float]:
    """Power of the reference at a moment, and its standard error."""
    before = [r for r in references if r.moment_s <= moment_s][-1:]
    after = [r for r in references if r.moment_s > moment_s][:1]
    first, last = (before or after)[0], (after or before)[0]
    # Before the first and after the last reference there is one of them alone.
    length_s = last.moment_s - first.moment_s
    part = (moment_s - first.moment_s) / length_s if length_s else 0.0
    errors = (1 - part) * standard_error(first.power_w), part * standard_error(last.power_w)
    return (1 - part) * first.power_w.value + part * last.power_w.value, math.hypot(*errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Both matrices of a case; files have the bytes of A by rows, and of B by columns."""

    a_path: Path
    a: OperandState
    b_path: Path
    b: OperandState
    fingerprint: Fingerprint


def fill_case(case: InputCase, stem: Path) -> Matrices:
    """Fill the matrices of a case into files that begin with `stem`.

    Raises:
        InputError: as `operands.fill_pair`, or there is no room for the files.
    """
    a_path, b_path = stem.with_suffix(".a"), stem.with_suffix(".b")
    try:
        a, b = fill_pair(case.pair, case.shape, case.dtype)
        for path, matrix in ((a_path, a.matrix), (b_path, b.matrix.T)):
            with path.open("wb") as file:
                np.ascontiguousarray(matrix).view(np.uint8).tofile(file)
    except (OSError, MemoryError) as error:
        raise InputError(
            f"the matrices of {case} cannot be made",
            why=str(error) or "this host has too little memory",
            fix="take a smaller --shape, or make room",
        ) from error
    return Matrices(
        a_path=a_path,
        a=OperandState(non_finite=a.non_finite, saturated=a.saturated),
        b_path=b_path,
        b=OperandState(non_finite=b.non_finite, saturated=b.saturated),
        fingerprint=fingerprint(a.matrix, b.matrix, case.dtype),
    )


# Each case with its matrices, in order.
_Fill = Callable[[Iterable[InputCase]], Generator[tuple[InputCase, Future[Matrices]]]]


@contextmanager
def filling(folder: Path) -> Generator[_Fill]:
    """Processes that fill matrices into a folder, ahead of the caller; they end at the end."""
    # Sorting 4096 by 4096 numbers takes longer than measuring their product.
    count = max(1, min(6, (os.cpu_count() or 1) // 2))
    # Not forked: threads of libraries do not survive that.
    # Ctrl-C goes to all processes of a terminal; the measuring one ends these.
    ignoring = signal.SIGINT, signal.SIG_IGN
    pool = ProcessPoolExecutor(count, get_context("spawn"), signal.signal, ignoring)

    def fill(cases: Iterable[InputCase]) -> Generator[tuple[InputCase, Future[Matrices]]]:
        waiting: list[tuple[InputCase, Future[Matrices]]] = []
        for number, case in enumerate(cases, 1):
            waiting.append((case, pool.submit(fill_case, case, folder / str(number))))
            if len(waiting) > count:
                yield waiting.pop(0)
        yield from waiting

    try:
        yield fill
    finally:
        pool.shutdown(cancel_futures=True)


def filled(case: InputCase, future: Future[Matrices]) -> Matrices:
    """The matrices of a case.

    Raises:
        InputError: they cannot be made.
    """
    with InputError.instead_of(
        BrokenExecutor,
        f"the process that fills the matrices of {case} was killed",
        why="perhaps by the kernel, for lack of memory",
        fix="take a smaller --shape",
    ):
        return future.result()


class RefusedError(JobError):
    """One case cannot be computed; others can."""


REFERENCE_EVERY = 8  # cases between two references


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRun:
    """What cases are measured with.

    Attributes:
        name: Of this run; ratios are made within it.
        keep: Results that are kept.
        knows_sensor: Whether there is a record of the card's sensor; else waits are long ones.
    """

    name: str
    bench: "_LiveInputBench"
    filling: _Fill
    keep: RecordLines[InputPower]
    knows_sensor: bool = True


def measure_cases(
    run: InputRun,
    cases: Iterable[InputCase],
    report: Callable[[Step], object],
    *,
    fresh: bool = False,
) -> dict[InputCase, AdvisorError]:
    """Measure the cases that are not kept yet (or all), with references between them.

    Each result is kept at once; cases that cannot be computed are returned, with the reason.
    """
    wanted = list(dict.fromkeys(cases))
    cached = {} if fresh else newest_of(run.keep.resume(), wanted, run.bench.conditions)
    order = [*with_references(case for case in wanted if case not in cached)]
    refused: dict[InputCase, AdvisorError] = {}
    if not order:
        return refused
    idle_w, begun_s = run.bench.idle_w(), time.monotonic()
    with closing(run.filling(case for case, _ in order)) as matrices:
        for done, ((case, is_reference), (_, future)) in enumerate(
            zip(order, matrices, strict=True), start=1
        ):
            try:
                run.keep.add(_measured(run, case, future, idle_w, is_reference=is_reference))
            except (InputError, RefusedError) as error:
                refused[case] = error
            left_s = (len(order) - done) * (time.monotonic() - begun_s) / done
            report(Step(str(case), done, len(order), left_s))
    return refused


def with_references(cases: Iterable[InputCase]) -> Iterator[tuple[InputCase, bool]]:
    """The cases in order, each kind of work between references of that kind, marked as such."""
    for reference, group in itertools.groupby(
        cases, key=lambda case: reference_for(case.shape, case.dtype)
    ):
        for number, case in enumerate(group):
            if number % REFERENCE_EVERY == 0:
                yield reference, True
            yield case, False
        yield reference, True


def _measured(
    run: InputRun,
    case: InputCase,
    future: Future[Matrices],
    idle_w: float | None,
    *,
    is_reference: bool,
) -> InputPower:
    """One case as a result; refused where power was not read, or nothing was computed."""
    matrices = filled(case, future)
    try:
        outputs, window = run.bench.measure(case, matrices)
    finally:
        matrices.a_path.unlink(missing_ok=True)
        matrices.b_path.unlink(missing_ok=True)
    (rate,) = window.rates
    if rate is None:
        raise RefusedError(
            f"{case} made no progress in its window of {window.window_s:.0f} s",
            fix="take a smaller --shape",
        )
    if window.power is None or window.power.mean <= 0:
        raise RefusedError(f"{case}: power was not read", fix="look at `advisor doctor`")
    return InputPower(
        case=case,
        conditions=run.bench.conditions,
        session=run.name,
        is_reference=is_reference,
        measured_at=window.started_at,
        power_w=_estimate(window.power),
        rate=_estimate(rate),
        counter_power_w=window.counter_power_w,
        memory_power_w=window.memory_power_w,
        idle_w=idle_w,
        sm_clock_mhz=window.sm_clock_mhz,
        temperature_c=window.temperature_c,
        power_limit_w=window.power_limit_w,
        throttle_reasons=window.throttle_reasons,
        settled=window.settled,
        settle_s=window.settle_s,
        window_s=window.window_s,
        a=matrices.a,
        b=matrices.b,
        fingerprint=matrices.fingerprint,
        outputs=outputs,
    )


def _estimate(mean: MeanEstimate) -> Estimate:
    value, stderr = mean.mean, mean.stderr
    # 2.26: Student's t, of the ten batches that an error is made of.
    return Estimate(value, None, None) if stderr is None else around(value, 2.26 * stderr)


WINDOW_S = 2.1  # some thirty readings, and twenty ticks of the counter


@dataclass(frozen=True, slots=True, kw_only=True)
class _LiveInputBench:
    worker: GpuWorker[WorkerReady]
    rules: WindowRules
    clock = LiveClock()

    @property
    def conditions(self) -> Conditions:
        """Where it computes."""
        return Conditions.of(self.worker.gpu, self.worker.ready)

    def idle_w(self) -> float | None:
        """Power while nothing is computed; ends what runs."""
        self.worker.job.ask({"stop": True})
        self.worker.job.answer(60.0, "did not stop")
        return measure_idle(self.worker.source, self.clock, self.rules)

    def measure(self, case: InputCase, matrices: Matrices) -> tuple[OutputCheck, MeasuredWindow]:
        """What the outputs of one case were, and its window; it runs on afterwards.

        Raises:
            RefusedError: it cannot be computed; the next one may.
            JobError: the workload ended or hangs.
            BusyError: another process computes on the GPU.
        """
        job, paths = self.worker.job, {"a": str(matrices.a_path), "b": str(matrices.b_path)}
        job.ask({"load": paths | {"shape": case.shape, "dtype": case.dtype}})
        # Copying and checking the largest matrices takes long.
        said = job.answer(300.0, "was not loaded")
        if refused := said.get("refused"):
            error = failed(refused, job.output)
            raise RefusedError(f"{case}: {error.what}", why=error.why, fix=error.fix)
        found = write(said["loaded"]["outputs"])
        watch = WindowInputs(
            counts=(job.count,), source=self.worker.source, clock=self.clock, check=self._check
        )
        outputs = read(OutputCheck, found, name="the outputs", tolerant=True)
        return outputs, measure(watch, self.rules)

    def _check(self) -> None:
        self.worker.job.check()
        if others := self.worker.later_strangers():
            raise BusyError(
                f"processes {sorted(others)} have come to the GPU",
                why="power would be of both",
                fix="end them, and run the same command again: it goes on from here",
            )


@contextmanager
def open_inputs(
    settings: Settings, place: WorkerPlace, window_s: float = WINDOW_S
) -> Generator[InputRun]:
    """A GPU with a worker; what was started for it ends at the end."""
    with open_worker(settings, place, "power-input", "input_power.py", ready=WorkerReady) as worker:
        gpu = worker.gpu
        record = record_for(gpu.uuid, gpu.model, gpu.driver or "", all_sensors(settings.home))
        timing = record and power_timing(record)
        with (
            tempfile.TemporaryDirectory(prefix="advisor-inputs-") as folder,
            filling(Path(folder)) as fill,
        ):
            yield InputRun(
                name=worker.folder.name,
                bench=_LiveInputBench(worker=worker, rules=rules_for(window_s, timing)),
                filling=fill,
                keep=input_lines(settings.home, gpu.uuid),
                knows_sensor=timing is not None,
            )
