"""The `advisor` command: its sub-commands, and the one place that turns errors into text."""

import json
import sys

import typer

import advisor
from advisor.cli import colocate, data, doctor, jobs, profile, report
from advisor.errors import AdvisorError

app = typer.Typer(
    help="How many SMs or CUs should each of two jobs get on one GPU?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("profile", context_settings={"allow_interspersed_args": True})(profile.profile)
app.command("colocate")(colocate.colocate)
app.command("doctor")(doctor.doctor)
app.command("jobs")(jobs.jobs)
app.add_typer(data.app, name="data")
app.add_typer(report.app, name="report")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(advisor.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
) -> None:
    """How many SMs or CUs should each of two jobs get on one GPU?"""


def main() -> None:
    """Run the command line; errors of ours end in one line and their own exit code."""
    try:
        app()
    except AdvisorError as error:
        if "--json" in sys.argv:
            typer.echo(json.dumps({"error": {"code": error.code, "message": str(error)}}))
        typer.echo(f"advisor: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        # Disk full, no permission: the system's own words, without a stack trace.
        typer.echo(f"advisor: {error}", err=True)
        sys.exit(1)
