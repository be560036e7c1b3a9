"""Puts recordings of power sensors and measured kernels into the package, with their data card.

    .venv/bin/python docs/measurements/power/bundle_sensors.py FOLDERS... [--into FOLDER]

A folder with recording.jsonl is one of sensor_campaign.py: its recording is analysed again, and
both are bundled. Any other is of cells, such as fingrav/h200-3: all of its JSON files are results
of `advisor power kernel`. The same folders give the same bytes, in whichever order they come; what
is there of the same card, driver and operation is replaced. FOLDER is data/advisor_data/bundled if
not given; its README.md, the data card, gets a new list between its markers.

Refused are recordings that were disturbed, that do not belong to their record.json, or that are
larger than 200 KiB when packed. The driver's own stamps of readings are left out, for their size;
nothing uses them.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from advisor.errors import AdvisorError, InputError
from advisor.formats.wire import read, to_plain, write
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import KernelReport
from advisor_data.bundled import KERNEL_TABLE, bundled_name
from advisor_power.sensor import faults, read_trace, record_of

INTO = Path(__file__).resolve().parents[3] / "data/advisor_data/bundled"

RECORDING, RECORD = "recording.jsonl", "record.json"

MOST_BYTES = 200 * 1024
"""Of a packed recording: everybody who installs the package downloads all of them."""

BEGIN = "<!-- listed by docs/measurements/power/bundle_sensors.py: begin -->"
END = "<!-- listed by docs/measurements/power/bundle_sensors.py: end -->"


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=INTO, help="folder with the data card")
    given = parser.parse_args()
    try:
        bundle(given.folders, given.into)
    except AdvisorError as error:
        sys.exit(str(error))


def bundle(folders: Sequence[Path], into: Path) -> None:
    """Write what the folders hold, and list it in the card.

    Raises:
        InputError: a folder holds something else, or a recording that may not be bundled.
    """
    campaigns = [folder for folder in folders if (folder / RECORDING).is_file()]
    packed = [packed_recording(folder) for folder in campaigns]
    reports = [one for folder in folders if folder not in campaigns for one in reports_in(folder)]
    for record, data in packed:
        text = json.dumps(to_plain(record), indent=1) + "\n"
        put(into / "sensors" / f"{bundled_name(record)}.json", text.encode())
        put(into / "sensors" / f"{bundled_name(record)}.jsonl.gz", data)
    if reports:
        write_table(into / "kernels" / KERNEL_TABLE, reports)
    card = into / "README.md"
    card.write_text(renewed(card.read_text("utf-8"), into), "utf-8")


def put(file: Path, data: bytes) -> None:
    """Write a file into a folder that may not be there yet."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def packed_recording(folder: Path) -> tuple[SensorRecord, bytes]:
    """The record of a campaign, made anew, and its recording as it is bundled.

    Raises:
        InputError: it was disturbed, is too large, or record.json is of another one.
    """
    file = folder / RECORDING
    trace = read_trace(file)
    if wrong := faults(trace):
        raise InputError(f"{file} was disturbed: {', '.join(wrong)}", fix="record the card again")
    record = record_of(trace, "bundled")
    said = json.loads((folder / RECORD).read_text())
    if (said["gpu_uuid"], said["measured_at"]) != (record.gpu_uuid, record.measured_at):
        raise InputError(
            f"{folder / RECORD} is not the record of {file}",
            fix="give folders of sensor_campaign.py",
        )
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if isinstance(line, list) and line[0] == "reading":
            line[-1] = None  # the driver's time of it
    data = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), mtime=0)
    if len(data) > MOST_BYTES:
        raise InputError(
            f"{file} takes {len(data) // 1024} KiB when packed",
            why=f"{MOST_BYTES // 1024} KiB are the most that is bundled",
            fix="look which channel changes so often",
        )
    return record, data


def reports_in(folder: Path) -> list[KernelReport]:
    """The measured kernels of a folder of cells.

    Raises:
        InputError: it has none, or a file that is none.
    """
    found = [
        read(KernelReport, file.read_bytes(), name=str(file), tolerant=True)
        for file in sorted(folder.glob("*.json"))
    ]
    if not found:
        raise InputError(
            f"{folder} holds neither {RECORDING} nor results of kernels",
            fix="give folders of sensor_campaign.py and of cells",
        )
    return [replace(one, source="bundled") for one in found]


def write_table(file: Path, reports: Iterable[KernelReport]) -> None:
    """Add kernels to the table; of the same one on the same card the newest stays."""
    found = {key_of(one): one for one in table_of(file)}
    for one in sorted(reports, key=lambda one: one.measured_at):
        found[key_of(one)] = one
    put(file, "".join(write(found[key]) + "\n" for key in sorted(found)).encode())


def key_of(one: KernelReport) -> tuple[str, ...]:
    """What is measured once only."""
    units = f"{one.units or 0:04}"
    return (one.gpu_model, one.gpu_uuid, one.driver, one.operation, units, one.before)


def table_of(file: Path) -> list[KernelReport]:
    """The kernels that are bundled so far."""
    lines = file.read_text().splitlines() if file.is_file() else []
    return [read(KernelReport, line, name=str(file), tolerant=True) for line in lines]


def renewed(card: str, into: Path) -> str:
    """The card with what the folder holds between its markers."""
    before, _, rest = card.partition(BEGIN)
    _, _, after = rest.partition(END)
    files = sorted((into / "sensors").glob("*.json"))
    records = [read(SensorRecord, f.read_bytes(), name=f.name, tolerant=True) for f in files]
    kernels = table_of(into / "kernels" / KERNEL_TABLE)
    parts = ["\n".join(rows) for rows in (sensor_rows(records), kernel_rows(kernels))]
    return before + "\n\n".join([BEGIN, *parts, END]) + after


def sensor_rows(records: Sequence[SensorRecord]) -> Iterator[str]:
    """A row for each channel of each card, and one for each reason against it."""
    if not records:
        yield "No sensor is bundled: no recording of a card has been put in yet."
        return
    times = ("period, ms", "window, ms", "delay, ms", "noise, W")
    yield from head("card", "driver", "measured", "channel", *times, "accepted")
    for record in records:
        name = f"{record.gpu_model} {record.gpu_uuid[:12]}"
        card = (name, record.driver, record.measured_at[:10])
        for one in record.channels:
            values = (one.period_ms, one.window_ms, one.delay_ms, one.noise_w)
            accepted = "yes" if one.accepted else "no"
            yield row(*card, one.name, *(f"{value:.1f}" for value in values), accepted)
        for reason in record.reasons:
            yield row(*card, reason, *[""] * 5)


def kernel_rows(reports: Sequence[KernelReport]) -> Iterator[str]:
    """A row for each card."""
    if not reports:
        yield "No kernel is bundled: no measurement of one has been put in yet."
        return
    yield from head("GPU model", "card", "driver", "kernels", "operations", "first", "last")
    for model, uuid, driver in sorted({(r.gpu_model, r.gpu_uuid, r.driver) for r in reports}):
        theirs = [one for one in reports if (one.gpu_uuid, one.driver) == (uuid, driver)]
        names = ", ".join(sorted({one.operation for one in theirs}))
        days = sorted(one.measured_at[:10] for one in theirs)
        yield row(model, uuid[:12], driver, str(len(theirs)), names, days[0], days[-1])


def head(*names: str) -> Iterator[str]:
    """The first two rows of a table."""
    yield row(*names)
    yield row(*["---"] * len(names))


def row(*cells: str) -> str:
    """A row of Markdown."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
