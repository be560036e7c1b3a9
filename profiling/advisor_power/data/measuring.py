"""The order of things: a reference, some cases, a reference again; each result is kept at once."""

import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

import numpy as np

from advisor.errors import AdvisorError, BusyError, InputError, JobError
from advisor.formats.kept import RecordLines
from advisor.formats.wire import read, write
from advisor.settings import Settings
from advisor.validity.sensor_record import power_timing, record_for
from advisor.wire.power import Estimate
from advisor_data.known import known_sensors
from advisor_power.data.fill import fill_pair
from advisor_power.data.fingerprint import Fingerprint, fingerprint
from advisor_power.data.result import (
    InputCase,
    InputPower,
    OperandState,
    OutputCheck,
    input_lines,
    newest_of,
    reference_for,
)
from advisor_power.gpu_worker import (
    Conditions,
    GpuWorker,
    Step,
    WorkerPlace,
    WorkerReady,
    failed,
    open_worker,
)
from advisor_power.kernels.runs import around
from advisor_profiling.window import Clock as LiveClock
from advisor_profiling.window import (
    MeanEstimate,
    MeasuredWindow,
    WindowInputs,
    WindowRules,
    measure,
    measure_idle,
    rules_for,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Both matrices of a case; files have the bytes of A by rows, and of B by columns."""

    a_path: Path
    a: OperandState
    b_path: Path
    b: OperandState
    fingerprint: Fingerprint

    def remove(self) -> None:
        """Delete the files."""
        self.a_path.unlink(missing_ok=True)
        self.b_path.unlink(missing_ok=True)


def fill_case(case: InputCase, stem: Path) -> Matrices:
    """Fill the matrices of a case into files that begin with `stem`.

    Raises:
        InputError: as `fill.fill_pair`, or there is no room for the files.
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


_Fill = Callable[[Iterable[InputCase]], Generator[tuple[InputCase, Future[Matrices]]]]
"""Each case with its matrices, in order."""


@contextmanager
def filling(folder: Path) -> Generator[_Fill]:
    """Processes that fill matrices into a folder, ahead of the caller; they end at the end."""
    # Sorting 4096 by 4096 numbers takes longer than measuring their product.
    count = max(1, min(6, (os.cpu_count() or 1) // 2))
    # Not forked: threads of libraries do not survive that.
    # Ctrl-C goes to all processes of a terminal; who measures ends these.
    ignoring = signal.SIGINT, signal.SIG_IGN
    pool = ProcessPoolExecutor(count, get_context("spawn"), signal.signal, ignoring)
    numbers = itertools.count(1)

    def fill(cases: Iterable[InputCase]) -> Generator[tuple[InputCase, Future[Matrices]]]:
        waiting: list[tuple[InputCase, Future[Matrices]]] = []
        for case in cases:
            stem = folder / str(next(numbers))
            waiting.append((case, pool.submit(fill_case, case, stem)))
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
    try:
        return future.result()
    except BrokenExecutor as error:
        raise InputError(
            f"the process that fills the matrices of {case} was killed",
            why="perhaps by the kernel, for lack of memory",
            fix="take a smaller --shape",
        ) from error


class RefusedError(JobError):
    """One case cannot be computed; others can."""


class _InputBench(Protocol):
    """Computes one case after the other on one GPU."""

    @property
    def conditions(self) -> Conditions:
        """Where it computes."""
        ...

    def idle_w(self) -> float | None:
        """Power while nothing is computed; ends what runs."""
        ...

    def measure(self, case: InputCase, matrices: Matrices) -> tuple[OutputCheck, MeasuredWindow]:
        """What the outputs of one case were, and its window; it runs on afterwards.

        Raises:
            RefusedError: it cannot be computed; the next one may.
            JobError: the workload ended or hangs.
            BusyError: somebody else computes on the GPU.
        """
        ...


REFERENCE_EVERY = 8  # cases between two references
_T_95 = 2.26  # Student's t, of the ten batches that an error is made of


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRun:
    """What cases are measured with.

    Attributes:
        name: Of this run; ratios are made within it.
        keep: Results that are kept.
        knows_sensor: Whether there is a record of the card's sensor; else waits are long ones.
    """

    name: str
    bench: _InputBench
    filling: _Fill
    keep: RecordLines[InputPower]
    knows_sensor: bool = True


@dataclass
class Outcome:
    """What became of the cases of a run."""

    measured: list[InputPower] = field(default_factory=list[InputPower])
    refused: dict[InputCase, AdvisorError] = field(default_factory=dict[InputCase, AdvisorError])


def measure_cases(
    run: InputRun,
    cases: Iterable[InputCase],
    report: Callable[[Step], object],
    *,
    fresh: bool = False,
) -> Outcome:
    """Measure the cases that are not kept yet (or all), with references between them.

    Each result is kept at once.
    """
    wanted = list(dict.fromkeys(cases))
    known = {} if fresh else newest_of(run.keep.resume(), wanted, run.bench.conditions)
    missing = [case for case in wanted if case not in known]
    outcome = Outcome()
    if not missing:
        return outcome
    idle_w = run.bench.idle_w()
    order, begun_s = with_references(missing), time.monotonic()
    with closing(run.filling(case for case, _ in order)) as matrices:
        for done, ((case, is_reference), (_, future)) in enumerate(
            zip(order, matrices, strict=True), start=1
        ):
            try:
                result = _measured(run, case, future, idle_w, is_reference=is_reference)
                run.keep.add(result)
                outcome.measured.append(result)
            except (InputError, RefusedError) as error:
                outcome.refused[case] = error
            left_s = (len(order) - done) * (time.monotonic() - begun_s) / done
            report(Step(str(case), done, len(order), left_s))
    return outcome


def with_references(cases: Iterable[InputCase]) -> list[tuple[InputCase, bool]]:
    """The cases in order, each kind of work between references of that kind, marked as such."""
    order: list[tuple[InputCase, bool]] = []
    kinds = itertools.groupby(cases, key=lambda case: reference_for(case.shape, case.dtype))
    for reference, group in kinds:
        for number, case in enumerate(group):
            if number % REFERENCE_EVERY == 0:
                order.append((reference, True))
            order.append((case, False))
        order.append((reference, True))
    return order


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
        matrices.remove()
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


def _estimate(found: MeanEstimate) -> Estimate:
    if found.stderr is None:
        return Estimate(found.mean, None, None)
    return around(found.mean, _T_95 * found.stderr)


WINDOW_S = 2.1  # some thirty readings, and twenty ticks of the counter


@dataclass(frozen=True, slots=True, kw_only=True)
class _LiveInputBench:
    """One worker on one GPU."""

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
        """One case, which runs on afterwards."""
        outputs = self._load(case, matrices)
        watch = WindowInputs(
            counts=(self.worker.job.count,),
            source=self.worker.source,
            clock=self.clock,
            check=self._check,
        )
        return outputs, measure(watch, self.rules)

    def _load(self, case: InputCase, matrices: Matrices) -> OutputCheck:
        """Have a case computed from now on; what its outputs are."""
        job = self.worker.job
        asked = {
            "a": str(matrices.a_path),
            "b": str(matrices.b_path),
            "shape": case.shape,
            "dtype": case.dtype,
        }
        job.ask({"load": asked})
        # Copying and checking the largest matrices takes long.
        said = job.answer(300.0, "was not loaded")
        if refused := said.get("refused"):
            error = failed(refused, job.output)
            raise RefusedError(f"{case}: {error.what}", why=error.why, fix=error.fix)
        return read(
            OutputCheck, write(said["loaded"]["outputs"]), name="the outputs", tolerant=True
        )

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
        record = record_for(gpu.uuid, gpu.model, gpu.driver or "", known_sensors(settings.home))
        timing = record and power_timing(record)
        bench = _LiveInputBench(worker=worker, rules=rules_for(window_s, timing))
        with (
            tempfile.TemporaryDirectory(prefix="advisor-inputs-") as folder,
            filling(Path(folder)) as fill,
        ):
            yield InputRun(
                name=worker.folder.name,
                bench=bench,
                filling=fill,
                keep=input_lines(settings.home, gpu.uuid),
                knows_sensor=timing is not None,
            )
