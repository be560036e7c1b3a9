"""What `advisor power input` says to a person."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from advisor.errors import AdvisorError
from advisor.wire.kernel_power import Estimate
from advisor_profiling.inputs.case import InputCase
from advisor_profiling.inputs.measuring import Step
from advisor_profiling.inputs.result import InputPower

_NOTES = {
    "non-finite-operands": "matrices hold NaN or infinity: that lowers power",
    "saturated-operands": "values were beyond the range of int8, and became its ends",
    "non-finite-outputs": "outputs are NaN or infinite: sums overflowed, or operands were so",
    "wrong-outputs": "outputs are not those of float64: at this number of SMs, do not use them",
    "power-limit": "the power limit held the clock back: data show as speed",
    "throttled": "the clock was held back by something else than the power limit",
    "not-settled": "power or rate still moved when the window began",
}


def step_line(step: Step) -> str:
    """How far it is."""
    minutes, seconds = divmod(int(step.eta_s), 60)
    return f"{step.done}/{step.total}  {step.case}  eta {minutes}:{seconds:02}"


def refused_line(case: InputCase, error: AdvisorError) -> str:
    """Why a case was not measured."""
    return f"not measured: {case}: {error}"


def input_table(found: Sequence[InputPower]) -> Table:
    """A line for each case."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    unit = found[0].case.unit
    columns = ("operands", "W", "of reference", "T/s", f"pJ/{unit}", "above idle", "MHz", "C")
    for name in (*columns, "flags"):
        table.add_column(name, justify="left" if name in ("operands", "flags") else "right")
    for result in found:
        table.add_row(*map(Text, _cells(result)))
    return table


def note_lines(found: Sequence[InputPower]) -> Iterator[str]:
    """Where it was measured, and what the flags mean."""
    if not found:
        return
    where = found[0].conditions
    yield f"{where.gpu_model}, {where.units or '?'} SMs, driver {where.driver}; 95 % intervals"
    for flag in dict.fromkeys(flag for result in found for flag in result.flags):
        yield f"{flag}: {_NOTES[flag]}"


def _cells(result: InputPower) -> Iterator[str]:
    above = result.energy_above_idle_pj
    yield result.case.operands
    yield _within(result.power_w, "{:.1f}")
    yield "" if result.reference_ratio is None else _within(result.reference_ratio, "{:.3f}")
    yield f"{result.rate.value * result.case.launch_work / 1e12:.4g}"
    yield f"{result.energy_pj:.4g}"
    yield "" if above is None else f"{above:.4g}"
    yield "" if result.sm_clock_mhz is None else f"{result.sm_clock_mhz:.0f}"
    yield "" if result.temperature_c is None else f"{result.temperature_c:.0f}"
    yield " ".join(result.flags)


def _within(found: Estimate, form: str) -> str:
    if found.high is None:
        return form.format(found.value)
    return f"{form.format(found.value)} +-{form.format(found.high - found.value)}"
