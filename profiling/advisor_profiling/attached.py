"""Reads what runs already on this host: its GPUs, and the progress of one process."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client.samples import Sample

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.job import Job, ProgressSettings
from advisor.core.records import KEPT_S, UNCOUNTED_UNIT, SoloPoint
from advisor.core.telemetry import (
    COUNTERS,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    TelemetrySource,
)
from advisor.errors import AdvisorError, InputError, JobError, SourceError
from advisor.formats.moments import now
from advisor.launch.meter import Moment, RateMeter
from advisor.runtime.counting import CounterFile, OutputLines, Tally, number_of, plain
from advisor.runtime.processes import (
    MPS_SERVER,
    cpu_s,
    descendants,
    environment_of,
    name_of,
    owner_of,
)
from advisor.runtime.progress_search import search
from advisor.runtime.running_job import PROGRESS_MARK
from advisor.scrape.fetch import fetch, listening_urls
from advisor.scrape.page import SeriesTotal, parse_selector, read_page, server_of
from advisor_profiling.telemetry.nvml import (
    NvmlSource,
    busy_percent,
    compute_pids,
    held_mib,
    list_gpus,
)
from advisor_profiling.window import Clock


@dataclass(frozen=True, slots=True)
class ProgressSource:
    """Where a process tells how far it is.

    Attributes:
        progress: The same for a job file.
        read: The count now; None before the first one. Raises AdvisorError while it cannot be
            read.
        close: Lets go of the file that is read.
    """

    progress: ProgressSettings
    read: Callable[[], float | None]
    close: Callable[[], None] = lambda: None

    @classmethod
    def find(
        cls, pids: Sequence[int], command: Sequence[str], wanted: ProgressSettings
    ) -> "ProgressSource | None":
        """Where the processes of a job tell its progress; None where nothing of it can be read.

        The user's options are `wanted`: pattern of its output, URL of its page, counter on that
        page. A page is read from a named URL, or from a port of a known server on which these
        processes alone listen.

        Raises:
            InputError: `wanted` names no pattern, URL or counter that can be used.
        """
        if wanted.pattern is not None:
            return _by_output(pids, wanted.pattern)
        if wanted.url is not None or wanted.counter is not None:
            return _by_page(pids, command, wanted)
        return (
            _by_file(pids)
            or _by_page(pids, command, wanted)
            or _by_output(pids, None)
            or _by_file(pids, begun=False)
        )

    def count_now(self) -> tuple[float | None, str | None]:
        """The count now, or why it cannot be read."""
        try:
            return self.read(), None
        except AdvisorError as error:
            return None, str(error)


def output_of(pids: Sequence[int]) -> str:
    """Where the first process writes, in words."""
    for pid in pids:
        with suppress(OSError):
            name = os.readlink(f"/proc/{pid}/fd/1")  # noqa: PTH115 - a pipe is no path
            if name.startswith(("/dev/pts/", "/dev/tty")):
                return "a terminal"
            return "a pipe" if name.startswith("pipe:") else name
    return "nowhere"


def _by_file(pids: Sequence[int], *, begun: bool = True) -> ProgressSource | None:
    """A file that was counted in already, or one that may be."""
    for pid in pids:
        path = Path(environment_of(pid).get(PROGRESS_MARK, "/nonexistent"))
        if not path.is_file():
            continue
        count = CounterFile(path, links=True)
        if _has_begun(count) or not begun:
            return ProgressSource(ProgressSettings(), count.read, count.close)
        count.close()
    return None


def _has_begun(count: CounterFile) -> bool:
    try:
        return count.read() > 0
    except JobError:  # its author counts there
        return True


def _by_page(
    pids: Sequence[int], command: Sequence[str], wanted: ProgressSettings
) -> ProgressSource | None:
    server, named_url = server_of(command) or (None, None)
    name = wanted.counter or (server and server.counter)
    if name is None or (server is None and wanted.url is None):
        if wanted == ProgressSettings():
            return None
        raise InputError(
            "it is not known which counter of the page to read, or where the page is",
            why="the command line is not that of a server whose page is known",
            fix="say both --url and --counter",
        )
    counter = parse_selector(name)
    url = wanted.url or (server and _page_of(pids, server.path, named_url, counter))
    if url is None:
        if wanted == ProgressSettings():
            return None
        raise InputError(
            f"no port on which the process listens has a page with {name}",
            fix="name the page: --url http://127.0.0.1:PORT/metrics",
        )
    settings = ProgressSettings(
        kind="metrics",
        unit=server.unit if server else "steps",
        url=url,
        counter=name,
        histogram=server and server.histogram,
    )
    total = SeriesTotal()
    return ProgressSource(settings, lambda: total.add(read_page(fetch(url), counter, None).counts))


def _page_of(pids: Sequence[int], path: str, named_url: str | None, counter: Sample) -> str | None:
    """The page of a server on its own ports, the one of its command line first."""
    named = named_url and urlsplit(named_url).port
    pages = [base + path for base in listening_urls(pids)]
    for page in sorted(pages, key=lambda page: urlsplit(page).port != named):
        with suppress(AdvisorError):
            read_page(fetch(page), counter, None)
            return page
    return None


def _by_output(pids: Sequence[int], pattern: str | None) -> ProgressSource | None:
    for path in _outputs(pids):
        # Of an output that was written before, the end.
        lines, newest = OutputLines(path, last_bytes=64 * 1024, links=True), list[str]()
        if pattern is not None:
            progress = ProgressSettings(kind="output", pattern=pattern)
        # A count that begins again with each epoch rises among few lines.
        elif match := search(newest := [*map(plain, lines.read())][-50:]):
            progress = match.progress
        else:
            lines.close()
            continue
        return ProgressSource(progress, _counted(lines, newest, progress), lines.close)
    return None


def _outputs(pids: Sequence[int]) -> Iterator[Path]:
    """Files that the processes write to as output or errors, each once."""
    files = set[tuple[int, int]]()
    for pid in pids:
        for number in (1, 2):
            path = Path(f"/proc/{pid}/fd/{number}")
            with suppress(OSError):
                state = path.stat()
                if path.is_file() and (state.st_dev, state.st_ino) not in files:
                    files.add((state.st_dev, state.st_ino))
                    yield path


def _counted(
    output: OutputLines, unread: list[str], progress: ProgressSettings
) -> Callable[[], float | None]:
    """What reads the count of an output, with lines that were read before; None before a match."""
    expression, tally = re.compile(progress.pattern or ""), Tally()
    group = expression.groups
    count: float | None = None

    def read() -> float | None:
        nonlocal count, unread
        lines, unread = [*unread, *map(plain, output.read())], []
        for match in filter(None, map(expression.search, lines)):
            number = number_of(match[group] or "") if group else 1.0
            if not math.isfinite(number):
                continue
            if group and progress.cumulative:
                tally.add(number)
                count = tally.total
            else:
                count = (count or 0.0) + number
        return count

    return read


USED, FREE, BUSY, POWER = "memory_used_mib", "memory_free_mib", "gpu_busy_percent", "power_w"
_COLUMNS = {**COUNTERS, POWER_GPU: POWER, POWER_LIMIT: "power_limit_w", MEMORY_USED: USED}

_CLOCK = Clock()
# Between two looks at the count: a rate over ten seconds is right to a percent.
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedGpu:
    """A GPU on which the process computes.

    Attributes:
        power_w: Of the whole card.
        sm_active_percent: Of the whole card since the last look; None: it has no such counter.
        memory_mib: Of the process and those that it started.
        others: Processes of other jobs that compute there, too.
        impossible: Readings so far that no such card can show; they are left out.
    """

    index: int | None
    model: str
    power_w: float | None
    power_limit_w: float | None
    sm_active_percent: float | None
    memory_mib: float | None
    others: tuple[int, ...]
    impossible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedNow:
    """What a look showed; `advisor watch --json` writes it.

    Attributes:
        job: The name by which it is known here.
        alone_s: For how long it has had a GPU to itself; 0: it has not, or does not count yet.
        count: Progress so far, in `unit`; None where it was not read in this look.
        rate: Per second; None while it is not known.
        fault: Why the count cannot be read now; None where it can, or where there is none.
    """

    pid: int
    job: str
    at: str
    watched_s: float
    alone_s: float
    count: float | None
    unit: str | None
    rate: float | None
    fault: str | None
    gpus: tuple[WatchedGpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLook:
    """A GPU as one look shows it.

    Attributes:
        means: By the columns of points; counters are means since the last look.
        pids: Processes that compute, without MPS servers.
        is_whole: Whether each may use all of it: no MPS server may limit it, and there is no MIG.
        process_memory_mib: Memory of the processes that the look is about; None: not read.
        impossible: Readings so far that no such card can show; they are left out.
    """

    gpu: Gpu
    means: Mapping[str, float]
    pids: tuple[int, ...]
    is_whole: bool
    process_memory_mib: float | None
    impossible: int = 0


def command_of(pid: int) -> tuple[str, ...]:
    """What a process was started as.

    Raises:
        InputError: there is no such process, or it is another user's.
    """
    if owner_of(pid) is None:
        raise InputError(f"there is no process {pid}", fix="its number is in nvidia-smi, or ps -ef")
    if not os.access(f"/proc/{pid}/fd", os.R_OK) or not workdir_of(pid):
        raise InputError(
            f"process {pid} is another user's, or keeps to itself",
            why="the kernel does not show you what it was started with and where it writes",
            fix="watch it as its user, or as root",
        )
    return words_of(pid)


def words_of(pid: int) -> tuple[str, ...]:
    """The command line of any user's process; none where it has ended."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return tuple(word.decode(errors="replace") for word in words if word)
    return ()


