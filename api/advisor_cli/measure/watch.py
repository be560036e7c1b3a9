"""`advisor watch`: what runs already on the GPUs, or one process, and how it would be profiled."""

import itertools
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from advisor.core.gpu import WHOLE
from advisor.core.job import Job, ProgressSettings
from advisor.core.wording import listed
from advisor.errors import AdvisorError, InputError
from advisor.formats.job_file import inline_job, save_job, seen_job
from advisor.runtime.processes import loaded_libraries, owner_of
from advisor.runtime.progress_search import counted_script
from advisor.scrape.page import KnownServer, server_of
from advisor.settings import read_settings
from advisor_cli.console import (
    AsJson,
    as_json_text,
    plain_console,
    plain_table,
    say,
    say_lines,
    table_of,
)
from advisor_profiling.attached import (
    GpuSeen,
    SeenAlone,
    ToldProgress,
    WatchedNow,
    command_of,
    family,
    output_of,
    watch as watching,
    workdir_of,
)

if TYPE_CHECKING:
    from advisor.core.objectives import Interval
    from advisor.core.records import SoloPoint
    from advisor_audit.audit import HostJob, HostSeen

_Look = TypeVar("_Look")

_HOST_COLUMNS: "Sequence[tuple[str, Callable[[HostJob], str]]]" = (
    ("GPU", lambda job: "-" if job.gpu is None else f"{job.gpu}"),
    ("job", lambda job: job.job),
    ("user", lambda job: job.user or "-"),
    ("rate", lambda job: "-" if job.rate is None else f"{job.rate:.4g} {job.rate_unit}/s"),
    ("watts", lambda job: _number(job.power_w, "W")),
    ("SMs active", lambda job: _percent(job.sm_active_percent)),
    ("half a GPU", lambda job: _range_text(job.half_speed, "%", WHOLE)),
    ("fills it", lambda job: {True: "yes", False: "no", None: "-"}[job.fills]),
)
_COLUMNS = ("GPU", "watts", "limit", "SMs active", "memory", "others there")


