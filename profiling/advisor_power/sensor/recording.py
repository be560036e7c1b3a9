"""Records a card's sensors while a known load is switched on and off, and reads the recording.

A recording is a file of JSON lines: what was read when, and when the load ran. The first line is an
object with the card; each other line is an array that begins with its kind. Several processes
append whole lines, so those of different kinds may be out of order:

    ["reading", channel, time_s, value, stamp_us]  a value other than the one before; W or J
    ["stage", name, time_s]                        a stage begins, the one before ends
    ["on", begun_s, ended_s]                       the load ran, in the stage before
    ["look", time_s, [reason, ..], [pid, ..]]      throttle reasons, processes that compute
    ["full", time_s]                               too many lines: later readings are left out
    ["end", time_s]                                the recording is whole

Times are those of the host's monotonic clock; `epoch_s` of the first line makes them times of day.
`stamp_us` is the driver's own time of a reading, null where it gives none.

As a program this is a process that polls sensors into such a file until its input is closed:

    python -m advisor_power.sensor.recording UUID FILE power|state|bursts

`power` polls all power fields every 0.3 ms. `state` polls what takes longer, and would make gaps
between the former: the energy counter (4 ms a call), throttle reasons and the processes on the
card. `bursts` is for runs of milliseconds: it writes each change of the instant power at once, and
now and then looks at the memory and at what holds the clock back. Each is a process of its own, so
that nothing delays it. It writes `ready` once it polls.
"""

import json
import math
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, POWER_MEMORY, TelemetrySource
from advisor.core.wording import listed
from advisor.errors import InputError, SourceError
from advisor.formats.moments import to_exact_text
from advisor.predict.profiles import Floats
from advisor.settings import python
from advisor.validity.sensor_record import SensorRecord
from advisor_data.measurements import bundled_recording, bundled_sensors
from advisor_power.gpu_worker import AnsweringJob, AnsweringSpec, WorkerReady, started
from advisor_profiling.telemetry import nvml
from advisor_profiling.telemetry.nvml import NvmlSource, call, nvml_session, reading
from advisor_profiling.testbed import strangers

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


# Asking for power takes some tens of microseconds; readings change every tens of milliseconds.
_POLL_S = 0.0003

_END_S = 10.0


