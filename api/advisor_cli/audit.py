"""`advisor audit`: what sharing would give a cluster, from the metrics that it has already."""

import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn

from advisor.core.gpu import WHOLE, MemoryFit, Split
from advisor.core.objectives import ADVISED, COST, Aim, Interval
from advisor.core.wording import in_digits, listed
from advisor.decide.limits import Request
from advisor.errors import STOPPED, InputError
from advisor.files import PUBLIC_FILE, open_home, replace_file, try_lock
from advisor.formats.wire import to_plain
from advisor.predict.profiles import MEASURED_ON
from advisor.settings import read_settings
from advisor.wire.answers import Said
from advisor_advice.conditions import local_profiles
from advisor_advice.placers import PLACERS, Pasted, pasted
from advisor_audit.audit import (
    MONTH_H,
    Audit,
    SharingSet,
    TellProgress,
    Wanted,
    audit as make_audit,
)
from advisor_audit.page import NO_PRICE, change_text, headline, page, span_text
from advisor_audit.sources import (
    EVERY_S,
    Prometheus,
    SeriesFile,
    Source,
    as_series,
    families_of,
    read_exporters,
    read_host,
    record,
    see_exporters,
    session_for,
)
from advisor_cli.console import AsJson, ProfilesOption, as_json_text, print_list, print_screen, say
from advisor_cli.progress import progress
from advisor_data import open_store
from advisor_models.single_window import bundled_head
from advisor_profiling.attached import HostGpus

DAY_S = 86400.0


