"""A GPU on which jobs can be started at shares: a real one, or one made of recorded points.

A live testbed is the GPU, its telemetry, its back-end, and the lock that makes it ours.

A replay is the whole path of a campaign on any laptop, in seconds. Rates, power and counters are
those that were measured; time is virtual. Nothing is simulated: a share or a split that was not
recorded cannot be replayed.
"""

import fcntl
import itertools
import logging
import math
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal

from advisor.core.gpu import MOST_GPUS, Gpu, Share, vendor_of
from advisor.core.job import NOTHING, Job, ProgressSettings, Reported
from advisor.core.records import (
    HEAT,
    REPLAY_SOURCE,
    PairPoint,
    Point,
    PointPart,
    SoloPoint,
    grouped,
)
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    COUNTERS,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    POWER_MEMORY,
    POWER_SPREAD,
    TEMPERATURE_GPU,
    Readings,
    TelemetrySource,
    channels_of,
)
from advisor.core.wording import listed
from advisor.errors import BusyError, InputError, JobError, SourceError, undone_by
from advisor.files import gpu_lock, holders, open_home, open_lock, try_lock
from advisor.progress import LATENCY_BUCKETS, latency_bucket
from advisor.runtime.backend import (
    PIPE_DIRECTORY,
    Backend,
    CuMaskBackend,
    Granted,
    UncappedBackend,
    look,
    look_hip,
    open_mps,
)
from advisor.runtime.processes import (
    MPS_SERVER,
    available_cores,
    name_of,
    physical_cores,
    pin,
    plan_cores,
    wait_until,
)
from advisor.runtime.running_job import RunningJob, check_limits, clients_of, end_leftovers, prove
from advisor.settings import Settings
from advisor_profiling.telemetry import amd, nvml
from advisor_profiling.window import Clock, Target, VirtualClock, all_reasons, part_alone

# Windows end, and most jobs are ready, before this; a power run takes minutes.
_SILENT_S = 10.0


