"""`advisor launches`: what was launched on this host, where it stands, stopping and cleaning up."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.wording import count_of
from advisor.errors import NoSplitError
from advisor.launch.folder import (
    LaunchFolder,
    LaunchList,
    close_unclaimed,
    find_folder,
    list_folders,
)
from advisor.launch.guard import LAUNCH_MARK, Stopping
from advisor.launch.spec import JobStatus, LaunchStatus, split_of
from advisor.runtime.job_process import check_none
from advisor.runtime.processes import marked_pids, wait_until
from advisor.settings import read_settings
from advisor.validity.points import FASTEST
from advisor_cli.console import (
    PIPE_WIDTH,
    AsJson,
    Columns,
    as_json_text,
    plain_console,
    print_screen,
    print_table,
    say,
    say_lines,
    table_of,
)
from advisor_cli.launch_text import (
    end_screens,
    exit_code,
    final_json,
    line,
    observations,
    statuses,
    table,
)
from advisor_data import open_store

app = typer.Typer(help="List, show, stop, split again and clean up the launches of this host.")

LaunchId = Annotated[
    str, typer.Argument(help="Launch ID, as listed by `advisor launches`", metavar="ID")
]

_LOOK_S = 0.2

_COLUMNS: Columns[LaunchStatus] = (
    ("launch", lambda status: status.launch_id),
    ("state", lambda status: status.standing),
    ("GPU", lambda status: status.gpu_uuid),
    ("pair", lambda status: f"{status.pair_number + 1} of {status.pairs}"),
    ("jobs", lambda status: " + ".join(map(_seat, status.jobs))),
    ("together", lambda status: f"{status.overlap_s:.0f} s"),
    ("power", lambda status: "-" if status.watts is None else f"{status.watts:.0f} W"),
    ("energy saved", lambda s: "-" if s.part_saved is None else f"{100 * s.part_saved:.0f} %"),
    ("what went wrong", lambda status: status.code),
)


@app.callback(invoke_without_command=True)
def group(context: typer.Context, as_json: AsJson = False) -> None:
    """List, show, stop, split again and clean up the launches of this host."""
    if context.invoked_subcommand is not None:
        return
    statuses = [folder.read_status() for folder in list_folders(_root())]
    if as_json:
        say(as_json_text(LaunchList(launches=tuple(statuses))))
    elif statuses:
        # Of these columns, `show` and `stop` need the first one whole.
        print_table(table_of(_COLUMNS, statuses, whole=["launch"]))
    else:
        say("nothing was launched on this host")


@app.command("show")
def show(launch_id: LaunchId, as_json: AsJson = False) -> None:
    """Show the state of a launch, and the results of its sets.

    Example: advisor launches show 20261125-030728-cb7096
    """
    folder = find_folder(_root(), launch_id)
    status = folder.read_status()
    if as_json:
        say(as_json_text(final_json(folder, status)))
        return
    console = plain_console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table(status, console.width))
    for screen in end_screens(status, observations(folder), read_settings().policy.prices):
        print_screen(screen)


@app.command("stop")
def stop(
    launch_id: LaunchId,
    job: Annotated[
        str | None,
        typer.Argument(help="End this job alone, all copies of it; the others go on"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stop all jobs of a launch in the safe order, or one job, and wait until they have ended.

    Example: advisor launches stop 20261125-030728-cb7096 train
    """
    folder = find_folder(_root(), launch_id)
    if job is None:
        folder.ask_stop()
        close_unclaimed(folder)
        status = await_end(folder)
    else:
        request = folder.ask_end(job)
        while request.exists() and not folder.read_status().over:
            time.sleep(_LOOK_S)
        status = folder.read_status()
    say(as_json_text(final_json(folder, status)) if as_json else line(status))
    raise typer.Exit(exit_code(status))


@app.command("resplit")
def resplit(launch_id: LaunchId, as_json: AsJson = False) -> None:
    """Start the jobs of a launch again at the split that `show` offers; they must be restartable.

    Example: advisor launches resplit 20261125-030728-cb7096
    """
    folder = find_folder(_root(), launch_id)
    split = folder.ask_resplit()
    # In this order: the next set begins before its request is answered.
    while (folder.resplit.exists(), (status := folder.read_status()).state) != (False, "running"):
        if status.over:
            break
        time.sleep(_LOOK_S)
    if not status.over and split != str(split_of(status.jobs, status.sharing)):
        raise NoSplitError("they go on as they were", why="it is not offered any more")
    say(as_json_text(status) if as_json else line(status))
    raise typer.Exit(exit_code(status))


@app.command("clean")
def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove folders of launches that ended long ago, or that take too much room.

    The bounds are ADVISOR_KEEP_LAUNCHES_DAYS and ADVISOR_KEEP_LAUNCHES_GIB. Observations are
    stored before a folder is removed.

    Example: advisor launches clean
    """
    from advisor_data.state import ServiceState, clean_launches  # SQLAlchemy takes time to load

    settings = read_settings()
    with (
        open_store(settings.database_url, settings.home) as store,
        ServiceState(settings.database_url, settings.home) as state,
    ):
        who, bounds = f"user id {os.getuid()}", settings.retention
        cleaned = clean_launches(_root(), bounds, store, state, who, dry_run=dry_run)
    if as_json:
        say(as_json_text(cleaned))
        return
    verb = "would be removed" if dry_run else "removed"
    for launch in cleaned.removed:
        room = f"{launch.size_bytes / 2**20:.1f} MiB"
        say(f"{launch.launch_id} {verb}: ended {launch.ended_at}, {room}, for its {launch.reason}")
    say_lines(f"{launch.launch_id} is kept: {launch.why}" for launch in cleaned.kept)
    total = f"{sum(launch.size_bytes for launch in cleaned.removed) / 2**20:.1f} MiB"
    say(f"{count_of(len(cleaned.removed), 'folder')} {verb}, {total}")


def await_end(folder: LaunchFolder) -> LaunchStatus:
    """The last status of a launch that was asked to stop; a supervisor that hangs is killed."""
    stopping, last = Stopping(folder), folder.read_status()
    mark = {LAUNCH_MARK: str(folder.path)}
    for last in statuses(folder):
        if fault := stopping.look(last):
            say(fault, err=True)
            # Guard and shims take less, also where jobs ignore signals.
            wait_until(lambda: not marked_pids(mark), 30.0)
            check_none(marked_pids(mark))
    return last


def _root() -> Path:
    return read_settings().home / "launches"


def _seat(job: JobStatus) -> str:
    joined = f" joined {job.joined_at[11:19]}" if job.joined_at else ""
    left = f" left {job.ended_at[11:19]}" if job.ended_at else ""
    of_whom = " its profile" if (job.speed or 0.0) > FASTEST else ""
    speed = f" at {job.speed:.2f}x{of_whom}" if job.speed is not None else ""
    unknown = " (progress unknown)" if job.unread else " (stalled)" if job.stalled_since else ""
    return f"{job.job} {job.share_text}{speed}{unknown}{joined}{left}"