def watch(
    pid: Annotated[
        int | None,
        typer.Argument(
            help="Process ID, its children included (default: all processes on the GPUs)"
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Pattern of a progress line, such as 'step (\\d+)' (default: searched)"),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="URL of its Prometheus page (default: searched)")
    ] = None,
    counter: Annotated[
        str | None, typer.Option(help="Counter on its Prometheus page (default: searched)")
    ] = None,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two readings")] = 2,
    seconds: Annotated[
        float, typer.Option("--for", min=0.5, help="Seconds to watch (default: until it ends)")
    ] = math.inf,
    once: Annotated[
        bool, typer.Option("--once", help="Print one reading, after --every seconds")
    ] = False,
    save: Annotated[str | None, typer.Option(help="Write a job file of this name")] = None,
    as_json: AsJson = False,
) -> None:
    """Watch what runs on the GPUs, or one process: rate, watts, SM activity and memory.

    Changes nothing. A job that had a GPU to itself for a minute is stored under its name, for
    `recommend`, `place` and `run`. Prints which jobs could share a GPU. --json writes an object for
    each reading.

    Example: advisor watch 4711 --once
    """
    if pid is None:
        if pattern or url or counter or save:
            raise InputError("that is for one process", fix="name it: advisor watch PID")
        _watch_host(every, every if once else seconds, once=once, as_json=as_json)
        return
    command, asked = command_of(pid), ProgressSettings(pattern=pattern, url=url, counter=counter)

    def find() -> ToldProgress | None:
        return ToldProgress.find(family(pid), command, asked)

    told = find()
    progress = told.progress if told else ProgressSettings()
    job = seen_job(command, workdir_of(pid), progress, read_settings().jobs_dir)
    if save is not None:
        if told is None:
            raise InputError(
                f"process {pid} shows no progress, so it cannot be saved as a job",
                fix=" ".join(_how(pid, command, told, save)),
            )
        job = replace(inline_job(save, command, told.progress), workdir=workdir_of(pid))
        file = read_settings().jobs_dir / f"{job.name}.yaml"
        if file.exists():
            raise InputError(f"{file} is there already", fix="choose another name")
        save_job(job, file)
        say(f"kept as {file}", err=True)
    looks = watching(SeenAlone(pid, job, told, _keep), find, every, every if once else seconds)
    if as_json:
        say_lines(as_json_text(asdict(seen)) for seen in looks)
        return
    notes = [*_how(pid, command, told, job.name)]
    _show(
        looks,
        lambda seen: _screen(seen, command, notes),
        lambda seen: f"{seen.at} {_rate_text(seen)}{''.join(map(_gpu_text, seen.gpus))}",
        once=once,
        first=notes,
    )
    if not once and owner_of(pid) is None:
        say(f"process {pid} has ended")


def _show(
    looks: Iterator[_Look],
    screen: Callable[[_Look], RenderableType],
    line: Callable[[_Look], str],
    *,
    once: bool,
    first: Sequence[str] = (),
) -> None:
    """A screen that is drawn again with each look; in a pipe or a file a line for each."""
    console = plain_console()
    if console.is_terminal or once:
        with Live(console=console, auto_refresh=False) as live:
            for seen in looks:
                live.update(screen(seen), refresh=True)
        console.print(end="" if console.is_terminal else "\n")
    else:
        say_lines(itertools.chain(first, map(line, looks)))


def _watch_host(every_s: float, lasts_s: float, *, once: bool, as_json: bool) -> None:
    """All jobs on the GPUs of this host, until the time is over or Ctrl-C."""
    from advisor.decide.limits import Request  # only here: a process is watched without numpy
    from advisor_audit.audit import HostWatch, Wanted
    from advisor_models.one_window import bundled_head

    settings = read_settings()
    wanted = Wanted(head=bundled_head(), within="user", limits=Request(policy=settings.policy))
    with (
        closing(HostWatch(wanted, every_s, settings.jobs_dir, _keep)) as host,
        suppress(KeyboardInterrupt),
    ):
        looks = _looks(host.look, every_s, lasts_s)
        if as_json:
            say_lines(map(as_json_text, looks))
        else:
            _show(looks, _host_screen, _host_text, once=once)


def _looks(look: Callable[[], _Look], every_s: float, lasts_s: float) -> Iterator[_Look]:
    begun_s = next_s = time.monotonic()
    while (next_s := next_s + every_s) <= begun_s + lasts_s:
        time.sleep(max(0.0, next_s - time.monotonic()))
        yield look()


def _host_screen(seen: "HostSeen") -> Group:
    table = table_of(_HOST_COLUMNS, seen.jobs, whole=[name for name, _ in _HOST_COLUMNS[2:]])
    unused = Text("no job uses a GPU of this host")
    words = (
        f"half a GPU: speed at half of it, {seen.basis} from the last minute; ranges are of 90 %"
    )
    notes = [words, *_moves(seen)] if seen.jobs else _moves(seen)
    return Group(table if seen.jobs else unused, *map(Text, notes))


def _host_text(seen: "HostSeen") -> str:
    jobs = ("; ".join(f"{name} {cell(job)}" for name, cell in _HOST_COLUMNS) for job in seen.jobs)
    return "\n".join(f"{seen.at} {text}" for text in (*jobs, *_moves(seen)))


def _moves(seen: "HostSeen") -> Iterator[str]:
    """Sets that could share a GPU, a line each."""
    if seen.free_gpus:
        yield f"free: GPU {listed('?' if n is None else n for n in seen.free_gpus)}"
    if seen.impossible:
        yield f"{seen.impossible:,} impossible readings left out"
    for one in seen.together:
        speeds = listed(f"{WHOLE * speed:.0f} %" for speed in one.speeds)
        shares = one.limits_percent
        limits = f", limits {'/'.join(f'{n:g}' for n in shares)}" if min(shares) < WHOLE else ""
        yield (
            f"{listed(one.jobs)} could share a GPU{limits}: {speeds} of their speeds, "
            f"{one.power_w:,.0f} W, {_range_text(one.saved_w, 'W')} less for the same work, "
            f"freed GPUs off ({seen.basis})"
        )
    if seen.together:
        yield "this was not tried, and a running job cannot move; to start them so:"
        yield from (one.command for one in seen.together)


def _screen(seen: WatchedNow, command: Sequence[str], notes: Sequence[str]) -> Group:
    head = Text(f"{seen.job} ({seen.pid}): {shlex.join(command)}", style="bold")
    table = plain_table(_COLUMNS, map(_cells, seen.gpus), whole=_COLUMNS)
    rows = table if seen.gpus else Text("it computes on no GPU that NVML names it on")
    return Group(head, Text(_rate_text(seen)), rows, *map(Text, notes))


def _rate_text(seen: WatchedNow) -> str:
    if seen.unit is None or seen.fault is not None:
        return "rate: not known" + (f": {seen.fault}" if seen.fault else "")
    if seen.rate is None:
        return f"rate: not yet; {seen.count or 0:,.0f} {seen.unit} so far"
    watts = [gpu.power_w for gpu in seen.gpus if gpu.power_w is not None and not gpu.others]
    # Of some of its GPUs it would be less than the work takes.
    told = watts and len(watts) == len(seen.gpus) and seen.rate
    each = f", {sum(watts) / seen.rate:.3g} J each" if told and seen.rate else ""
    return f"rate: {seen.rate:.4g} {seen.unit}/s{each}; {seen.count or 0:,.0f} so far"


def _gpu_text(gpu: GpuSeen) -> str:
    name, power, _, active, memory, _ = _cells(gpu)
    return f"; GPU {name}: {power}, {active} of SMs active, {memory}"


def _cells(gpu: GpuSeen) -> tuple[str, ...]:
    return (
        f"{gpu.index} {gpu.model}",
        _number(gpu.power_w, "W"),
        _number(gpu.power_limit_w, "W"),
        _percent(gpu.sm_active_percent),
        _number(gpu.memory_mib, "MiB"),
        " ".join(map(str, gpu.others)) or "none",
    )


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:,.0f} {unit}"


