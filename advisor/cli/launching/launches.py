"""`advisor launches`: what was launched on this host, where it stands, and how to stop it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from advisor.cli.launching.live import exit_code, final_json, observations, statuses
from advisor.cli.launching.text import line, summary, table
from advisor.cli.shared.console import plain_console, print_table
from advisor.cli.shared.options import AsJson
from advisor.errors import BusyError
from advisor.formats.wire import write
from advisor.launch.records.answers import LocalLaunches
from advisor.launch.records.folder import LaunchFolder, find_folder, list_folders
from advisor.launch.records.status import LaunchStatus
from advisor.launch.records.status_writer import StatusWriter
from advisor.settings import read_settings

app = typer.Typer(help="List, show and stop the launches of this host.")

LaunchId = Annotated[str, typer.Argument(help="As `advisor launches` lists it", metavar="ID")]

_COLUMNS = ("launch", "state", "GPU", "pair", "jobs", "together", "what went wrong")


@app.callback(invoke_without_command=True)
def group(context: typer.Context, as_json: AsJson = False) -> None:
    """List, show and stop the launches of this host."""
    if context.invoked_subcommand is not None:
        return
    found = [folder.read_status() for folder in list_folders(_root())]
    if as_json:
        typer.echo(write(LocalLaunches(launches=tuple(found))))
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        # Of these columns, `show` and `stop` need the first one whole.
        shown.add_column(name, no_wrap=name == _COLUMNS[0], overflow="fold")
    for status in found:
        shown.add_row(*map(Text, _cells(status)))
    if found:
        print_table(shown)
    else:
        typer.echo("nothing was launched on this host")


@app.command("show")
def show(launch_id: LaunchId, as_json: AsJson = False) -> None:
    """Show where a launch stands, and what its pairs did."""
    folder = find_folder(_root(), launch_id)
    status = folder.read_status()
    if as_json:
        typer.echo(write(final_json(folder, status)))
        return
    plain_console(highlight=False).print(table(status))
    for text in summary(status, observations(folder)):
        typer.echo(text)


@app.command("stop")
def stop(launch_id: LaunchId, as_json: AsJson = False) -> None:
    """Stop both jobs of a launch in the safe order, and wait until they have ended."""
    folder = find_folder(_root(), launch_id)
    folder.ask_stop()
    _close_unclaimed(folder)
    *_, status = statuses(folder)
    typer.echo(write(final_json(folder, status)) if as_json else line(status))
    raise typer.Exit(exit_code(status))


def _close_unclaimed(folder: LaunchFolder) -> None:
    """End a launch whose supervisor never began, so that none begins any more."""
    if folder.claimed():
        return
    try:
        with folder.supervising():
            StatusWriter(folder, folder.read_spec()).close("stopped")
    except BusyError:
        # One has begun just now: it sees the request to stop.
        return


def _root() -> Path:
    return read_settings().home / "launches"


def _cells(status: LaunchStatus) -> list[str]:
    return [
        status.launch_id,
        status.state,
        status.gpu_uuid or "",
        f"{status.pair_number + 1} of {status.pairs}",
        " + ".join(f"{job.job} {job.share_percent:g} %" for job in status.jobs),
        f"{status.overlap_s:.0f} s",
        f"{status.code}" if status.code else "",
    ]