def is_over() -> bool:
    """In such a process: whether the one that started it is gone or has closed its input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def end_process(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Close its input and wait; one that does not end is killed."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# Number and scope of each power channel.
_FIELDS = {
    INSTANT: (nvml.INSTANT, nvml.GPU),
    AVERAGE: (nvml.AVERAGE, nvml.GPU),
    MEMORY: (nvml.AVERAGE, nvml.MEMORY),
}

# Given the time, s: the new lines.
_Poll = Callable[[float], list[list[Any]]]

LATE_S = 0.003  # A look so long before the reading leaves the time of the change unknown

_FLUSH_S = 0.25


class ChangedReadings:
    """Which readings are other than the one before, as lines; at most `most_lines` of them."""

    # A recording of four minutes has about 15,000; a channel that flickers must not fill the disk.
    def __init__(self, most_lines: float = 200_000) -> None:
        self._last: dict[str, float] = {}
        self._left = most_lines

    def lines(
        self, channel: str, time_s: float, value: float | None, stamp_us: int | None = None
    ) -> list[list[Any]]:
        """One line, or none; the last of all says that there are no more."""
        if value is None or self._last.get(channel) == value or self._left < 0:
            return []
        self._last[channel] = value
        self._left -= 1
        if self._left < 0:
            return [["full", round(time_s, 6)]]
        return [["reading", channel, round(time_s, 6), value, stamp_us]]


def poll_into(
    file: Path,
    poll: _Poll,
    interval_s: float,
    over: Callable[[], bool],
    flush_s: float = _FLUSH_S,
) -> None:
    """Append what `poll` finds until it is over; what was found before an error is kept."""
    lines: list[list[Any]] = []
    flushed_s = time.monotonic()
    try:
        while not over():
            lines += poll(now_s := time.monotonic())
            if now_s - flushed_s >= flush_s and lines:
                append(file, *lines)
                lines, flushed_s = [], now_s
            time.sleep(interval_s)
    finally:
        append(file, *lines)


def burst_poll(source: TelemetrySource, clock: Callable[[], float] = time.monotonic) -> _Poll:
    """Changes of the instant power whose moment is known, of the memory, and of the reasons."""
    changes, polls, before_s, reasons = ChangedReadings(math.inf), 0, -math.inf, ""
    begun = False

    def poll(now_s: float) -> list[list[Any]]:
        nonlocal polls, before_s, reasons, begun
        power_w = source.read([POWER_GPU])[POWER_GPU]
        lines = changes.lines(INSTANT, now_s, power_w)
        # The first reading is no change: it may be old.
        if not begun or clock() - before_s >= LATE_S:
            lines = []
        begun, before_s = begun or power_w is not None, now_s
        # The memory, and what holds the clock back, are looked at now and then.
        if polls % 50 == 0:
            lines += changes.lines(MEMORY, clock(), source.read([POWER_MEMORY])[POWER_MEMORY])
            now = source.throttle_reasons() or ()
            if (named := ",".join(now)) != reasons:
                reasons = named
                lines.append(["look", round(clock(), 6), list(now), []])
        polls += 1
        return lines

    return poll


def _power(uuid: str) -> _Poll:
    device, changes = call("nvmlDeviceGetHandleByUUID", uuid), ChangedReadings()
    fields = list(_FIELDS.values())

    def poll(time_s: float) -> list[list[Any]]:
        answers: list[Any] = reading("nvmlDeviceGetFieldValues", device, fields) or []
        lines: list[list[Any]] = []
        for name, answer in zip(_FIELDS, answers, strict=bool(answers)):
            power_mw = nvml.milliwatts(*_FIELDS[name], answer)
            power_w = power_mw / 1000 if power_mw else None  # no running GPU draws 0
            lines += changes.lines(name, time_s, power_w, answer.timestamp or None)
        return lines

    return poll


def _state(uuid: str) -> _Poll:
    source, changes, next_s = NvmlSource(uuid), ChangedReadings(), 0.0

    def poll(_: float) -> list[list[Any]]:
        nonlocal next_s
        energy_j = source.read((ENERGY_GPU,))[ENERGY_GPU]
        now_s = time.monotonic()
        lines = changes.lines(ENERGY, now_s, energy_j or None)
        if now_s >= next_s:
            next_s = now_s + 1.0
            reasons = source.throttle_reasons() or ()
            lines.append(["look", round(now_s, 6), list(reasons), strangers(source.gpu)])
        return lines

    return poll


class Poller:
    """A process that appends what it polls to a file that is there, until it is closed."""

    def __init__(
        self,
        gpu_uuid: str,
        file: Path,
        role: Literal["power", "state", "bursts"],
        environment: Mapping[str, str],
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        # A session of its own: Ctrl-C is for advisor, which ends it in order.
        self._process = subprocess.Popen(
            [python(), "-m", "advisor_power.sensor.recording", gpu_uuid, str(file), role],
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
        end_process(self._process)
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

_STAGE_LATE_S = 30.0  # of a stage, beyond its own length

_MOST_MISSED = 3  # updates in a row that show no change


@dataclass(frozen=True, slots=True)
class Period:
    """Time between two updates of a channel, and the part of all gaps that keeps it."""

    period_s: float
    regular_share: float

    @property
    def regular(self) -> bool:
        """Whether there is one period at all."""
        return self.regular_share >= 0.8  # of all gaps


def period_of(times_s: Floats) -> Period | None:
    """The period of a channel from the times (n,) of its changes; None where they are too few.

    An update to the same value shows no change, so that a gap may be two or three periods long; the
    median is one period as long as less than half of the updates show none.
    """
    gaps_s = np.diff(times_s)
    if len(gaps_s) < 30:  # fewer do not show a period
        return None
    first_s = float(np.median(gaps_s))
    steps = np.rint(gaps_s / first_s)
    near = np.abs(gaps_s - steps * first_s) < 0.25 * first_s
    used = near & (steps >= 1) & (steps <= _MOST_MISSED)
    # Longer gaps are stretches of the same value, which say nothing.
    judged = int(np.count_nonzero(gaps_s < (_MOST_MISSED + 0.5) * first_s))
    if not used.any():
        return Period(first_s, 0.0)
    return Period(
        float(gaps_s[used].sum() / steps[used].sum()), float(np.count_nonzero(used)) / judged
    )


def _sensor_period(trace: Trace) -> Period | None:
    """The period of the quickest power channel so far, a regular one if there is; else None."""
    series = [trace.series[name] for name in POWER_CHANNELS if name in trace.series]
    periods = [period for readings in series if (period := period_of(readings.times_s)) is not None]
    return min(periods, key=lambda period: (not period.regular, period.period_s), default=None)


def record(
    load: AnsweringSpec,
    file: Path,
    seed: int,
    report: Callable[[str], None],
    more: Sequence[LoadStage] = (),
) -> Trace:
    """Record all stages; what was recorded before an error or Ctrl-C stays in the file.

    Args:
        load: The workload `power_load.py`, on an otherwise idle GPU.
        file: Must not be there.
        seed: Of the times at which the load runs.
        report: Called with a line before each stage.
        more: Stages after those of the record.
    """
    gpu = load.backend.gpu
    header = TraceHeader(
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        started_at=to_exact_text(datetime.now(UTC)),
        epoch_s=time.time() - time.monotonic(),
    )
    begin_trace(file, header)
    job, _ = started("power-load", load, WorkerReady)
    with closing(job), recorders(gpu.uuid, file, load.base) as watching:

        def run(stages: Sequence[LoadStage]) -> None:
            left_s = planned_s(stages)
            for stage in stages:
                report(f"{stage.name:12} {stage.length_s:5.1f} s, {left_s:5.1f} s to go")
                for line in run_stage(job, stage):
                    append(file, line)
                left_s -= stage.length_s
                for poller in watching:
                    poller.check()

        run(steps_and_bursts(seed))
        time.sleep(_WRITTEN_S)
        # Square waves at the period that was seen so far.
        period = _sensor_period(read_trace(file))
        if period is None or period.period_s > LONGEST_PERIOD_S:
            rate_text = "hardly ever" if period is None else f"every {period.period_s:.2f} s"
            raise SourceError(
                f"the power of {gpu.model} is not read often enough: {rate_text}",
                why=f"waves need a channel that changes every {LONGEST_PERIOD_S:g} s or more often",
                fix=f"the recording so far is in {file}",
            )
        run((*waves(period.period_s, seed), *more))
        time.sleep(_WRITTEN_S)
        append(file, ["end", time.monotonic()])
    return read_trace(file)


def run_stage(job: AnsweringJob, stage: LoadStage) -> Generator[list[Any]]:
    """Have the load do a stage; the lines of the recording as they come."""
    on = [list(span) for span in stage.on]
    job.ask({"name": stage.name, "length_s": stage.length_s, "on": on})
    latest_s = time.monotonic() + stage.length_s + _STAGE_LATE_S
    while "done" not in (said := job.answer(latest_s - time.monotonic(), "did not end a stage")):
        yield said["line"]


def main() -> None:
    """The command line."""
    uuid, file, role = sys.argv[1:]
    with nvml_session():
        polls = {
            "bursts": lambda: (burst_poll(NvmlSource(uuid)), _POLL_S, 0.0),
            "power": lambda: (_power(uuid), _POLL_S, _FLUSH_S),
            "state": lambda: (_state(uuid), 0.001, _FLUSH_S),
        }
        poll, interval_s, flush_s = polls[role]()
        print("ready", flush=True)
        try:
            poll_into(Path(file), poll, interval_s, is_over, flush_s)
        except SourceError as error:
            sys.exit(str(error))
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
