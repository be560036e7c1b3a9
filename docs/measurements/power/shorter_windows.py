"""How short may a window be, and how early may it begin, for the mean power of a steady load?

    shorter_windows.py                              from the recordings that are in the repository
    shorter_windows.py --trace FILE...              from other recordings
    shorter_windows.py --live --gpu 0 --python python3 --seconds 60 [--jobs triad matmul-bf16]

Run with .venv/bin/python. `--live` records jobs of jobs/ on a card on which nobody else computes,
each alone on the whole GPU for a minute at most, into --folder, and then prints the same; called
again it leaves out the jobs that are recorded there. No setting of the card is changed.

Each load has a table. A window of each length is settled in four ways:

- constants: as `advisor profile` waits at least where there is no sensor record;
- profile: as it waits at least where there is one: as the last way, then eight readings in which
  it looks whether power is flat. It refuses windows of fewer than eight readings;
- response: for delay and response of the sensor alone;
- response + T: and for one period more, since a reading is shown until the next one.

"First" is the window that begins as soon as it is settled, as that of a point does; of loads that
begin several times the one that is furthest off. "95 %" is over windows that begin every 10 ms from
then on; they overlap, "apart" says how many do not. The mean power of a window is the time-weighted
mean of what the instant channel shows. It is compared with the longest window of the same load,
which begins after the constant wait, and with the energy counter over that one. Dashes: a load was
not on for so long, or the length is refused.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.errors import AdvisorError, InputError
from advisor.settings import read_settings
from advisor.validity.sensor_record import SensorRecord, record_for
from advisor.validity.sensor_timing import PowerTiming, power_timing
from advisor_data.files.power_records import bundled_recording, bundled_sensors, known_sensors
from advisor_power.sensor.trace import ENERGY, INSTANT, Floats, Series, Span, Trace, read_trace
from advisor_profiling.window.rules import WindowRules, rules_for

LENGTHS_S = (0.1, 0.2, 0.5, 1.0, 2.1, 5.0)
STEADY_S = 3.0
"""A load that was on in one go for so long is looked at."""

_EVERY_S = 0.01
_WINDOW_READINGS = Path(__file__).parents[3] / "tests/fixtures/h200-bert-infer.jsonl"
"""What the meter of a window read of bert-infer on another H200, at the interval of a meter."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load that is steady while it is on.

    Attributes:
        on: When it was, each time; the recording began with the first where `settles` is False.
        settles: Whether the recording shows how it begins.
    """

    name: str
    timing: PowerTiming
    instant: Series
    energy: Series | None
    on: tuple[Span, ...]
    settles: bool = True


@dataclass(frozen=True, slots=True)
class Longest:
    """The window that others are compared with; W, and None where there is no counter."""

    seconds: float
    power_w: float
    counter_w: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """Windows of one length, settled in one way; errors are parts of 1.

    Attributes:
        point_s: Until a point is there: settling, then the window.
        apart: Windows that do not overlap.
        first: Error of the one that begins as soon as it is settled.
        p95: 95th percentile of the error against the longest window.
        p95_counter: The same against the energy counter.
    """

    point_s: float
    apart: int
    first: float
    p95: float
    p95_counter: float | None


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--trace", type=Path, nargs="+", metavar="FILE")
    given.add_argument("--live", action="store_true", help="record jobs on a card first")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--python", default="python3", help="runs the jobs; has PyTorch")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load, for each job")
    parser.add_argument("--jobs", nargs="+", default=["triad", "matmul-bf16"])
    parser.add_argument("--folder", type=Path, default=Path("shorter-windows"))
    options = parser.parse_args(words)
    try:
        if options.live:
            # Nothing of a live GPU is needed to read recordings.
            from steady_loads import record_jobs

            recordings = record_jobs(
                options.jobs, options.gpu, options.python, options.seconds, options.folder
            )
            show([load for file in recordings for load in steady(read_trace(file))])
        elif options.trace:
            show([load for file in options.trace for load in steady(read_trace(file))])
        else:
            show(list(recorded()))
    except AdvisorError as error:
        parser.error(str(error))


def recorded() -> Iterator[Load]:
    """The loads of the repository: flat stages of bundled recordings, and one window of a job."""
    for record in bundled_sensors():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "recording.jsonl"
            file.write_bytes(bundled_recording(record))
            yield from steady(read_trace(file))
    yield meter_readings(_WINDOW_READINGS)


def steady(trace: Trace) -> Iterator[Load]:
    """The loads of a recording that were on for long.

    Raises:
        InputError: nothing is known of the sensor, or its instant channel was not read.
    """
    card = trace.header
    if (instant := trace.series.get(INSTANT)) is None:
        raise InputError(f"the recording of {card.gpu_model} has no instant channel")
    timing = timing_of(card.gpu_uuid, card.gpu_model, card.driver)
    for stage in trace.stages:
        on = tuple((begun_s, ended_s) for begun_s, ended_s in stage.on if ended_s > begun_s)
        if max((ended_s - begun_s for begun_s, ended_s in on), default=0.0) >= STEADY_S:
            name = f"{stage.name} on {card.gpu_model} {card.gpu_uuid[4:12]}"
            yield Load(name, timing, instant, trace.series.get(ENERGY), on)


def meter_readings(file: Path) -> Load:
    """The load of a file of `{"t": .., "kind": .., "value": ..}`, as tests replay them."""
    about, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    gpu = about["value"]["gpu"]
    instant, energy = (
        Series(*np.array([(r["t"], r["value"]) for r in lines if r["kind"] == kind]).T)
        for kind in ("power_w", "energy_j")
    )
    name = f"{file.stem.removeprefix('h200-')} on {gpu['model']} {gpu['uuid'][4:12]}"
    timing = timing_of(gpu["uuid"], gpu["model"], gpu["driver"])
    last_s = float(instant.times_s[-1])
    return Load(name, timing, instant, energy, ((0.0, last_s),), settles=False)


def timing_of(gpu_uuid: str, gpu_model: str, driver: str) -> PowerTiming:
    """What the record of a card says of settling.

    Raises:
        InputError: there is none that was accepted.
    """
    records: list[SensorRecord] = known_sensors(read_settings().home)
    record = record_for(gpu_uuid, gpu_model, driver, records)
    if record is None or (timing := power_timing(record)) is None:
        raise InputError(
            f"nothing is known of the power sensor of {gpu_model} with driver {driver}",
            fix="measure it first: advisor power sensor",
        )
    return timing


def show(loads: Sequence[Load]) -> None:
    """Print a table for each load."""
    if not loads:
        raise InputError(f"no load was on for {STEADY_S:g} s in one go in what was given")
    for load in loads:
        print("\n".join(table(load)) + "\n")


def table(load: Load) -> Iterator[str]:
    """Markdown; a line for each length and way of settling."""
    longest = longest_of(load)
    counter = "no counter" if longest.counter_w is None else f"{longest.counter_w:.1f} W by counter"
    begins = f"begins {len(load.on)}x" if load.settles else "ran before the recording"
    power = f"{longest.power_w:.1f} W over {longest.seconds:.1f} s, {counter}"
    yield f"{load.name}: {power}; {begins}\n"
    yield "| window, s | settled by | s per point | apart | first, % | 95 %, % | counter, 95 %, % |"
    yield "|" + " --- |" * 7
    for length_s in LENGTHS_S:
        for way, settle_s in waits(length_s, load.timing).items():
            found = None if settle_s is None else windows(load, longest, length_s, settle_s)
            yield f"| {length_s:g} | {way} | " + " | ".join(cells(found, load.settles)) + " |"


def waits(length_s: float, timing: PowerTiming) -> dict[str, float | None]:
    """From the beginning of a load to that of a window, s; None where it is refused."""
    refused = length_s < timing.shortest_window_s
    return {
        "constants": rules_for(length_s).settle_least_s,
        "profile": None if refused else rules_for(length_s, timing).settle_least_s,
        "response": timing.settle_s,
        "response + T": timing.shown_s,
    }


def cells(found: Found | None, settles: bool) -> tuple[str, ...]:
    """Of one line."""
    if found is None:
        return ("-",) * 5
    counter = "-" if found.p95_counter is None else f"{100 * found.p95_counter:.2f}"
    first = f"{100 * found.first:+.2f}" if settles else "-"
    return f"{found.point_s:.2f}", str(found.apart), first, f"{100 * found.p95:.2f}", counter


def longest_of(load: Load) -> Longest:
    """From the end of the constant wait to the end of the load, the longest time that it was on."""
    on_s, ended_s = max(load.on, key=lambda span: span[1] - span[0])
    begun_s = on_s + WindowRules().settle_least_s
    (power_w,) = means(load.instant, np.array([begun_s]), ended_s - begun_s)
    return Longest(ended_s - begun_s, float(power_w), counted_w(load.energy, begun_s, ended_s))


def windows(load: Load, longest: Longest, length_s: float, settle_s: float) -> Found | None:
    """Windows of a load; None where not even one fits."""
    rooms = [(begun_s + settle_s, ended_s - length_s) for begun_s, ended_s in load.on]
    rooms = [(first_s, last_s) for first_s, last_s in rooms if last_s >= first_s]
    if not rooms:
        return None
    begins = [np.arange(first_s, last_s + 1e-9, _EVERY_S) for first_s, last_s in rooms]
    power_w = [means(load.instant, begins_s, length_s) for begins_s in begins]
    firsts = np.array([watts[0] for watts in power_w]) / longest.power_w - 1
    every_w, counter_w = np.concatenate(power_w), longest.counter_w
    return Found(
        point_s=settle_s + length_s,
        apart=sum(int((last_s - first_s) / length_s + 1e-9) + 1 for first_s, last_s in rooms),
        first=float(firsts[np.abs(firsts).argmax()]),
        p95=_p95(every_w / longest.power_w - 1),
        p95_counter=None if counter_w is None else _p95(every_w / counter_w - 1),
    )


def means(shown: Series, begins_s: Floats, length_s: float) -> Floats:
    """Mean of what a channel shows from each begin (n,) on, W; a reading holds until the next."""
    held_s = np.diff(shown.times_s)
    joules = np.concatenate(([0.0], np.cumsum(held_s * shown.values[:-1])))

    def until(times_s: Floats) -> Floats:
        places = np.maximum(np.searchsorted(shown.times_s, times_s, side="right") - 1, 0)
        return joules[places] + shown.values[places] * (times_s - shown.times_s[places])

    return (until(begins_s + length_s) - until(begins_s)) / length_s


def counted_w(energy: Series | None, begun_s: float, ended_s: float) -> float | None:
    """Power by the first and the last tick of the counter within a time, W."""
    ticks = None if energy is None else energy.between(begun_s, ended_s)
    if ticks is None or len(ticks.times_s) < 2:
        return None
    times_s, joules = ticks.times_s, ticks.values
    return float((joules[-1] - joules[0]) / (times_s[-1] - times_s[0]))


def _p95(errors: Floats) -> float:
    return float(np.percentile(np.abs(errors), 95))


if __name__ == "__main__":
    main()
