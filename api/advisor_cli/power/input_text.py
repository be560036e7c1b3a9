"""What `advisor power input` says to a person."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from advisor.core.interval import Interval
from advisor.errors import AdvisorError
from advisor.wire.power import Estimate, InputPrediction, InputPredictions
from advisor_cli.console import plain_table
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.measuring import Step
from advisor_power.inputs.result import InputPower
from advisor_power.model.manifest import InputManifest
from advisor_power.model.predictor import model_line

_NOTES = {
    "non-finite-operands": "matrices hold NaN or infinity: that lowers power",
    "saturated-operands": "values were beyond the range of int8, and became its ends",
    "non-finite-outputs": "outputs are NaN or infinite: sums overflowed, or operands were so",
    "wrong-outputs": "outputs are not those of float64: at this number of SMs, do not use them",
    "power-limit": "the power limit held the clock back: data show as speed",
    "throttled": "the clock was held back by something else than the power limit",
    "not-settled": "power or rate still moved when the window began",
}

_UNLIKE = {
    "shape": "this shape was never measured with this type: it is taken to run as the nearest one",
    "units": "this number of SMs was never measured with this type: each is taken to run as there",
    "fingerprint": "data as these were never measured with this type",
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
    numbers = ("W", "of reference", "T/s", f"pJ/{found[0].case.unit}", "above idle", "MHz", "C")
    return plain_table(("operands", *numbers, "flags"), map(_cells, found))


def note_lines(found: Sequence[InputPower]) -> Iterator[str]:
    """Where it was measured, and what the flags mean."""
    if not found:
        return
    where = found[0].conditions
    yield f"{where.gpu_model}, {where.units or '?'} SMs, driver {where.driver}; 95 % intervals"
    for flag in dict.fromkeys(flag for result in found for flag in result.flags):
        yield f"{flag}: {_NOTES[flag]}"


def predicted_table(found: Sequence[InputPrediction]) -> Table:
    """A line for each product whose power was asked for."""
    whole = ("W", "of reference", "T/s", "J", "MHz", "most by")
    rows = ((one.operands or "fingerprint", *predicted_cells(one)) for one in found)
    return plain_table(("operands", *whole, "unlike"), rows, whole)


def predicted_cells(one: InputPrediction) -> Iterator[str]:
    """Power, over that of the reference, speed, energy, clock, what does most, what is new."""
    yield _bounds(one.power_w, "{:.0f}")
    yield "" if one.usual_ratio is None else f"{one.usual_ratio:.3f}"
    yield _bounds(one.work_per_s.times(1e-12), "{:.4g}")
    yield _bounds(one.energy_j, "{:.3g}")
    yield f"{one.clock_mhz:.0f}{' at limit' if one.at_limit else ''}"
    yield "" if one.most is None else f"{one.most.feature} {one.most.difference_w:+.0f} W"
    yield " ".join(one.unmeasured)


def predicted_lines(found: InputPredictions, manifest: InputManifest) -> Iterator[str]:
    """What the predictions rest on, and what of them does not."""
    first = found.predictions[0]
    yield (
        f"expected of {first.gpu_model}, {first.units} SMs, not measured; {found.coverage:.0%} "
        f"intervals; {model_line(manifest)}"
    )
    yield from notes_of(found.predictions)


def notes_of(found: Sequence[InputPrediction]) -> Iterator[str]:
    """What of predictions was never measured, and when heat may make them slower, once each."""
    for name in dict.fromkeys(name for one in found for name in one.unmeasured):
        yield f"unlike, {name}: {_UNLIKE[name]}. How far that is off, the interval does not say"
    if odd := sum(one.features["sum_non_finite"] > 0 for one in found):
        yield (
            f"{odd} of these have NaN or infinity in their sums, so their results are no numbers, "
            "they draw less for it, and the interval is not for them: look at the data, "
            "or scale them"
        )
    hot = [one.heat_w for one in found if one.heat_w and one.power_w.value > one.heat_w]
    if hot:
        yield (
            f"{len(hot)} of these draw more than {min(hot):.0f} W, from which on heat held back "
            "the clock of the measured card: with cooling like that, power and speed are lower"
        )


def _bounds(found: Interval, form: str) -> str:
    value, low, high = (form.format(each) for each in (found.value, found.low, found.high))
    return value if low == high else f"{value} ({low}-{high})"


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
