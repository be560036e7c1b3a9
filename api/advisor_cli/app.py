"""The `advisor` command: its sub-commands, and the one place that turns errors into text."""

import errno
import io
import logging
import math
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import typer

import advisor
from advisor.core.wording import PrintableFormatter, folded
from advisor.errors import BROKEN_PIPE, DISTRIBUTION, AdvisorError, InputError, exit_codes, install
from advisor.settings import KEYS, config_path, read_settings, variable_of, written
from advisor_cli.console import (
    HELP,
    AsJson,
    LazyGroup,
    as_json_text,
    imported,
    plain_console,
    plain_table,
    print_table,
    say,
    say_lines,
    with_places,
)

# Commands in the order of the help, with its line. Each is a function or a group of its name, or
# the `app` of a module, which is imported when it is called: all together load every component.
_COMMANDS = {
    "recommend": "Find how two to seven jobs share one GPU with the least energy for their work.",
    "replicas": "Find how many copies of a job one GPU can run, and what limits their number.",
    "place": "Plan which jobs share a GPU, and how: from now on, or until their work is done.",
    "audit": "Estimate what sharing GPUs would save a cluster, from its existing metrics.",
    "drift": "Compare what launched jobs do with what the model in use predicts.",
    "profile": "Measure a job alone at each share: rate, power and counters.",
    "watch": "Watch what runs on the GPUs, or one process: rate, watts, SM activity and memory.",
    "colocate": "Measure pairs or sets of jobs on one GPU at splits: their rates and the power.",
    "launch": "Run two to seven jobs together on one GPU at a proven split, and watch them.",
    "run": "Run a queue on the GPUs of this host until all jobs are done, over any interruption.",
    "launches": "List, show, stop, split again and clean up the launches of this host.",
    "top": "Show GPUs, the jobs on them, and what was saved; j and k scroll, q quits.",
    "check": "Find the numbers of SMs at which libraries of this host compute right results.",
    "power": "Measure how a GPU's power is read, and the power of operations and input data.",
    "doctor": "Check everything that measuring needs; changes nothing. "
    "Exit code 1: something is missing.",
    "config": "Show the settings, and the source of each: environment, file or default.",
    "jobs": "List the jobs of this folder and the profiles that were measured.",
    "data": "Import and export points; back up, restore and migrate the database.",
    "tokens": "Make, list and revoke access tokens of the service.",
    "train": "Learn from measured pairs; writes its trees and manifest.json.",
    "retrain": "Learn from new measurements, and use the new model unless it is worse; for cron.",
    "evaluate": "Measure how good the model is. Writes evaluation.html and evaluation.json.",
    "next": "List the jobs to profile and the pairs to measure next, the most useful first.",
    "models": "List, check and choose the models on this host.",
    "serve": "Serve HTTP; by default only this host can connect, and nothing is launched.",
    "kubernetes": "Pods that share a GPU: the service of the cluster, and the agent of each node.",
    "slurm": "Batch jobs that share a GPU: which jobs run together, and the agent of each node.",
}

_ROOMS = {
    "learn": ("models", "next", "train"),
    "measure": ("colocate", "doctor", "profile", "watch"),
}
_MODULES = {
    **{name: f"advisor_cli.{name}" for name in _COMMANDS},
    "replicas": "advisor_cli.recommend",
    **{name: f"advisor_cli.{room}.{name}" for room, names in _ROOMS.items() for name in names},
    "check": "advisor_cli.measure.profile",
    "config": "advisor_cli.app",
    "jobs": "advisor_cli.data",
    "launch": "advisor_cli.launches",
    **dict.fromkeys(("evaluate", "retrain"), "advisor_cli.learn.train"),
    **dict.fromkeys(("kubernetes", "slurm"), "advisor_cli.agents"),
}


# The extra that has what a command needs next to what every installation has; else `advise`.
_EXTRAS = {
    **dict.fromkeys(("recommend", "replicas", "place", "audit", "drift", "power"), "advise"),
    **dict.fromkeys(("launch", "run"), "advise"),
    **dict.fromkeys(("train", "retrain", "evaluate", "next"), "train"),
    "serve": "serve",
    "kubernetes": "kubernetes",
    "slurm": "client",
}

# The extra of a module that only some ways of a command need.
_EXTRAS_OF = {
    "submitit": "slurm", "ray": "ray", "jinja2": "train", "sklearn": "train",
    "opentelemetry": "otel",
}  # fmt: skip

# Names under which it is installed; Intel Advisor's command line has the first one, too.
_SCRIPTS = ("advisor", DISTRIBUTION)

# Options and arguments that are none; the class has no public name of its own.
_UsageError: Any = typer.BadParameter.__base__


def load(name: str) -> Any:
    """The command of that name, with all its options."""
    # `profile` in its module is what Python calls.
    return imported(_MODULES[name], name, "profile_command" if name == "profile" else None)


class _Group(LazyGroup):
    """Imports a command when it is called; says in JSON what was called wrongly."""

    load = staticmethod(load)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a program that wants JSON gets wrong options as JSON, too."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if meant := _meant(error.format_message(), sys.argv[1:]):
                raise meant from error
            if "--json" not in sys.argv:
                raise
            what = error.format_message().rstrip(".")
            raise InputError(what, fix=f"try {(error.ctx or ctx).command_path} --help") from error