class PhaseLock:
    """Two lock files for each physical core that this process may use now.

    All advisors of a host share them; a killed one lets go by itself. Those of which each has cores
    of its own do not wait. Without a folder there is nothing to keep apart, as in a replay.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._cores = folder, [min(group) for group in physical_cores()]

    @contextmanager
    def starting(self) -> Generator[None]:
        """While jobs start: open windows end first, and no new one opens."""
        with self._files("starting") as starts, self._files("measuring") as windows:
            _lock(starts, fcntl.LOCK_SH)
            _wait_until_free(windows, "measures")
            yield

    @contextmanager
    def measuring(self) -> Generator[None]:
        """While windows are measured: no job starts on the GPU; waits for those that do."""
        with self._files("starting") as starts, self._files("measuring") as windows:
            while True:
                _wait_until_free(starts, "starts jobs or measures power")
                _lock(windows, fcntl.LOCK_SH)
                # A start may have come between the two: it waits for us, so we give way.
                if _are_free(starts):
                    break
                _lock(windows, fcntl.LOCK_UN)
            yield

    @contextmanager
    def _files(self, phase: str) -> Generator[list[IO[str]]]:
        with ExitStack() as stack:
            names = [f"{phase}-{core}.lock" for core in self._cores]
            yield [
                stack.enter_context(open_lock(self._folder, name)) for name in names if self._folder
            ]


def _lock(files: Iterable[IO[str]], how: int) -> None:
    for file in files:
        fcntl.flock(file, how)


def _wait_until_free(files: Sequence[IO[str]], doing: str) -> None:
    tell_at_s = time.monotonic() + _SILENT_S
    while not _are_free(files):
        time.sleep(0.02)
        if time.monotonic() > tell_at_s:
            tell_at_s = float("inf")
            pids = ", ".join(map(str, sorted({pid for file in files for pid in holders(file)})))
            logging.getLogger(__name__).warning(
                "waiting for %s, which %s on cores that this one uses, too: one disturbs the other",
                f"process {pids}" if pids else "a process",
                doing,
            )


def _are_free(files: Iterable[IO[str]]) -> bool:
    """Whether no file is locked; takes the locks and lets them go."""
    for file in files:
        if not try_lock(file):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
    return True


class LiveProcess:
    """A running job on a live GPU."""

    def __init__(self, job: RunningJob, testbed: "_LiveTestbed") -> None:
        self._job, self._testbed = job, testbed
        self.share, self.granted = job.share, job.granted
        self.count, self.check, self.cpu_s = job.count, job.check, job.cpu_s
        self.reported, self.latencies = job.reported, job.latencies
        self.check_limit, self.leave, self.stop = job.check_limit, job.leave, job.stop

    def ready(self) -> bool:
        """Whether it waits at its gate; from then on it is pinned to where jobs wait."""
        if not self._job.ready():
            return False
        # It was free to use every core while it started; dozens look at their gates now.
        self._job.pin(self._testbed.cores.waiting)
        return True

    def memory_mib(self) -> float | None:
        """Of its living processes, MiB, as the GPU counts it."""
        return self._testbed.source.processes_memory_mib(self._job.pids())

    def held(self) -> dict[str, Any]:
        """What bounds the memory that its frameworks hold, and how many clients of MPS it has."""
        (clients,) = clients_of([self._job])
        return {"memory_bound": self._job.memory_bound(), "mps_clients": clients or None}

    def go(self, slot: int = 0) -> None:
        """Pin it to the cores of the slot before its gate opens."""
        self._job.pin(self._testbed.cores.slots[slot])
        self._job.go()

    def hold(self) -> None:
        """Close its gate, and leave the cores of the slot to others."""
        self._job.hold()
        self._job.pin(self._testbed.cores.waiting)


class _LiveTestbed:
    """A real GPU, its limits and its telemetry.

    A folder of the run has counters, gates and outputs of its jobs, of which a window has `jobs`.
    """

    def __init__(
        self,
        backend: Backend,
        source: TelemetrySource,
        base: Mapping[str, str],
        folder: Path,
        phase_lock: PhaseLock,
        jobs: int = 2,
    ) -> None:
        self.phase_lock = phase_lock
        self._backend, self.source, self._base, self._folder = backend, source, base, folder
        self.gpu, self.mode = backend.gpu, backend.mode
        # Without a place the proof of the first job fails.
        self.max_clients = max(1, backend.max_clients)
        self.check_alive, self.spoiled = backend.check_alive, backend.spoiled
        self.clock = Clock()
        self.cores = plan_cores(physical_cores(), jobs)
        self._numbers = itertools.count()
        self._jobs: list[RunningJob] = []
        pin([os.getpid()], self.cores.supervisor)

    def refuses(self, target: Target) -> str:
        """A live GPU can try everything."""
        return ""

    def prove(self, job: Job, share: Share) -> Callable[[], LiveProcess]:
        """Prove the share with the job's variables; the job is free to use every job's core."""
        folder = self._folder / f"{job.name}-{share}-{next(self._numbers)}"
        folder.mkdir(parents=True)
        proven = prove(job, share, self._backend, self._base, folder)

        def start() -> LiveProcess:
            running = proven.start()
            self._jobs.append(running)
            running.pin(self.cores.jobs)
            return LiveProcess(running, self)

        return start

    def check_limits(self) -> None:
        """Ask the driver about all jobs that were started, at their gates or not."""
        self._jobs = [job for job in self._jobs if not job.over]
        check_limits(self._jobs)


_ALONE_S = 5
_PASSING_S = 1

SourceName = Literal["nvml", "dcgm", "amd"]
Mode = Literal["mps", "cu_mask", "uncapped"]


@contextmanager
def live_testbed(
    settings: Settings,
    gpu_name: str,
    source_name: SourceName | None,
    mode: Mode | None,
    run: str,
    jobs: int = 2,
) -> Generator[_LiveTestbed]:
    """A live GPU for one run; what was started for it is stopped at the end.

    Without a name of the source it is the vendor's own library; `jobs` are the most of a window,
    each of which gets the same number of cores, whatever runs beside it.
    """
    cores = available_cores()
    try:
        with (
            live_backend(settings, gpu_name, mode) as backend,
            closing(open_source(backend.gpu, source_name, settings)) as source,
        ):
            folder = open_home(settings.home, "logs", run)
            phase_lock = PhaseLock(settings.lock_dir)
            yield _LiveTestbed(
                backend, source, settings.job_environment(), folder, phase_lock, jobs
            )
    finally:
        # It kept itself to one core; jobs of the next testbed would share that.
        pin([os.getpid()], cores)


@contextmanager
def live_backend(settings: Settings, gpu_name: str, mode: Mode | None) -> Generator[Backend]:
    """What enforces shares, as `backend_alone` says, on a GPU that is ours until the end."""
    gpu = find_gpus(gpu_name)
    with ExitStack() as stack:
        for uuid in sorted(part.uuid for part in gpu.each):
            stack.enter_context(gpu_lock(settings.lock_dir, uuid))
            if nvml.put_back(uuid, settings.runtime_dir):
                gpu = find_gpus(gpu_name)
        yield stack.enter_context(closing(backend_alone(with_units(gpu, settings), mode, settings)))


def backend_alone(gpu: Gpu, mode: Mode | None, settings: Settings) -> Backend:
    """What enforces shares on a GPU without compute processes; None: MPS, on AMD CU masks.

    Raises:
        PartitionError: it is not there, or cannot be used.
        BusyError: another process computes on the GPU.
    """
    is_nvidia = gpu.vendor == "nvidia"

    def computing() -> list[int]:
        uuids = [part.uuid for part in gpu.each if is_nvidia]
        return [pid for uuid in uuids for pid in nvml.context_pids(uuid)]

    match mode or ("mps" if is_nvidia else "cu_mask"):
        case "mps":
            environment, pipe_dir = settings.job_environment(), settings.mps_pipe_dir
            backend = open_mps(gpu, settings.runtime_dir, environment, pipe_dir, computing)
        case "cu_mask":
            backend = CuMaskBackend(gpu)
        case "uncapped":
            backend = UncappedBackend(gpu, computing=computing)
    with undone_by(backend.close):
        end_leftovers(backend, settings.runtime_dir)
        for part in gpu.each:
            check_alone(part)
    return backend


@contextmanager
def worker_backend(settings: Settings, gpu_name: str, units: int | None) -> Generator[Backend]:
    """As `live_backend`, for a worker that is measured by itself, on `units` SMs or all of them.

    It counts as a start on this host until it is closed: what runs beside such a worker (a poller
    that never rests, processes that fill matrices) takes cores and the driver's locks as jobs that
    start do. So windows on the same cores wait for it, and other workers do not.
    """
    with (
        live_backend(settings, gpu_name, "mps" if units else "uncapped") as backend,
        PhaseLock(settings.lock_dir).starting(),
    ):
        yield backend


def later_strangers(gpu_uuid: str) -> Callable[[], frozenset[int]]:
    """Lists the processes that have come to a GPU since this was called."""
    there = frozenset(nvml.context_pids(gpu_uuid))
    return lambda: frozenset(nvml.context_pids(gpu_uuid)) - there


def computes(gpu: Gpu) -> bool:
    """Whether a kernel ran on the GPU within the last second; False where that is not read."""
    with suppress(SourceError):
        # A process that starts on one GPU shows on all GPUs of the host while its driver
        # initialises.
        return gpu.vendor == "nvidia" and (nvml.busy_percent(gpu.uuid) or 0) >= 5
    return False


def list_gpus() -> list[Gpu]:
    """Every GPU that a driver on this host names, NVIDIA first.

    Raises:
        SourceError: no driver answers; the message is that of NVIDIA's.
    """
    try:
        return nvml.list_gpus()
    except SourceError:
        with suppress(SourceError):
            return amd.list_gpus()
        raise


def find_gpu(name: str) -> Gpu:
    """The GPU with this index or UUID (or its beginning).

    Raises:
        InputError: there is none, or several begin so.
    """
    gpus = list_gpus()
    matches = [gpu for gpu in gpus if name == str(gpu.index)]
    matches = matches or [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    if len(matches) != 1:
        names = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        raise InputError(f"no single GPU is called {name}", fix=f"this host has: {names}")
    return replace(matches[0], beside=tuple(gpu.uuid for gpu in gpus if gpu is not matches[0]))


def find_gpus(names: str) -> Gpu:
    """The GPUs with these indices or UUIDs, divided by commas: the first, with the others.

    Raises:
        InputError: there is no such GPU, one is named twice, there are too many, or they are not
            NVIDIA's of one model.
    """
    first, *others = [find_gpu(name.strip()) for name in names.split(",")]
    alike = [gpu for gpu in others if (gpu.model, gpu.vendor) == (first.model, "nvidia")]
    if not len(others) < len({first.uuid, *(gpu.uuid for gpu in alike)}) <= MOST_GPUS:
        raise InputError(
            f"no job holds {', '.join(f'{gpu.index} ({gpu.model})' for gpu in (first, *others))}",
            why="its ranks wait for each other, and share each GPU under MPS",
            fix=f"name one GPU, or {MOST_GPUS} different NVIDIA GPUs of one model: --gpu 0,1",
        )
    return replace(first, others=tuple(others))


def with_units(gpu: Gpu, settings: Settings) -> Gpu:
    """Read the number of SMs or CUs where nothing lowers it: outside MPS, without a mask."""
    if gpu.units_total is not None:
        return gpu
    base = settings.job_environment()
    if gpu.vendor == "amd":
        return replace(gpu, units_total=look_hip(base | {"ROCR_VISIBLE_DEVICES": str(gpu.index)}))
    units = look(base | {PIPE_DIRECTORY: "/nonexistent", "CUDA_VISIBLE_DEVICES": gpu.uuid})[0].units
    others = tuple(replace(other, units_total=units) for other in gpu.others)  # of the same model
    return replace(gpu, units_total=units, others=others)


def check_alone(gpu: Gpu) -> None:
    """Refuse a GPU on which another process computes: every reading would be of both.

    Raises:
        BusyError: one does.
    """
    if gpu.vendor != "nvidia":
        return
    if not wait_until(lambda: not _staying(gpu), _ALONE_S):
        raise BusyError(
            f"processes {strangers(gpu)} use GPU {gpu.uuid}",
            why="a job cannot be measured alone next to them",
            fix="end them or wait, or choose another GPU with --gpu",
        )


def _staying(gpu: Gpu) -> list[int]:
    """Strangers that are still there a moment later."""
    if not (first := strangers(gpu)):
        return []
    time.sleep(_PASSING_S)
    return [pid for pid in strangers(gpu) if pid in first]


def strangers(gpu: Gpu) -> list[int]:
    """Processes that compute on a GPU; MPS servers only serve others."""
    return [pid for pid in nvml.compute_pids(gpu.uuid) if not name_of(pid).startswith(MPS_SERVER)]


class _SeveralGpus:
    """The GPUs of one job as one: the mean of each reading, of memory the most, or the sum of each.

    `POWER_SPREAD` tells how far apart they are.

    Args:
        sources: Of each GPU, the first one's first.
        summed: Whether power, energy and the power limit are those of all together.
    """

    def __init__(self, sources: Sequence[TelemetrySource], *, summed: bool = False) -> None:
        first, self._sources = sources[0], sources
        self._summed = {POWER_GPU, POWER_MEMORY, ENERGY_GPU, POWER_LIMIT} if summed else set[str]()
        self.name, self.interval_s, self.gpu = first.name, first.interval_s, first.gpu
        self.channels = first.channels
        self.gates = [gate for source in sources for gate in source.gates]

    def read(self, names: Collection[str]) -> Readings:
        """None where one of them has none."""
        sources_of = {name: POWER_GPU if name == POWER_SPREAD else name for name in names}
        each = [source.read({*sources_of.values()}) for source in self._sources]
        return {
            name: self._of_all(name, [of[source_name] for of in each])
            for name, source_name in sources_of.items()
        }

    def _of_all(self, name: str, values: Sequence[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        if len(present) < len(values):
            return None
        if name in (MEMORY_USED, POWER_SPREAD):
            return max(present) - (min(present) if name == POWER_SPREAD else 0.0)
        return sum(present) / (1 if name in self._summed else len(present))

    def throttle_reasons(self) -> tuple[str, ...] | None:
        return all_reasons(source.throttle_reasons() for source in self._sources)

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """On the GPU where they need most."""
        each = [source.processes_memory_mib(pids) for source in self._sources]
        return max((mib for mib in each if mib is not None), default=None)

    def start_window(self) -> None:
        for source in self._sources:
            source.start_window()

    def close(self) -> None:
        for source in self._sources:
            source.close()


def open_source(
    gpu: Gpu, name: SourceName | None, settings: Settings, *, summed: bool = False
) -> TelemetrySource:
    """Telemetry of a GPU, or the mean or sum of several; None: the vendor's own library."""
    if gpu.others:
        each = list[TelemetrySource]()
        with undone_by(lambda: [source.close() for source in each]):
            each.extend(open_source(replace(g, others=()), name, settings) for g in gpu.each)
        return _SeveralGpus(each, summed=summed)
    match name or ("nvml" if gpu.vendor == "nvidia" else "amd"):
        case "nvml":
            return nvml.NvmlSource(gpu.uuid)
        case "dcgm":
            # Each launch imports this module, and the client of HTTP takes 0.15 s.
            from advisor_profiling.telemetry import dcgm

            return dcgm.DcgmSource(settings.dcgm_url, gpu)
        case "amd":
            return amd.AmdSource(gpu.uuid)


