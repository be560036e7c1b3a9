"""The power sensors of a card: recorded while a known load is switched on and off, then analysed.

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

    python -m advisor_power.sensor UUID FILE power|state|bursts

`power` polls all power fields every 0.3 ms. `state` polls what takes longer, and would make gaps
between the former: the energy counter (4 ms a call), throttle reasons and the processes on the
card. `bursts` is for runs of milliseconds: it writes each change of the instant power at once, and
now and then looks at the memory and at what holds the clock back. Each is a process of its own, so
that nothing delays it. It writes `ready` once it polls.

Window, delay and noise of a channel are fitted to readings of a load that is known. A reading at u
is the mean of P(t) over [e - W, e], or forgets exponentially from e on
(`advisor.validity.sensor_record`). Either e is u - d, or a card makes values by a clock of its own
and the driver shows the newest: then e is d before the last tick until u. For each response, window
and delay the levels of power follow by least squares. A grid comes first, since there are many
minima, then ever smaller steps from the best. The clock shows in the delays that readings ask for
one by one: taken off, they leave moments that are a whole number of ticks apart. Of the energy
counter a record says whether it sees everything, or only the time in which a sensor looks.

A recording also shows the errors of common ways to read the power of a kernel. A user runs a kernel
twenty times and reads its power. Four ways to read it:

- instant: one instant reading when the run ends;
- average: one reading of the average over a second then;
- counter: the energy counter at the start and a second later, less idle power for the rest of it;
- ours: the kernel is repeated, the sensor settles, and readings of a window of eight are averaged.

The truth is the power that the kernel draws when it has run for long.
"""

import json
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import named_model
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, POWER_MEMORY, TelemetrySource
from advisor.core.wording import listed
from advisor.errors import InputError, SourceError
from advisor.predict.profiles import Floats
from advisor.settings import Settings, python
from advisor.validity.sensor_record import (
    AVERAGE_SETTLE_S,
    PERIODS_IN_WINDOW,
    EnergyCounter,
    PowerChannel,
    Response,
    SensorRecord,
    memory_s,
    power_timing,
)
from advisor.wire.power import ReadingError
from advisor_data.bundled import bundled_recording, bundled_sensors
from advisor_power.gpu_worker import AnsweringJob, WorkerPlace, WorkerReady, open_worker
from advisor_profiling.telemetry import nvml
from advisor_profiling.testbed import strangers
from advisor_profiling.window import Clock

_FORMAT = "advisor-power-trace-2"

INSTANT, AVERAGE, MEMORY, ENERGY = "instant", "average", "memory", "energy"
POWER_CHANNELS = (INSTANT, AVERAGE, MEMORY)

# Begin and end, s.
SpanS: TypeAlias = tuple[float, float]


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
    with path.open("ab", buffering=0) as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


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
                    named, there = tuple(map(str, reasons)), frozenset(map(int, pids))
                    looks.append((float(time_s), named, there))
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
    # Each stage ends where the next begins.
    last_s = [on[-1][1] if on else begun_s for _, begun_s, on in stages[-1:]]
    ends = [*(begun_s for _, begun_s, _ in stages[1:]), *(last_s if end_s is None else [end_s])]
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
    bursts = _drawn_stage(BURSTS, random.Random(seed), _BURSTS, _BURST_S, _GAPS_S)
    return (
        LoadStage(IDLE, _STEP_S),
        LoadStage(FLAT, _STEP_S, ((0.0, _STEP_S),)),
        replace(bursts, length_s=bursts.length_s + _GAPS_S[0]),
    )


def _drawn_stage(
    name: str, draw: random.Random, count: int, length_s: float, gaps_s: tuple[float, float]
) -> LoadStage:
    """A load that runs for so long each time, after gaps of random length."""
    spans: list[SpanS] = [(0.0, 0.0)]
    for _ in range(count):
        start_s = spans[-1][1] + draw.uniform(*gaps_s)
        spans.append((start_s, start_s + length_s))
    return LoadStage(name, spans[-1][1], tuple(spans[1:]))


