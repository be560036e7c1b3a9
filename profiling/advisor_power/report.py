"""The page of `advisor report power`: a section for each sensor, kernel and card with inputs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from advisor.core.wording import count_of
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import Estimate, KernelReport, ReadingError, SensorCurve
from advisor_power.data.measuring import InputPower
from advisor_training.reports import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Figure,
    Ink,
    TextTable,
    to_html,
    write_files,
)

LIMITS = (
    "What cannot be known here: how far the power of a board is off as a whole. That takes a meter "
    "outside of it; boards are linear, and off by up to 5 %. Compare values of one card only.",
    "Nor does any reading show what happens inside an execution that is shorter than the stated "
    "resolution, or what single parts of the GPU draw over time.",
)

_SENSOR = (
    "channel", "period, ms", "window, ms", "delay, ms", "noise, W", "waves off, %",
    "half within, %", "accepted",
)  # fmt: skip
_COVERS = {True: "adds up everything", False: "adds up windows only", None: "open"}
_LOADS = {
    "step": "a load that begins and stays",
    "wave": "a load that is switched on and off",
}
_KERNEL = (
    "kernel", "GPU", "J a launch", "counter differs", "execution, ms", "launches", "SSE, W",
    "SSP, W", "golden runs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the page with a heading; notes stand above tables, figures below."""

    title: str
    notes: Sequence[str]
    tables: Sequence[TextTable] = ()
    figures: Sequence[Figure] = ()


def write_page(
    folder: Path,
    kernels: Sequence[KernelReport],
    sections: Sequence[_Section],
) -> tuple[Path, ...]:
    """Write the page into a folder."""
    rows = [
        (
            _name_of(report),
            report.gpu_model,
            _within(report.launch_energy_j, "{:.4g}"),
            _differ(report) or "-",
            f"{report.execution_ms:.4g}",
            str(report.launches),
            _within(report.sse_power_w, "{:.1f}"),
            _within(report.ssp_power_w, "{:.1f}"),
            f"{report.golden_runs} of {report.runs}",
        )
        for report in kernels
    ]
    page = to_html(
        "power.html",
        limits=LIMITS,
        figures=_overview(kernels),
        kernels=TextTable("Measured kernels", _KERNEL, rows),
        sections=sections,
    )
    return write_files({"power.html": page.encode()}, folder)


def sensor_section(
    number: int,
    record: SensorRecord,
    curves: Sequence[SensorCurve],
    errors: Sequence[ReadingError],
) -> _Section:
    """A card's sensors; without its recording there are no curves, without runs no errors."""
    notes = [
        f"Source: {record.source}. Card {record.gpu_uuid}, {record.seconds:.0f} s of GPU time.",
        *record.reasons,
    ]
    if not curves:
        notes.append("Its recording is not here, so there are no curves.")
    if not errors:
        notes.append(
            "How wrong other ways of reading power are was not recorded on this card: "
            "docs/measurements/power/sensor_campaign.py does."
        )
    figures = [
        Figure(
            f"sensor-{number}-{curve.channel}-{curve.load}",
            f"{record.gpu_model}, {curve.channel}: {_LOADS[curve.load]}. Dots were read; the line "
            "is what window and delay of the record predict, with the powers of the load that suit "
            "the readings best.",
            partial(_draw_sensor, curve),
            0.55,
        )
        for curve in curves
    ]
    title = f"Sensor: {record.gpu_model}, driver {record.driver}, {record.measured_at[:10]}"
    return _Section(title, notes, tuple(_sensor_tables(record, errors)), figures)


def kernel_section(number: int, kernel: KernelReport) -> _Section:
    """One operation: steady points, curve and execution times."""
    notes = [_kernel_note(kernel), *([f"No curve: {kernel.no_curve}."] if kernel.no_curve else ())]
    name = _name_of(kernel)
    times = Figure(
        f"kernel-{number}-times",
        f"{name}: execution times of {kernel.runs} runs. Golden are those of the bin that "
        "most runs are in.",
        partial(_draw_times, kernel),
        0.55,
    )
    curve = Figure(
        f"kernel-{number}-curve",
        f"{name}: power since the start of a run in bins of {kernel.resolution_ms:.3g} ms, "
        f"with the window of {kernel.window_ms:.4g} ms taken out; nothing finer can be told. "
        "The band "
        "is of 95 %. Dots are means of what was read meanwhile: late, and smeared.",
        partial(_draw_curve, kernel),
        0.55,
    )
    figures = (curve, times) if kernel.curve else (times,)
    return _Section(f"Kernel: {name} on {kernel.gpu_model}", notes, (), figures)


