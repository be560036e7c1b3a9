"""`advisor report`: what measurements say together."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor.validity.sensor_record import SENSOR_RECORDS, SensorRecord
from advisor.wire.power import ReadingError, SensorCurve
from advisor_cli.console import AsJson, as_json_text, say, say_lines
from advisor_data.measurements import all_kernels, all_sensors
from advisor_power.data.measuring import InputPower, kept_inputs, with_ratios
from advisor_power.report import (
    LIMITS,
    input_section,
    kernel_section,
    sensor_section,
    write_page,
)
from advisor_power.sensor.analysis import measured, predicted_curves
from advisor_power.sensor.trace import Trace, bundled_trace, read_trace
from advisor_training.reports import make_folder


def power(
    out: Annotated[Path, typer.Option(help="Folder for the page")] = Path("report"),
    gpu_model: Annotated[str | None, typer.Option(help="Only this GPU model")] = None,
    as_json: AsJson = False,
) -> None:
    """How cards read power, and what draws it. Writes power.html.

    Shown are sensors, kernels and data of operations that were measured on this host or come with
    advisor.

    Example: advisor report power
    """
    home = read_settings().home
    records = [r for r in all_sensors(home) if gpu_model in (None, r.gpu_model)]
    kernels = [k for k in all_kernels(home) if gpu_model in (None, k.gpu_model)]
    inputs = [
        r for r in with_ratios(kept_inputs(home)) if gpu_model in (None, r.conditions.gpu_model)
    ]
    if not (records or kernels or inputs):
        raise InputError(
            "there is nothing to show" + (f" of {gpu_model}" if gpu_model else ""),
            why="no sensor, kernel or data of an operation was measured here, and none is bundled",
            fix="run `advisor power sensor`, `kernel` or `input` on a GPU",
        )
    make_folder(out)
    counts = f"{count_of(len(records), 'sensor record')}, {count_of(len(kernels), 'kernel')}"
    if inputs:
        counts += f", {count_of(len(inputs), 'input')}"
    say(f"drawing {counts}: up to a second for each", err=True)
    sensors = [(record, *_recorded(record, home)) for record in records]
    sections = [
        *(sensor_section(n, *sections_of_sensor) for n, sections_of_sensor in enumerate(sensors)),
        *(input_section(list(of)) for _, of in groupby(sorted(inputs, key=_kind), key=_kind)),
        *(kernel_section(n, report) for n, report in enumerate(kernels)),
    ]
    files = [str(path) for path in write_page(out, kernels, sections)]
    answer = {
        "sensors": [
            {**to_plain(record), "reading_errors": [asdict(error) for error in errors]}
            for record, _, errors in sensors
        ],
        "kernels": to_plain(kernels),
        "inputs": [result.as_json() for result in inputs],
        "files": files,
    }
    lines = (*LIMITS, counts, f"written: {', '.join(files)}")
    say_lines([as_json_text(answer)] if as_json else lines)


def _kind(result: InputPower) -> str:
    """Results of one kind stand in one table."""
    return f"{result.conditions} {result.case.dtype}"


def _recorded(record: SensorRecord, home: Path) -> tuple[list[SensorCurve], list[ReadingError]]:
    """Curves and errors of reading by the recording of a record; none where it is gone."""
    is_bundled = record.source == "bundled"
    trace = bundled_trace(record) if is_bundled else next(_recordings(record, home), None)
    return ([], []) if trace is None else (predicted_curves(trace, record), measured(trace, record))


def _recordings(record: SensorRecord, home: Path) -> Iterator[Trace]:
    for file in sorted((home / SENSOR_RECORDS.name / "recordings").glob("*.jsonl")):
        # One that was broken off in its first line is of nobody.
        with suppress(InputError, OSError):
            trace = read_trace(file)
            if (trace.header.gpu_uuid, trace.header.started_at) == (
                record.gpu_uuid,
                record.measured_at,
            ):
                yield trace


app = typer.Typer(help="Pages made from measurements.", no_args_is_help=True)

app.command("power")(power)


@app.callback()
def group() -> None:
    """Pages made from measurements."""
