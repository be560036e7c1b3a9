"""`advisor report power`: a page on how cards read their power, and on measured kernels."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.shared.options import AsJson
from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor.validity.sensor_record import SENSORS_FOLDER, SensorRecord
from advisor_data.files.power_records import BUNDLED, known_kernels, known_sensors
from advisor_profiling.sensor.predicted import predicted_curves
from advisor_profiling.sensor.reading_errors import measured
from advisor_profiling.sensor.replay import bundled_trace
from advisor_profiling.sensor.trace import Trace, read_trace
from advisor_training.reports.document import make_folder
from advisor_training.reports.power_report import LIMITS, SensorSection, write_report


def power(
    out: Annotated[Path, typer.Option(help="Folder for the page and the image")] = Path("report"),
    gpu_model: Annotated[str | None, typer.Option(help="Only this GPU model")] = None,
    as_json: AsJson = False,
) -> None:
    """How cards read power, and what kernels draw. Writes power.html and power.png.

    Shown is what was measured on this host and what comes with advisor.
    """
    home = read_settings().home
    records = [r for r in known_sensors(home) if gpu_model in (None, r.gpu_model)]
    kernels = [k for k in known_kernels(home) if gpu_model in (None, k.gpu_model)]
    if not (records or kernels):
        raise InputError(
            "there is nothing to show" + (f" of {gpu_model}" if gpu_model else ""),
            why="no sensor and no kernel was measured here, and none is bundled",
            fix="run `advisor power sensor` and `advisor power kernel` on a GPU",
        )
    make_folder(out)
    shown = f"{count_of(len(records), 'sensor record')}, {count_of(len(kernels), 'kernel')}"
    typer.echo(f"drawing {shown}: about a second for each", err=True)
    sensors = [_section(record, home) for record in records]
    files = [str(path) for path in write_report(sensors, kernels, out)]
    if as_json:
        errors = [[asdict(error) for error in one.errors] for one in sensors]
        said = [
            {**to_plain(one.record), "reading_errors": wrong}
            for one, wrong in zip(sensors, errors, strict=True)
        ]
        typer.echo(json.dumps({"sensors": said, "kernels": to_plain(kernels), "files": files}))
        return
    for line in LIMITS:
        typer.echo(line)
    typer.echo(shown)
    typer.echo(f"written: {', '.join(files)}")


def _section(record: SensorRecord, home: Path) -> SensorSection:
    trace = _trace_of(record, home)
    if trace is None:
        return SensorSection(record=record, curves=(), errors=())
    return SensorSection(
        record=record,
        curves=tuple(predicted_curves(trace, record)),
        errors=tuple(measured(trace, record)),
    )


def _trace_of(record: SensorRecord, home: Path) -> Trace | None:
    """The recording that a record was made of; None where it is gone."""
    if record.source == BUNDLED:
        return bundled_trace(record)
    return next(_recordings(record, home), None)


def _recordings(record: SensorRecord, home: Path) -> Iterator[Trace]:
    for file in sorted((home / SENSORS_FOLDER / "recordings").glob("*.jsonl")):
        # One that was broken off in its first line is of nobody.
        with suppress(InputError, OSError):
            trace = read_trace(file)
            if (trace.header.gpu_uuid, trace.header.started_at) == (
                record.gpu_uuid,
                record.measured_at,
            ):
                yield trace