def workdir_of(pid: int) -> Path | None:
    """The folder in which a process runs; None where it is not shown."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return None


def family(pid: int) -> list[int]:
    """The process and all below it."""
    return [pid, *descendants(pid)]


Keep = Callable[[int, Job, SoloPoint], None]
"""Keeps what was seen of a process alone; a longer window takes the place of its beginning."""


class SoloWatch:
    """What is seen of a process while it and those that it starts have one GPU to themselves."""

    def __init__(self, pid: int, job: Job, source: ProgressSource | None, keep: Keep) -> None:
        self.pid, self.job, self._keep = pid, job, keep
        self.count_by(source)

    def count_by(self, source: ProgressSource | None) -> None:
        """Begin again, with a count."""
        self.source = source
        if source:
            self.job = replace(self.job, progress=source.progress)
        self._forget()

    def _forget(self) -> None:
        self.alone_s, self._due_s, self._meter = 0.0, KEPT_S, RateMeter()
        self._begun: tuple[float, str, float] | None = None
        self._sums, self._reads, self._memory_mib = Counter[str](), Counter[str](), 0.0

    @property
    def rate(self) -> float | None:
        """Progress per second since it has been alone; None: not known."""
        return self._meter.rate()

    def add(
        self, at_s: float, look: GpuLook | None, count: float | None, idle_power_w: float | None
    ) -> None:
        """One more look at the GPU that it has to itself; None: it has none.

        `idle_power_w` is that of an empty card of the model, where one was seen.
        """
        if look is None or not look.is_whole:
            self._forget()
            return
        if count is not None:
            self._meter.add(Moment(at_s), count)
        pids, rate = family(self.pid), self.rate if self.source else 1.0
        if self._begun is None:
            # What counts nothing yet still starts: its watts are of no rate.
            if rate:
                self._begun, self._meter = (at_s, now(), cpu_s(pids)), RateMeter()
            return
        begun_s, moment, used_s = self._begun
        self.alone_s = at_s - begun_s
        self._sums.update(look.means)
        self._reads.update(look.means.keys())
        self._memory_mib = max(
            self._memory_mib, look.process_memory_mib or look.means.get(USED, 0.0)
        )
        if self.alone_s < self._due_s or not rate:
            return
        # A service reads its profiles again each time.
        self._due_s = 2 * self.alone_s
        kept = {POWER, BUSY, *COUNTERS.values()} & {*self._sums}
        point = SoloPoint.watched(
            self.job,
            look.gpu,
            rate=rate,
            rate_unit=self.source.progress.unit if self.source else UNCOUNTED_UNIT,
            job_cpu_percent=max(0.0, WHOLE * (cpu_s(pids) - used_s) / self.alone_s),
            memory_used_mib=self._memory_mib or None,
            idle_power_w=idle_power_w,
            window_s=self.alone_s,
            started_at=moment,
            run=f"seen-{self.pid}-{moment}",
            **{name: self._sums[name] / self._reads[name] for name in kept},
        )
        self._keep(self.pid, self.job, point)


def watch(
    alone: SoloWatch,
    find: Callable[[], ProgressSource | None],
    every_s: float,
    lasts_s: float,
    clock: Clock = _CLOCK,
) -> Iterator[WatchedNow]:
    """A look each so many seconds, until the process has ended or the time is over.

    A process that has just begun has told nothing yet: `find` is asked with each look until then.

    Raises:
        SourceError: a GPU does not answer any more.
    """
    # A rate is over the last 30 s, or over what there was of them.
    meter, pid = RateMeter(30.0), alone.pid
    with closing(HostGpus(pid)) as gpus, ExitStack() as stack:
        if alone.source:
            stack.callback(alone.source.close)
        begun_s = clock.now_s()  # to open the GPUs may take longer than all looks
        next_s = begun_s + every_s
        while next_s <= begun_s + lasts_s + _LOOK_S:
            if alone.source is None and (source := find()):
                stack.callback(source.close)
                alone.count_by(source)
            count, fault = None, None
            while clock.now_s() < next_s:
                if alone.source is not None:
                    count, fault = alone.source.count_now()
                if count is not None:
                    meter.add(Moment(clock.now_s()), count)
                clock.sleep(_LOOK_S)
            if owner_of(pid) is None:
                return
            pids = family(pid)
            looks = [*gpus.look(pids)]
            only = len(looks) == 1 and looks[0].pids and {*pids}.issuperset(looks[0].pids)
            alone.add(clock.now_s(), looks[0] if only else None, count, None)
            yield WatchedNow(
                pid=pid,
                job=alone.job.name,
                at=now(),
                watched_s=round(clock.now_s() - begun_s, 3),
                alone_s=round(alone.alone_s, 3),
                count=count,
                unit=alone.source and alone.source.progress.unit,
                rate=meter.rate() if fault is None else None,
                fault=fault,
                gpus=tuple(
                    WatchedGpu(
                        index=gpu.gpu.index,
                        model=gpu.gpu.model,
                        power_w=gpu.means.get("power_w"),
                        power_limit_w=gpu.gpu.power_limit_w,
                        sm_active_percent=gpu.means.get("sm_active_percent"),
                        memory_mib=gpu.process_memory_mib,
                        others=tuple(other for other in gpu.pids if other not in pids),
                        impossible=gpu.impossible,
                    )
                    for gpu in looks
                ),
            )
            next_s = clock.now_s() + every_s


class HostGpus:
    """NVIDIA GPUs of this host, read again and again: all, or those that a process computes on.

    Raises:
        SourceError: without a process: no driver, or no GPU.
    """

    def __init__(self, pid: int | None = None) -> None:
        self._pid, self._sources = pid, dict[str, NvmlSource]()
        self._open(list_gpus() if pid is None else _gpus(pid))

    def _open(self, gpus: Iterable[Gpu]) -> None:
        for uuid in [gpu.uuid for gpu in gpus if gpu.uuid not in self._sources]:
            self._sources[uuid] = NvmlSource(uuid)
            self._sources[uuid].start_window()

    def look(self, job_pids: Collection[int] = ()) -> Iterator[GpuLook]:
        """Each GPU now, with the memory of the processes `job_pids`.

        Raises:
            SourceError: a GPU does not answer any more.
        """
        sources = [*self._sources.values()]
        if self._pid is not None:
            computing = _gpus(self._pid)
            sources = [self._sources[gpu.uuid] for gpu in computing if gpu.uuid in self._sources]
            # One where the process has just begun counts from the next look on.
            self._open(computing)
        for source in sources:
            means = read_means(source)
            # Cards before Hopper have no other activity.
            if means.get(BUSY) is None:
                means[BUSY] = busy_percent(source.gpu.uuid)
            # The driver keeps some memory of an empty card for itself.
            taken_mib, held = means[USED], held_mib(source.gpu.uuid)
            if source.gpu.memory_mib is not None and taken_mib is not None:
                means[USED] = taken_mib if held is None else held
                means[FREE] = source.gpu.memory_mib - taken_mib
            computing = compute_pids(source.gpu.uuid)
            pids = tuple(pid for pid in computing if not name_of(pid).startswith(MPS_SERVER))
            yield GpuLook(
                gpu=source.gpu,
                means={column: value for column, value in means.items() if value is not None},
                pids=pids,
                is_whole=len(pids) == len(computing) and not source.gpu.mig,
                process_memory_mib=source.processes_memory_mib(job_pids) if job_pids else None,
                impossible=sum(gate.dropped for gate in source.gates),
            )

    def close(self) -> None:
        """Close NVML."""
        for source in self._sources.values():
            source.close()


def read_means(source: TelemetrySource) -> dict[str, float | None]:
    """What a GPU reads by the columns of points; counters are means since this was asked last.

    Raises:
        SourceError: the GPU does not answer any more.
    """
    read = source.read([channel.name for channel in source.channels])
    source.start_window()
    return {_COLUMNS[name]: of for name, of in read.items() if name in _COLUMNS}


def _gpus(pid: int) -> list[Gpu]:
    """A host without a driver has none; the count of the process is read all the same."""
    pids = {*family(pid)}
    with suppress(SourceError):
        return [gpu for gpu in list_gpus() if pids.intersection(compute_pids(gpu.uuid))]
    return []
