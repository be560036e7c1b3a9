"""What `advisor power kernel` says to a person."""

from collections.abc import Iterator
from typing import Any

from advisor.wire.power import Estimate, Histogram, KernelPower, KernelReport, StretchPower
from advisor_power.kernels.plan import KernelPlan
from advisor_power.kernels.running.measure import KernelStep
from advisor_power.kernels.trace import IDLE

_BAR = 30
"""Characters of the longest bar of the histogram."""


def step_line(step: KernelStep) -> str:
    """How far it is."""
    if step.total is None or step.eta_s is None:
        return f"{step.what}: run {step.done}"
    minutes, seconds = divmod(int(step.eta_s), 60)
    return f"{step.done}/{step.total}  {step.what}  eta {minutes}:{seconds:02}"


def plan_line(plan: KernelPlan, resolution_ms: float) -> str:
    """What is going to be done, and what comes of it."""
    return (
        f"{plan.runs} runs, {plan.seconds:.0f} s, of which {plan.gpu_busy_s:.0f} s computing: "
        f"+-{plan.sigma_w:.3g} W at {resolution_ms:g} ms, +-{plan.sigma_end_w:.3g} W at the end of "
        "a run"
    )


def report_lines(report: KernelReport) -> Iterator[str]:
    """Everything but the charts."""
    power, launches = report, report.launches
    yield (
        f"{report.operation} on {report.gpu_model}, {report.units or '?'} SMs, driver "
        f"{report.driver}, after {report.before}"
    )
    how = "a CUDA graph" if report.captured else "launched one by one: it cannot be captured"
    of = f" of {launches} launches" if launches > 1 else ""
    yield f"execution   {power.execution_ms:.4g} ms{of}, {how}"
    before = "not known" if power.before_w is None else f"{power.before_w:.1f} W"
    yield f"before      {before}"
    yield (
        f"SSE         execution {power.sse_execution}: {_watts(power.sse_power_w)}, "
        f"{_joules(power.sse_energy_j)}"
    )
    yield _ssp_line(power, report.before)
    if power.stretch:
        yield from _stretch_lines(power.stretch)
    if launches > 1:
        yield f"a launch    {_joules(report.launch_energy_j)} in steady power"
    yield _difference_line(power)
    dropped = "".join(f", {count} dropped: {why}" for why, count in power.dropped.items())
    yield (
        f"runs        {power.golden_runs} of {power.runs} golden "
        f"({power.bin_low_ms:.4g}-{power.bin_high_ms:.4g} ms){dropped}"
    )
    yield from _histogram_lines(power.histogram, power.bin_low_ms, power.bin_high_ms)
    if power.curve:
        yield (
            f"resolution  {power.resolution_ms:.3g} ms, +-{power.sigma_w:.3g} W standard error in "
            f"the first {report.window_ms:g} ms of a run; the band in the chart is of 95 %"
        )
    else:
        yield f"no curve    {power.no_curve}"
    yield (
        f"GPU time    {report.gpu_busy_s:.1f} s computing, {report.seconds:.0f} s in all; window "
        f"{report.window_ms:g} ms, delay {report.delay_ms:g} ms, noise {report.noise_w:g} W"
    )


def plot(power: KernelPower, width: int = 78, height: int = 18) -> str:
    """Power since the start of a run: deconvolved with its band, and as it was read."""
    import plotext

    canvas: Any = plotext
    canvas.clear_figure()
    canvas.theme("clear")
    canvas.plotsize(width, height)
    middles = [(p.begin_ms + p.end_ms) / 2 for p in power.curve]
    canvas.plot(middles, [p.low_w for p in power.curve], marker="dot", label="95 % band")
    canvas.plot(middles, [p.high_w for p in power.curve], marker="dot")
    read = [(m, p.raw_w) for m, p in zip(middles, power.curve, strict=True) if p.raw_w is not None]
    if read:
        canvas.plot([m for m, _ in read], [w for _, w in read], marker="braille", label="as read")
    canvas.plot(middles, [p.power_w for p in power.curve], label="deconvolved")
    canvas.title(f"W, in bins of {power.resolution_ms:.3g} ms")
    canvas.xlabel("ms since the start of a run")
    # It ends each line with a colour code even where there is no colour.
    return str(canvas.uncolorize(canvas.build()))


def _ssp_line(power: KernelPower, before: str) -> str:
    if before != IDLE:
        return f"settled     {_watts(power.settled_power_w)} once {before} has left the sensor"
    if power.ssp_execution is None:
        return "SSP         none: power still changed at the end of the longest runs"
    return (
        f"SSP         at the end of {power.ssp_execution} executions: "
        f"{_watts(power.ssp_power_w)}, {_joules(power.ssp_energy_j)}"
    )


def _stretch_lines(stretch: StretchPower) -> Iterator[str]:
    capped = ", at the power limit" if stretch.power_capped else ""
    yield f"no gap      {_watts(stretch.power_w)} over {stretch.seconds:.1f} s{capped}"
    memory = _watts(stretch.memory_power_w) if stretch.memory_power_w else stretch.no_memory_power
    yield f"memory      {memory}"


def _difference_line(power: KernelPower) -> str:
    found = power.difference
    if found is None:
        return f"counter     {power.no_difference}"
    each = f"counter     executions {found.first}-{found.last}: {_joules(found.counter)} each"
    if found.curve_j is None or found.differ is None:
        return each
    return f"{each}, by the curve {_scaled(found.curve_j)}: {found.differ:+.1%}"


def _histogram_lines(histogram: Histogram, low_ms: float, high_ms: float) -> Iterator[str]:
    most = max(histogram.counts, default=0)
    for place, count in enumerate(histogram.counts):
        if not count:
            continue
        begin, end = histogram.edges_ms[place], histogram.edges_ms[place + 1]
        mark = "golden" if begin <= high_ms and end >= low_ms else ""
        bar = "#" * max(1, round(_BAR * count / most))
        yield f"  {begin:8.5g}-{end:<8.5g} ms {count:>5} {bar:<{_BAR}} {mark}".rstrip()


def _watts(found: Estimate | None) -> str:
    if found is None:
        return "power not known"
    between = "" if found.low is None else f" [{found.low:.1f}, {found.high:.1f}]"
    return f"{found.value:.1f} W{between}"


def _joules(found: Estimate | None) -> str:
    return found.text(_scaled) if found else "energy not known"


def _scaled(joules: float) -> str:
    return f"{joules:.4g} J" if abs(joules) >= 1 else f"{joules * 1000:.4g} mJ"
