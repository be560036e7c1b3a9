"""`advisor power sensor`: how often, over what time and how late the sensors of a card read."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from advisor.errors import STOPPED, InputError
from advisor.files import open_home
from advisor.formats.wire import to_plain
from advisor.settings import Settings, read_settings
from advisor.validity.sensor_record import SensorRecord, keep_record, power_timing
from advisor.wire.power import KernelReport
from advisor_cli.console import as_json_text, plain_console, say_lines
from advisor_cli.options import REPLAY, AsJson
from advisor_power.gpu_worker import AnsweringSpec, script_workload
from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.recording import SensorRecording, record
from advisor_power.sensor.trace import Trace, read_trace, recorded_sensor
from advisor_profiling.testbed import find_gpu, worker_backend

_NOT_ACCEPTED = 6
"""Exit code: nothing of what was found is to be believed."""

ReplayedModel: TypeAlias = Annotated[
    str | None, typer.Option(help="With --gpu replay: such as 'NVIDIA H200'")
]


def sensor(
    gpu: Annotated[str, typer.Option(help="Index, UUID or `replay`")] = "0",
    gpu_model: ReplayedModel = None,
    python: Annotated[str, typer.Option(help="Interpreter that has PyTorch")] = "python3",
    trace: Annotated[
        Path | None, typer.Option(help="Analyse this recording, without a GPU; nothing is kept")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How often, over what time and how late do the power sensors of a card read?

    A load is switched on and off for three and a half minutes while all power readings are
    recorded. What is found is kept for this card and driver, and windows are then as long as the
    sensor needs (docs/power.md). No setting of the card is changed.

    Example: advisor power sensor --gpu replay
    """
    console = plain_console(stderr=True)
    check_gpu_model(gpu, gpu_model)
    if trace is not None:
        with InputError.instead_of(OSError, f"{trace} cannot be read"):
            recorded = read_trace(trace)
        found = record_of(recorded, "replay")
    elif gpu == REPLAY:
        found = _replay(gpu_model, console)
    else:
        found = _measure(gpu, python, read_settings(), console)
    say_lines([as_json_text(_as_json(found))] if as_json else _sensor_lines(found))
    if not found.accepted:
        raise typer.Exit(_NOT_ACCEPTED)


def _replay(gpu_model: str | None, console: Console) -> SensorRecord:
    recorded, trace = recorded_sensor(gpu_model)
    say_power_replay(console, "recording", recorded)
    console.print("looking for periods, windows and delays: about ten seconds", highlight=False)
    return record_of(trace, REPLAY)


def _measure(gpu_name: str, python: str, settings: Settings, console: Console) -> SensorRecord:
    gpu = find_gpu(gpu_name)
    if gpu.vendor != "nvidia":
        raise InputError(
            f"the sensors of {gpu.model} are not measured",
            why="the channels are those of NVIDIA's NVML",
            fix="choose an NVIDIA GPU with --gpu",
        )
    name = str(time.time_ns())
    file = open_home(settings.home, "sensors", "recordings") / f"{name}.jsonl"
    folder = open_home(settings.home, "logs", f"power-sensor-{name}")
    with worker_backend(settings, gpu_name, None) as backend:
        load = script_workload(
            backend, settings, "power_load.py", python=python, units=None, folder=folder
        )
        recorded = _record(load, file, console)
    console.print(f"recorded in {file}", soft_wrap=True, highlight=False)
    found = record_of(recorded, "live")
    if found.accepted:
        keep_record(found, settings.home)
    return found


def _record(load: AnsweringSpec, file: Path, console: Console) -> Trace:
    wanted = SensorRecording(
        load=load,
        file=file,
        seed=time.time_ns(),
        report=lambda line: console.print(f"  {line}", highlight=False),
    )
    try:
        return record(wanted)
    except KeyboardInterrupt:
        console.print(f"stopped; what was recorded is in {file}", soft_wrap=True, highlight=False)
        raise typer.Exit(STOPPED) from None


def _as_json(found: SensorRecord) -> dict[str, object]:
    timing = power_timing(found)
    return {
        **to_plain(found),
        "accepted": found.accepted,
        "settle_s": timing and timing.settle_s,
        "shortest_window_s": timing and timing.shortest_window_s,
    }


_COVERS = {
    True: "it integrates everything",
    False: "it adds up the times at which the sensor looks: use long windows",
    None: "whether it integrates everything is open",
}


def _sensor_lines(record: SensorRecord) -> Iterator[str]:
    """What a person reads."""
    yield f"{record.gpu_model}, {record.gpu_uuid}, driver {record.driver}, {record.seconds:.0f} s"
    if record.channels:
        yield (
            f"{'channel':9}{'period ms':>10}{'window ms':>11}{'delay ms':>10}{'+- ms':>7}"
            f"{'noise W':>9}{'halves differ ms':>18}{'waves wrong %':>15}"
        )
    yield from (
        f"{channel.name:9}{channel.period_ms:10.1f}{channel.window_ms:11.1f}"
        f"{channel.delay_ms:10.1f}{channel.delay_spread_ms / 2:7.1f}{channel.noise_w:9.2f}"
        f"{channel.window_spread_ms:18.2f}"
        f"{100 * channel.prediction_error:15.2f}  "
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


def check_gpu_model(gpu: str, gpu_model: str | None) -> None:
    """A card has its own model.

    Raises:
        InputError: a model was named for a card.
    """
    if gpu_model is not None and gpu != REPLAY:
        raise InputError("--gpu-model is for a replay", fix="add --gpu replay, or leave it out")


def say_power_replay(console: Console, what: str, of: SensorRecord | KernelReport) -> None:
    """Nobody takes a replay for a measurement."""
    console.print(
        f"REPLAY of a {what} of {of.gpu_model}, {of.gpu_uuid}, driver {of.driver}, measured "
        f"{of.measured_at[:10]}: no GPU is used.",
        soft_wrap=True,
        highlight=False,
    )