def input_section(results: Sequence[InputPower]) -> _Section:
    """What was measured of the data of one type, on one card and number of SMs."""
    newest = max(results, key=lambda r: r.moment_s)
    where = newest.conditions
    limit = f", {where.units} SMs" if where.units else ""
    note = (
        f"Card {where.gpu_uuid}, driver {where.driver}, PyTorch {where.torch}, "
        f"{newest.measured_at[:10]}. The reference is normal random numbers, measured between the "
        "cases. Where the power limit was reached compare energy: power is the same there."
    )
    rows = [
        (
            _within(r.power_w, "{:.1f}"),
            _within(r.reference_ratio, "{:.3f}"),
            f"{r.energy_pj:.4g}",
            ", ".join(r.flags),
            re.sub(r"(sha256=\"[0-9a-f]{8})[0-9a-f]{56}(?=\")", r"\1", str(r.case)),
        )
        for r in results
    ]
    table = TextTable("Measured data", ("W", "of reference", "pJ", "flags", "data"), rows)
    return _Section(f"Input: {newest.case.dtype} on {where.gpu_model}{limit}", [note], [table])


def _sensor_tables(record: SensorRecord, errors: Sequence[ReadingError]) -> Iterator[TextTable]:
    channels = [
        (
            channel.name,
            f"{channel.period_ms:.1f}",
            f"{channel.window_ms:.1f}",
            f"{channel.delay_ms:.1f}",
            f"{channel.noise_w:.2f}",
            f"{100 * channel.prediction_error:.2f}",
            f"{100 * channel.median_error:.2f}",
            "yes" if channel.accepted else "no",
        )
        for channel in record.channels
    ]
    yield TextTable("Channels", _SENSOR, channels)
    if (energy := record.energy) is not None:
        spread = f"{100 * energy.coverage_spread:.2f}"
        row = (f"{energy.period_ms:.0f}", spread, _COVERS[energy.covers_everything])
        yield TextTable("Energy counter", ("every, ms", "spread over phases, %", "verdict"), [row])
    if not errors:
        return
    methods = list(dict.fromkeys(error.way for error in errors))
    cells = {(e.kernel_s, e.way): f"{100 * e.median:.1f} ({100 * e.p95:.1f})" for e in errors}
    yield TextTable(
        "How wrong ways of reading a kernel's power are: median (95 % of cases within), %",
        ("twenty executions of", *methods),
        [
            (f"{1e6 * length:g} µs", *(cells.get((length, method), "-") for method in methods))
            for length in sorted({error.kernel_s for error in errors})
        ],
    )


def _name_of(kernel: KernelReport) -> str:
    limit = f", {kernel.units} SMs" if kernel.units else ""
    return f"{kernel.operation}{limit}, after {kernel.before}"


def _differ(kernel: KernelReport) -> str:
    """Difference of the energy counter and the curve; empty where it is not known."""
    differ = kernel.difference and kernel.difference.differ
    return "" if differ is None else f"{differ:+.1%}"


def _kernel_note(kernel: KernelReport) -> str:
    sse_w, ssp_w = _within(kernel.sse_power_w, "{:.1f}"), _within(kernel.ssp_power_w, "{:.1f}")
    sse_j, ssp_j = _within(kernel.sse_energy_j, "{:.4g}"), _within(kernel.ssp_energy_j, "{:.4g}")
    ssp = "SSP: none, power still changed at the end of the longest runs."
    if kernel.ssp_execution is not None:
        runs = count_of(kernel.ssp_execution, "execution")
        ssp = f"SSP at the end of {runs}: {ssp_w} W, {ssp_j} J an execution."
    counter = f"Energy counter: {kernel.no_difference}."
    if (difference := kernel.difference) is not None:
        against = f", {_differ(kernel)} against the curve" if _differ(kernel) else ""
        joules = _within(difference.counter, "{:.4g}")
        counter = (
            f"By the energy counter {joules} J in executions {difference.first} to "
            f"{difference.last}"
        )
        counter += f"{against}."
    dropped = "".join(f", {count} dropped: {why}" for why, count in kernel.dropped.items())
    return (
        f"SSE is execution {kernel.sse_execution}: {sse_w} W, {sse_j} J. {ssp} {counter} "
        f"{kernel.golden_runs} of {kernel.runs} runs are golden{dropped}. Driver {kernel.driver}, "
        f"{kernel.measured_at[:10]}, source {kernel.source}, {kernel.seconds:.0f} s."
    )


def _within(estimate: Estimate | None, form: str) -> str:
    return estimate.text(form.format) if estimate else "-"


