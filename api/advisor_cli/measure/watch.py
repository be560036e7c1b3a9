"""`advisor watch`: what a process that runs already does, and how it would be profiled."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from advisor.core.job import Job
from advisor.errors import InputError
from advisor.formats.job_file import inline_job, save_job
from advisor.runtime.host.processes import owner_of
from advisor.runtime.jobs.libraries import loaded_libraries
from advisor.runtime.jobs.progress_search import counted_script
from advisor.settings import read_settings
from advisor_cli.shared.console import plain_console, plain_table
from advisor_cli.shared.options import AsJson
from advisor_cli.shared.say import as_json_text, say
from advisor_profiling.attached.told import Asked, Told, find_told, output_of
from advisor_profiling.attached.watching import GpuSeen, Seen, command_of, family, workdir_of
from advisor_profiling.attached.watching import watch as watching

_COLUMNS = ("GPU", "watts", "limit", "SMs active", "memory", "others there")


def watch(
    pid: Annotated[int, typer.Argument(help="Of the process; those that it starts count as it")],
    pattern: Annotated[
        str | None, typer.Option(help="What it prints, such as 'step (\\d+)'; else found")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Of its Prometheus page; else found")] = None,
    counter: Annotated[str | None, typer.Option(help="On that page; else found")] = None,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks")] = 2,
    seconds: Annotated[
        float, typer.Option("--for", min=0.5, help="Watch so long; else until it ends")
    ] = math.inf,
    once: Annotated[bool, typer.Option("--once", help="One look, after `--every` seconds")] = False,
    save: Annotated[str | None, typer.Option(help="Write it as the job of that name")] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a process that runs already: rate, watts, SM activity and memory.

    Changes nothing of it, and says how to profile it. --json writes an object for each look.

    Example: advisor watch 4711 --once
    """
    command, asked = command_of(pid), Asked(pattern, url, counter)
    told = find_told(family(pid), command, asked)
    if save is not None:
        _save(_job(pid, command, save, told))
    looks = watching(pid, told, every, every if once else seconds)
    if as_json:
        for seen in looks:
            say(as_json_text(asdict(seen)))
        return
    _show(looks, command, [*_how(pid, command, told)], once=once)
    if not once and owner_of(pid) is None:
        say(f"process {pid} has ended")


def _show(
    looks: Iterator[Seen], command: Sequence[str], notes: Sequence[str], *, once: bool
) -> None:
    """A screen that is drawn again with each look; in a pipe or a file a line for each."""
    console = plain_console()
    if console.is_terminal or once:
        with Live(console=console, auto_refresh=False) as live:
            for seen in looks:
                live.update(_screen(seen, command, notes), refresh=True)
        console.print(end="" if console.is_terminal else "\n")
        return
    for line in notes:
        say(line)
    for seen in looks:
        say(f"{seen.at} {_rate_text(seen)}{''.join(map(_gpu_text, seen.gpus))}")


def _job(pid: int, command: Sequence[str], name: str, told: Told | None) -> Job:
    if told is None:
        raise InputError(
            f"process {pid} tells nobody how far it is, so it makes no job",
            fix=" ".join(_how(pid, command, told)),
        )
    return replace(inline_job(name, command, told.progress), workdir=workdir_of(pid))


def _save(job: Job) -> None:
    file = read_settings().jobs_dir / f"{job.name}.yaml"
    if file.exists():
        raise InputError(f"{file} is there already", fix="choose another name")
    save_job(job, file)
    say(f"kept as {file}", err=True)


def _screen(seen: Seen, command: Sequence[str], notes: Sequence[str]) -> Group:
    head = Text(f"{seen.pid}: {shlex.join(command)}", style="bold")
    table = plain_table(_COLUMNS, map(_cells, seen.gpus), whole=_COLUMNS)
    nowhere = Text("it computes on no GPU that NVML names it on")
    rows = table if seen.gpus else nowhere
    return Group(head, Text(_rate_text(seen)), rows, *map(Text, notes))


def _rate_text(seen: Seen) -> str:
    if seen.unit is None:
        return "rate: not known"
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
    active = gpu.sm_active_percent
    return (
        f"{gpu.index} {gpu.model}",
        _number(gpu.power_w, "W"),
        _number(gpu.power_limit_w, "W"),
        "-" if active is None else f"{active:.0f} %",
        _number(gpu.memory_mib, "MiB"),
        " ".join(map(str, gpu.others)) or "none",
    )


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:,.0f} {unit}"


def _how(pid: int, command: Sequence[str], told: Told | None) -> Iterator[str]:
    """What `advisor profile` would need, a line each."""
    where = f" (in {workdir_of(pid)}, once this process has ended)"
    name = _name(command)
    if told is not None and told.progress.kind == "metrics":
        yield f"counted on {told.progress.url}: {told.progress.counter}"
        yield f"to profile it: advisor watch {pid} --save {name} && advisor profile {name}{where}"
        return
    if told is not None:
        yield f"counted by {told.progress.pattern or 'its progress file'}"
        yield f"to profile it: advisor profile --name {name} -- {shlex.join(command)}{where}"
        return
    yield f"nothing that can be read tells how far it is; it writes to {output_of([pid])}"
    libraries = loaded_libraries(family(pid)) or ""
    if "torch" in libraries and (script := counted_script(command)):
        yield f"to profile it: advisor profile --name {name} -- {script}{where}"
        yield "that counts its optimizer steps, without a change of the script"
    else:
        yield f"to profile it: advisor profile --name {name} -- {shlex.join(command)}{where}"
        yield "that reads what it prints; more ways: docs/progress.md"


def _name(command: Sequence[str]) -> str:
    script = next((word for word in command if word.endswith(".py")), command[0])
    letters = (c if c.isalnum() or c in "-_." else "-" for c in Path(script).stem.lower())
    return "".join(letters).strip("-_.") or "job"
