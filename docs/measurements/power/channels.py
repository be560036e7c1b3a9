"""C7 of CompPow: does an all-gather with fewer channels save energy? It takes a host with two GPUs.

    .venv/bin/python docs/measurements/power/channels.py RESULTS --python python3 --minutes 6
    .venv/bin/python docs/measurements/power/channels.py RESULTS --minutes 0     only the table

A channel of NCCL is a thread block on each GPU. The same collective at NCCL's own number of
channels and at fewer (NCCL_MAX_NCHANNELS), seconds of it without a gap, in processes of its own for
each number; NCCL's own comes twice, so that a card that grows hotter shows. Energy of an operation
is power times time on the GPU that is measured; the other one does the same. Confirmed: at least
5 % less energy at 2 % more time for each size of all-gather; refuted: for none. The same command
goes on where it stopped. It needs the record of `advisor power sensor`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, JobError
from advisor.files.whole_files import replace_file
from advisor.settings import read_settings
from advisor_data.files.power_records import known_sensors
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.kernels.running.live import open_kernel_bench
from advisor_power.kernels.running.operation import measure_stretch
from advisor_power.kernels.running.wanted import Sensors, sensors_of
from advisor_profiling.testbed.live import find_gpu

SAVED = 0.05
SLOWER = 0.02
OWN = 0
"""NCCL's own number of channels."""

CHANNELS = (OWN, 24, 20, OWN, 16, 8, 4, 12, 2, 1)
"""The most telling first; the first again when three are done."""

OPERATIONS = tuple(
    (name, "--bytes", size) for name in ("all-gather", "all-reduce") for size in ("512MiB", "1GiB")
)
REPEATS = 2
START_S, STRETCH_S = 30.0, 5.0


@dataclass(frozen=True, slots=True)
class Point:
    """One collective at one number of channels: the mean of its stretches."""

    ms: float
    power_w: float

    @property
    def energy_j(self) -> float:
        """Of one operation, on one GPU."""
        return self.ms / 1000 * self.power_w


def say(text: str) -> None:
    """Progress is no part of the table."""
    print(text, file=sys.stderr, flush=True)


def path_of(folder: Path, number: int) -> Path:
    """A file for each entry of CHANNELS."""
    return folder / f"{number}-channels-{CHANNELS[number] or 'own'}.json"


def measure(folder: Path, gpu: str, python: str, end_s: float) -> None:
    """Numbers of channels one after the other; one that fails is left out, and said."""
    missing = [n for n in range(len(CHANNELS)) if not path_of(folder, n).exists()]
    sensors = sensors_of(find_gpu(gpu), known_sensors(read_settings().home))
    each_s = START_S + len(OPERATIONS) * REPEATS * STRETCH_S
    for left, number in zip(range(len(missing), 0, -1), missing, strict=True):
        if time.monotonic() + each_s > end_s:
            say(f"{left} numbers of channels to go: the same command goes on")
            return
        say(f"{CHANNELS[number] or 'own'} channels  eta {left * each_s / 60:.1f} min")
        try:
            found = at_channels(CHANNELS[number], sensors, gpu, python)
        except AdvisorError as error:
            say(f"{CHANNELS[number]} channels cannot be measured: {error}")
            continue
        text = json.dumps({"channels": CHANNELS[number], "operations": found})
        replace_file(path_of(folder, number), text.encode() + b"\n")


def at_channels(channels: int, sensors: Sensors, gpu: str, python: str) -> list[dict[str, Any]]:
    """Every collective by one pair of processes.

    Raises:
        AdvisorError: no GPU, no second one, or no stretch could be used.
    """
    wanted = {"NCCL_MAX_NCHANNELS": str(channels)} if channels else {}
    settings = read_settings({**os.environ, **wanted})
    found: list[dict[str, Any]] = []
    place = WorkerPlace(gpu=gpu, python=python)
    with open_kernel_bench(
        settings, sensors.channel, place, OPERATIONS[0], second_gpu=True
    ) as bench:
        for operation in OPERATIONS:
            bench.prepare(operation)
            for _ in range(REPEATS):
                stretch = measure_stretch(bench, sensors)
                if stretch.power_w is None:
                    raise JobError("no power", why=stretch.no_memory_power)
                found.append(
                    {
                        "operation": " ".join(operation),
                        "ms": stretch.execution_ms,
                        "power_w": stretch.power_w.value,
                        "memory_power_w": stretch.memory_power_w and stretch.memory_power_w.value,
                        "power_capped": stretch.power_capped,
                    }
                )
    return found


def read(folder: Path) -> dict[str, dict[str, Point]]:
    """By operation, then by number of channels; "own again" is the second of these."""
    found: dict[str, dict[str, Point]] = {}
    for number, channels in enumerate(CHANNELS):
        path = path_of(folder, number)
        if not path.exists():
            continue
        name = str(channels or ("own again" if number else "own"))
        measured = json.loads(path.read_text())["operations"]
        for operation in dict.fromkeys(one["operation"] for one in measured):
            same = [one for one in measured if one["operation"] == operation]
            found.setdefault(operation, {})[name] = Point(
                sum(one["ms"] for one in same) / len(same),
                sum(one["power_w"] for one in same) / len(same),
            )
    return found


def table(found: dict[str, dict[str, Point]]) -> Iterator[str]:
    """Each number of channels against NCCL's own, and the verdict."""
    yield "| operation | channels | ms | slower, % | power, W | energy, J | saved, % |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    best: dict[str, float] = {}
    for operation, points in found.items():
        own = points.get("own")
        for name, p in points.items():
            if own is None:
                continue
            slower, saved = p.ms / own.ms - 1, 1 - p.energy_j / own.energy_j
            if name.isdigit():
                kept = saved if slower <= SLOWER else 0.0
                best[operation] = max(best.get(operation, 0.0), kept)
            yield (
                f"| {operation} | {name} | {p.ms:.3f} | {100 * slower:+.1f} | {p.power_w:.0f} | "
                f"{p.energy_j:.3f} | {100 * saved:+.1f} |"
            )
    yield ""
    yield from verdict({k: v for k, v in best.items() if k.startswith("all-gather")})


def verdict(best: dict[str, float]) -> Iterator[str]:
    """C7, from the best saving of each size of all-gather."""
    if not best:
        yield "C7: open, not measured"
        return
    reached = sum(saved >= SAVED for saved in best.values())
    word = "confirmed" if reached == len(best) else "open" if reached else "refuted"
    figures = ", ".join(f"{name}: {100 * saved:.1f} %" for name, saved in best.items())
    yield f"C7, {SAVED:.0%} less energy at {SLOWER:.0%} more time, the best of {figures}: {word}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--minutes", type=float, default=6)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    if options.minutes > 0:
        try:
            end_s = time.monotonic() + options.minutes * 60
            measure(options.results, options.gpu, options.python, end_s)
        except KeyboardInterrupt:
            say("interrupted: the same command goes on")
            raise SystemExit(130) from None
    for line in table(read(options.results)):
        print(line)


if __name__ == "__main__":
    main()
