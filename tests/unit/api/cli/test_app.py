"""The command line starts without the commands, and shows their help as they say it themselves."""

import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor_cli import app as command_line
from advisor_cli.power import power

COMMANDS = [command.name for command in command_line.app.registered_commands]
LISTING = {
    "advisor_cli", "advisor_cli.app", "advisor_cli.shared", "advisor_cli.shared.lazy",
    "advisor_cli.power", "advisor_cli.power.power", "advisor_cli.shared.say",
}  # fmt: skip
"""All that it takes to list the commands."""

OF_POWER = [command.name for command in power.app.registered_commands]


@pytest.mark.parametrize(
    ("group", "name"),
    [*((command_line, name) for name in COMMANDS), *((power, name) for name in OF_POWER)],
)
def test_line_of_help_is_the_command_s_own(group: Any, name: str) -> None:
    """Two texts of one thing would drift apart."""
    (listed,) = (c for c in group.app.registered_commands if c.name == name)
    own = group.load(name).help or ""
    assert listed.help == " ".join(own.split("\n\n")[0].split())


@pytest.mark.parametrize(("words", "commands"), [([], COMMANDS), (["power"], OF_POWER)])
def test_help_lists_all_commands_without_loading_them(
    words: list[str], commands: list[str]
) -> None:
    """It works, and at once, where the libraries of some commands are missing."""
    code = (
        "import sys; from typer.testing import CliRunner; from advisor_cli.app import app\n"
        f"print(CliRunner().invoke(app, [*{words}, '--help'], catch_exceptions=False).stdout)\n"
        "print(*[name for name in sys.modules if name.startswith(('advisor_', 'numpy', 'yaml'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown = done.stdout
    assert [name for name in commands if name and f" {name} " not in shown] == []
    assert set(shown.splitlines()[-1].split()) <= LISTING


def test_misspelled_command_is_told_the_right_one() -> None:
    """Commands that are not loaded are known by name."""
    done = CliRunner().invoke(command_line.app, ["recomend"])
    assert done.exit_code == 2
    assert "Did you mean 'recommend'?" in done.output
