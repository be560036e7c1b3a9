"""`advisor power kernel`: the power of one operation over time, and the energy of an execution."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from advisor.errors import InputError
from advisor.settings import Settings, read_settings
from advisor.validity.sensor_record import origin_of
from advisor.wire.power import KernelReport
from advisor_cli.console import plain_console, show_chart
from advisor_cli.options import REPLAY, AsJson, grouped
from advisor_cli.power.kernel_text import plan_line, plot, report_lines, step_line
from advisor_cli.power.replayed import ReplayedModel, check_gpu_model, say_power_replay
from advisor_cli.say import as_json_text, say
from advisor_cli.stopping import stoppable
from advisor_data.known import known_sensors
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.kernels.plan import KernelPlan, check_resolution
from advisor_power.kernels.replay import RecordedKernel, bytes_of, operation_name, recorded_kernel
from advisor_power.kernels.running.live import open_kernel_bench
from advisor_power.kernels.running.measure import KernelStep
from advisor_power.kernels.running.operation import measure_operation
from advisor_power.kernels.running.wanted import LEAD_S, Sensors, WantedKernel, sensors_of
from advisor_power.kernels.trace import IDLE
from advisor_profiling.testbed.live import find_gpu

COLLECTIVES = ("all-gather", "all-reduce")
"""Operations over two GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOperation:
    """The operation that is meant: one of ours, or what `call` names."""

    name: Annotated[
        str,
        typer.Argument(
            help="gemm, gemv, triad, copy, all-gather or all-reduce", metavar="OPERATION"
        ),
    ] = ""
    m: Annotated[int, typer.Option("--m", min=1, help="Rows, or elements of an array")] = 4096
    n: Annotated[int, typer.Option("--n", min=1, help="Columns")] = 4096
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the sums")] = 4096
    size: Annotated[
        str, typer.Option("--bytes", help="Of a collective over two GPUs, such as 64KiB")
    ] = "512MiB"
    dtype: Annotated[str, typer.Option(help="bf16, fp16, fp32 or tf32")] = "bf16"
    call: Annotated[
        str, typer.Option(metavar="MODULE:FUNCTION", help="Measure this, not a named operation")
    ] = ""
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Take turns with inputs, so that no cache holds them")
    ] = False
    after: Annotated[
        str, typer.Option(help='Operation just before each measured burst, as "gemm --m 8192"')
    ] = ""

    @property
    def before(self) -> str:
        """Operation just before each measured burst, idle included."""
        return self.after or IDLE

    @property
    def together(self) -> bool:
        """Whether it is one over two GPUs."""
        return self.name in COLLECTIVES

    def recorded_name(self) -> str:
        """As reports call it.

        Raises:
            InputError: `size` is none.
        """
        sizes = {"m": self.m, "n": self.n, "k": self.k, "bytes": bytes_of(self.size)}
        return self.call or operation_name(self.name, sizes, self.dtype, rotate=self.rotate)

    def options(self) -> tuple[str, ...]:
        """As the workload takes it."""
        sizes = ("--m", str(self.m), "--n", str(self.n), "--k", str(self.k))
        if self.together:
            sizes = ("--bytes", self.size)
        what = ("--call", self.call) if self.call else (self.name, *sizes, "--dtype", self.dtype)
        rotate = ("--rotate",) if self.rotate else ()
        return (*what, *rotate, *(("--after", self.after) if self.after else ()))


