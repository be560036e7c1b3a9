"""Commands about the power of a card: how it is read, what draws it, and where it goes."""

from typing import Any

import typer

from advisor_cli.console import LazyGroup, imported

# Commands in the order of the help, with its line; what they import differs by half a second.
_COMMANDS = {
    "sensor": "Measure the interval, window and delay of the power sensors of a GPU.",
    "kernel": "Measure power and energy of one operation, for each execution of a burst.",
    "input": "Measure the power of a matrix product with these input data.",
    "components": "Split a job's power into floor, memory (as read) and the rest.",
    "train": "Train the model of input data and power on the points of `advisor power input`.",
}


def load(name: str) -> Any:
    """The command of that name, with all its options."""
    module = {"train": "input", "sensor": "kernel"}.get(name, name)
    return imported(f"advisor_cli.power.{module}", name, "input_power" if name == "input" else name)


class _Power(LazyGroup):
    load = staticmethod(load)


app = typer.Typer(
    help="Measure how a GPU's power is read, and the power of operations and input data.",
    cls=_Power,
    no_args_is_help=True,
)
for _name, _line in _COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)