def _overview(kernels: Sequence[KernelReport]) -> tuple[Figure, ...]:
    """All kernels in one figure; none where nothing was measured."""
    if not kernels:
        return ()
    caption = (
        "Power of each kernel at its first steady execution (SSE, by the curve) and in steady "
        "power (SSP), with 95 % intervals. Compare kernels of one card only."
    )
    height = 0.2 + 0.06 * len(kernels)
    return (Figure("overview", caption, partial(_draw_overview, kernels), height, wide=True),)


def _draw_sensor(curve: SensorCurve, axes: Any, ink: Ink) -> None:
    axes.plot(curve.times_s, curve.predicted_w, color=BLUE, linewidth=1.2, label="predicted")
    axes.scatter(curve.read_s, curve.read_w, s=12, color=ORANGE, label="read", zorder=3)
    # From 0 on: else the noise of a channel that hardly moves would look like an error.
    axes.set_ylim(0, 1.2 * max(*curve.read_w, *curve.predicted_w))
    _label(axes, ink, "s", "W")


def _draw_overview(kernels: Sequence[KernelReport], axes: Any, ink: Ink) -> None:
    for label, colour, shift, points in (
        ("SSE", ORANGE, -0.15, [kernel.sse_power_w for kernel in kernels]),
        ("SSP", BLUE, 0.15, [kernel.ssp_power_w for kernel in kernels]),
    ):
        measured = [
            (estimate, place + shift)
            for place, estimate in enumerate(points)
            if estimate is not None
        ]
        for estimate, place in measured:
            if estimate.low is not None and estimate.high is not None:
                axes.plot([estimate.low, estimate.high], [place] * 2, color=colour, linewidth=1.2)
        values = [estimate.value for estimate, _ in measured]
        axes.scatter(values, [place for _, place in measured], s=18, color=colour, label=label)
    several = len({kernel.gpu_model for kernel in kernels}) > 1
    names = [
        f"{kernel.gpu_model}: {_name_of(kernel)}" if several else _name_of(kernel)
        for kernel in kernels
    ]
    for place, name in enumerate(names):
        where: Any = axes.get_yaxis_transform()
        axes.text(0.01, place - 0.3, name, transform=where, va="bottom", color=ink.text)
    axes.set_yticks([])
    axes.set_ylim(len(names) - 0.6, -0.8)
    _label(axes, ink, "W", "")


def _draw_curve(kernel: KernelReport, axes: Any, ink: Ink) -> None:
    edges = [kernel.curve[0].begin_ms, *(point.end_ms for point in kernel.curve)]
    low, high, power = (
        [getattr(point, name) for point in kernel.curve] for name in ("low_w", "high_w", "power_w")
    )
    axes.fill_between(
        edges, [*low, low[-1]], [*high, high[-1]],
        step="post", color=BLUE, alpha=0.2, linewidth=0, label="95 % band",
    )  # fmt: skip
    axes.stairs(power, edges, color=BLUE, baseline=None, linewidth=1.2, label="deconvolved")
    read = [
        ((point.begin_ms + point.end_ms) / 2, point.raw_w)
        for point in kernel.curve
        if point.raw_w is not None
    ]
    if read:
        axes.scatter(*zip(*read, strict=True), s=8, color=ORANGE, label="as read")
    if kernel.ssp_power_w is not None:
        axes.axhline(
            kernel.ssp_power_w.value, color=GREEN, linewidth=1, linestyle="--", label="SSP"
        )
    if kernel.before_w is not None:
        axes.axhline(kernel.before_w, color=GREY, linewidth=0.8, linestyle=":", label="before")
    _label(axes, ink, "ms since the start of a run", "W")


def _draw_times(kernel: KernelReport, axes: Any, ink: Ink) -> None:
    edges, counts = kernel.histogram.edges_ms, kernel.histogram.counts
    bars = [*zip(edges, edges[1:], counts, strict=False)]
    for label, colour, golden in (("golden", GREEN, True), ("others", GREY, False)):
        shown = [
            (begin, end, count)
            for begin, end, count in bars
            if count and (begin <= kernel.bin_high_ms and end >= kernel.bin_low_ms) is golden
        ]
        if shown:
            axes.bar(
            [begin for begin, _, _ in shown],
            [count for _, _, count in shown],
            [end - begin for begin, end, _ in shown],
            align="edge", color=colour, label=label,
        )  # fmt: skip
    axes.set_xlim(edges[0], edges[-1])
    _label(axes, ink, "execution time, ms", "runs")


def _label(axes: Any, ink: Ink, x: str, y: str) -> None:
    axes.set_xlabel(x, color=ink.text)
    axes.set_ylabel(y, color=ink.text)
    axes.legend(frameon=False, labelcolor=ink.text, fontsize="small", loc="best")
