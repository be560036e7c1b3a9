"""Commands about the power of a card: how it is read, what draws it, and where it goes."""

from typing import Any

import typer

from advisor_cli.console import LazyGroup, imported

# Commands in the order of the help, with its line; what they import differs by half a second.
_COMMANDS = {
    "sensor": "How often, over what time and how late do the power sensors of a card read?",
    "kernel": "What power does one operation draw from one execution to the next, and what energy?",
    "input": "What power does a product of matrices draw, filled with these data?",
    "components": "Parts of a job's power: floor, memory as read, the rest.",
    "train": "Learn what data do to power, from what `advisor power input` measured.",
}


def load(name: str) -> Any:
    """The command of that name, with all its options."""
    module = {"train": "input", "sensor": "kernel"}.get(name, name)
    return imported(f"advisor_cli.power.{module}", name, "input_power" if name == "input" else name)


class _Power(LazyGroup):
    load = staticmethod(load)


app = typer.Typer(
    help="How a card's power is read, what operations and data draw, and where power goes.",
    cls=_Power,
    no_args_is_help=True,
)
for _name, _line in _COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)