JobAtShare = tuple[str, float]  # name of a job and its share in percent


class Recordings:
    """Windows of one way of sharing the GPU (`mode`, as of a testbed), without failed ones.

    Attributes:
        jobs: The recorded jobs, with what their points tell of them; all can wait at a gate.
    """

    def __init__(self, points: Sequence[SoloPoint], pairs: Sequence[PairPoint], mode: str) -> None:
        self._windows = defaultdict[tuple[JobAtShare, ...], list[Point]](list)
        self._units: dict[JobAtShare, int | None] = {}
        self.jobs: dict[str, Job] = {}
        newest = sorted(points, key=lambda p: p.started_at, reverse=True)
        for point in sorted(newest, key=lambda p: p.mode != mode):
            job_at_share = point.job, point.share_percent
            windows = self._windows[(job_at_share,)]
            if not windows or windows[0].mode == point.mode:
                windows.append(point)
            self._units.setdefault(job_at_share, point.units_granted)
            used_mib = point.memory_used_mib
            self.jobs.setdefault(
                point.job,
                Job(
                    name=point.job,
                    command=("replay",),
                    progress=ProgressSettings(unit=point.rate_unit, gate=True),
                    memory_mib=None if used_mib is None else math.ceil(used_mib),
                    offered_rate=point.offered_rate,
                ),
            )
        modes = {"time-sliced"} if mode == "uncapped" else {mode, "uncapped"}
        shown = [p for p in pairs if p.mode in modes and "failed" not in p.flags]
        shown.sort(key=lambda p: p.started_at, reverse=True)
        # All splits of a pair come from one run on one card where one has them all; groups of
        # equally many splits stay in the order of their newest windows.
        by_run = grouped(shown, lambda point: (point.jobs, point.run, point.gpu_uuid)).values()
        most_first = sorted(
            by_run, key=lambda of: len({(p.mode, *p.shares_percent) for p in of}), reverse=True
        )
        for pair in itertools.chain.from_iterable(most_first):
            if all(part.rate is not None for part in pair.parts):
                parts = tuple(sorted(pair.parts, key=_seat))
                self._windows[tuple(map(_seat, parts))].append(replace(pair, parts=parts))
                for part in pair.parts:
                    self._units.setdefault(_seat(part), part.units)

    def find(self, jobs_at_shares: Sequence[JobAtShare]) -> list[Point]:
        """Windows in which exactly these ran, parts in their order; the one to prefer first."""
        return self._windows[tuple(sorted(jobs_at_shares))]

    def granted(self, job: str, share: Share) -> Granted:
        """What was read back for a job at a share.

        Raises:
            InputError: it was recorded neither alone nor in a pair.
        """
        if (job, share.percent) not in self._units:
            shares = sorted(percent for name, percent in self._units if name == job)
            recorded = [f"{percent:g} %" for percent in shares] or sorted(self.jobs)
            raise InputError(
                f"no recorded point of {job} at {share} %",
                fix=f"recorded are: {', '.join(recorded)}",
            )
        return Granted(self._units[job, share.percent])


