"""`advisor power sensor` and `advisor power kernel`: how a card reads power, what a run draws."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from advisor.errors import STOPPED, InputError
from advisor.files import open_home
from advisor.formats.wire import to_plain
from advisor.settings import Settings, read_settings
from advisor.validity.sensor_record import SensorRecord, keep_record, origin_of, power_timing
from advisor.wire.power import Estimate, Histogram, KernelReport
from advisor_cli.console import (
    REPLAY,
    AsJson,
    Curve,
    as_json_text,
    plain_console,
    say_lines,
    show_chart,
)
from advisor_cli.measure.testbeds import stoppable
from advisor_data.bundled import all_sensors
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.kernels import (
    IDLE,
    LEAD_S,
    KernelPlan,
    WantedKernel,
    bytes_of,
    check_resolution,
    measure_operation,
    open_kernel_bench,
    operation_name,
    recorded_kernel,
    sensors_of,
)
from advisor_power.sensor import (
    Trace,
    measured,
    read_trace,
    record,
    record_of,
    recorded_sensor,
)
from advisor_profiling.testbed import find_gpu
from advisor_profiling.window import Step

ReplayedModel: TypeAlias = Annotated[
    str | None, typer.Option(help="With --gpu replay: such as 'NVIDIA H200'")
]


def sensor(
    gpu: Annotated[str, typer.Option(help="Index, UUID or `replay`")] = "0",
    gpu_model: ReplayedModel = None,
    python: Annotated[str, typer.Option(help="Python interpreter with PyTorch")] = "python3",
    trace: Annotated[
        Path | None,
        typer.Option(help="Analyse this recording instead of measuring; stores nothing"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the interval, window and delay of the power sensors of a GPU.

    A load is switched on and off for three and a half minutes while all power readings are
    recorded. The result is stored for this GPU and driver, and windows are then as long as the
    sensor needs (docs/power.md). Changes no setting of the GPU.

    Example: advisor power sensor --gpu replay
    """
    console = plain_console(stderr=True)
    _check_gpu_model(gpu, gpu_model)
    if trace is not None:
        with InputError.instead_of(OSError, f"{trace} cannot be read"):
            recorded = read_trace(trace)
    elif gpu == REPLAY:
        replayed, recorded = recorded_sensor(gpu_model)
        _say_power_replay(console, "recording", replayed)
        console.print("looking for periods, windows and delays: about ten seconds", highlight=False)
    else:
        recorded = _record_sensor(gpu, python, read_settings(), console)
    source = "live" if trace is None and gpu != REPLAY else REPLAY
    record = record_of(recorded, source)
    if source == "live" and record.accepted:
        keep_record(record, read_settings().home)
    say_lines([as_json_text(_as_json(record, recorded))] if as_json else _sensor_lines(record))
    if not record.accepted:
        # Nothing of what was found is to be believed.
        raise typer.Exit(6)


def _record_sensor(gpu_name: str, python: str, settings: Settings, console: Console) -> Trace:
    gpu = find_gpu(gpu_name)
    if gpu.vendor != "nvidia":
        raise InputError(
            f"the sensors of {gpu.model} are not measured",
            why="the channels are those of NVIDIA's NVML",
            fix="choose an NVIDIA GPU with --gpu",
        )
    seed = time.time_ns()
    file = open_home(settings.home, "sensors", "recordings") / f"{seed}.jsonl"
    try:
        recorded = record(
            settings,
            WorkerPlace(gpu=gpu_name, python=python),
            file,
            seed,
            lambda line: console.print(f"  {line}", highlight=False),
        )
    except KeyboardInterrupt:
        so_far = f"; what was recorded is in {file}" if file.exists() else ""
        console.print(f"stopped{so_far}", soft_wrap=True, highlight=False)
        raise typer.Exit(STOPPED) from None
    console.print(f"recorded in {file}", soft_wrap=True, highlight=False)
    return recorded


def _as_json(record: SensorRecord, recorded: Trace) -> dict[str, object]:
    timing = power_timing(record)
    return {
        **to_plain(record),
        "accepted": record.accepted,
        "settle_s": timing and timing.settle_s,
        "shortest_window_s": timing and timing.shortest_window_s,
        "reading_errors": to_plain(measured(recorded, record)),
    }


_COVERS = {
    True: "it integrates everything",
    False: "it adds up the times at which the sensor looks: use long windows",
    None: "whether it integrates everything is open",
}


