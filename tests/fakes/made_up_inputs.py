"""Results of `advisor power input` that are made up, and a bench that makes them."""

from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from advisor.core.records import Counters
from advisor.predict.kernels import MeanEstimate
from advisor.wire.power import Estimate
from advisor_power.data.measuring import (
    InputCase,
    InputPower,
    Matrices,
    OperandState,
    OutputCheck,
    RefusedError,
    case_of,
    fill_case,
)
from advisor_power.gpu_worker import Conditions
from advisor_power.kernels import around
from advisor_profiling.window import MeasuredWindow

START = datetime(2026, 11, 23, tzinfo=UTC)
CONDITIONS = Conditions(
    gpu_model="Fake H200", gpu_uuid="GPU-1", driver="580.00.00", units=66, torch="2.0.0"
)
OUTPUTS = OutputCheck(
    elements=64,
    type="bfloat16",
    nan=0,
    infinite=0,
    saturated=0,
    unwritten=0,
    rows=8,
    compared=64,
    error=0.001,
    allowed=0.004,
)
FINE = OperandState(non_finite=0, saturated=0)
SMALL = (32, 16, 64)


def case(operands: str = "zeros", dtype: str = "bf16") -> InputCase:
    return case_of(operands, SMALL, dtype)


def result(
    of: InputCase,
    power_w: float = 400.0,
    *,
    at_s: float = 0.0,
    is_reference: bool = False,
    session: str = "one",
    ratio: float | None = None,
    throttle_reasons: tuple[str, ...] = (),
    rate: float = 1000.0,
    outputs: OutputCheck = OUTPUTS,
    conditions: Conditions = CONDITIONS,
) -> InputPower:
    """One result, whose standard errors are 0.4 W and 0.001 of the ratio."""
    return InputPower(
        case=of,
        conditions=conditions,
        session=session,
        is_reference=is_reference,
        measured_at=(START + timedelta(seconds=at_s)).isoformat(),
        power_w=around(power_w, 1.96 * 0.4),
        rate=Estimate(rate, None, None),
        counter_power_w=power_w,
        memory_power_w=None,
        idle_w=100.0,
        sm_clock_mhz=1980.0,
        temperature_c=40.0,
        power_limit_w=700.0,
        throttle_reasons=throttle_reasons,
        settled=True,
        settle_s=1.0,
        window_s=2.1,
        a=FINE,
        b=FINE,
        fingerprint=None,
        outputs=outputs,
        reference_ratio=None if ratio is None else around(ratio, 1.96 * 0.001),
    )


@dataclass
class MadeUpBench:
    """Each case draws 400 W, and takes 4 s."""

    refuses: frozenset[str] = frozenset()
    stops_after: int | None = None
    without_power: bool = False
    conditions: Conditions = CONDITIONS
    measured: list[str] = field(default_factory=list[str])

    def idle_w(self) -> float | None:
        return 100.0

    def measure(self, case: InputCase, matrices: Matrices) -> tuple[OutputCheck, MeasuredWindow]:
        assert matrices.a_path.exists()
        if self.stops_after is not None and len(self.measured) >= self.stops_after:
            raise KeyboardInterrupt
        self.measured.append(case.operands)
        if case.operands in self.refuses:
            raise RefusedError(f"{case}: the operation needs more memory than the GPU has free")
        window = _window(4.0 * len(self.measured))
        return OUTPUTS, replace(window, power=None) if self.without_power else window


def here_filling(folder: Path) -> Any:
    """Fills in this process, when it is asked."""

    def fill(cases: Any) -> Generator[tuple[InputCase, Future[Matrices]]]:
        for number, one in enumerate(cases):
            future: Future[Matrices] = Future()
            future.set_result(fill_case(one, folder / str(number)))
            yield one, future

    return fill


def _window(at_s: float) -> MeasuredWindow:
    return MeasuredWindow(
        started_at=(START + timedelta(seconds=at_s)).isoformat(),
        window_s=2.1,
        settle_s=1.0,
        settled=True,
        rates=(MeanEstimate(1000.0, 1.0),),
        latencies=(),
        power=MeanEstimate(400.0, 0.4),
        counter_power_w=400.0,
        counters=Counters(),
        sm_clock_mhz=1980.0,
        memory_clock_mhz=2619.0,
        temperature_c=40.0,
        power_limit_w=700.0,
        throttle_reasons=(),
    )