def waves(period_s: float, seed: int) -> tuple[LoadStage, ...]:
    """Square waves, half of the time on, at and around the period of the sensor.

    Args:
        period_s: Between two changes of the reading, at most `LONGEST_PERIOD_S`.
        seed: Of the phases at which those of the sensor's own period begin.
    """
    draw = random.Random(seed)
    return (
        *(_wave(WAVE, part * period_s, 0.0) for part in (1 / 2, 2 / 3, 3 / 2)),
        *(_wave(LOCKED_WAVE, period_s, draw.uniform(0, period_s)) for _ in range(_PHASES)),
    )


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
    models = sorted({r.gpu_model for r in records})
    named = gpu_model and named_model(gpu_model, models)
    of_model = next((r for r in records if named in (None, r.gpu_model)), None)
    if of_model is None:
        raise InputError(
            f"no recording of a power sensor{f' of {gpu_model}' if models else ''} comes with "
            "advisor",
            fix=f"give --gpu-model one of {listed(models)}"
            if models
            else "measure a card with `advisor power sensor`, or give a recording with --trace",
        )
    return of_model, bundled_trace(of_model)


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
    changes, polls, before_s, reasons = ChangedReadings(np.inf), 0, -np.inf, ""

    def poll(now_s: float) -> list[list[Any]]:
        nonlocal polls, before_s, reasons
        power_w = source.read([POWER_GPU])[POWER_GPU]
        lines = changes.lines(INSTANT, now_s, power_w)
        # The first reading is no change, nor is one after a gap: it may be old.
        if clock() - before_s >= LATE_S:
            lines = []
        before_s = before_s if power_w is None else now_s
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
    device, changes = nvml.call("nvmlDeviceGetHandleByUUID", uuid), ChangedReadings()

    def poll(time_s: float) -> list[list[Any]]:
        answers: list[Any] = (
            nvml.reading("nvmlDeviceGetFieldValues", device, [*_FIELDS.values()]) or []
        )
        lines: list[list[Any]] = []
        for name, answer in zip(_FIELDS, answers, strict=bool(answers)):
            power_w = (nvml.milliwatts(*_FIELDS[name], answer) or 0) / 1000
            # No running GPU draws 0.
            lines += changes.lines(name, time_s, power_w or None, answer.timestamp or None)
        return lines

    return poll


def _state(uuid: str) -> _Poll:
    source, changes, next_s = nvml.NvmlSource(uuid), ChangedReadings(), 0.0

    def poll(_: float) -> list[list[Any]]:
        nonlocal next_s
        energy_j = source.read((ENERGY_GPU,))[ENERGY_GPU]
        now_s = time.monotonic()
        lines = changes.lines(ENERGY, now_s, energy_j or None)
        if now_s >= next_s:
            next_s = now_s + 1.0
            reasons = list(source.throttle_reasons() or ())
            lines.append(["look", round(now_s, 6), reasons, strangers(source.gpu)])
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
            [python(), "-m", "advisor_power.sensor", gpu_uuid, str(file), role],
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
        lines = self._errors.read().decode(errors="replace").rstrip().split("\n")
        return SourceError(
            f"the sensors cannot be recorded: {lines[-1].strip() or 'nothing says why'}",
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
class _Period:
    """Time between two updates of a channel, and the part of all gaps that keeps it."""

    period_s: float
    regular_share: float

    @property
    def regular(self) -> bool:
        """Whether there is one period at all."""
        return self.regular_share >= 0.8  # of all gaps


def period_of(times_s: Floats) -> _Period | None:
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
        return _Period(first_s, 0.0)
    return _Period(
        float(gaps_s[used].sum() / steps[used].sum()), float(np.count_nonzero(used)) / judged
    )


def _sensor_period(trace: Trace) -> _Period | None:
    """The period of the quickest power channel so far, a regular one if there is; else None."""
    found = [
        period_of(trace.series[name].times_s) for name in POWER_CHANNELS if name in trace.series
    ]
    return min(filter(None, found), key=lambda p: (not p.regular, p.period_s), default=None)


def record(
    settings: Settings,
    place: WorkerPlace,
    file: Path,
    seed: int,
    report: Callable[[str], None],
    more: Sequence[LoadStage] = (),
) -> Trace:
    """Record all stages; what was recorded before an error or Ctrl-C stays in the file.

    Args:
        settings: Of this host.
        place: Where the load `power_load.py` runs, on an otherwise idle GPU.
        file: Must not be there.
        seed: Of the times at which the load runs.
        report: Called with a line before each stage.
        more: Stages after those of the record.
    """
    with open_worker(settings, place, "power-sensor", "power_load.py", ready=WorkerReady) as worker:
        gpu = worker.gpu
        begin_trace(
            file,
            TraceHeader(
                gpu_model=gpu.model,
                gpu_uuid=gpu.uuid,
                driver=gpu.driver or "",
                started_at=Clock().utc(),
                epoch_s=time.time() - time.monotonic(),
            ),
        )
        with recorders(gpu.uuid, file, settings.environment) as watching:

            def run(stages: Sequence[LoadStage]) -> None:
                left_s = sum(stage.length_s for stage in stages)
                for stage in stages:
                    report(f"{stage.name:12} {stage.length_s:5.1f} s, {left_s:5.1f} s to go")
                    for line in run_stage(worker.job, stage):
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
                    why=f"waves need a channel that changes every {LONGEST_PERIOD_S:g} s or more "
                    "often",
                    fix=f"the recording so far is in {file}",
                )
            run((*waves(period.period_s, seed), *more))
            time.sleep(_WRITTEN_S)
            append(file, ["end", time.monotonic()])
    return read_trace(file)


