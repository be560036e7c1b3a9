"""`--on`: parts of a command on the GPUs of many nodes, and their points in one store."""

import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.console import Console

from advisor.errors import BusyError, InputError, JobError
from advisor.files.home import open_home
from advisor.files.locks import try_lock
from advisor.settings import Settings
from advisor_cli.measure.several_gpus import together
from advisor_cli.shared.options import REPLAY
from advisor_data import Store
from advisor_profiling.fanout.drive import Engine, carry_out
from advisor_profiling.fanout.shards import (
    Answer,
    Shard,
    merge,
    points_url,
    prepare,
    read_answer,
)

Place = Literal["here", "slurm", "ray"]

On: TypeAlias = Annotated[
    Place, typer.Option("--on", help="GPUs of this host, or of the nodes of a Slurm or Ray cluster")
]
Into: TypeAlias = Annotated[Path | None, typer.Option("--into", hidden=True)]
"""Folder of the shard that a command is, where an engine started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRequest:
    """What is to be done on many nodes.

    Attributes:
        on: The engine.
        run: Name of the folder by which the shards are found again.
        gpu: What `--gpu` says: nothing of its own, or a replay.
        keep_answers: A shard that had ended well when an earlier command was stopped is done.
        fresh: Shards know nothing of the store.
        options: More options of each shard's command.
    """

    on: Place
    run: str
    gpu: str
    keep_answers: bool = False
    fresh: bool = False
    options: tuple[str, ...] = ()

    def shared(self, settings: Settings) -> bool:
        """Whether all nodes write into the store itself."""
        url = settings.database_url or ""
        return not self.fresh and self.gpu != REPLAY and url.startswith("postgresql")


def run_on_nodes(
    request: NodesRequest,
    names: Sequence[str],
    settings: Settings,
    store: Store,
    console: Console,
) -> tuple[list[dict[str, Any]], int]:
    """Have an engine run this command once for each shard, with `--shard 1/n` and so on.

    Args:
        request: Where and how.
        names: Of the shards, each of letters that a folder can have.
        settings: Of the user.
        store: Takes the points of all shards.
        console: For progress.

    Returns:
        As `several_gpus.run_on_each`.

    Raises:
        BusyError: another command does the same.
        InputError: the engine cannot be used.
    """
    if request.gpu not in ("0", REPLAY):
        raise InputError(
            f"--gpu {request.gpu} cannot be combined with --on {request.on}",
            fix="leave it out: the engine chooses the GPU of each shard",
        )
    with _held(open_home(settings.home, "fanout", request.run)) as folder:
        engine = _engine(request, settings, folder)
        engine.stop_earlier()
        shards = _shards(request, names, folder, settings)
        merge(folder, store)
        _clear(folder, shards if request.keep_answers else ())
        prepare(shards, None if request.fresh or request.shared(settings) else store)
        try:
            # Ray prints what happens to its nodes, where an answer as JSON goes.
            with redirect_stdout(sys.stderr):
                found = carry_out(shards, engine, partial(_say, console))
        finally:
            merge(folder, store)
        answers, code = _together(shards, found, console)
        if len(answers) == len(shards):
            shutil.rmtree(folder)
    return answers, code


@contextmanager
def _held(folder: Path) -> Generator[Path]:
    with (folder / "lock").open("a") as file:
        if not try_lock(file):
            raise BusyError(
                f"another command measures the shards in {folder}",
                fix="wait for it, or give this one another --run",
            )
        yield folder


def _engine(request: NodesRequest, settings: Settings, folder: Path) -> Engine:
    # Each loads a library that is optional.
    if request.on == "slurm":
        from advisor_profiling.fanout.on_slurm import SlurmEngine

        return SlurmEngine(request.run, folder)
    from advisor_profiling.fanout.on_ray import RayEngine

    return RayEngine(settings.secrets())


def _shards(
    request: NodesRequest, names: Sequence[str], folder: Path, settings: Settings
) -> list[Shard]:
    places = {"ADVISOR_HOME": str(settings.home), "ADVISOR_JOBS": str(settings.jobs_dir.absolute())}
    shards: list[Shard] = []
    for number, name in enumerate(names, start=1):
        own = folder / name
        url = {} if request.shared(settings) else {"ADVISOR_DATABASE_URL": points_url(own)}
        part = ("--on", "here", "--shard", f"{number}/{len(names)}", "--into", str(own))
        shards.append(
            Shard(
                name=name,
                folder=own,
                arguments=(*sys.argv[1:], *request.options, *part),
                cwd=Path.cwd(),
                environment={**places, **url},
                gpu=REPLAY if request.gpu == REPLAY else None,
            )
        )
    return shards


def _clear(folder: Path, kept: Sequence[Shard]) -> None:
    """Remove what an earlier command left, whose points are in the store, but for good answers."""
    done = {s.folder for s in kept if (a := read_answer(s.folder)) is not None and a.code == 0}
    for path in folder.iterdir():
        if path.is_dir() and path not in done:
            shutil.rmtree(path)


def _say(console: Console, text: str) -> None:
    console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)


def _together(
    shards: Sequence[Shard], found: Sequence[Answer | str], console: Console
) -> tuple[list[dict[str, Any]], int]:
    lost = JobError.exit_code
    ended = [Answer(lost, _error(a)) if isinstance(a, str) else a for a in found]
    errors = [answer.said.get("error") for answer in ended]
    why = [
        f"{shard.name}: {error['message'].rstrip('.')}" if error else ""
        for shard, error in zip(shards, errors, strict=True)
    ]
    answers = [
        None if error else dict(answer.said) for answer, error in zip(ended, errors, strict=True)
    ]
    return together(answers, [answer.code for answer in ended], why, console)


def _error(message: str) -> dict[str, Any]:
    """As a command says it with `--json`."""
    return {"error": {"message": message}}