def _meant(said: str, words: list[str]) -> InputError | None:
    """The likely meaning of unknown options; None: there is none."""
    what = said.rstrip(".")
    scripts = [word for word in words if word.endswith(".py")]
    if words[:1] == ["profile"] and ("--name" in words or scripts) and "--" not in words:
        return InputError(
            what,
            why="options of the command that is to be measured are taken for advisor's",
            fix="put -- before the command: advisor profile --name NAME -- COMMAND",
        )
    if words[:1] == ["launch"] and "unexpected extra argument" in said:
        return InputError(
            what, why="two jobs share a GPU", fix="a pair for afterwards is --then C+D"
        )
    return None


_CODES = ", ".join(f"{number} {code}" for number, code, _ in exit_codes() if code)

app = typer.Typer(
    help="Find how jobs share GPUs, and how many SMs or CUs each gets.",
    epilog=f"Exit codes (docs/exit-codes.md): 0 well, {_CODES}, 130 stopped, 141 not read.",
    cls=_Group,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)
for _name, _line in _COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"advisor {advisor.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
) -> None:
    """Find how jobs share GPUs, and how many SMs or CUs each gets."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def config(as_json: AsJson = False) -> None:
    """Show the settings, and the source of each: environment, file or default.

    Options of a command override variables, variables the file, and the file the defaults.

    Example: advisor config
    """
    settings, kept, path = read_settings(), written(os.environ), config_path(os.environ)
    rows = list[dict[str, str | float | None]]()
    for name, value_of in KEYS.items():
        variable, value = variable_of(name), value_of(settings)
        plain = value if isinstance(value, float | None) else str(value)
        by_file = "file" if variable in kept else "default"
        set_by = "environment" if os.environ.get(variable) else by_file
        # None is nothing, or no bound.
        bound = None if plain == math.inf else plain
        rows.append({"name": name, "value": bound, "set_by": set_by, "variable": variable})
    if as_json:
        say(as_json_text({"file": path and str(path), "settings": rows}))
        return
    print_table(
        plain_table(
            ("setting", "value", "set by"),
            (["-" if x is None else str(x) for x in [*row.values()][:-1]] for row in rows),
        )
    )
    say("environment: ADVISOR_ and the name in capitals")
    say(f"file, {'read' if path and path.is_file() else 'not there'}: {path}")


def main() -> None:
    """Run the command line; advisor's own errors end in one line and their own exit code."""
    # What the encoding of the terminal lacks becomes a ?, instead of an error.
    terminal: object = sys.stdout
    if isinstance(terminal, io.TextIOWrapper):
        terminal.reconfigure(errors="replace")  # pyright: ignore[reportUnknownMemberType]
    # Most commands have no log: what is told there, such as of a file, goes to stderr.
    if logging.lastResort:
        logging.lastResort.setFormatter(PrintableFormatter())
    stdout, name = _copy_of_stdout(), Path(sys.argv[0]).name
    try:
        # Completion asks for the variable of the name of the script that was called.
        app(prog_name=name if name in _SCRIPTS else _SCRIPTS[0])
    except SystemExit as stopped:
        # Typer and Rich stop with 1 where the reader of a pipe is gone.
        if stopped.code == 1 and stdout is not None and _nobody_reads(stdout):
            sys.exit(BROKEN_PIPE)
        raise
    except AdvisorError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        _fail(_not_installed(error))
    except OSError as error:
        _fail(_of_system(error))
    finally:
        if stdout is not None:
            os.close(stdout)


def _fail(error: AdvisorError) -> NoReturn:
    if "--json" in sys.argv:
        with suppress(OSError):  # the disk that is full may be that of the output
            say(as_json_text({"error": {"code": error.code, "message": with_places(str(error))}}))
    lines = with_places("advisor: " + "\n".join(error.lines())).split("\n")
    if sys.stderr.isatty():
        width = plain_console(stderr=True).width
        # A step is a command to be pasted.
        lines = [line if line.startswith("  ") else folded(line, width) for line in lines]
    say_lines(lines, err=True)
    sys.exit(error.exit_code)


def _of_system(error: OSError) -> AdvisorError:
    """What the system said, and what to do about it where that is known."""
    fix, home = "", read_settings().home
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = f"free space where {home} or the output is, and run it again"
    elif error.errno in (errno.EROFS, errno.EACCES):
        fix = f"name a folder that may be written, ADVISOR_HOME=FOLDER; now it is {home}"
    return AdvisorError(str(error), fix=fix)


def _not_installed(error: ModuleNotFoundError) -> InputError:
    """What to install for the command that was called.

    Raises:
        ModuleNotFoundError: a module of advisor is missing, which no extra brings.
    """
    missing = error.name or str(error)
    if missing.startswith("advisor"):
        raise error
    command = next((word for word in sys.argv[1:] if word in _COMMANDS), "")
    extra = _EXTRAS_OF.get(missing.partition(".")[0]) or _EXTRAS.get(command, "advise")
    return InputError(f"{command} needs {missing}, which is not installed", fix=install(extra))


def _copy_of_stdout() -> int | None:
    """A descriptor that stays open when Rich replaces stdout."""
    with suppress(OSError, ValueError):
        return os.dup(sys.stdout.fileno())
    return None


def _nobody_reads(descriptor: int) -> bool:
    """Whether it is a pipe whose reader is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are reported unasked
    return bool(poll.poll(0))