def run_stage(job: AnsweringJob, stage: LoadStage) -> Generator[list[Any]]:
    """Have the load do a stage; the lines of the recording as they come."""
    job.ask({"name": stage.name, "length_s": stage.length_s, "on": stage.on})
    latest_s = time.monotonic() + stage.length_s + _STAGE_LATE_S
    while "done" not in (said := job.answer(latest_s - time.monotonic(), "did not end a stage")):
        yield said["line"]


@dataclass(frozen=True, slots=True, eq=False)
class _LevelTimes:
    """The stretches of time in which one level of power holds, as time spent in it so far.

    Attributes:
        times_s: Begin and end of each stretch, (2 n,), sorted.
        spent_s: Seconds of the level until then, (2 n,).
    """

    times_s: Floats
    spent_s: Floats

    def until(self, times_s: Floats) -> Floats:
        """Seconds of this level before each time."""
        return np.interp(times_s, self.times_s, self.spent_s)

    def remembered(self, ends_s: Floats, constant_s: float) -> Floats:
        """Part of an exponential response at each end that is of this level."""
        at_edges = _remembered_at_edges(self, constant_s)
        last = np.searchsorted(self.times_s, ends_s, side="right")
        since_s = ends_s - self.times_s[np.maximum(last - 1, 0)]
        levels = (last % 2 == 1).astype(np.float64)
        return levels + (at_edges[last] - levels) * np.exp(-np.maximum(since_s, 0) / constant_s)


@lru_cache(64)  # neighbours in a search differ in their delay alone
def _remembered_at_edges(level: _LevelTimes, constant_s: float) -> Floats:
    """Part of an exponential response that is of a level: before all, and at each edge."""
    shares = np.exp(-np.diff(level.times_s, prepend=level.times_s[0]) / constant_s).tolist()
    remembered = [0.0]
    for off, on in zip(shares[::2], shares[1::2], strict=True):
        before = remembered[-1] * off
        remembered += before, 1 + (before - 1) * on
    return np.array(remembered)


def level_times(spans: Sequence[SpanS]) -> _LevelTimes:
    """Stretches that follow each other and do not overlap; at least one."""
    edges = np.array(spans, dtype=np.float64).reshape(-1)
    lengths_s = np.diff(edges.reshape(-1, 2), axis=1)[:, 0]
    spent_s = np.repeat(np.cumsum(lengths_s), 2)
    spent_s[::2] -= lengths_s
    return _LevelTimes(edges, spent_s)


def window_parts(
    levels: Sequence[_LevelTimes], ends_s: Floats, window_s: float, response: Response = "mean"
) -> Floats:
    """Part of a reading before each end (n,) that is of each level, (n, levels).

    With the levels' powers P, `parts @ P` is what a sensor of that window reads.
    """
    if response == "mean":
        columns = [
            (level.until(ends_s) - level.until(ends_s - window_s)) / window_s for level in levels
        ]
    else:
        columns = [level.remembered(ends_s, window_s / 2) for level in levels]
    return np.stack(columns, axis=1)


def _training_levels(trace: Trace) -> list[_LevelTimes]:
    """Levels of all stages: idle, flat load, between bursts, bursts, off and on in waves.

    A burst does not reach the power of a long load, and a GPU between bursts draws more than an
    idle one: clocks follow the load. So each has a level of its own. A recording without waves has
    none of theirs.
    """
    (flat,), (bursts,) = trace.named(FLAT), trace.named(BURSTS)
    begun_s, split_s = trace.stages[0].begun_s, flat.on[-1][1]
    wave_stages = [wave for wave in trace.named(WAVE, LOCKED_WAVE) if wave.on]
    ended_s = wave_stages[0].begun_s if wave_stages else bursts.ended_s + 10
    return [
        level_times(_outside(flat.on, begun_s - 10, split_s)),
        level_times(flat.on),
        level_times(_outside(bursts.on, split_s, ended_s)),
        level_times(bursts.on),
        *(_wave_levels(wave_stages) if wave_stages else ()),
    ]


