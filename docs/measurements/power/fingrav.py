"""Do FinGraV's takeaways hold on this card? Measures cell after cell and prints the table.

    .venv/bin/python docs/measurements/power/fingrav.py RESULTS --python python3 --minutes 8
    ... --dry-run                                  what would be measured, and in what time
    ... --only "132-gemm-8192-stretch|all-"        F7 alone, on a host with two GPUs
    ... --minutes 0 --recording recording.jsonl    the table of what is there, with F8

Cells are measured in the order of what they decide in a second; the same command goes on where it
stopped, also after Ctrl-C. It needs the record of `advisor power sensor`. RESULTS is a folder, a
file of JSON for each cell; F8 is decided by a recording of sensor_campaign.py.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fingrav_cells import COUNTS, Cell, cell_s, cells, measured
from fingrav_table import table

from advisor.errors import AdvisorError, InputError, JobError, SourceError
from advisor.files.whole_files import replace_file
from advisor.settings import Settings, read_settings
from advisor.validity.sensor_record import PowerChannel
from advisor_data.files.power_records import known_sensors
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.kernels.running.live import LiveKernelBench, open_kernel_bench
from advisor_power.kernels.running.wanted import Sensors, sensors_of
from advisor_profiling.testbed.live import find_gpu

START_S = 30.0
"""A bench: the daemon, the proof of the limit, PyTorch, and the first operation."""

USUAL = PowerChannel(
    name="instant",
    period_ms=100.0,
    window_ms=25.0,
    delay_ms=40.0,
    noise_w=2.0,
    window_spread_ms=0.0,
    prediction_error=0.0,
    accepted=False,
    delay_spread_ms=25.0,
)
"""About what an H100 SXM has: for estimates where nothing was recorded, never for results."""


def say(text: str) -> None:
    """Progress is no part of the table."""
    print(text, file=sys.stderr, flush=True)


def dry_run(missing: list[Cell], channel: PowerChannel) -> None:
    """Seconds of each cell."""
    for cell in missing:
        print(f"{cell_s(cell, channel):6.0f} s  {cell.name}")
    starts = len({cell.start for cell in missing})
    whole_s = sum(cell_s(cell, channel) for cell in missing) + starts * START_S
    print(f"{whole_s:6.0f} s  in all, with {starts} starts of {START_S:.0f} s")


def measure(folder: Path, missing: list[Cell], gpu: str, python: str, end_s: float) -> None:
    """Cells one after the other; one that fails is left out, and said."""
    settings = read_settings()
    sensors = sensors_of(find_gpu(gpu), known_sensors(settings.home))
    while missing:
        together = [cell for cell in missing if cell.start == missing[0].start]
        if time.monotonic() + START_S + cell_s(together[0], sensors.channel) > end_s:
            break
        left = _measure_together(folder, together, settings, sensors, gpu, python, end_s)
        if len(left) == len(together):
            break
        missing = [cell for cell in missing if cell in left or cell not in together]
    if missing:
        say(f"{len(missing)} cells to go: the same command goes on")


def _measure_together(
    folder: Path,
    together: list[Cell],
    settings: Settings,
    sensors: Sensors,
    gpu: str,
    python: str,
    end_s: float,
) -> list[Cell]:
    """Cells with one number of SMs, by one worker; those that are still to be measured."""
    left, first = list(together), together[0]
    units = None if first.units == COUNTS[-1] else first.units
    try:
        place = WorkerPlace(gpu=gpu, units=units, python=python)
        with open_kernel_bench(
            settings, sensors.channel, place, first.options, second_gpu=first.together
        ) as bench:
            for cell in together:
                if time.monotonic() + cell_s(cell, sensors.channel) > end_s:
                    return left
                rest_s = sum(cell_s(c, sensors.channel) for c in left)
                say(f"{cell.name}  eta {rest_s / 60:.1f} min of {len(left)} cells")
                left.remove(cell)
                _measure_one(cell, bench, sensors, folder, settings.home)
    except JobError as error:  # the worker has ended with it: another one does the rest
        say(f"failed: {error}")
    except AdvisorError as error:
        say(f"cannot be measured at {first.units} SMs: {error}")
        return []
    return left


def _measure_one(
    cell: Cell, bench: LiveKernelBench, sensors: Sensors, folder: Path, home: Path
) -> None:
    begun_s = time.monotonic()
    try:
        answer = measured(cell, bench, sensors, folder, home)
    except (InputError, SourceError) as error:
        say(f"{cell.name} cannot be measured: {error}")
        return
    text = json.dumps({**answer, "cell_s": time.monotonic() - begun_s})
    replace_file(folder / f"{cell.name}.json", text.encode() + b"\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--only", default="", help="cells whose name this pattern is found in")
    parser.add_argument("--recording", type=Path, help="of sensor_campaign.py, for F8")
    parser.add_argument("--dry-run", action="store_true", help="only say what each cell takes")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    wanted = [cell for cell in cells() if re.search(options.only, cell.name)]
    missing = [cell for cell in wanted if not (options.results / f"{cell.name}.json").exists()]
    if options.dry_run:
        dry_run(missing, _known_channel())
        return
    if options.minutes > 0:
        end_s = time.monotonic() + options.minutes * 60
        try:
            measure(options.results, missing, options.gpu, options.python, end_s)
        except KeyboardInterrupt:
            say("interrupted: the same command goes on")
            raise SystemExit(130) from None
    for line in table(options.results, options.recording):
        print(line)


def _known_channel() -> PowerChannel:
    """Of any record on this host."""
    channels: Iterator[PowerChannel | None] = (
        record.channel("instant") for record in known_sensors(read_settings().home)
    )
    return next((channel for channel in channels if channel is not None), USUAL)


if __name__ == "__main__":
    main()
