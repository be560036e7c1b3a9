"""The file of one recording: what was read when, and when the load ran.

Lines of JSON. The first is an object with the card; each other line is an array that begins with
its kind. Several processes append whole lines, so those of different kinds may be out of order:

    ["reading", channel, time_s, value, stamp_us]  a value other than the one before; W or J
    ["stage", name, time_s]                        a stage begins, the one before ends
    ["on", begun_s, ended_s]                       the load ran, in the stage before
    ["look", time_s, [reason, ..], [pid, ..]]      throttle reasons, processes that compute
    ["full", time_s]                               too many lines: later readings are left out
    ["end", time_s]                                the recording is whole

Times are those of the host's monotonic clock; `epoch_s` of the first line makes them times of day.
`stamp_us` is the driver's own time of a reading, null where it gives none.
"""

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import SensorRecord
from advisor_data.bundled import bundled_recording, bundled_sensors

_FORMAT = "advisor-power-trace-2"

INSTANT, AVERAGE, MEMORY, ENERGY = "instant", "average", "memory", "energy"
POWER_CHANNELS = (INSTANT, AVERAGE, MEMORY)

SpanS: TypeAlias = tuple[float, float]
"""Begin and end, s."""


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """Which card was recorded, and when."""

    gpu_model: str
    gpu_uuid: str
    driver: str
    started_at: str
    epoch_s: float
    format: str = _FORMAT


@dataclass(frozen=True, slots=True)
class ReadingSeries:
    """Changes of one channel: when each was seen, and the new value in W or J, both (n,)."""

    times_s: Floats
    values: Floats

    def between(self, begun_s: float, ended_s: float) -> "ReadingSeries":
        """The changes of a stretch of time."""
        inside = (self.times_s >= begun_s) & (self.times_s < ended_s)
        return ReadingSeries(self.times_s[inside], self.values[inside])


