"""Recording of what a live source answers, and the source that replays it.

A trace is a file of JSON lines `{"t": seconds, "kind": name, "value": value}`. The first line has
kind "source" and describes the source; the others are readings in the order in which they were
made, `t` counted from the first. It is small enough to read by eye and to cut with a text editor.
"""

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO, TypeVar

from advisor.core.gpu import Gpu
from advisor.core.records import Counters
from advisor.errors import SourceError, StoreError
from advisor_profiling.telemetry.source import GpuState, Source

_T = TypeVar("_T")


class TraceRecorder:
    """A source that passes on another's answers and keeps them in a file.

    Args:
        source: The source that is recorded; it is closed together with the recorder.
        path: A new file.
        clock: Monotonic seconds.

    Raises:
        StoreError: the file exists already or cannot be written.
    """

    def __init__(
        self, source: Source, path: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source, self._path, self._clock = source, path, clock
        self._started_s: float | None = None
        self._file = self._open()
        about = {"name": self.name, "interval_s": self.interval_s, "gpu": asdict(source.gpu)}
        self._write(0.0, "source", about)

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def interval_s(self) -> float:
        return self._source.interval_s

    @property
    def gpu(self) -> Gpu:
        return self._source.gpu

    def power_w(self) -> float | None:
        return self._keep("power_w", self._source.power_w())

    def energy_j(self) -> float | None:
        return self._keep("energy_j", self._source.energy_j())

    def state(self) -> GpuState:
        state = self._source.state()
        self._keep("state", asdict(state))
        return state

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        return self._keep("processes_memory_mib", self._source.processes_memory_mib(pids))

    def start_counters(self) -> None:
        self._source.start_counters()

    def read_counters(self) -> Counters:
        counters = self._source.read_counters()
        self._keep("counters", asdict(counters))
        return counters

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self._source.close()

    def _keep(self, kind: str, value: _T) -> _T:
        now_s = self._clock()
        if self._started_s is None:
            self._started_s = now_s
        self._write(now_s - self._started_s, kind, value)
        return value

    def _open(self) -> TextIO:
        try:
            # A line at a time, so that a crash loses no more than the line that is written.
            return self._path.open("x", encoding="utf-8", buffering=1)
        except OSError as error:
            raise self._lost(error) from error

    def _write(self, t: float, kind: str, value: Any) -> None:
        try:
            self._file.write(json.dumps({"t": t, "kind": kind, "value": value}) + "\n")
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> StoreError:
        return StoreError(
            f"the trace {self._path} cannot be written",
            why=error.strerror or str(error),
            fix="name a new file on a disk with room",
        )


class TraceSource:
    """A recorded source: at each moment the reading that was the last one at that moment.

    Time starts with the first reading that is asked for. Before the first reading of a kind, that
    one is given; a kind that was never recorded is not available.

    Args:
        path: A file that `TraceRecorder` wrote.
        clock: Monotonic seconds.

    Raises:
        SourceError: the file cannot be read or a line is damaged; later, from each reading: the
            trace has ended.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._started_s: float | None = None
        self._readings: dict[str, list[tuple[float, Any]]] = {}
        self._end_s = 0.0
        self.name, self.interval_s, self._gpu = "", 0.0, Gpu(uuid="", model="")
        self._load()

    @property
    def gpu(self) -> Gpu:
        return self._gpu

    def power_w(self) -> float | None:
        return self._now("power_w")

    def energy_j(self) -> float | None:
        return self._now("energy_j")

    def state(self) -> GpuState:
        return self._now("state") or GpuState()

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        return self._now("processes_memory_mib")

    def start_counters(self) -> None:
        """The recorded averages have their own beginning."""

    def read_counters(self) -> Counters:
        return self._now("counters") or Counters()

    def close(self) -> None:
        self._readings = {}

    def _now(self, kind: str) -> Any | None:
        now_s = self._clock()
        if self._started_s is None:
            self._started_s = now_s
        t = now_s - self._started_s
        # The last reading counts until the next one would have come.
        if t > self._end_s + self.interval_s:
            raise SourceError(
                f"the trace {self._path} ended at {self._end_s:.3f} s and {t:.3f} s was asked for",
                fix="record a longer trace or ask for a shorter run",
            )
        readings = self._readings.get(kind)
        if not readings:
            return None
        return readings[max(0, bisect_right(readings, t, key=lambda r: r[0]) - 1)][1]

    def _load(self) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"the trace {self._path} cannot be read", why=str(error)) from error
        for number, line in enumerate(lines or [""], start=1):
            try:
                self._take(number, json.loads(line, parse_constant=_refuse))
            except (ValueError, TypeError, KeyError) as error:
                raise SourceError(
                    f"line {number} of the trace {self._path} is damaged: {line[:60]!r}",
                    why=str(error),
                    fix="delete the line if it is the last, otherwise record the trace again",
                ) from error

    def _take(self, number: int, entry: dict[str, Any]) -> None:
        t, kind, value = float(entry["t"]), entry["kind"], entry["value"]
        if (kind == "source") != (number == 1) or t < self._end_s:
            raise ValueError("it is not in its place")
        if kind == "source":
            self.name, self.interval_s = str(value["name"]), float(value["interval_s"])
            self._gpu = Gpu(**value["gpu"])
        else:
            self._readings.setdefault(kind, []).append((t, _READ[kind](value)))
        self._end_s = t


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _state(value: dict[str, Any]) -> GpuState:
    reasons = value.pop("throttle_reasons")
    numbers = {name: _number(number) for name, number in value.items()}
    return GpuState(**numbers, throttle_reasons=None if reasons is None else tuple(reasons))


def _counters(value: dict[str, Any]) -> Counters:
    return Counters(**{name: _number(number) for name, number in value.items()})


_READ: dict[str, Callable[[Any], Any]] = {
    "power_w": _number,
    "energy_j": _number,
    "processes_memory_mib": _number,
    "state": _state,
    "counters": _counters,
}


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no reading")
