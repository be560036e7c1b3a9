"""The figures of sensors and kernels."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import KernelReport, SensorCurve
from advisor_power.reports.tables import name_of
from advisor_training.reports.document import BLUE, GREEN, GREY, ORANGE, Figure, Ink

_LOADS = {
    "step": "a load that begins and stays",
    "wave": "a load that is switched on and off",
}


def sensor_figures(
    number: int, record: SensorRecord, curves: Sequence[SensorCurve]
) -> tuple[Figure, ...]:
    """Predicted against read, for each channel and load."""
    return tuple(
        Figure(
            f"sensor-{number}-{curve.channel}-{curve.load}",
            f"{record.gpu_model}, {curve.channel}: {_LOADS[curve.load]}. Dots were read; the line "
            "is what window and delay of the record predict, with the powers of the load that suit "
            "the readings best.",
            partial(_draw_sensor, curve),
            0.55,
        )
        for curve in curves
    )


def overview(kernels: Sequence[KernelReport]) -> tuple[Figure, ...]:
    """All kernels in one figure; none where nothing was measured."""
    if not kernels:
        return ()
    caption = (
        "Power of each kernel at its first steady execution (SSE, by the curve) and in steady "
        "power (SSP), with 95 % intervals. Compare kernels of one card only."
    )
    height = 0.2 + 0.06 * len(kernels)
    return (Figure("overview", caption, partial(_draw_overview, kernels), height, wide=True),)


def kernel_figures(number: int, one: KernelReport) -> tuple[Figure, ...]:
    """Its curve, where there is one, and its execution times."""
    times = Figure(
        f"kernel-{number}-times",
        f"{name_of(one)}: execution times of {one.runs} runs. Golden are those of the bin that "
        "most runs are in.",
        partial(_draw_times, one),
        0.55,
    )
    if not one.curve:
        return (times,)
    caption = (
        f"{name_of(one)}: power since the start of a run in bins of {one.resolution_ms:.3g} ms, "
        f"with the window of {one.window_ms:.4g} ms taken out; nothing finer can be told. The band "
        "is of 95 %. Dots are means of what was read meanwhile: late, and smeared."
    )
    curve = partial(_draw_curve, one)
    return (Figure(f"kernel-{number}-curve", caption, curve, 0.55), times)


def _draw_sensor(curve: SensorCurve, axes: Any, ink: Ink) -> None:
    axes.plot(curve.times_s, curve.predicted_w, color=BLUE, linewidth=1.2, label="predicted")
    axes.scatter(curve.read_s, curve.read_w, s=12, color=ORANGE, label="read", zorder=3)
    # From 0 on: else the noise of a channel that hardly moves would look like an error.
    axes.set_ylim(0, 1.2 * max(*curve.read_w, *curve.predicted_w))
    _label(axes, ink, "s", "W")


def _draw_overview(kernels: Sequence[KernelReport], axes: Any, ink: Ink) -> None:
    for label, colour, shift, points in (
        ("SSE", ORANGE, -0.15, [one.sse_power_w for one in kernels]),
        ("SSP", BLUE, 0.15, [one.ssp_power_w for one in kernels]),
    ):
        known = [(found, place + shift) for place, found in enumerate(points) if found is not None]
        for found, place in known:
            if found.low is not None and found.high is not None:
                axes.plot([found.low, found.high], [place] * 2, color=colour, linewidth=1.2)
        values = [found.value for found, _ in known]
        axes.scatter(values, [place for _, place in known], s=18, color=colour, label=label)
    several = len({one.gpu_model for one in kernels}) > 1
    names = [f"{one.gpu_model}: {name_of(one)}" if several else name_of(one) for one in kernels]
    for place, name in enumerate(names):
        where: Any = axes.get_yaxis_transform()
        axes.text(0.01, place - 0.3, name, transform=where, va="bottom", color=ink.text)
    axes.set_yticks([])
    axes.set_ylim(len(names) - 0.6, -0.8)
    _label(axes, ink, "W", "")


def _draw_curve(one: KernelReport, axes: Any, ink: Ink) -> None:
    edges = [one.curve[0].begin_ms, *(point.end_ms for point in one.curve)]
    low, high, power = (
        [getattr(point, name) for point in one.curve] for name in ("low_w", "high_w", "power_w")
    )
    axes.fill_between(
        edges, [*low, low[-1]], [*high, high[-1]],
        step="post", color=BLUE, alpha=0.2, linewidth=0, label="95 % band",
    )  # fmt: skip
    axes.stairs(power, edges, color=BLUE, baseline=None, linewidth=1.2, label="deconvolved")
    read = [
        ((point.begin_ms + point.end_ms) / 2, point.raw_w)
        for point in one.curve
        if point.raw_w is not None
    ]
    if read:
        axes.scatter(*zip(*read, strict=True), s=8, color=ORANGE, label="as read")
    if one.ssp_power_w is not None:
        axes.axhline(one.ssp_power_w.value, color=GREEN, linewidth=1, linestyle="--", label="SSP")
    if one.before_w is not None:
        axes.axhline(one.before_w, color=GREY, linewidth=0.8, linestyle=":", label="before")
    _label(axes, ink, "ms since the start of a run", "W")


def _draw_times(one: KernelReport, axes: Any, ink: Ink) -> None:
    edges, counts = one.histogram.edges_ms, one.histogram.counts
    bars = [*zip(edges, edges[1:], counts, strict=False)]
    for label, colour, golden in (("golden", GREEN, True), ("others", GREY, False)):
        shown = [
            (begin, end, count)
            for begin, end, count in bars
            if count and (begin <= one.bin_high_ms and end >= one.bin_low_ms) is golden
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