def joined(parts: Sequence[ReadingSeries]) -> ReadingSeries:
    """Stretches of one channel, one after the other."""
    return ReadingSeries(
        np.concatenate([part.times_s for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class RecordedStage:
    """A stage as it really went."""

    name: str
    begun_s: float
    ended_s: float
    on: tuple[SpanS, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recording; `whole` is False where it was stopped before its end.

    A look is a time, reasons for a lower clock, and processes that compute.
    """

    header: TraceHeader
    series: Mapping[str, ReadingSeries]
    stages: tuple[RecordedStage, ...]
    looks: tuple[tuple[float, tuple[str, ...], frozenset[int]], ...]
    whole: bool
    full: bool

    def named(self, *names: str) -> tuple[RecordedStage, ...]:
        """The stages of these names, in their order."""
        return tuple(stage for stage in self.stages if stage.name in names)


def begin_trace(path: Path, header: TraceHeader) -> None:
    """Write the first line of a new file."""
    with path.open("x") as file:
        file.write(json.dumps(asdict(header)) + "\n")


def append(path: Path, *lines: list[Any]) -> None:
    """Add whole lines, in one write: other processes add theirs to the same file."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def read_trace(path: Path) -> Trace:
    """The recording in a file; a last line that was cut off is left out."""
    return _parse_trace(path.read_text(errors="replace"), str(path))


def _parse_trace(text: str, name: str) -> Trace:
    """The recording in a text; one that was broken off ends with its last load.

    Raises:
        InputError: it is no recording; says where, with the name.
    """
    *lines, _cut = text.split("\n")
    readings: dict[str, list[tuple[float, float]]] = {}
    stages: list[tuple[str, float, list[SpanS]]] = []
    looks: list[tuple[float, tuple[str, ...], frozenset[int]]] = []
    full, end_s, number = False, None, 1
    try:
        header = TraceHeader(**json.loads(lines[0]))
        if header.format != _FORMAT:
            raise ValueError(f"its format is {header.format}")
        for line in lines[1:]:
            number += 1
            match json.loads(line):
                case ["reading", str(channel), time_s, value, _stamp_us]:
                    readings.setdefault(channel, []).append((float(time_s), float(value)))
                case ["stage", str(stage), time_s]:
                    stages.append((stage, float(time_s), []))
                case ["on", begun_s, ended_s] if stages:
                    stages[-1][2].append((float(begun_s), float(ended_s)))
                case ["look", time_s, [*reasons], [*pids]]:
                    state = tuple(map(str, reasons)), frozenset(map(int, pids))
                    looks.append((float(time_s), *state))
                case ["full", _time_s]:
                    full = True
                case ["end", time_s]:
                    end_s = float(time_s)
                case other:
                    raise ValueError(f"no line of a recording: {other}")
    except (IndexError, TypeError, ValueError) as error:
        place = "its first line" if number == 1 else f"line {number}"
        raise InputError(
            f"{name} is not a recording of power sensors",
            why=f"{place}: {error}",
            fix="give a file that `advisor power sensor` wrote",
        ) from error
    last_s = end_s
    if last_s is None and stages:
        _, begun_s, on = stages[-1]
        last_s = on[-1][1] if on else begun_s
    # Each stage ends where the next begins.
    ends = [*(begun_s for _, begun_s, _ in stages[1:]), *([] if last_s is None else [last_s])]
    return Trace(
        header=header,
        series={
            channel: ReadingSeries(*np.array(sorted(of), dtype=np.float64).T)
            for channel, of in readings.items()
        },
        stages=tuple(
            RecordedStage(stage, begun_s, ended_s, tuple(on))
            for (stage, begun_s, on), ended_s in zip(stages, ends, strict=True)
        ),
        looks=tuple(looks),
        whole=end_s is not None,
        full=full,
    )


IDLE, FLAT, BURSTS, WAVE, LOCKED_WAVE = "idle", "flat", "bursts", "wave", "locked-wave"
"""Names of stages: a locked wave has the period of the sensor."""

LONGEST_S = 240.0  # all stages together
LONGEST_PERIOD_S = 0.5  # of sensors that are measured: a wave of others has too few readings

_STEP_S = 4.0
_BURSTS, _BURST_S, _GAPS_S = 150, 0.009, (0.25, 0.42)
_WAVE_S, _PHASES = 6.0, 20


@dataclass(frozen=True, slots=True)
class LoadStage:
    """A stretch of the stimulus.

    Attributes:
        on: When the load runs, s from the beginning of the stage.
    """

    name: str
    length_s: float
    on: tuple[SpanS, ...] = ()


def steps_and_bursts(seed: int) -> tuple[LoadStage, ...]:
    """What needs no knowledge of the sensor: 4 s idle, 4 s of load, 150 bursts."""
    draw = random.Random(seed)
    end_s, bursts = 0.0, list[SpanS]()
    for _ in range(_BURSTS):
        start_s = end_s + draw.uniform(*_GAPS_S)
        end_s = start_s + _BURST_S
        bursts.append((start_s, end_s))
    return (
        LoadStage(IDLE, _STEP_S),
        LoadStage(FLAT, _STEP_S, ((0.0, _STEP_S),)),
        LoadStage(BURSTS, end_s + _GAPS_S[0], tuple(bursts)),
    )


def waves(period_s: float, seed: int) -> tuple[LoadStage, ...]:
    """Square waves, half of the time on, at and around the period of the sensor.

    Args:
        period_s: Between two changes of the reading, at most `LONGEST_PERIOD_S`.
        seed: Of the phases at which those of the sensor's own period begin.
    """
    draw = random.Random(seed)
    others = [_wave(WAVE, part * period_s, 0.0) for part in (1 / 2, 2 / 3, 3 / 2)]
    locked = [_wave(LOCKED_WAVE, period_s, draw.uniform(0, period_s)) for _ in range(_PHASES)]
    return (*others, *locked)


def planned_s(stages: Sequence[LoadStage]) -> float:
    """What the stages take, s."""
    return sum(stage.length_s for stage in stages)


def _wave(name: str, period_s: float, first_s: float) -> LoadStage:
    starts = [first_s + k * period_s for k in range(int(_WAVE_S / period_s))]
    return LoadStage(name, first_s + _WAVE_S, tuple((s, s + period_s / 2) for s in starts))


def recorded_sensor(gpu_model: str | None = None) -> tuple[SensorRecord, Trace]:
    """The bundled record of a GPU model, of the first one if none is named, and its recording.

    Raises:
        InputError: nothing is bundled, or nothing of that GPU model.
        StoreError: the installation is damaged.
    """
    records = bundled_sensors()
    if not records:
        raise InputError(
            "no recording of a power sensor comes with this version of advisor",
            fix="measure a card with `advisor power sensor`, or give a recording with --trace",
        )
    record = next((record for record in records if gpu_model in (None, record.gpu_model)), None)
    if record is None:
        models = sorted({record.gpu_model for record in records})
        raise InputError(
            f"no recording of a power sensor of {gpu_model} comes with advisor",
            fix=f"give --gpu-model one of {listed(models)}",
        )
    return record, bundled_trace(record)


def bundled_trace(record: SensorRecord) -> Trace:
    """The recording that a bundled record was made of."""
    return _parse_trace(bundled_recording(record).decode(), "the bundled recording")
