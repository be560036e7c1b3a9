"""The order of things: a reference, some cases, a reference again; each result is kept at once."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby

from advisor.errors import AdvisorError, InputError
from advisor.formats.kept import RecordLines
from advisor.wire.power import Estimate
from advisor_power.inputs.bench import InputBench, MeasuredCase, RefusedError
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.keeping import newest_of
from advisor_power.inputs.matrices import Filling, Matrices, filled
from advisor_power.inputs.reference import reference_for
from advisor_power.inputs.result import InputPower
from advisor_power.kernels.estimates import around
from advisor_profiling.window.estimate import MeanEstimate

REFERENCE_EVERY = 8
"""Cases between two references."""

_T_95 = 2.26
"""Student's t, of the ten batches that an error is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far it is."""

    case: InputCase
    done: int
    """Cases and references of this run."""
    total: int
    eta_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCases:
    """What is to be measured, and for how long."""

    cases: Sequence[InputCase]
    """In order; those that are kept already are left out."""
    session: str
    """Name of this run; ratios are made within it."""
    end_s: float | None = None
    """No case begins after this moment of the monotonic clock; None: all are measured."""
    fresh: bool = False
    """Measure again what is kept."""


@dataclass
class Outcome:
    """What became of the cases of a run."""

    measured: list[InputPower] = field(default_factory=list[InputPower])
    refused: dict[InputCase, AdvisorError] = field(default_factory=dict[InputCase, AdvisorError])
    left: int = 0
    """Cases that time did not suffice for."""


@dataclass(frozen=True, slots=True)
class _InputSession:
    bench: InputBench
    keep: RecordLines[InputPower]
    session: str
    idle_w: float | None
    outcome: Outcome

    def one(self, case: InputCase, future: Future[Matrices], *, is_reference: bool) -> None:
        """Measure a case and keep it; what it cannot do is noted."""
        try:
            matrices = filled(case, future)
            try:
                measured = self.bench.measure(case, matrices)
            finally:
                matrices.remove()
            result = self._result(case, matrices, measured, is_reference=is_reference)
        except (InputError, RefusedError) as error:
            self.outcome.refused[case] = error
            return
        self.keep.add(result)
        self.outcome.measured.append(result)

    def _result(
        self, case: InputCase, matrices: Matrices, measured: MeasuredCase, *, is_reference: bool
    ) -> InputPower:
        """A window as a result; refused where power was not read, or nothing was computed."""
        window = measured.window
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
            conditions=self.bench.conditions,
            session=self.session,
            is_reference=is_reference,
            measured_at=window.started_at,
            power_w=_estimate(window.power),
            rate=_estimate(rate),
            counter_power_w=window.counter_power_w,
            memory_power_w=window.memory_power_w,
            idle_w=self.idle_w,
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
            outputs=measured.outputs,
        )


def measure_cases(
    bench: InputBench,
    filling: Filling,
    asked: AskedCases,
    keep: RecordLines[InputPower],
    report: Callable[[Step], object],
) -> Outcome:
    """Measure the cases that are not kept yet, with references between them.

    Raises:
        JobError: the workload ended or hangs; results before are kept.
        BusyError: somebody else came to the GPU.
        StoreError: results cannot be read or written.
    """
    missing = _missing(bench, asked, keep)
    outcome = Outcome()
    if not missing:
        return outcome
    run = _InputSession(bench, keep, asked.session, bench.idle_w(), outcome)
    order, begun_s, done = with_references(missing), time.monotonic(), 0
    with closing(filling.of(case for case, _ in order)) as matrices:
        for (case, is_reference), (_, future) in zip(order, matrices, strict=True):
            if asked.end_s is not None and time.monotonic() >= asked.end_s:
                break
            run.one(case, future, is_reference=is_reference)
            done += 1
            left_s = (len(order) - done) * (time.monotonic() - begun_s) / done
            report(Step(case=case, done=done, total=len(order), eta_s=left_s))
    outcome.left = sum(not is_reference for _, is_reference in order[done:])
    if outcome.left and done and not order[done - 1][1]:
        _close(run, filling, order[done - 1][0])
    return outcome


def with_references(cases: Iterable[InputCase]) -> list[tuple[InputCase, bool]]:
    """The cases in order, each kind of work between references of that kind, marked as such."""
    order: list[tuple[InputCase, bool]] = []
    for reference, group in groupby(cases, key=_reference):
        for number, case in enumerate(group):
            if number % REFERENCE_EVERY == 0:
                order.append((reference, True))
            order.append((case, False))
        order.append((reference, True))
    return order


def _missing(
    bench: InputBench, asked: AskedCases, keep: RecordLines[InputPower]
) -> list[InputCase]:
    wanted = list(dict.fromkeys(asked.cases))
    if asked.fresh:
        return wanted
    known = newest_of(keep.resume(), wanted, bench.conditions)
    return [case for case in wanted if case not in known]


def _close(run: _InputSession, filling: Filling, last: InputCase) -> None:
    """A reference behind the last case, where time ended the run between two."""
    with closing(filling.of([_reference(last)])) as matrices:
        for case, future in matrices:
            run.one(case, future, is_reference=True)


def _reference(case: InputCase) -> InputCase:
    return reference_for(case.shape, case.dtype, case.work)


def _estimate(found: MeanEstimate) -> Estimate:
    if found.stderr is None:
        return Estimate(found.mean, None, None)
    return around(found.mean, _T_95 * found.stderr)
