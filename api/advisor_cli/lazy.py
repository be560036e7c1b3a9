"""Commands that are imported when they are called: all together they load every component."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import typer
import typer.core
import typer.main

from advisor_cli.console import with_places

HELP: Any = {"help_option_names": ["--help", "-h"]}
"""What every command takes for a wish for help."""


class LazyGroup(typer.core.TyperGroup):
    """Holds the name and the line of help of each command, and imports the one that is called."""

    load: Callable[[str], Any]
    """Imports the command of a name, with all its options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Flags without a type, as those of commands."""
        return [_name_no_type(parameter) for parameter in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace its line of help with the command itself."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and self.load(name), rest


def _name_no_type(parameter: Any) -> Any:
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter


def imported(module: str, name: str, function: str | None = None) -> Any:
    """The command of a module: its `app`, or a function, by default the one of that name."""
    holds = importlib.import_module(module)
    parent = typer.Typer()
    if hasattr(holds, "app"):
        parent.add_typer(holds.app, name=name)
    else:
        parent.command(name)(getattr(holds, function or name))
    return _readable(typer.main.get_group(parent).commands[name])


def _readable(command: Any) -> Any:
    """The command with paragraphs of help that fill their lines, and no type of its flags."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = with_places("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
    for parameter in command.get_params(typer.Context(command, **HELP)):
        _name_no_type(parameter)
    for part in getattr(command, "commands", {}).values():
        _readable(part)
    return command