def audit(
    *,
    prometheus: Annotated[
        str | None, typer.Option(help="Address of a Prometheus server with GPU metrics")
    ] = None,
    dcgm: Annotated[
        list[str] | None, typer.Option(help="Address of a DCGM exporter to watch now; repeatable")
    ] = None,
    nvml: Annotated[bool, typer.Option("--nvml", help="Watch the GPUs of this host now")] = False,
    series: Annotated[
        Path | None,
        typer.Option(
            help="File to read: series written by --keep, a saved query result or an nvidia-smi log"
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(help="Days of Prometheus data to read, back from now", min=0.01)
    ] = 7.0,
    minutes: Annotated[
        float, typer.Option(help="Minutes to watch GPUs, with --dcgm or --nvml", min=0.1)
    ] = 30.0,
    step: Annotated[int, typer.Option(help="Averaging interval, in seconds", min=1)] = 60,
    within: Annotated[
        str,
        typer.Option(
            "--within",
            "--group-label",
            help="Which jobs may share: those of one namespace, of one LABEL, or all",
        ),
    ] = "namespace",
    job_label: Annotated[
        str | None, typer.Option(help="Label with the owner of a GPU, tried before the known ones")
    ] = None,
    objective: Annotated[Aim, typer.Option(help="What to minimise")] = "energy-efficiency",
    min_speed: Annotated[
        float | None,
        typer.Option(help="Minimum speed of each job; 1 is its speed alone", min=0.0, max=1.0),
    ] = None,
    http_config: Annotated[
        Path | None,
        typer.Option(help="HTTP client configuration, as for promtool --http.config.file"),
    ] = None,
    profiles: ProfilesOption = None,
    keep: Annotated[Path | None, typer.Option(help="File to write all series to")] = None,
    placer: Annotated[
        str | None,
        typer.Option("--as", help=f"Print the answer for a placer: {', '.join(PLACERS)}"),
    ] = None,
    out: Annotated[Path, typer.Option(help="HTML report path; JSON is written next to it")] = Path(
        "audit.html"
    ),
    as_json: AsJson = False,
) -> None:
    """Estimate what sharing GPUs would save a cluster, from its existing metrics.

    Changes no job. Stores what it reads of each job for advice. After an interruption the same
    command continues.

    Example: advisor audit --prometheus http://prometheus:9090 --days 7
    """
    if sum(map(bool, (prometheus, dcgm, nvml, series))) != 1:
        raise InputError(
            "an audit reads one source",
            fix="give --prometheus URL, --dcgm URL, --nvml or --series FILE",
        )
    settings = read_settings()
    if placer:
        pasted(placer, "", (), None, MemoryFit((), None))  # refuses one that is not known
    if objective == COST:
        settings.policy.prices.priced(ADVISED[COST])  # refuses it where nothing has a price
    wanted = Wanted(
        head=bundled_head(),
        within=within,
        objective=objective,
        limits=Request(
            policy=settings.policy
            if min_speed is None
            else replace(settings.policy, min_speed=min_speed)
        ),
        prices=settings.policy.prices,
        profiles=local_profiles(settings, profiles),
    )
    families = families_of(job_label)
    read = _state_of(series) if series else None
    # The pages read are kept here until the audit is done.
    identity = repr([prometheus, dcgm, nvml, read, days, step, within, job_label])
    folder = open_home(settings.home, "audits", hashlib.sha256(identity.encode()).hexdigest()[:16])
    try:
        with _alone(folder), _telling() as tell, _open(keep if prometheus else None) as kept:
            if prometheus:
                source: Source = Prometheus(
                    prometheus,
                    session_for(settings.secrets(), http_config),
                    begin_s=(end_s := _end_s(folder, step)) - days * DAY_S,
                    end_s=end_s,
                    step_s=step,
                    families=families,
                )
            else:
                file = series or keep or folder / "series.jsonl"
                if not series:
                    _remove_pages(folder, "*-*.jsonl")  # more is appended to what they were made of
                    _watch(dcgm or (), file, 60 * minutes, min(EVERY_S, step), tell)
                source = SeriesFile(
                    as_series(file, folder), step_s=step, families=families, url=str(file)
                )
            result, points = make_audit(source, folder, wanted, tell, kept)
    except KeyboardInterrupt:
        say("stopped; what was read is kept: the same command goes on from there", err=True)
        raise typer.Exit(STOPPED) from None
    with InputError.instead_of(OSError, f"{out} cannot be written"):
        replace_file(out, page(result).encode(), PUBLIC_FILE)
        replace_file(out.with_suffix(".json"), f"{as_json_text(result)}\n".encode(), PUBLIC_FILE)
    shutil.rmtree(folder)
    if points:
        with open_store(settings.database_url, settings.home) as store:
            store.add(points)
    if as_json:
        words = placer and [_words_for(placer, change) for change in result.changes]
        say(as_json_text({**to_plain(result), "placer": words} if words else result))
        return
    console = print_screen(Said(headline=headline(result), lines=tuple(_lines(result, out))))
    for change in result.changes if placer else ():
        words = _words_for(placer or "", change)
        # YAML of several, which is one stream.
        mark = "--- #" if any(line.startswith("---") for line in words.lines) else "#"
        say("\n".join((f"{mark} {_in_line(change_text(change, 1.0)[0])}", *words.lines)))
        if change is result.changes[-1]:
            print_list(console, f"for {words.version}, which cannot express:", "-", words.cannot)


def _words_for(placer: str, change: SharingSet) -> Pasted:
    sharing = "limited" if min(change.limits_percent) < WHOLE else "uncapped"
    return pasted(
        placer,
        change.gpu_model,
        [*map(_in_line, change.jobs)],
        Split(change.limits_percent, sharing),
        MemoryFit(change.memory_mib, change.card_mib),
    )


def _in_line(name: str) -> str:
    """A name on one line: anyone who starts a pod chooses it, and it is pasted as a comment."""
    return " ".join(name.split())


def _remove_pages(folder: Path, pattern: str) -> None:
    """Those of an audit before."""
    for page_of_before in folder.glob(pattern):
        page_of_before.unlink()


def _state_of(file: Path) -> tuple[str, int, int]:
    """Which file it is, and whether it is still as it was."""
    with InputError.instead_of(OSError, f"{file} cannot be read"):
        state = file.stat()
    return str(file.resolve()), state.st_size, state.st_mtime_ns


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """The folder for this audit; it is removed with the lock in it."""
    with (folder / "lock").open("ab") as file:
        if not try_lock(file):
            raise InputError("the same audit runs already", fix="wait until it has ended")
        yield


def _end_s(folder: Path, step_s: float) -> float:
    """The end of the days: now, or that of an audit that ended early within the last day."""
    note, end_s = folder / "end.json", time.time() // step_s * step_s
    if note.exists() and end_s - (before_s := float(note.read_text())) < DAY_S:
        return before_s
    _remove_pages(folder, "*.jsonl")
    replace_file(note, f"{end_s}".encode())
    return end_s


def _watch(
    urls: Sequence[str], file: Path, span_s: float, every_s: float, tell: TellProgress
) -> None:
    """Record GPUs for a while; what Ctrl-C leaves is enough to go on with."""
    see_exporters(urls)
    host = None if urls else HostGpus()
    with suppress(KeyboardInterrupt):
        record(
            partial(read_host, host) if host else partial(read_exporters, urls),
            file,
            span_s,
            lambda done_s: tell("watching, s", int(done_s), int(span_s)),
            every_s=every_s,
        )
    if host:
        host.close()


@contextmanager
def _telling() -> Generator[TellProgress]:
    """A bar of what is done, with the time that is left."""
    text = TextColumn("{task.description}", markup=False)
    with progress(text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        tasks = dict[str, TaskID]()

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tell


def _open(path: Path | None) -> AbstractContextManager[IO[bytes] | None]:
    if path is None:
        return nullcontext()
    with InputError.instead_of(OSError, f"{path} cannot be written"):
        return path.open("ab")


# In the place of names of lines.
_CHANGES = ("First", "Second", "Third")


def _lines(result: Audit, out: Path) -> Iterator[tuple[str, str]]:
    now, shared, months = result.now, result.shared, result.span.months
    yield "Read", f"{span_text(result)}; what follows is for a month of {MONTH_H:.0f} hours like it"
    yield "", f"{'today':>9}{'shared':>9}{'range':>18}"
    yield _row("GPUs", now.cards, shared.cards, "peak")
    for name, today, after, note in (
        ("Hours", now.gpu_hours, shared.gpu_hours, "GPU hours"),
        ("kWh", now.kwh, shared.kwh, "freed GPUs off"),
        ("", now.kwh, shared.kwh_idle, "freed GPUs idle"),
        ("Money", now.cost, shared.cost, ""),
    ):
        if today is not None and after:
            yield _row(name, today / months, after.times(1 / months), note)
    if now.cost is None:
        yield "Money", NO_PRICE.removeprefix("Money a month: ")
    for name, change in zip(_CHANGES, result.changes, strict=False):
        who, saves, risks = change_text(change, months)
        yield name, f"{who} saves"
        yield "", ", ".join(saves)
        yield "", f"risk: {'; '.join(risks)}"
    fills = Counter(job.fills for job in result.jobs)
    said = {
        "leaving most of a GPU unused": fills[False],
        "filling a GPU": fills[True],
        "of unknown SM activity": fills[None],
        "probably servers": sum(job.is_server for job in result.jobs),
    }
    kinds = ", ".join(f"{count:,} {what}" for what, count in said.items() if count)
    kept = f"; {result.kept:,} kept by name for advice" if result.kept else ""
    held = (f"{label.gpu_hours:,.0f} {label.label or 'no label'}" for label in result.held_by)
    left = ", ".join(f"{in_digits(h)} {why}" for why, h in result.left_hours.items())
    strangers = sorted({job.gpu_model for job in result.jobs} - {*MEASURED_ON})
    lines = {
        "Jobs": f"{len(result.jobs) + result.left_out:,}: {kinds}{kept}",
        "Owners": f"GPU hours read, by the label that names the job: {', '.join(held)}",
        "Left": f"GPU hours read that are left as they are: {left}" if left else "",
        "Unsure": f"no set was ever measured on {listed(strangers)}" if strangers else "",
    }
    yield from ((name, text) for name, text in lines.items() if text)
    for change in result.first_pairs[:1]:
        yield "Next", change.command
        saved = change.saved_w
        yield "", f"{saved.value:,.0f} ({saved.low:,.0f} to {saved.high:,.0f}) W less"
    yield "Page", f"{out}, and {out.with_suffix('.json')}"


def _row(name: str, today: float, shared: Interval, note: str) -> tuple[str, str]:
    """A row of the table: today, shared, its range, and what that is less."""
    ends = f"{shared.low:,.0f} to {shared.high:,.0f}"
    less = f"{100 * (shared.value / today - 1):+.0f} %" if today else ""
    return name, f"{today:9,.0f}{shared.value:9,.0f}{ends:>18}{less:>8}  {note}".rstrip()
