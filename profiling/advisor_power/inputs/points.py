"""A window with what is known of its matrices, as a result."""

from advisor.wire.kernel_power import Estimate
from advisor_power.inputs.bench import MeasuredCase, RefusedError
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.matrices import Matrices
from advisor_power.inputs.result import InputConditions, InputPower
from advisor_power.kernels.estimates import around
from advisor_profiling.window.estimate import MeanEstimate

_T_95 = 2.26
"""Student's t, of the ten batches that an error is made of."""


def result_of(
    case: InputCase,
    matrices: Matrices,
    measured: MeasuredCase,
    conditions: InputConditions,
    *,
    session: str,
    is_reference: bool,
    idle_w: float | None,
) -> InputPower:
    """A window as a result.

    Raises:
        RefusedError: the sensor did not read power, or nothing was computed.
    """
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
        conditions=conditions,
        session=session,
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
        outputs=measured.outputs,
    )


def _estimate(found: MeanEstimate) -> Estimate:
    if found.stderr is None:
        return Estimate(found.mean, None, None)
    return around(found.mean, _T_95 * found.stderr)