def _seat(part: PointPart) -> JobAtShare:
    return part.job, part.share_percent


_TICK_S = 0.1

# Channels that are a column of a point.
_COLUMNS: Mapping[str, str] = {
    CLOCK_SM: "sm_clock_mhz",
    CLOCK_MEMORY: "memory_clock_mhz",
    TEMPERATURE_GPU: "temperature_c",
    POWER_LIMIT: "power_limit_w",
    **COUNTERS,
}


class _ReplaySource:
    """Telemetry of the window that is replayed at the moment.

    Attributes:
        playing: The recorded point; None while no job runs.
        waiting: Whether jobs are open on the GPU, at work or not.
        power_factor: What its power is multiplied by, for a replay with noise.
    """

    name, gates = REPLAY_SOURCE, ()
    channels = channels_of((POWER_GPU, ENERGY_GPU, *_COLUMNS))
    interval_s = 0.02

    def __init__(
        self, gpu: Gpu, clock: Clock, idle_power_w: float | None, active_idle_power_w: float | None
    ) -> None:
        self.gpu = gpu
        self.playing: Point | None = None
        self.power_factor, self.waiting, self._clock = 1.0, False, clock
        self._idle_power_w, self._active_idle_power_w = idle_power_w, active_idle_power_w
        self._energy_j, self._metered_s = 0.0, 0.0

    def read(self, names: Collection[str]) -> Readings:
        """From the point that plays; between points only power and energy have values."""
        return {name: self._reading(name) for name in names}

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """One for a point that was throttled: heat where its flags say so, else the power cap."""
        if self.playing is None or self.playing.throttled is None:
            return None
        heat = HEAT in self.playing.flags
        return (("hw-slowdown",) if heat else ("sw-power-cap",)) * self.playing.throttled

    def _reading(self, name: str) -> float | None:
        if name == POWER_GPU:
            return self._power_w()
        if name == ENERGY_GPU:
            return self._counted_j()
        return getattr(self.playing, _COLUMNS[name]) if self.playing and name in _COLUMNS else None

    def _power_w(self) -> float | None:
        if self.playing is None:
            return self._active_idle_power_w if self.waiting else self._idle_power_w
        return self._played(self.playing.power_w)

    def _counted_j(self) -> float | None:
        """The counter's recorded power in ticks of a tenth of a second, as on the card.

        What was recorded without it has the power of the other reading.
        """
        counter_w = self.playing and self._played(self.playing.counter_power_w)
        power_w = self._power_w() if counter_w is None else counter_w
        ticks = (self._clock.now_s() - self._metered_s) // _TICK_S
        if power_w is None:
            return None
        self._energy_j += ticks * _TICK_S * power_w
        self._metered_s += ticks * _TICK_S
        return self._energy_j

    def _played(self, recorded_w: float | None) -> float | None:
        return None if recorded_w is None else recorded_w * self.power_factor

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """None: a record has no processes, and `ReplayProcess` has what was recorded."""
        return None

    def start_window(self) -> None:
        """Recorded counters have no window of their own."""

    def close(self) -> None:
        """Nothing is held."""