def _range_text(of: "Interval | None", unit: str, times: float = 1.0) -> str:
    if of is None:
        return "-"
    value, low, high = (f"{times * number:,.0f}" for number in (of.value, of.low, of.high))
    return f"{value} ({low} to {high}) {unit}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _keep(pid: int, job: Job, point: "SoloPoint") -> None:
    """Store what was seen, and register the job, so that its user can launch it by its name."""
    from advisor_data import open_store  # only here: not every look opens a database

    settings = read_settings()
    file = settings.jobs_dir / f"{job.name}.yaml"
    try:
        with open_store(settings.database_url, settings.home) as store:
            store.add([point])
        if owner_of(pid) == os.geteuid() and not file.exists():
            save_job(job, file)
    except AdvisorError as error:
        say(f"{job.name} is not kept: {error}", err=True)
        return
    say(f"kept {point.window_s:.0f} s of {job.name} alone on GPU {point.gpu_uuid}", err=True)


def _how(pid: int, command: Sequence[str], told: ToldProgress | None, name: str) -> Iterator[str]:
    where = f" (in {workdir_of(pid)}, once this process has ended)"
    if told is not None and told.progress.kind == "metrics":
        yield f"counted on {told.progress.url}: {told.progress.counter}"
        yield f"to profile it: advisor watch {pid} --save {name} && advisor profile {name}{where}"
        return
    if told is not None:
        yield f"counted by {told.progress.pattern or 'its progress file'}"
        yield f"to profile it: advisor profile --name {name} -- {shlex.join(command)}{where}"
        return
    if known := server_of(command):
        yield _no_page(known[0])
    yield f"nothing that can be read tells how far it is; it writes to {output_of([pid])}"
    if "torch" in (loaded_libraries(family(pid)) or "") and (script := counted_script(command)):
        yield f"to profile it: advisor profile --name {name} -- {script}{where}"
        yield "that counts its optimizer steps, without a change of the script"
    else:
        yield f"to profile it: advisor profile --name {name} -- {shlex.join(command)}{where}"
        yield "that reads what it prints; more ways: docs/progress.md"


def _no_page(server: KnownServer) -> str:
    """Why a known server is not counted by its page."""
    name = server.starts[0]
    if server.counter is None:
        return f"{name} has no Prometheus page"
    needs = f"; it needs {listed(server.needs)}" if server.needs else ""
    return f"no port of this process has a page with {server.counter} of {name}{needs}"
