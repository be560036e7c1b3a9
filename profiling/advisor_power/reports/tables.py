"""Sensors and kernels as tables of texts and sentences; every number in them was measured."""

from collections.abc import Iterator, Sequence

from advisor.core.wording import count_of
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import Estimate, KernelReport, ReadingError
from advisor_training.reports.document import TextTable

_TIMES = ("period, ms", "window, ms", "delay, ms")
_CHANNEL = ("channel", *_TIMES, "noise, W", "waves wrong, %", "accepted")
_POWERS = ("SSE, W", "SSP, W", "SSP, J a launch")
_KERNEL = ("kernel", "GPU", "execution, ms", "launches", *_POWERS, "counter differs", "golden runs")

_COVERS = {True: "adds up everything", False: "adds up windows only", None: "open"}


def of_sensor(record: SensorRecord, errors: Sequence[ReadingError]) -> Iterator[TextTable]:
    """The record, and how wrong ways of reading are where that was recorded."""
    yield TextTable(
        "Channels",
        _CHANNEL,
        [
            (
                one.name,
                f"{one.period_ms:.1f}",
                f"{one.window_ms:.1f}",
                f"{one.delay_ms:.1f}",
                f"{one.noise_w:.2f}",
                f"{100 * one.prediction_error:.2f}",
                "yes" if one.accepted else "no",
            )
            for one in record.channels
        ],
    )
    if (energy := record.energy) is not None:
        spread = f"{100 * energy.coverage_spread:.2f}"
        row = (f"{energy.period_ms:.0f}", spread, _COVERS[energy.covers_everything])
        yield TextTable("Energy counter", ("every, ms", "spread over phases, %", "verdict"), [row])
    if errors:
        yield _error_table(errors)


def _error_table(errors: Sequence[ReadingError]) -> TextTable:
    """Median and 95th percentile of the error, %, by length of the kernel and way of reading."""
    ways = list(dict.fromkeys(one.way for one in errors))
    cells = {(e.kernel_s, e.way): f"{100 * e.median:.1f} ({100 * e.p95:.1f})" for e in errors}
    lengths = sorted({one.kernel_s for one in errors})
    return TextTable(
        "How wrong ways of reading a kernel's power are: median (95 % of cases within), %",
        ("twenty executions of", *ways),
        [
            (f"{1e6 * length:g} µs", *(cells.get((length, way), "-") for way in ways))
            for length in lengths
        ],
    )


def kernels(reports: Sequence[KernelReport]) -> TextTable:
    """All kernels, a row each."""
    return TextTable(
        "Measured kernels",
        _KERNEL,
        [
            (
                name_of(one),
                one.gpu_model,
                f"{one.execution_ms:.4g}",
                str(one.launches),
                watts(one.sse_power_w),
                watts(one.ssp_power_w),
                joules(one.launch_energy_j),
                _differ(one) or "-",
                f"{one.golden_runs} of {one.runs}",
            )
            for one in reports
        ],
    )


def name_of(one: KernelReport) -> str:
    """What was measured, in one line."""
    limit = f", {one.units} SMs" if one.units else ""
    return f"{one.operation}{limit}, after {one.before}"


def _differ(one: KernelReport) -> str:
    """By how much the energy counter is off the curve; empty where that is not known."""
    differ = one.difference and one.difference.differ
    return "" if differ is None else f"{differ:+.1%}"


def kernel_note(one: KernelReport) -> str:
    """What its two steady points and energies are, and where they come from."""
    sse = f"SSE is execution {one.sse_execution}: {watts(one.sse_power_w)} W"
    sse += f", {joules(one.sse_energy_j)} J."
    ssp = "SSP: none, power still changed at the end of the longest runs."
    if one.ssp_execution is not None:
        ssp = f"SSP at the end of {count_of(one.ssp_execution, 'execution')}: "
        ssp += f"{watts(one.ssp_power_w)} W, {joules(one.ssp_energy_j)} J an execution."
    counter = f"Energy counter: {one.no_difference}."
    if (found := one.difference) is not None:
        counter = f"By the energy counter {joules(found.counter)} J in executions {found.first} to "
        counter += str(found.last)
        counter += f", {_differ(one)} against the curve." if _differ(one) else "."
    dropped = "".join(f", {count} dropped: {why}" for why, count in one.dropped.items())
    rest = f"{one.golden_runs} of {one.runs} runs are golden{dropped}. Driver {one.driver}, "
    rest += f"{one.measured_at[:10]}, source {one.source}, {one.seconds:.0f} s."
    return " ".join([sse, ssp, counter, rest])


def watts(found: Estimate | None) -> str:
    """A power with its interval."""
    return within(found, "{:.1f}")


def joules(found: Estimate | None) -> str:
    """An energy with its interval."""
    return within(found, "{:.4g}")


def within(found: Estimate | None, form: str) -> str:
    """A value with its interval, each number in this form."""
    return found.text(form.format) if found else "-"