@grouped
def kernel(
    what: AskedOperation,
    gpu: Annotated[str, typer.Option(help="Index, UUID or `replay`")] = "0",
    gpu_model: ReplayedModel = None,
    units: Annotated[
        int | None, typer.Option(min=1, help="SMs, under MPS; else the whole GPU")
    ] = None,
    python: Annotated[str, typer.Option(help="Interpreter that has PyTorch")] = "python3",
    runs: Annotated[int | None, typer.Option(min=1, help="How many; else as FinGraV says")] = None,
    resolution_ms: Annotated[float, typer.Option(help="Width of a bin of the curve, ms")] = 5.0,
    within_w: Annotated[
        float | None, typer.Option(help="Make as many runs as a bin within so many watts needs")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Longest time that it may take")] = 10.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is kept")] = False,
    as_json: AsJson = False,
) -> None:
    """What power does one operation draw from one execution to the next, and what energy?

    The operation runs in short bursts after random gaps, and readings of many bursts are put
    together (FinGraV). It needs the record of `advisor power sensor`. After Ctrl-C the same command
    goes on.

    Example: advisor power kernel gemm --gpu replay
    """
    wanted = WantedKernel(
        resolution_ms=resolution_ms,
        within_w=within_w,
        runs=runs,
        most_s=minutes * 60,
        before=what.before,
        lead_s=LEAD_S if what.after else 0.0,
        fresh=fresh,
    )
    _check(what, within_w)
    check_gpu_model(gpu, gpu_model)
    settings, console = read_settings(), plain_console(stderr=True)
    if gpu == REPLAY:
        found = _replay(what, units, gpu_model, console)
    else:
        found = _measure(
            what, WorkerPlace(gpu=gpu, units=units, python=python), wanted, settings, console
        )
    _show(found, as_json)


def _check(what: AskedOperation, within_w: float | None) -> None:
    if bool(what.name) == bool(what.call):
        raise InputError(
            f"both {what.name} and --call were given" if what.call else "no operation was named",
            fix="name gemm, gemv, triad, copy, all-gather or all-reduce, or a function with --call "
            "module:function",
        )
    if within_w is not None and within_w <= 0:
        raise InputError(f"+-{within_w:g} W is no precision", fix="ask for --within-w 5")


def _replay(
    what: AskedOperation, units: int | None, gpu_model: str | None, console: Console
) -> KernelReport:
    asked = RecordedKernel(
        operation=what.recorded_name(), before=what.before, units=units, gpu_model=gpu_model
    )
    found = recorded_kernel(asked)
    say_power_replay(console, "measurement", found)
    return found


def _measure(
    what: AskedOperation,
    place: WorkerPlace,
    wanted: WantedKernel,
    settings: Settings,
    console: Console,
) -> KernelReport:
    sensors = _known_sensors(place.gpu, wanted.resolution_ms, settings, console)
    _check_together(what)
    console.print("  starting ...", highlight=False)
    opening = open_kernel_bench(
        settings, sensors.channel, place, what.options(), second_gpu=what.together
    )
    report, planned = _progress(console, wanted.resolution_ms)
    with stoppable(console), opening as bench:
        return measure_operation(bench, bench.gpu, sensors, wanted, settings.home, report, planned)


def _progress(
    console: Console, resolution_ms: float
) -> tuple[Callable[[KernelStep], None], Callable[[KernelPlan], None]]:
    """What is said of steps, each once, and of the plan."""
    said = ""

    def report(step: KernelStep) -> None:
        nonlocal said
        if step.what == said:
            return
        said = step.what
        console.print(f"  {step_line(step)}", highlight=False, soft_wrap=True)

    def planned(plan: KernelPlan) -> None:
        console.print(plan_line(plan, resolution_ms), highlight=False, soft_wrap=True)

    return report, planned


def _known_sensors(gpu: str, resolution_ms: float, settings: Settings, console: Console) -> Sensors:
    """What is known of the card's sensors, and what of that must be said."""
    card = find_gpu(gpu)
    sensors = sensors_of(card, known_sensors(settings.home))
    check_resolution(sensors.channel, resolution_ms)
    if sensors.record.gpu_uuid != card.uuid:
        origin = origin_of(sensors.record, card.uuid)
        console.print(f"record of the power sensor: {origin}", soft_wrap=True)
    if not sensors.channel.accepted:
        console.print(
            "the record of the sensor did not keep what is asked of one: bands may be too narrow",
            soft_wrap=True,
        )
    return sensors


def _check_together(what: AskedOperation) -> None:
    if what.together and (what.after or what.rotate):
        raise InputError(
            f"{what.name} goes with neither --after nor --rotate",
            fix="leave them out: a collective runs after idle, with one set of inputs",
        )


def _show(found: KernelReport, as_json: bool) -> None:
    for line in [as_json_text(found)] if as_json else report_lines(found):
        say(line)
    if found.curve and not as_json:
        show_chart(plot(found))
