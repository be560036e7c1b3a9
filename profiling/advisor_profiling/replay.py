"""A GPU made of recorded points: the whole path of a sweep on any laptop, in seconds.

Rates, power and counters are those that were measured; time is virtual. Nothing is simulated: a
share that was not recorded cannot be replayed.
"""

from collections.abc import Collection, Sequence
from dataclasses import fields

from advisor.errors import InputError
from advisor.gpu import Gpu, Share
from advisor.job import Job, Progress
from advisor.records import Counters, SoloPoint
from advisor.runtime.backend import Granted
from advisor_profiling.bench import Client
from advisor_profiling.clock import Clock, VirtualClock
from advisor_profiling.quiet import NoQuiet, Quiet
from advisor_profiling.source import GpuState

_TICK_S = 0.1


class ReplaySource:
    """Telemetry of the point that is replayed at the moment."""

    name = "replay"
    interval_s = 0.02

    def __init__(self, gpu: Gpu, clock: Clock, idle_power_w: float | None) -> None:
        self.gpu = gpu
        self.playing: SoloPoint | None = None
        self._clock, self._idle_power_w = clock, idle_power_w
        self._energy_j, self._metered_s = 0.0, 0.0

    def power_w(self) -> float | None:
        return self.playing.power_w if self.playing else self._idle_power_w

    def energy_j(self) -> float | None:
        """Recorded power integrated in ticks of a tenth of a second, as on the card."""
        power_w = self.power_w()
        ticks = (self._clock.now_s() - self._metered_s) // _TICK_S
        if power_w is None:
            return None
        self._energy_j += ticks * _TICK_S * power_w
        self._metered_s += ticks * _TICK_S
        return self._energy_j

    def state(self) -> GpuState:
        point = self.playing
        if point is None:
            return GpuState()
        reasons = None if point.throttled is None else ("recorded",) * point.throttled
        return GpuState(
            sm_clock_mhz=point.sm_clock_mhz,
            memory_clock_mhz=point.memory_clock_mhz,
            temperature_c=point.temperature_c,
            power_limit_w=point.power_limit_w,
            memory_used_mib=point.memory_used_mib,
            throttle_reasons=reasons,
        )

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        return self.playing.memory_used_mib if self.playing else None

    def start_counters(self) -> None:
        """Recorded counters have no window of their own."""

    def read_counters(self) -> Counters:
        point = self.playing
        if point is None:
            return Counters()
        return Counters(**{field.name: getattr(point, field.name) for field in fields(Counters)})

    def close(self) -> None:
        """Nothing is held."""


class ReplayClient:
    """A recorded point that makes progress as the virtual time passes."""

    def __init__(self, point: SoloPoint, source: ReplaySource, clock: Clock) -> None:
        self.share = Share(point.share_percent)
        self.granted = Granted(point.units_granted, mps=point.mode == "mps")
        self._point, self._source, self._clock = point, source, clock
        self._begun_s: float | None = None

    def count(self) -> float:
        begun_s = self._begun_s
        return 0.0 if begun_s is None else self._point.rate * (self._clock.now_s() - begun_s)

    def cpu_s(self) -> float | None:
        percent = self._point.job_cpu_percent
        return None if percent is None else percent / 100 * self._clock.now_s()

    def memory_mib(self) -> float | None:
        return self._point.memory_used_mib

    def ready(self) -> bool:
        return True

    def check(self) -> None:
        """A record cannot end."""

    def check_limit(self) -> None:
        """The limit was proven when the point was recorded."""

    def go(self, seat: int = 0) -> None:
        self._source.playing, self._begun_s = self._point, self._clock.now_s()

    def hold(self) -> None:
        self._source.playing = None

    def stop(self) -> None:
        self._source.playing = None


class ReplayBench:
    """The bench of one recorded GPU.

    Args:
        points: Recorded solo points of any number of jobs on one GPU model.

    Raises:
        InputError: there are none.
    """

    max_clients = 1000

    def __init__(self, points: Sequence[SoloPoint]) -> None:
        if not points:
            raise InputError("there are no recorded points to replay")
        first = points[0]
        self._points = points
        self.mode = first.mode
        self.clock: Clock = VirtualClock()
        self.quiet: Quiet = NoQuiet()
        self.gpu = Gpu(
            uuid=first.gpu_uuid,
            model=first.gpu_model,
            units_total=first.units_total,
            power_limit_w=first.power_limit_w,
            driver=first.driver,
        )
        self.source = ReplaySource(self.gpu, self.clock, first.idle_power_w)

    def jobs(self) -> dict[str, Job]:
        """The recorded jobs, with what their points tell of them."""
        return {
            p.job: Job(name=p.job, command=("replay",), progress=Progress(unit=p.rate_unit))
            for p in self._points
        }

    def start(self, job: Job, share: Share) -> Client:
        """The newest point of this job and share."""
        same = [p for p in self._points if p.job == job.name]
        found = [p for p in same if p.share_percent == share.percent]
        if not found:
            shares = [f"{percent:g} %" for percent in sorted({p.share_percent for p in same})]
            raise InputError(
                f"no recorded point of {job.name} at {share} %",
                fix=f"recorded are: {', '.join(shares or sorted(self.jobs()))}",
            )
        return ReplayClient(max(found, key=lambda p: p.started_at), self.source, self.clock)

    def check_alive(self) -> None:
        """A record cannot break."""
