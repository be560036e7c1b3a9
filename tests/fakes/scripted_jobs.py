"""A launched pair on a clock that a test moves: jobs, their limits and telemetry, no process."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from advisor.core.gpu import EQUAL, Gpu, Share, Split
from advisor.core.job import NOTHING, Job, Reported
from advisor.core.telemetry import ENERGY_GPU, ReadingGate, Readings, TelemetrySource
from advisor.errors import AdvisorError, JobError, SourceError
from advisor.launch import set_monitor
from advisor.launch.set_monitor import Renew, SetMonitor
from advisor.launch.spec import Forecast, LaunchPart, LaunchSet, LaunchSpec
from advisor.progress import LATENCY_BUCKETS, latency_bucket
from advisor.runtime import processes, running_job
from advisor.runtime.backend import Backend, Granted, Proof, Sight
from advisor.runtime.processes import RunInBackground, at_once
from advisor.runtime.running_job import RunningJob

GPU = Gpu(uuid="GPU-1", model="Card", units_total=132, power_limit_w=700.0, driver="580")
FAULT = "CUDA error: an illegal memory access was encountered"


T = TypeVar("T")


def pid_of(job: str) -> int:
    """The number of a job's process, larger than any that Linux gives."""
    return 10_000_000 + ord(job[0])