def _wave_levels(stages: Sequence[RecordedStage]) -> list[_LevelTimes]:
    """Levels of stages that follow each other: off and on."""
    on = [span for stage in stages for span in stage.on]
    return [
        level_times(_outside(on, stages[0].begun_s, stages[-1].ended_s)),
        level_times(on),
    ]


def _outside(spans: Sequence[SpanS], begun_s: float, ended_s: float) -> list[SpanS]:
    edges = [begun_s, *(edge for span in spans for edge in span), ended_s]
    return list(zip(edges[::2], edges[1::2], strict=True))


class _Place(NamedTuple):
    """How a channel may read.

    Attributes:
        delay_s: From the end of the window to the reading; with a clock to the tick before it.
        clock_s: Between two ticks; 0: there is no clock.
        tick_s: A moment at which it ticks.
    """

    response: Response
    window_s: float
    delay_s: float
    clock_s: float = 0.0
    tick_s: float = 0.0

    def ends_s(self, times_s: Floats) -> Floats:
        """When the windows of readings at these times ended."""
        if not self.clock_s:
            return times_s - self.delay_s
        ticks = np.floor((times_s - self.tick_s) / self.clock_s)
        return self.tick_s + ticks * self.clock_s - self.delay_s

    @property
    def settled_s(self) -> float:
        """After a change of load a reading is of the new load alone."""
        return memory_s(self.response, self.window_s) + self.delay_s + self.clock_s


COARSE_S, _FINEST_S = 1e-3, 5e-5
# Of window, delay, tick and clock: a longer window is much like a longer delay, and so on.
_MOVES = (
    (-1, 0, 0, 0), (0, -1, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, -1, 0, 0), (-1, 1, 0, 0),
)  # fmt: skip
_CLOCK_MOVES = (
    (0, 0, -1, 0),
    (0, 0, 0, -1),
    (0, -1, -1, 0),
    (0, 0, 1, 0),
    (0, 0, 0, 1),
    (0, 1, 1, 0),
)


@dataclass(frozen=True, slots=True)
class _WindowFit:
    """How a channel reads, the power of each level, W, and how far readings are off, W."""

    place: _Place
    levels_w: Floats
    cost: float


@dataclass(frozen=True, slots=True)
class _Sample:
    """Values read (n,) at times, and the parts of their windows in each level at any place."""

    values: Floats
    times_s: Floats
    parts: Callable[[_Place], Floats]

    def part(self, kept: npt.NDArray[np.bool_]) -> "_Sample":
        """Some of the readings; each part is worked out once for all of them."""
        return _Sample(self.values[kept], self.times_s[kept], lambda place: self.parts(place)[kept])


def _sample_of(readings: ReadingSeries, levels: Sequence[_LevelTimes]) -> _Sample:
    def parts(place: _Place) -> Floats:
        return window_parts(levels, place.ends_s(readings.times_s), place.window_s, place.response)

    # A search looks at the neighbours of a place, most of them again after a step.
    return _Sample(readings.values, readings.times_s, lru_cache(32)(parts))


def _fit_window(sample: _Sample) -> _WindowFit:
    """How a channel reads, from readings of a load that is known."""
    # Delays up to 0.4 s, in steps that a window of that length can tell apart.
    places = [
        _Place("mean", window_s, float(delay_s))
        for window_s in np.geomspace(0.003, 1.6, 26).tolist()
        for delay_s in np.arange(0, 0.4, max(0.006, window_s / 4))
    ]
    _, window_s, delay_s, *_ = min(places, key=lambda place: at(sample, place).cost)
    fits = [
        _refine(sample, _Place(response, window_s, delay_s), window_s / 8, COARSE_S)
        for response in get_args(Response)
    ]
    return _refine(sample, min(fits, key=lambda fit: fit.cost).place, COARSE_S)


def _refine(
    sample: _Sample, start: _Place, step_s: float, finest_s: float = _FINEST_S
) -> _WindowFit:
    """The minimum near a start: by steps that are halved where none leads down."""
    return _refine_each([sample], start, step_s, finest_s)[0]