def _sensor_lines(record: SensorRecord) -> Iterator[str]:
    yield f"{record.gpu_model}, {record.gpu_uuid}, driver {record.driver}, {record.seconds:.0f} s"
    if record.channels:
        yield (
            f"{'channel':9}{'period ms':>10}{'window ms':>11}{'delay ms':>10}{'clock ms':>10}"
            f"{'noise W':>9}{'halves differ ms':>18}{'waves off %':>13}{'half within %':>15}"
        )
    yield from (
        f"{channel.name:9}{channel.period_ms:10.1f}{channel.window_ms:11.1f}"
        f"{channel.delay_ms:10.1f}{channel.delay_spread_ms:10.3f}{channel.noise_w:9.2f}"
        f"{channel.window_spread_ms:18.2f}"
        f"{100 * channel.prediction_error:13.2f}{100 * channel.median_error:15.2f}  "
        f"{'accepted' if channel.accepted else 'not accepted'}"
        for channel in record.channels
    )
    yield from (
        f"{channel.name} is no mean: it fades exponentially, with a time constant of "
        f"{channel.window_ms / 2:.1f} ms, half of the window"
        for channel in record.channels
        if channel.response == "exponential"
    )
    if (energy := record.energy) is not None:
        yield (
            f"energy counter: every {energy.period_ms:.0f} ms, spread over phases "
            f"{100 * energy.coverage_spread:.2f} %: {_COVERS[energy.covers_everything]}"
        )
    yield from (f"  {reason}" for reason in record.reasons)
    if timing := power_timing(record):
        yield (
            f"Power settles in {timing.settle_s:.2f} s; the shortest window is "
            f"{timing.shortest_window_s:.2f} s."
        )
    if not record.accepted:
        yield "Nothing of this is used: measure again on an idle GPU."


def _check_gpu_model(gpu: str, gpu_model: str | None) -> None:
    """A card has its own model.

    Raises:
        InputError: a model was named for a card.
    """
    if gpu_model is not None and gpu != REPLAY:
        raise InputError("--gpu-model is for a replay", fix="add --gpu replay, or leave it out")


def _say_power_replay(console: Console, what: str, of: SensorRecord | KernelReport) -> None:
    """A line that this is a replay, not a measurement."""
    console.print(
        f"REPLAY of a {what} of {of.gpu_model}, {of.gpu_uuid}, driver {of.driver}, measured "
        f"{of.measured_at[:10]}: no GPU is used.",
        highlight=False,
    )


_BAR = 30  # characters of the longest bar of the histogram


def report_lines(report: KernelReport) -> Iterator[str]:
    """Everything but the charts."""
    yield (
        f"{report.operation} on {report.gpu_model}, {report.units or '?'} SMs, driver "
        f"{report.driver}, after {report.before}"
    )
    yield f"a launch    {_joules(report.launch_energy_j)} in steady power"
    yield _difference_line(report)
    how = "a CUDA graph" if report.captured else "launched one by one: it cannot be captured"
    of = f" of {report.launches} launches" if report.launches > 1 else ""
    yield f"execution   {report.execution_ms:.4g} ms{of}, {how}"
    yield f"before      {'not known' if report.before_w is None else f'{report.before_w:.1f} W'}"
    yield (
        f"SSE         execution {report.sse_execution}: {_watts(report.sse_power_w)}, "
        f"{_joules(report.sse_energy_j)}"
    )
    yield _ssp_line(report)
    if stretch := report.stretch:
        capped = ", at the power limit" if stretch.power_capped else ""
        yield f"no gap      {_watts(stretch.power_w)} over {stretch.seconds:.1f} s{capped}"
        memory_w = stretch.memory_power_w
        yield f"memory      {_watts(memory_w) if memory_w else stretch.no_memory_power}"
    dropped = "".join(f", {count} dropped: {why}" for why, count in report.dropped.items())
    yield (
        f"runs        {report.golden_runs} of {report.runs} golden "
        f"({report.bin_low_ms:.4g}-{report.bin_high_ms:.4g} ms){dropped}"
    )
    yield from _histogram_lines(report.histogram, report.bin_low_ms, report.bin_high_ms)
    yield (
        f"resolution  {report.resolution_ms:.3g} ms, +-{report.sigma_w:.3g} W standard error in "
        f"the first {report.window_ms:g} ms of a run; the band in the chart is of 95 %"
        if report.curve
        else f"no curve    {report.no_curve}"
    )
    yield (
        f"GPU time    {report.gpu_busy_s:.1f} s computing, {report.seconds:.0f} s in all; window "
        f"{report.window_ms:g} ms, delay {report.delay_ms:g} ms, noise {report.noise_w:g} W"
    )