@dataclass
class Clock:
    """In the place of `time`; who sleeps moves it."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Script:
    """What a job does, in seconds after the clock began.

    Attributes:
        rate: Steps per second until it hangs or ends.
        steps: In the place of the rate: steps by a time.
        ends_s: When its first process has ended, and with which status.
        hangs_s: From when on it makes no progress.
        idle: It says then that it lives, and has nothing to do.
        broken_s: From when on its progress cannot be read, and from when on it can again.
        unfinished: Steps that only a last count finds.
        late_ms: In which times it answers requests.
        bounds_ms: Of the buckets in which it tells these.
        limit: What a check of its limit raises; so does one of its variables.
        ready_s: When it stands at its gate.
        start: What an attempt to start it raises.
        holds: It comes to rest at its gate.
        saves_s: It ends by itself so long after it is asked to; None: it cannot be asked.
    """

    units: int = 66
    rate: float = 50.0
    steps: Callable[[float], float] | None = None
    ends_s: float = float("inf")
    status: int = 0
    hangs_s: float = float("inf")
    idle: bool = False
    broken_s: tuple[float, float] = (float("inf"), float("inf"))
    unfinished: float = 0.0
    tail: str = ""
    reported: Reported = NOTHING
    late_ms: tuple[float, ...] = ()
    bounds_ms: tuple[float, ...] = ()
    limit: AdvisorError | None = None
    variables: AdvisorError | None = None
    ready_s: float = 0.0
    start: AdvisorError | None = None
    holds: bool = True
    saves_s: float | None = None


class ScriptedJob:
    """In the place of a `RunningJob`; `moves` is when its gate opened or closed, in turn."""

    def __init__(
        self,
        job: Job,
        script: Script,
        clock: Clock,
        backend: "ScriptedBackend",
        share: Share | None = None,
    ) -> None:
        self.job, self.script, self._clock, self._backend = job, script, clock, backend
        self.share = share or Share(50)
        self.granted = Granted(script.units, memory_mib=self.share.memory_mib)
        self.output = Path(f"/launch/{job.name}/output.log")
        self.is_open, self.stops, self.stalls_s = False, 0, list[float]()
        self.keeps_files, self.is_closed = False, False
        self.uncounted: AdvisorError | None = None
        self.moves = list[float]()
        self._asked_s = 0.0

    @property
    def _now_s(self) -> float:
        return self._clock.now_s - 1000.0

    def start(self) -> "ScriptedJob":
        if self.script.start:
            raise self.script.start
        self.moves += [] if self.job.progress.gate else [self._now_s]
        return self

    def ready_to_launch(self) -> bool:
        self.check()
        if self._now_s >= self.script.ready_s:
            return True
        if self._now_s > self.job.start_timeout_s:
            raise JobError(f"{self.job.name} did not come to its gate")
        return False

    def go(self) -> None:
        self.is_open = True
        self.moves += [self._now_s] if self.job.progress.gate else []

    def hold(self, timeout_s: float) -> None:
        self.check()
        if not self.script.holds:
            self._clock.sleep(timeout_s)
            raise JobError(f"{self.job.name} did not stop at its gate")
        self.is_open = False
        self.moves.append(self._now_s)

    def proof(self) -> Proof:
        return "set"

    def count(self, *, last: bool = False) -> float:
        if self.stalls_s:
            self._clock.sleep(self.stalls_s.pop(0))
        begun_s, ended_s = self.script.broken_s
        if begun_s <= self._now_s < ended_s:
            raise JobError(f"the progress of {self.job.name} cannot be read")
        ran_s = min(self._now_s, self.script.ends_s, self.script.hangs_s)
        steps = self.script.steps(ran_s) if self.script.steps else self.script.rate * ran_s
        return steps + (self.script.unfinished if last else 0.0)

    def close(self) -> None:
        self.is_closed = True

    def beats(self) -> int:
        return int(self._now_s) if self.script.idle else 0

    def latencies(self) -> tuple[int, ...]:
        """Each step answers one request in each of these times; before 3 s they take a minute."""
        counts, steps = [0] * LATENCY_BUCKETS, int(self.script.rate * max(0.0, self._now_s - 3.0))
        for late_ms in self.script.late_ms:
            counts[latency_bucket(late_ms / 1000)] += steps
        counts[-1] += 1000 if self.script.late_ms else 0
        return tuple(counts)

    def latency_bounds_ms(self) -> tuple[float, ...]:
        return self.script.bounds_ms

    def reported(self) -> Reported:
        return self.script.reported

    @property
    def exit_code(self) -> int | None:
        return self.script.status if self._now_s >= self.script.ends_s else None

    def check(self) -> None:
        if self.exit_code is not None:
            raise JobError(f"{self.job.name} ended with status {self.exit_code}")

    def check_client(self) -> None:
        if self.script.limit and self.exit_code is None:
            raise self.script.limit

    def check_variables(self) -> None:
        if self.script.variables:
            raise self.script.variables

    def tail(self) -> str:
        return self.script.tail

    def cpu_s(self) -> float:
        return self._now_s / 2

    def pids(self) -> list[int]:
        """One number by name, which no process has."""
        return [] if self.exit_code is not None else [pid_of(self.job.name)]

    @property
    def last_pids(self) -> frozenset[int]:
        return frozenset([pid_of(self.job.name)])

    def roots(self) -> list[int]:
        return self.pids()

    def has_marked(self, pid: int) -> bool:
        return pid in self.last_pids

    def sight(self) -> Sight | None:
        return self._backend.seen

    def leave(self) -> None:
        pass

    def ask_to_end(self) -> bool:
        self._asked_s = self._now_s
        return self.script.saves_s is not None

    @property
    def over(self) -> bool:
        return self._now_s >= self._asked_s + (self.script.saves_s or 0.0)

    def stop(self) -> None:
        self.stops, self.is_open = self.stops + 1, False


@dataclass
class ScriptedBackend:
    """In the place of what limits jobs.

    Attributes:
        given: What a process gets that starts now.
        faults_s: From when on a fault has taken all clients down, and until when that is seen.
        errors: What is raised where it is asked next, one after the other.
        seen: Who computes; None: nobody can tell.
        asked: How often it was asked.
        max_clients: Places that are left.
        named: Processes that are told of with a fault.
        capped: At how much all that starts is held.
    """

    clock: Clock
    mode: str = "mps"
    given: float | None = 50.0
    faults_s: tuple[float, float] = (float("inf"), float("inf"))
    errors: list[AdvisorError | None] = field(default_factory=list[AdvisorError | None])
    seen: Sight | None = None
    asked: int = 0
    max_clients: int = 40
    named: frozenset[int] = frozenset()
    gpu: Gpu = GPU
    capped: list[int] = field(default_factory=list[int])
    is_closed: bool = False

    def cap(self, percent: int) -> None:
        self.capped.append(percent)

    def close(self) -> None:
        self.is_closed = True

    def spoiled(self) -> bool:
        self.asked += 1
        if self.errors and (error := self.errors.pop(0)):
            raise error
        begun_s, ended_s = self.faults_s
        return begun_s <= self.clock.now_s - 1000.0 < ended_s

    def blamed(self) -> frozenset[int]:
        return self.named

    def given_percent(self) -> float | None:
        return self.given


def proving(
    clock: Clock, scripts: Mapping[str, Script], started: list[ScriptedJob]
) -> Callable[..., Any]:
    """In the place of `prove`: all limits are in force, and jobs do as their scripts say."""

    def prove(job: Job, share: Share, backend: ScriptedBackend, _base: object, folder: Path) -> Any:
        one = ScriptedJob(job, scripts[job.name], clock, backend, share)
        one.output = folder / "output.log"

        def start() -> ScriptedJob:
            started.append(one.start())
            return one

        return SimpleNamespace(granted=one.granted, start=start)

    return prove


@dataclass
class Meter:
    """Telemetry: an energy counter that follows a power.

    Attributes:
        stalls_s: For so long its next readings stand still before they are taken.
    """

    clock: Clock
    power_w: float | None = 400.0
    total_j: float = 5000.0
    stalls_s: list[float] = field(default_factory=list[float])
    gates: Sequence[ReadingGate] = ()
    _read_s: float = 1000.0

    def read(self, names: Collection[str]) -> Readings:
        if self.power_w is None:
            raise SourceError("the GPU fell off the bus")
        if self.stalls_s:
            self.clock.sleep(self.stalls_s.pop(0))
        self.total_j += self.power_w * (self.clock.now_s - self._read_s)
        self._read_s = self.clock.now_s
        return {name: self.total_j if name == ENERGY_GPU else None for name in names}

    def start_window(self) -> None:
        pass

    def processes_memory_mib(self, pids: Collection[int]) -> float:
        return 5000.0 * bool(pids)


class Watch:
    """Jobs that are watched: `a`, `b` and more, each at 100 steps per second and 300 W alone."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        a: Script | None = None,
        b: Script | None = None,
        *more: Script,
        split: Split = EQUAL,
        forecast: Forecast | None = None,
        known: bool = True,
        jobs: tuple[Job, ...] = (),
        backend: dict[str, Any] | None = None,
        parts: dict[str, Any] | None = None,
        run: RunInBackground = at_once,
        uncounted: AdvisorError | None = None,
        renew: Renew | None = None,
        **spec: Any,
    ) -> None:
        self.clock = Clock()
        for module in (set_monitor, processes, running_job):
            patch.setattr(module, "time", self.clock)
        self.backend = ScriptedBackend(self.clock, **(backend or {}))
        self.meter = Meter(self.clock)
        scripts = (a or Script(), b or Script(), *more)
        scripts = scripts[:1] if len(split.shares) == 1 else scripts
        of = jobs or tuple(Job(name=name, command=("true",)) for name in "abcd"[: len(scripts)])
        self.jobs = tuple(
            ScriptedJob(job, script, self.clock, self.backend)
            for job, script in zip(of, scripts, strict=True)
        )
        self.jobs[0].uncounted = uncounted
        alone: dict[str, Any] = {"solo_rate": 100.0, "solo_power_w": 300.0} if known else {}
        self.pair = LaunchSet(
            split=split,
            parts=tuple(LaunchPart(job=job, **alone | (parts or {})) for job in of),
            forecast=forecast,
        )
        self.spec = LaunchSpec(launch_id="l", gpu="0", pairs=(self.pair,), **spec)
        self.monitor = SetMonitor(
            self.pair,
            cast("tuple[RunningJob, ...]", self.jobs),
            cast("Backend", self.backend),
            cast("TelemetrySource", self.meter),
            self.spec,
            run=run,
            renew=renew,
        )

    def join(
        self, script: Script, forecast: Forecast | None = None, time_limit_s: float | None = None
    ) -> ScriptedJob:
        """Let one more run from now on, named by its place."""
        job = Job(name="abcdefgh"[len(self.jobs)], command=("true",))
        one = ScriptedJob(job, script, self.clock, self.backend)
        self.jobs = (*self.jobs, one)
        part = LaunchPart(job=job, solo_rate=100.0, solo_power_w=300.0, time_limit_s=time_limit_s)
        self.monitor.join("j", cast("RunningJob", one), part, forecast)
        return one

    def go_on(self, seconds: float, step_s: float = 0.5) -> None:
        """Look at it twice a second for so long, until it is over."""
        for _ in range(round(seconds / step_s)):
            self.clock.sleep(step_s)
            self.monitor.look()
            if self.monitor.over:
                return

    @property
    def outcomes(self) -> list[str]:
        return [one.outcome for one in self.monitor.jobs]