def _refine_each(
    samples: Sequence[_Sample], start: _Place, step_s: float, finest_s: float
) -> list[_WindowFit]:
    """As `_refine` of each sample; step by step, since parts of the same readings look alike."""
    fits = [at(sample, start) for sample in samples]
    while step_s >= finest_s:
        fits = [_down(sample, fit, step_s) for sample, fit in zip(samples, fits, strict=True)]
        step_s /= 2
    return fits


def _down(sample: _Sample, best: _WindowFit, step_s: float) -> _WindowFit:
    """From a place down by steps of one length, until none leads down."""
    while True:
        place = best.place
        # The clock is moved by as much as moves the last tick by a step.
        ticks = np.ptp(sample.times_s) / (place.clock_s or 1.0)
        places = [
            _Place(
                place.response,
                place.window_s + step_s * window,
                place.delay_s + step_s * delay,
                place.clock_s + step_s * clock / ticks,
                place.tick_s + step_s * tick,
            )
            for window, delay, tick, clock in (*_MOVES, *(_CLOCK_MOVES if place.clock_s else ()))
        ]
        # A reading is never of what comes later.
        tried = (at(sample, place) for place in places if place.window_s > 0 <= place.delay_s)
        lower = min(tried, key=lambda fit: fit.cost, default=best)
        if lower.cost >= best.cost:
            return best
        best = lower


def at(sample: _Sample, place: _Place) -> _WindowFit:
    """The best powers of the levels for a place, and the mean error that they leave."""
    parts = sample.parts(place)
    powers, *_ = np.linalg.lstsq(parts, sample.values)
    off = np.abs(sample.values - parts @ powers)
    return _WindowFit(place, np.asarray(powers, dtype=np.float64), float(off.mean()))


_SLOWEST_CLOCK_S, _FASTEST_CLOCK_S = 0.05, 0.008


