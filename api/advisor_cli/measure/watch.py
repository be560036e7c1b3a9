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
from advisor.core.wording import in_digits, listed
from advisor.errors import AdvisorError, InputError
from advisor.formats.job_file import inline_job, save_job, watched_job
from advisor.runtime.processes import loaded_libraries, owner_of
from advisor.runtime.progress_search import counted_script
from advisor.scrape.page import server_of
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
    ProgressSource,
    SoloWatch,
    WatchedGpu,
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
    from advisor_audit.audit import HostJob, HostState

_Look = TypeVar("_Look")

_HOST_COLUMNS: "Sequence[tuple[str, Callable[[HostJob], str]]]" = (
    ("GPU", lambda job: "-" if job.gpu is None else f"{job.gpu}"),
    ("job", lambda job: job.job),
    ("user", lambda job: job.user or "-"),
    (
        "rate",
        lambda job: "-" if job.rate is None else f"{in_digits(job.rate, 4)} {job.rate_unit}/s",
    ),
    ("watts", lambda job: _number(job.power_w, "W")),
    ("SMs active", lambda job: _number(job.sm_active_percent, "%")),
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
    command, settings = command_of(pid), ProgressSettings(pattern=pattern, url=url, counter=counter)

    def find() -> ProgressSource | None:
        return ProgressSource.find(family(pid), command, settings)

    source = find()
    progress = source.progress if source else ProgressSettings()
    job = watched_job(command, workdir_of(pid), progress, read_settings().jobs_dir)
    if save is not None:
        if source is None:
            raise InputError(
                f"process {pid} shows no progress, so it cannot be saved as a job",
                fix=" ".join(_how(pid, command, source, save)),
            )
        job = replace(inline_job(save, command, source.progress), workdir=workdir_of(pid))
        file = read_settings().jobs_dir / f"{job.name}.yaml"
        if file.exists():
            raise InputError(f"{file} is there already", fix="choose another name")
        save_job(job, file)
        say(f"kept as {file}", err=True)
    looks = watching(SoloWatch(pid, job, source, _keep), find, every, every if once else seconds)
    if as_json:
        say_lines(as_json_text(asdict(look)) for look in looks)
        return
    notes = [*_how(pid, command, source, job.name)]
    _show(
        looks,
        lambda look: _screen(look, command, notes),
        lambda look: f"{look.at} {_rate_text(look)}{''.join(map(_gpu_text, look.gpus))}",
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
            for look in looks:
                live.update(screen(look), refresh=True)
        console.print(end="" if console.is_terminal else "\n")
    else:
        say_lines(itertools.chain(first, map(line, looks)))


def _watch_host(every_s: float, lasts_s: float, *, once: bool, as_json: bool) -> None:
    """All jobs on the GPUs of this host, until the time is over or Ctrl-C."""
    from advisor.decide.limits import Request  # only here: a process is watched without numpy
    from advisor_audit.audit import HostWatch, Wanted
    from advisor_models.single_window import bundled_head

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


def _host_screen(host: "HostState") -> Group:
    table = table_of(_HOST_COLUMNS, host.jobs, whole=[name for name, _ in _HOST_COLUMNS[2:]])
    words = (
        f"half a GPU: speed at half of it, {host.basis} from the last minute; ranges are of 90 %"
    )
    notes = [words, *_moves(host)] if host.jobs else _moves(host)
    return Group(table if host.jobs else "no job uses a GPU of this host", *map(Text, notes))


def _host_text(host: "HostState") -> str:
    jobs = ("; ".join(f"{name} {cell(job)}" for name, cell in _HOST_COLUMNS) for job in host.jobs)
    return "\n".join(f"{host.at} {text}" for text in (*jobs, *_moves(host)))


def _moves(host: "HostState") -> Iterator[str]:
    """Sets that could share a GPU, a line each."""
    if host.free_gpus:
        yield f"free: GPU {listed('?' if n is None else n for n in host.free_gpus)}"
    if host.impossible:
        yield f"{host.impossible:,} impossible readings left out"
    for pair in host.together:
        speeds = listed(f"{WHOLE * speed:.0f} %" for speed in pair.speeds)
        shares = pair.limits_percent
        limits = f", limits {'/'.join(f'{n:g}' for n in shares)}" if min(shares) < WHOLE else ""
        yield (
            f"{listed(pair.jobs)} could share a GPU{limits}: {speeds} of their speeds, "
            f"{pair.power_w:,.0f} W, {_range_text(pair.saved_w, 'W')} less for the same work, "
            f"freed GPUs off ({host.basis})"
        )
    if host.together:
        yield "this was not tried, and a running job cannot move; to start them so:"
        yield from (pair.command for pair in host.together)


def _screen(look: WatchedNow, command: Sequence[str], notes: Sequence[str]) -> Group:
    head = Text(f"{look.job} ({look.pid}): {shlex.join(command)}", style="bold")
    table = plain_table(_COLUMNS, map(_cells, look.gpus), whole=_COLUMNS)
    rows = table if look.gpus else Text("it computes on no GPU that NVML names it on")
    return Group(head, Text(_rate_text(look)), rows, *map(Text, notes))


def _rate_text(look: WatchedNow) -> str:
    if look.unit is None or look.fault is not None:
        return "rate: not known" + (f": {look.fault}" if look.fault else "")
    if look.rate is None:
        return f"rate: not yet; {look.count or 0:,.0f} {look.unit} so far"
    watts = [gpu.power_w for gpu in look.gpus if gpu.power_w is not None and not gpu.others]
    # Of some of its GPUs it would be less than the work takes.
    has_watts = watts and len(watts) == len(look.gpus) and look.rate
    each = f", {sum(watts) / look.rate:.3g} J each" if has_watts and look.rate else ""
    return f"rate: {in_digits(look.rate, 4)} {look.unit}/s{each}; {look.count or 0:,.0f} so far"


def _gpu_text(gpu: WatchedGpu) -> str:
    name, power, _, active, memory, _ = _cells(gpu)
    return f"; GPU {name}: {power}, {active} of SMs active, {memory}"


def _cells(gpu: WatchedGpu) -> tuple[str, ...]:
    return (
        f"{gpu.index} {gpu.model}",
        _number(gpu.power_w, "W"),
        _number(gpu.power_limit_w, "W"),
        _number(gpu.sm_active_percent, "%"),
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


def _how(
    pid: int, command: Sequence[str], source: ProgressSource | None, name: str
) -> Iterator[str]:
    where = f" (in {workdir_of(pid)}, once this process has ended)"
    if source is not None and source.progress.kind == "metrics":
        yield f"counted on {source.progress.url}: {source.progress.counter}"
        yield f"to profile it: advisor watch {pid} --save {name} && advisor profile {name}{where}"
        return
    if source is not None:
        yield f"counted by {source.progress.pattern or 'its progress file'}"
        yield f"to profile it: advisor profile --name {name} -- {shlex.join(command)}{where}"
        return
    server, _ = server_of(command) or (None, None)
    if server and server.counter is None:
        yield f"{server.starts[0]} has no Prometheus page"
    elif server:
        needs = f"; it needs {listed(server.needs)}" if server.needs else ""
        page = f"page with {server.counter} of {server.starts[0]}"
        yield f"no port of this process has a {page}{needs}"
    yield f"nothing that can be read tells how far it is; it writes to {output_of([pid])}"
    if "torch" in (loaded_libraries(family(pid)) or "") and (script := counted_script(command)):
        yield f"to profile it: advisor profile --name {name} -- {script}{where}"
        yield "that counts its optimizer steps, without a change of the script"
    else:
        yield f"to profile it: advisor profile --name {name} -- {shlex.join(command)}{where}"
        yield "that reads what it prints; more ways: docs/progress.md"