def _curves(power: KernelReport) -> Iterator[Curve]:
    """Power since the start of a run: deconvolved with its band, and as it was read."""
    middles = [(p.begin_ms + p.end_ms) / 2 for p in power.curve]
    yield middles, [p.low_w for p in power.curve], {"marker": "dot", "label": "95 % band"}
    yield middles, [p.high_w for p in power.curve], {"marker": "dot"}
    read = [(m, p.raw_w) for m, p in zip(middles, power.curve, strict=True) if p.raw_w is not None]
    if read:
        yield [m for m, _ in read], [w for _, w in read], {"marker": "braille", "label": "as read"}
    yield middles, [p.power_w for p in power.curve], {"label": "deconvolved"}


def _ssp_line(power: KernelReport) -> str:
    if power.before != IDLE:
        return (
            f"settled     {_watts(power.settled_power_w)} once {power.before} has left the sensor"
        )
    if power.ssp_execution is None:
        return "SSP         none: power still changed at the end of the longest runs"
    return (
        f"SSP         at the end of {power.ssp_execution} executions: "
        f"{_watts(power.ssp_power_w)}, {_joules(power.ssp_energy_j)}"
    )


def _difference_line(power: KernelReport) -> str:
    if (difference := power.difference) is None:
        return f"counter     {power.no_difference}"
    each = (
        f"counter     executions {difference.first}-{difference.last}: "
        f"{_joules(difference.counter)} each"
    )
    if difference.curve_j is None or difference.differ is None:
        return each
    return f"{each}, by the curve {_scaled(difference.curve_j)}: {difference.differ:+.1%}"


def _histogram_lines(histogram: Histogram, low_ms: float, high_ms: float) -> Iterator[str]:
    most = max(histogram.counts, default=0)
    for place, count in enumerate(histogram.counts):
        if count:
            begin, end = histogram.edges_ms[place], histogram.edges_ms[place + 1]
            mark = "golden" if begin <= high_ms and end >= low_ms else ""
            bar = "#" * max(1, round(_BAR * count / most))
            yield f"  {begin:8.5g}-{end:<8.5g} ms {count:>5} {bar:<{_BAR}} {mark}".rstrip()


def _watts(estimate: Estimate | None) -> str:
    if estimate is None:
        return "power not known"
    between = "" if estimate.low is None else f" [{estimate.low:.1f}, {estimate.high:.1f}]"
    return f"{estimate.value:.1f} W{between}"


def _joules(estimate: Estimate | None) -> str:
    return estimate.text(_scaled) if estimate else "energy not known"


def _scaled(joules: float) -> str:
    return f"{joules:.4g} J" if abs(joules) >= 1 else f"{joules * 1000:.4g} mJ"