def _with_clock(sample: _Sample, fit: _WindowFit) -> _WindowFit:
    """The same with the clock of the card, where it has one that shows."""
    delays_s = np.arange(0.0, fit.place.delay_s + _SLOWEST_CLOCK_S, 5e-4)
    levels = np.stack(
        [sample.parts(fit.place._replace(delay_s=float(d))) @ fit.levels_w for d in delays_s]
    )
    # Where the load changed lately a reading tells its delay.
    telling = np.ptp(levels, axis=0) > 0.5 * np.ptp(fit.levels_w)
    ends_s = (sample.times_s - delays_s[np.abs(levels - sample.values).argmin(axis=0)])[telling]
    if len(ends_s) < 30:
        return fit
    middle_s = float(np.mean(ends_s))
    rates = np.arange(1 / _SLOWEST_CLOCK_S, 1 / _FASTEST_CLOCK_S, 0.2 / float(np.ptp(ends_s)))
    phases = np.concatenate(
        [
            np.exp(2j * np.pi * np.outer(some, ends_s - middle_s)).mean(axis=1)
            for some in np.array_split(rates, 1 + len(rates) // 1000)
        ]
    )
    size = np.abs(phases)
    # Readings come at regular times as well, so that several clocks look much alike.
    peaks = np.flatnonzero((size[1:-1] > size[:-2]) & (size[1:-1] > size[2:])) + 1
    fits: list[_WindowFit] = []
    for peak in peaks[np.argsort(-size[peaks])][:8]:
        clock_s = 1 / float(rates[peak])
        tick_s = middle_s + float(np.angle(phases[peak])) / (2 * np.pi) * clock_s
        starts = [
            fit.place._replace(delay_s=0.0, clock_s=clock_s, tick_s=tick_s + part * clock_s)
            for part in (0.0, 0.25, 0.5, 0.75)
        ]
        start = min(starts, key=lambda place: at(sample, place).cost)
        fits += [_refine(sample, start._replace(response=r), COARSE_S) for r in get_args(Response)]
    best = min(fits, key=lambda candidate: candidate.cost, default=fit)
    # A clock that leaves more of the error is none.
    return best if best.cost < 0.7 * fit.cost else fit


def noise_w(flat: ReadingSeries) -> float | None:
    """Standard deviation of readings of a steady load around a line: cards warm up.

    None where there are fewer than eight.
    """
    if len(flat.values) < 8:
        return None
    line = np.polynomial.Polynomial.fit(flat.times_s, flat.values, 1)
    return float(np.std(flat.values - line(flat.times_s), ddof=2))


def slope(x: Floats, y: Floats) -> float:
    """Of the line of least squares."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))


_TENTHS = 10

_LEAST_PHASES = 10


def power_channel(trace: Trace, name: str) -> tuple[PowerChannel | None, str]:
    """A power channel of a recording, None where it shows nothing; why it is not accepted, or "".

    It is fitted by the bursts, then by the locked waves, too, since few readings meet a burst: of
    bursts alone the window is uncertain by 2.5 ms, or 10 % of a window of a second. The other waves
    are kept to check it with.
    """
    readings = trace.series.get(name)
    if readings is None:
        return None, "the card does not have it, or it reads 0"
    if len(set(readings.values)) <= 2:
        return None, f"it always reads {readings.values[-1]:g} W, whatever runs"
    (bursts,), wave_stages = trace.named(BURSTS), trace.named(WAVE, LOCKED_WAVE)
    during = readings.between(bursts.begun_s, bursts.ended_s)
    first = period_of(during.times_s)
    if first is None:
        return None, (
            f"it changed {len(during.values)} times during the bursts, too rarely to be fitted"
        )
    if not first.regular:
        return None, f"only {100 * first.regular_share:.0f} % of its changes keep one period"
    used = readings.between(trace.stages[0].begun_s, bursts.ended_s)
    levels = _training_levels(trace)
    place = _fit_window(_sample_of(used, levels)).place
    if locked := trace.named(LOCKED_WAVE):
        more = readings.between(locked[0].begun_s, locked[-1].ended_s)
        used = ReadingSeries(
            np.concatenate([used.times_s, more.times_s]), np.concatenate([used.values, more.values])
        )
    sample = _sample_of(used, levels)
    place = _with_clock(sample, _refine(sample, place, COARSE_S)).place
    flat_s = trace.named(FLAT)[0].on
    noise = noise_w(readings.between(flat_s[0][0] + place.settled_s, flat_s[-1][1]))
    if noise is None:
        return None, "too few readings of the flat load for its noise"
    spread_ms = _spread_ms(sample, used.times_s >= bursts.begun_s, place)
    errors = _errors_on_waves(trace, readings, place)
    later = (
        period_of(readings.times_s[readings.times_s > wave_stages[0].begun_s])
        if wave_stages
        else None
    )
    why = _why_not(first, later, spread_ms, place, errors)
    rms, median = errors or (1.0, 1.0)
    return PowerChannel(
        name=name,
        period_ms=round(1000 * first.period_s, 3),
        response=place.response,
        window_ms=round(1000 * place.window_s, 3),
        delay_ms=round(1000 * float(place.delay_s + place.clock_s / 2), 3),
        delay_spread_ms=round(1000 * float(place.clock_s), 4),
        noise_w=round(noise, 3),
        window_spread_ms=round(spread_ms, 3),
        prediction_error=round(rms, 5),
        median_error=round(median, 5),
        accepted=not why,
    ), why


def _spread_ms(sample: _Sample, later: npt.NDArray[np.bool_], place: _Place) -> float:
    """How far the window would differ between halves of the data: twice its standard error.

    By tenths of the time that are left out in turn (jackknife): two halves themselves differ by
    anything from nothing to twice as much. Readings that are not `later` are never left out.
    """
    tenths = np.where(later, (np.cumsum(later) - 1) * _TENTHS // np.count_nonzero(later), -1)
    rests = [sample.part(tenths != tenth) for tenth in range(_TENTHS)]
    fits = _refine_each(rests, place, place.window_s / 8, min(COARSE_S, place.window_s / 200))
    return 2000 * float(np.std([fit.place.window_s for fit in fits]) * np.sqrt(_TENTHS - 1))


def _errors_on_waves(
    trace: Trace, readings: ReadingSeries, place: _Place
) -> tuple[float, float] | None:
    """Predicted less read over the mean read, of a load not fitted to: root mean square and median.

    Nothing is left out, and no delay is chosen for a reading. The two powers are those that suit
    the waves best, since bursts and waves do not draw the same; how readings move between them is
    predicted. None where there are no waves, or too few readings of them.
    """
    wave_stages = trace.named(WAVE)
    if not any(wave.on for wave in wave_stages):
        return None
    steady = readings.between(wave_stages[0].begun_s + place.settled_s, wave_stages[-1].ended_s)
    if len(steady.values) < 30:
        return None
    sample = _sample_of(steady, _wave_levels(wave_stages))
    off = np.abs(sample.values - sample.parts(place) @ at(sample, place).levels_w)
    mean_w = sample.values.mean()
    return float(np.sqrt(np.mean(off**2)) / mean_w), float(np.median(off) / mean_w)


def _why_not(
    first: _Period,
    later: _Period | None,
    spread_ms: float,
    place: _Place,
    errors: tuple[float, float] | None,
) -> str:
    later_s, (_, median) = (later or first).period_s, errors or (0.0, 0.0)
    reasons = {
        f"its period changed from {1000 * first.period_s:.1f} to {1000 * later_s:.1f} ms during "
        "the recording": abs(later_s / first.period_s - 1) > 0.05,
        f"halves of the data give windows that differ by {spread_ms:.1f} ms": (
            # 2 % for windows of a second, in which a burst of 9 ms hardly shows.
            spread_ms > max(2.0, 0.02 * 1000 * place.window_s)
        ),
        "no square waves were recorded to check it with": errors is None,
        f"half of the square waves' readings are predicted over {100 * median:.1f} % wrong": (
            median > 0.03
        ),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def record_of(trace: Trace, source: str) -> SensorRecord:
    """The record of a card by a recording; nothing is accepted of one that was disturbed.

    Raises:
        InputError: it ends before the bursts do, so that there is nothing to fit.
    """
    if [stage.name for stage in trace.named(FLAT, BURSTS) if stage.on] != [FLAT, BURSTS]:
        raise InputError(
            f"the recording of {trace.header.gpu_model} ends before its bursts",
            why="windows and delays are fitted to them",
            fix="record again: advisor power sensor",
        )
    wrong = faults(trace)
    channels = {name: power_channel(trace, name) for name in POWER_CHANNELS}
    counter, why = _energy_counter(trace)
    absent = [name for name, (channel, _) in channels.items() if channel is None]
    return SensorRecord(
        gpu_model=trace.header.gpu_model,
        gpu_uuid=trace.header.gpu_uuid,
        driver=trace.header.driver,
        channels=tuple(
            replace(channel, accepted=channel.accepted and not wrong)
            for channel, _ in channels.values()
            if channel is not None
        ),
        absent=tuple(absent if counter else [*absent, ENERGY]),
        energy=replace(counter, covers_everything=None) if counter and wrong else counter,
        measured_at=trace.header.started_at,
        seconds=round(trace.stages[-1].ended_s - trace.stages[0].begun_s, 1),
        source=source,
        reasons=(
            *wrong,
            *(f"{name}: {reason}" for name, (_, reason) in channels.items() if reason),
            *([f"{ENERGY}: {why}"] if why else ()),
        ),
    )


def faults(trace: Trace) -> tuple[str, ...]:
    """What disturbed the recording as a whole; empty where nothing did."""
    edges_s = (trace.stages[0].begun_s, trace.stages[-1].ended_s) if trace.stages else (0.0, 0.0)
    looks = [look for look in trace.looks if look[0] >= edges_s[0]]
    reasons = sorted({reason for _, names, _ in looks for reason in names})
    pids = frozenset[int]().union(*(there for _, _, there in looks))
    times_of_pids = [[time_s for time_s, _, there in looks if pid in there] for pid in pids]
    # A process that starts on another GPU is listed on this one for up to 3 s.
    stayed = [times_s for times_s in times_of_pids if times_s[-1] - times_s[0] > 3]
    looked_s = [edges_s[0], *(time_s for time_s, _, _ in looks), edges_s[1]]
    signs = {
        "the recording was stopped before its end": not trace.whole,
        "the recording grew too large: a channel changes far more often than it may": trace.full,
        f"the card was throttled ({', '.join(reasons)})": bool(reasons),
        "another process computed on the GPU": len(stayed) > 1,
        "the state of the card was not watched all the time": np.diff(looked_s).max() > 5,
    }
    return tuple(fault for fault, is_so in signs.items() if is_so)


def _energy_counter(trace: Trace) -> tuple[EnergyCounter | None, str]:
    """The energy counter, or why nothing can be said of it.

    The energy of each locked wave is compared with what its times of load make expect. A counter
    that adds up windows meets the same part of the wave in each, which part depends on the phase.
    """
    ticks = trace.series.get(ENERGY)
    if ticks is None:
        return None, "the card has none, or it reads 0"
    period = period_of(ticks.times_s)
    if period is None:
        return None, f"it changed {len(ticks.values) - 1} times, too rarely for its period"
    # Power off and on by the counter itself: the spread needs their ratio only.
    off, on = (_slope_w(trace.named(name), ticks) for name in (IDLE, FLAT))
    levels_w = (off, on) if off and on else (0.0, 1.0)
    ratios = list[tuple[float, float]]()
    for wave in trace.named(LOCKED_WAVE):
        counted = ticks.between(wave.on[0][0] + 0.5, wave.on[-1][1]) if wave.on else None
        if counted and len(counted.values) >= 10:
            spent = [level.until(counted.times_s) for level in _wave_levels([wave])]
            # From all ticks: the first and the last alone are ± a tick.
            expected_j = spent[0] * levels_w[0] + spent[1] * levels_w[1]
            ratios.append((wave.begun_s, slope(expected_j, counted.values)))
    if len(ratios) < _LEAST_PHASES:
        return None, f"only {len(ratios)} waves could be compared, {_LEAST_PHASES} are needed"
    # A card that warms up draws more from wave to wave, at whichever phase.
    waves_read = ReadingSeries(*np.array(ratios, dtype=np.float64).T)
    spread = float((noise_w(waves_read) or 0.0) / waves_read.values.mean())
    covers = None if spread <= 0.05 else False
    return EnergyCounter(
        period_ms=round(1000 * period.period_s, 2),
        coverage_spread=round(spread, 5),
        covers_everything=True if spread <= 0.01 else covers,
    ), ""


def _slope_w(stages: Sequence[RecordedStage], ticks: ReadingSeries) -> float | None:
    counted = ticks.between(stages[0].begun_s + 0.5, stages[0].ended_s) if stages else None
    return slope(counted.times_s, counted.values) if counted and len(counted.values) >= 3 else None


KERNELS_S = (30e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 30e-3)

_REPEATS, _RUN_GAPS_S = 3, (1.05, 1.25)
_COUNTED_S = 1.0


def run_stages(seed: int) -> tuple[LoadStage, ...]:
    """Runs of twenty kernels of each length, to be recorded after the stages of the record."""
    draw = random.Random(seed)
    *stages, last = [
        _drawn_stage(_name(kernel_s), draw, _REPEATS, 20 * kernel_s, _RUN_GAPS_S)
        for kernel_s in KERNELS_S
    ]
    # The energy of the last run is counted for a second, as that of the others is.
    return (*stages, replace(last, length_s=last.length_s + 2 * _COUNTED_S))


def measured(trace: Trace, record: SensorRecord) -> list[ReadingError]:
    """The errors of real readings; empty where the recording has no such runs."""
    timing, instant = power_timing(record), trace.series.get(INSTANT)
    if instant is None:
        return []
    flat = trace.named(FLAT)[0]
    settle_s = AVERAGE_SETTLE_S if timing is None else timing.settle_s
    steady_w = instant.between(flat.begun_s + settle_s, flat.ended_s).values
    count = len(steady_w) // PERIODS_IN_WINDOW
    ours_w = steady_w[: count * PERIODS_IN_WINDOW].reshape(count, -1).mean(axis=1)
    errors: list[ReadingError] = []
    for kernel_s in KERNELS_S:
        spans = [span for stage in trace.named(_name(kernel_s)) for span in stage.on]
        if not spans:
            continue
        begins_s, ends_s = np.array(spans).T
        # The reading that is shown when each run ends.
        ways = {
            name: _newest(trace.series[name], ends_s)
            for name in (INSTANT, AVERAGE)
            if name in trace.series
        }
        if (ticks := trace.series.get(ENERGY)) is not None:
            joules = _newest(ticks, begins_s + _COUNTED_S) - _newest(ticks, begins_s)
            # Runs are more than a second apart, so the reading before each is of an idle card.
            idle_j = _newest(instant, begins_s) * (_COUNTED_S - (ends_s - begins_s))
            ways["counter"] = (joules - idle_j) / (ends_s - begins_s)
        for way, power_w in {**ways, "ours": ours_w}.items():
            off = np.abs(power_w / float(steady_w.mean()) - 1)
            median, p95 = np.percentile(off, [50, 95])
            errors.append(ReadingError(kernel_s, way, float(median), float(p95), len(off)))
    return errors


def _newest(series: ReadingSeries, times_s: Floats) -> Floats:
    return series.values[np.maximum(np.searchsorted(series.times_s, times_s, "right") - 1, 0)]


def _name(kernel_s: float) -> str:
    return f"runs {kernel_s:g}"


def main() -> None:
    """The command line."""
    uuid, file, role = sys.argv[1:]
    with nvml.nvml_session():
        polls = {
            "bursts": lambda: (burst_poll(nvml.NvmlSource(uuid)), _POLL_S, 0.0),
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