class ReplayProcess:
    """A recorded job that makes progress as the virtual time passes."""

    def __init__(self, job: Job, share: Share, testbed: "ReplayTestbed", granted: Granted) -> None:
        self.job, self.share, self.granted = job, share, granted
        self.job_at_share: JobAtShare = job.name, share.percent
        self._testbed = testbed
        self._part: PointPart | None = None
        self._reported = NOTHING
        self._factor, self._done, self._since_s, self._cpu_s = 1.0, 0.0, 0.0, 0.0
        self._answered: tuple[int, ...] = ()

    def count(self) -> float:
        """Progress at the recorded rate while it plays."""
        rate = (self._part and self._part.rate) or 0.0
        return self._done + rate * self._factor * self._playing_s

    def latencies(self) -> tuple[int, ...]:
        """Requests by bucket, of which the recorded percentiles come out again.

        The histogram grows while time passes; it is empty where the percentiles were not recorded.
        """
        p50_ms, p99_ms = (
            (self._part.latency_p50_ms, self._part.latency_p99_ms) if self._part else (None, None)
        )
        if p50_ms is None or p99_ms is None:
            return self._answered
        histogram, hundreds = (
            [*self._answered] or [0] * LATENCY_BUCKETS,
            int(self._playing_s * 1000),
        )
        histogram[latency_bucket(p50_ms / 1000)] += 98 * hundreds
        histogram[latency_bucket(p99_ms / 1000)] += 2 * hundreds
        return tuple(histogram)

    def cpu_s(self) -> float | None:
        """The recorded percent of a core over the time it has played, s; None without."""
        if self._part is None or self._part.cpu_percent is None:
            return None
        return self._cpu_s + self._part.cpu_percent / 100 * self._playing_s

    def reported(self) -> Reported:
        """As recorded, where the values were; else only that one of them was not finite."""
        if self._part is not None and self._part.results == "wrong":
            return Reported(count=1, not_finite=1)
        return self._reported

    def memory_mib(self) -> float | None:
        """As recorded of the window that plays, MiB."""
        return self._part.memory_used_mib if self._part else None

    def held(self) -> dict[str, Any]:
        """Nothing: a record has no processes."""
        return {}

    def ready(self) -> bool:
        """Always: a record has no warm-up."""
        return True

    def check(self) -> None:
        """A record cannot end."""

    def check_limit(self) -> None:
        """The limit was proven when the point was recorded."""

    def go(self, slot: int = 0) -> None:
        """Play with those that run already; a record has its cores, whatever the slot."""
        self._testbed.enter(self)

    def hold(self) -> None:
        """Stand still; what was done stays counted."""
        self._testbed.leave(self)

    def leave(self) -> None:
        """A record ends when it is stopped."""

    def stop(self) -> None:
        """Stand still for good, with nothing left open on the GPU."""
        self._testbed.end(self)

    def play(
        self, part: PointPart | None, factor: float = 1.0, reported: Reported = NOTHING
    ) -> None:
        """Go on at the rate of another recorded window, or stand still."""
        self._done, self._cpu_s = self.count(), self.cpu_s() or self._cpu_s
        self._answered = self.latencies()
        self._part, self._factor, self._reported = part, factor, reported
        self._since_s = self._testbed.clock.now_s()

    @property
    def _playing_s(self) -> float:
        return self._testbed.clock.now_s() - self._since_s


