"""The `advisor` command: its sub-commands, and the one place that turns errors into text."""

import importlib
import json
import sys
from typing import Any

import typer
import typer.core
import typer.main

import advisor
from advisor.errors import AdvisorError

_COMMANDS = {
    "recommend": "Which split of one GPU does the most work per joule for two jobs?",
    "place": "Which of many jobs share a GPU, so that all together do the most work per joule?",
    "profile": "Measure a job alone at each share: rate, power and counters.",
    "colocate": "Measure pairs of jobs on one GPU at splits: both rates, and the power of both.",
    "launch": "Run two jobs together on one GPU at a split that is proven, and watch them.",
    "launches": "List, show and stop the launches of this host.",
    "check": "At which numbers of SMs do the libraries of this host compute right results?",
    "doctor": "Check everything that measuring needs; changes nothing. "
    "Exit code 1: something is missing.",
    "jobs": "List the jobs of this folder and the profiles that were measured.",
    "data": "Import and export points; back up, restore and migrate the database.",
    "tokens": "Make, list and revoke the tokens that the service lets in.",
    "report": "Pages made from measurements.",
    "train": "Learn from measured pairs; writes model.onnx and manifest.json.",
    "evaluate": "How good is the model? "
    "Writes evaluation.html, evaluation.png and evaluation.json.",
    "models": "List, check and choose the models on this host.",
    "serve": "Answer over HTTP; only this host can connect, and nothing is launched, until told.",
}
"""Commands in the order of the help, with its line. Each is a module of advisor.cli that has an
`app` or a function of the same name, and is imported when it is called: all together they load
every component."""


class _Group(typer.core.TyperGroup):
    """Puts the command itself in the place of its line of help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and load(name), rest


def load(name: str) -> Any:
    """The command of that name, with all its options."""
    module = importlib.import_module(f"advisor.cli.{name}")
    parent = typer.Typer()
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name)
    else:
        parent.command(name)(getattr(module, name))
    return typer.main.get_group(parent).commands[name]


app = typer.Typer(
    help="How many SMs or CUs should each of two jobs get on one GPU?",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _name, _line in _COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


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
