"""Records a card's sensors while a known load is switched on and off.

The file of a recording has lines of JSON. The first is an object with the card; each other line is
an array that begins with its kind. Several processes append whole lines, so those of different
kinds may be out of order:

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
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from advisor.core.gpu import Gpu
from advisor.core.wording import listed
from advisor.errors import InputError, SourceError
from advisor.formats.moments import to_exact_text
from advisor.predict.profiles import Floats
from advisor.settings import python
from advisor.validity.sensor_record import SensorRecord
from advisor_data.known import bundled_recording, bundled_sensors
from advisor_power.gpu_worker import AnsweringJob, AnsweringSpec, WorkerReady, started
from advisor_power.sensor import polled
from advisor_power.sensor.analysis import sensor_period

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


@dataclass(frozen=True, slots=True)
class Look:
    """State of the card at a moment."""

    time_s: float
    reasons: tuple[str, ...]
    processes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recording; `whole` is False where it was stopped before its end."""

    header: TraceHeader
    series: Mapping[str, ReadingSeries]
    stages: tuple[RecordedStage, ...]
    looks: tuple[Look, ...]
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
    looks: list[Look] = []
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
                    found = tuple(map(str, reasons)), frozenset(map(int, pids))
                    looks.append(Look(float(time_s), *found))
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
    found = next((one for one in records if gpu_model in (None, one.gpu_model)), None)
    if found is None:
        models = sorted({one.gpu_model for one in records})
        raise InputError(
            f"no recording of a power sensor of {gpu_model} comes with advisor",
            fix=f"give --gpu-model one of {listed(models)}",
        )
    return found, bundled_trace(found)


def bundled_trace(record: SensorRecord) -> Trace:
    """The recording that a bundled record was made of."""
    return _parse_trace(bundled_recording(record).decode(), "the bundled recording")


Role: TypeAlias = Literal["power", "state", "bursts"]
"""What is polled, and how often: `polled`."""


class Poller:
    """A process that appends what it polls to a file that is there, until it is closed."""

    def __init__(
        self, gpu_uuid: str, file: Path, role: Role, environment: Mapping[str, str]
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        # A session of its own: Ctrl-C is for advisor, which ends it in order.
        self._process = subprocess.Popen(
            [python(), "-m", "advisor_power.sensor.polled", gpu_uuid, str(file), role],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait_ready(self) -> None:
        """Return when it polls.

        Raises:
            SourceError: it ends before, or takes too long.
        """
        assert self._process.stdout is not None
        # Python takes long to load from a cold or shared disk.
        said, _, _ = select.select([self._process.stdout], [], [], 120.0)
        if not said or self._process.stdout.readline() != b"ready\n":
            raise self.failed()

    def check(self) -> None:
        """Check that it still polls.

        Raises:
            SourceError: it ended.
        """
        if self.gone:
            raise self.failed()

    def failed(self) -> SourceError:
        """What to say where it does not poll any more: its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return SourceError(
            f"the sensors cannot be recorded: {last or 'nothing says why'}",
            why="the process that polls them ended",
            fix="look at `nvidia-smi` and `dmesg`, then try again",
        )

    def close(self) -> None:
        """End it."""
        polled.end(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@contextmanager
def recorders(
    gpu_uuid: str, file: Path, environment: Mapping[str, str]
) -> Generator[tuple[Poller, ...]]:
    """Two processes that record power and state of a card into a file."""
    with (
        closing(Poller(gpu_uuid, file, "power", environment)) as power,
        closing(Poller(gpu_uuid, file, "state", environment)) as state,
    ):
        for poller in (power, state):
            poller.wait_ready()
        yield power, state


_WRITTEN_S = 1.0  # after so long the recorders have written what they have

_LATE_S = 30.0  # of a stage, beyond its own length


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecording:
    """What is recorded, and how.

    Attributes:
        load: The workload `power_load.py`, on a card on which nobody else computes.
        file: Must not be there.
        more: Stages after those of the record.
    """

    load: AnsweringSpec
    file: Path
    seed: int
    report: Callable[[str], None]
    more: Sequence[LoadStage] = ()

    @property
    def gpu(self) -> Gpu:
        """The card."""
        return self.load.backend.gpu


def record(wanted: SensorRecording) -> Trace:
    """Record all stages; what was recorded before an error or Ctrl-C stays in the file."""
    header = TraceHeader(
        gpu_model=wanted.gpu.model,
        gpu_uuid=wanted.gpu.uuid,
        driver=wanted.gpu.driver or "",
        started_at=to_exact_text(datetime.now(UTC)),
        epoch_s=time.time() - time.monotonic(),
    )
    begin_trace(wanted.file, header)
    job, _ = started("power-load", wanted.load, WorkerReady)
    with (
        closing(job),
        recorders(wanted.gpu.uuid, wanted.file, wanted.load.base) as watching,
    ):
        run_stages(job, steps_and_bursts(wanted.seed), wanted, watching)
        run_stages(job, _waves(wanted), wanted, watching)
        run_stages(job, wanted.more, wanted, watching)
        time.sleep(_WRITTEN_S)
        append(wanted.file, ["end", time.monotonic()])
    return read_trace(wanted.file)


def run_stages(
    job: AnsweringJob,
    stages: Sequence[LoadStage],
    wanted: SensorRecording,
    watching: Sequence[Poller],
) -> None:
    """Have the load do stages, and add them to the recording."""
    left_s = planned_s(stages)
    for stage in stages:
        wanted.report(f"{stage.name:12} {stage.length_s:5.1f} s, {left_s:5.1f} s to go")
        for line in run_stage(job, stage):
            append(wanted.file, line)
        left_s -= stage.length_s
        for poller in watching:
            poller.check()


def run_stage(job: AnsweringJob, stage: LoadStage) -> Generator[list[Any]]:
    """Have the load do a stage; the lines of the recording as they come."""
    on = [list(span) for span in stage.on]
    job.ask({"name": stage.name, "length_s": stage.length_s, "on": on})
    latest_s = time.monotonic() + stage.length_s + _LATE_S
    while "done" not in (said := job.answer(latest_s - time.monotonic(), "did not end a stage")):
        yield said["line"]


def _waves(wanted: SensorRecording) -> tuple[LoadStage, ...]:
    """Square waves at the period that was seen so far."""
    time.sleep(_WRITTEN_S)
    period = sensor_period(read_trace(wanted.file))
    if period is None or period.period_s > LONGEST_PERIOD_S:
        found = "hardly ever" if period is None else f"every {period.period_s:.2f} s"
        raise SourceError(
            f"the power of {wanted.gpu.model} is not read often enough: {found}",
            why=f"waves need a channel that changes every {LONGEST_PERIOD_S:g} s or more often",
            fix=f"the recording so far is in {wanted.file}",
        )
    return waves(period.period_s, wanted.seed)