class ReplayTestbed:
    """The testbed of one recorded GPU.

    Of several GPU models the one with the most solo points is played. The mode is as of a live
    testbed; None: with limits, where any point had one. With a seed of noise each window differs
    from the recorded mean as its standard error, and the choice among repeats, say.

    Raises:
        InputError: there are no points.
    """

    max_clients = 1000

    def __init__(
        self,
        points: Sequence[SoloPoint],
        pairs: Sequence[PairPoint] = (),
        mode: str | None = None,
        noise: str | None = None,
    ) -> None:
        if not points:
            raise InputError("there are no recorded points to replay")
        model = Counter(point.gpu_model for point in points).most_common(1)[0][0]
        points = [point for point in points if point.gpu_model == model]
        pairs = [pair for pair in pairs if pair.gpu_model == model]
        first = points[0]
        self.mode = mode or next((p.mode for p in points if p.mode != "uncapped"), first.mode)
        self._recordings = Recordings(points, pairs, self.mode)
        self.jobs = self._recordings.jobs
        self._alone = {(point.job, point.share_percent) for point in points}
        self._random = None if noise is None else random.Random(noise)
        self.clock, self.phase_lock = VirtualClock(), PhaseLock()
        self.gpu = Gpu(
            uuid=first.gpu_uuid,
            model=first.gpu_model,
            vendor=vendor_of(first.gpu_model),
            units_total=first.units_total,
            power_limit_w=first.power_limit_w,
            driver=first.driver,
        )
        self.source = _ReplaySource(
            self.gpu, self.clock, first.idle_power_w, first.active_idle_power_w
        )
        self._open: list[ReplayProcess] = []
        self._playing: list[ReplayProcess] = []

    def refuses(self, target: Target) -> str:
        """Nothing is simulated: a window that was not recorded is refused."""
        jobs_at_shares = [(spec.job.name, spec.share.percent) for spec in target.specs]
        return "" if self._recordings.find(jobs_at_shares) else "not recorded"

    def shares_alone(self, job: str, wanted: Sequence[Share]) -> tuple[Share, ...]:
        """Those wanted of a job alone; where none are, all that were recorded.

        Raises:
            InputError: one was not recorded.
        """
        recorded = [Share(percent) for name, percent in sorted(self._alone) if name == job]
        if lacking := [f"{share} %" for share in wanted if share not in recorded]:
            raise InputError(
                f"{job} alone was not recorded at {listed(lacking)}",
                fix=f"leave out the shares: all recorded ones are replayed, {listed(recorded)} %",
            )
        return tuple(wanted or recorded)

    def prove(self, job: Job, share: Share) -> Callable[[], ReplayProcess]:
        """What was granted is on record."""
        return lambda: self.start(job, share)

    def start(self, job: Job, share: Share) -> ReplayProcess:
        """A process whose windows were recorded."""
        process = ReplayProcess(job, share, self, self._recordings.granted(job.name, share))
        self._open.append(process)
        self.source.waiting = True
        return process

    def end(self, process: ReplayProcess) -> None:
        """The process ends, also for a second time."""
        self.leave(process)
        self._open = [other for other in self._open if other is not process]
        self.source.waiting = bool(self._open)

    def check_limits(self) -> None:
        """A record keeps its limits; the window of all that run must be on record."""
        if self._playing and self.source.playing is None:
            running = " with ".join(f"{c.job.name} at {c.share} %" for c in self._playing)
            raise JobError(
                f"there is no recorded window of {running}",
                fix="a replay shows only what was measured: choose other jobs or another split",
            )

    def check_alive(self) -> None:
        """A record cannot break."""

    def spoiled(self) -> bool:
        """A record has no faults."""
        return False

    def enter(self, process: ReplayProcess) -> None:
        """The process begins to run."""
        self._playing.append(process)
        self.cue()

    def leave(self, process: ReplayProcess) -> None:
        """The process comes to rest."""
        if process in self._playing:
            self._playing.remove(process)
            process.play(None)
            self.cue()

    def cue(self) -> None:
        """Play a window of those that run; until all its jobs are in, there may be none."""
        processes = sorted(self._playing, key=lambda c: c.job_at_share)
        windows = self._recordings.find([process.job_at_share for process in processes])
        if not windows:
            self.source.playing = None
            for process in processes:
                process.play(None)
            return
        point = windows[0] if self._random is None else self._random.choice(windows)
        is_alone = isinstance(point, SoloPoint)
        parts = (part_alone(point),) if is_alone else point.parts
        # What the jobs of a pair said of their results is not kept.
        reported = (Reported.read(point.reported) if is_alone else None) or NOTHING
        for part, process in zip(parts, processes, strict=True):
            process.play(part, self._noise(part.rate_stderr, part.rate), reported)
        self.source.playing = point
        self.source.power_factor = self._noise(point.power_stderr_w, point.power_w)

    def _noise(self, stderr: float | None, mean: float | None) -> float:
        if self._random is None or not stderr or not mean:
            return 1.0
        return max(0.0, self._random.gauss(1.0, stderr / mean))


WarmProcess = LiveProcess | ReplayProcess
"""One job, started at one share, standing at its gate or running."""

Testbed = _LiveTestbed | ReplayTestbed
"""A GPU on which jobs can be started at shares."""