def kernel(
    name: Annotated[
        str,
        typer.Argument(
            help="gemm, gemv, triad, copy, all-gather or all-reduce", metavar="OPERATION"
        ),
    ] = "",
    m: Annotated[int, typer.Option("--m", min=1, help="Rows, or elements of an array")] = 4096,
    n: Annotated[int, typer.Option("--n", min=1, help="Columns")] = 4096,
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the sums")] = 4096,
    size: Annotated[
        str, typer.Option("--bytes", help="Size of a collective over two GPUs, such as 64KiB")
    ] = "512MiB",
    dtype: Annotated[str, typer.Option(help="bf16, fp16, fp32 or tf32")] = "bf16",
    call: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Function to measure instead of a named operation"
        ),
    ] = "",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Rotate inputs so that they do not stay in a cache")
    ] = False,
    after: Annotated[
        str, typer.Option(help='Operation just before each measured burst, as "gemm --m 8192"')
    ] = "",
    gpu: Annotated[str, typer.Option(help="Index, UUID or `replay`")] = "0",
    gpu_model: ReplayedModel = None,
    units: Annotated[
        int | None, typer.Option(min=1, help="Number of SMs, under MPS (default: the whole GPU)")
    ] = None,
    python: Annotated[str, typer.Option(help="Python interpreter with PyTorch")] = "python3",
    runs: Annotated[
        int | None, typer.Option(min=1, help="Number of runs (default: as in FinGraV)")
    ] = None,
    resolution_ms: Annotated[float, typer.Option(help="Width of a bin of the curve, ms")] = 5.0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore stored results and measure again")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure power and energy of one operation, for each execution of a burst.

    The operation runs in short bursts after random gaps, and readings of many bursts are put
    together (FinGraV). It needs the record of `advisor power sensor`. After Ctrl-C the same command
    goes on.

    Example: advisor power kernel gemm --gpu replay
    """
    before, together = after or IDLE, name in ("all-gather", "all-reduce")
    if bool(name) == bool(call):
        raise InputError(
            f"both {name} and --call were given" if call else "no operation was named",
            fix="name gemm, gemv, triad, copy, all-gather or all-reduce, or a function with --call "
            "module:function",
        )
    _check_gpu_model(gpu, gpu_model)
    settings, console = read_settings(), plain_console(stderr=True)
    if gpu == REPLAY:
        sizes = {"m": m, "n": n, "k": k, "bytes": bytes_of(size)}
        operation = call or operation_name(name, sizes, dtype, rotate=rotate)
        report = recorded_kernel(operation, before, units, gpu_model)
        _say_power_replay(console, "measurement", report)
    elif together and (after or rotate):
        raise InputError(
            f"{name} goes with neither --after nor --rotate",
            fix="leave them out: a collective runs after idle, with one set of inputs",
        )
    else:
        of_array = ("--m", str(m), "--n", str(n), "--k", str(k))
        named = (name, *(("--bytes", size) if together else of_array), "--dtype", dtype)
        options = (
            *(("--call", call) if call else named),
            *(("--rotate",) if rotate else ()),
            *(("--after", after) if after else ()),
        )
        wanted = WantedKernel(
            resolution_ms=resolution_ms,
            runs=runs,
            before=before,
            lead_s=LEAD_S if after else 0.0,
            fresh=fresh,
        )
        report = _measure(
            options,
            WorkerPlace(gpu=gpu, units=units, python=python),
            wanted,
            settings,
            console,
            together=together,
        )
    say_lines([as_json_text(report)] if as_json else report_lines(report))
    if report.curve and not as_json:
        show_chart(
            _curves(report),
            title=f"W, in bins of {report.resolution_ms:.3g} ms",
            below="ms since the start of a run",
            height=18,
        )


def _measure(
    options: Sequence[str],
    place: WorkerPlace,
    wanted: WantedKernel,
    settings: Settings,
    console: Console,
    *,
    together: bool,
) -> KernelReport:
    # What is known of the card's sensors, and what of that must be said.
    card = find_gpu(place.gpu)
    record, channel = sensors_of(card, all_sensors(settings.home))
    check_resolution(channel, wanted.resolution_ms)
    if record.gpu_uuid != card.uuid:
        console.print(f"record of the power sensor: {origin_of(record, card.uuid)}", soft_wrap=True)
    if not channel.accepted:
        console.print(
            "the sensor record misses its own requirements: bands may be too narrow",
            soft_wrap=True,
        )
    console.print("  starting ...", highlight=False)
    report, planned = _progress(console, wanted.resolution_ms)
    with (
        stoppable(console),
        open_kernel_bench(settings, channel, place, options, second_gpu=together) as bench,
    ):
        return measure_operation(
            bench, bench.worker.gpu, (record, channel), wanted, settings.home, report, planned
        )


def _progress(
    console: Console, resolution_ms: float
) -> tuple[Callable[[Step], None], Callable[[KernelPlan], None]]:
    """What is said of steps, each once, and of the plan."""
    said = ""

    def report(step: Step) -> None:
        nonlocal said
        if step.what != said:
            said = step.what
            console.print(f"  {step}", highlight=False, soft_wrap=True)

    def planned(plan: KernelPlan) -> None:
        console.print(
            f"{plan.runs} runs, {plan.seconds:.0f} s, of which {plan.gpu_busy_s:.0f} s computing: "
            f"+-{plan.sigma_w:.3g} W at {resolution_ms:g} ms, +-{plan.sigma_end_w:.3g} W at the "
            "end of a run",
            highlight=False,
            soft_wrap=True,
        )

    return report, planned
