"""The command line starts without the commands, and shows their help as they say it themselves."""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import called
from rich.console import Console

from advisor.errors import exit_codes
from advisor_cli import app as command_line, power
from advisor_cli.measure.testbeds import stoppable

ROOT = Path(__file__).parents[4]
COMMANDS = [command.name for command in command_line.app.registered_commands]
LISTING = {
    "advisor_cli", "advisor_cli.app", "advisor_cli.console", "advisor_cli.power",
}  # fmt: skip
"""All that it takes to list the commands."""

OF_POWER = [command.name for command in power.app.registered_commands]


@pytest.mark.parametrize(
    ("group", "name"),
    [*((command_line, name) for name in COMMANDS), *((power, name) for name in OF_POWER)],
)
def test_line_of_help_is_the_command_s_own(group: Any, name: str) -> None:
    (listed,) = (c for c in group.app.registered_commands if c.name == name)
    assert listed.help == " ".join((group.load(name).help or "").split("\n\n")[0].split())


@pytest.mark.parametrize("module", ["advisor_cli.app", "advisor_cli.recommend"])
def test_ctrl_c_while_modules_are_imported_ends_quietly(module: str) -> None:
    code = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder()); sys.argv[1:] = ['recommend', 'a', 'b']\n"
        "from advisor_cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
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


def _leaves(command: Any, *words: str) -> Iterator[list[str]]:
    """The words that call each command that is no group."""
    if not (parts := getattr(command, "commands", {})):
        yield [*words]
    for name, part in parts.items():
        yield from _leaves(part, *words, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_can_becalled(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options are there, and take these values; -h shows it and cuts no name."""
    monkeypatch.setenv("COLUMNS", "80")
    for words in _leaves(command_line.load(name), name):
        command, _ = called(words)
        before, example = command.help.rsplit("Example: advisor ", 1)
        assert before.endswith("\n\n")
        meant, options = called(shlex.split(example))
        assert meant.help == command.help
        meant.make_context(name, [*options])
        with pytest.raises(SystemExit):
            command.main(["-h"])
        assert "…" not in capsys.readouterr().out


@pytest.mark.slow
def test_shells_complete_commands_and_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are those of the folder and those that come with advisor, under both names of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/bert-mine.yaml").touch()
    names = [path.stem for path in (ROOT / "jobs").glob("bert-t*.yaml")]
    for typed, script, found in (
        ("recommend bert-t", "sm-advisor", sorted(names)),
        ("launch triad bert-m", "advisor", ["bert-mine"]),
        ("power ke", "advisor", ["kernel"]),
    ):
        variable = f"_{script.upper().replace('-', '_')}_COMPLETE"
        words = {variable: "complete_bash", "COMP_WORDS": f"{script} {typed}"}
        environment = {**words, "COMP_CWORD": str(len(typed.split())), "PATH": ""}
        code = f"import sys; sys.argv = ['/bin/{script}']; from advisor_cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.stdout.split() == found, done.stderr


def test_exit_codes_stand_in_one_table() -> None:
    """The page has each, as the errors say it, and no two errors share one."""
    rows = re.findall(
        r"^\| (\d+) \| `?([\w-]*)`? \| (.*) \|$",
        (ROOT / "docs/exit-codes.md").read_text(),
        re.MULTILINE,
    )
    told = [(str(number), code, meaning.rstrip(".")) for number, code, meaning in exit_codes()]
    assert (rows, len({number for number, _, _ in told})) == (told, len(told))


# How signals end a command that measures.


@contextmanager
def disposition(number: signal.Signals, handler: signal.Handlers) -> Generator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_says_what_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    text = tmp_path / "said"
    with disposition(number, signal.SIG_DFL):
        with (
            text.open("a") as file,
            pytest.raises(typer.Exit) as ended,
            stoppable(Console(file=file)),
        ):
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL
    assert ended.value.exit_code == 130
    said = text.read_text()
    assert "the same command goes on from here" in said
    assert ("stopping: the jobs are ended first" in said) == (number != signal.SIGHUP)


def test_nohup_is_heeded() -> None:
    """Who starts a run with nohup wants it to outlive the terminal."""
    with disposition(signal.SIGHUP, signal.SIG_IGN):
        with stoppable(Console(file=io.StringIO())):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
