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

from advisor.errors import BusyError, InputError
from advisor.files import make_folder, open_home, try_lock
from advisor.settings import Settings
from advisor_cli.measure.several_gpus import together
from advisor_data import Store, open_store
from advisor_profiling.fanout.hand_out import ShardEngine, hand_out
from advisor_profiling.fanout.shards import Shard, ShardAnswer, read_answer

OnWhat = Literal["here", "slurm", "ray"]

On: TypeAlias = Annotated[
    OnWhat,
    typer.Option("--on", help="GPUs of this host, or of the nodes of a Slurm or Ray cluster"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRequest:
    """What is to be done on many nodes."""

    on: OnWhat
    run: str
    """Name of the folder by which the shards are found again."""

    gpu: str
    keep_answers: bool = False
    """A shard that had ended well when an earlier command was stopped is done."""

    fresh: bool = False
    """Shards know nothing of the store."""

    options: tuple[str, ...] = ()
    """More of each shard's command."""


def run_on_nodes(
    request: NodesRequest, names: Sequence[str], settings: Settings, store: Store, console: Console
) -> tuple[list[dict[str, Any]], int]:
    """Have an engine run this command once for each shard, with `--shard 1/n` and so on.

    The store gets the points of all shards, whose names can be those of folders.

    Returns:
        As `several_gpus.run_on_each`.

    Raises:
        BusyError: another command does the same.
        InputError: the engine cannot be used.
    """
    if request.gpu != "0":
        raise InputError(
            f"--gpu {request.gpu} cannot be combined with --on {request.on}",
            fix="leave it out: the engine chooses the GPU of each shard",
        )
    with _held(open_home(settings.home, "fanout", request.run)) as folder:
        engine = _engine(request.on, settings, folder)
        shards = _shards(request, names, folder, settings)
        _take_all(folder, store)
        _clear(folder, shards if request.keep_answers else ())
        for shard in shards:
            make_folder(shard.folder)
        if not request.fresh and not _on_a_server(settings):
            _give_known(store, folder, shards)
        try:
            # Ray prints what happens to its nodes, where an answer as JSON goes.
            with redirect_stdout(sys.stderr):
                said = partial(console.print, highlight=False, markup=False, soft_wrap=True)
                ended = hand_out(shards, engine, said)
        finally:
            _take_all(folder, store)
        answers, code = _together(shards, ended, console)
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


def _engine(on: OnWhat, settings: Settings, folder: Path) -> ShardEngine:
    # Each loads a library that is optional.
    if on == "slurm":
        from advisor_profiling.fanout.on_slurm import SlurmEngine

        return SlurmEngine(folder)
    from advisor_profiling.fanout.on_ray import RayEngine

    return RayEngine(settings.secrets())


def _shards(
    request: NodesRequest, names: Sequence[str], folder: Path, settings: Settings
) -> list[Shard]:
    where = {"ADVISOR_HOME": str(settings.home), "ADVISOR_JOBS": str(settings.jobs_dir.absolute())}
    shared = _on_a_server(settings) and not request.fresh
    common = (*sys.argv[1:], *request.options, "--on", "here", "--shard")
    return [
        Shard(
            name=name,
            folder=folder / name,
            arguments=(*common, f"{number}/{len(names)}"),
            cwd=Path.cwd(),
            environment=where if shared else {**where, "ADVISOR_DATABASE_URL": _url(folder / name)},
        )
        for number, name in enumerate(names, start=1)
    ]


def _on_a_server(settings: Settings) -> bool:
    """Whether all nodes can write into the store itself; SQLite is for one host."""
    return (settings.database_url or "").startswith("postgresql")


def _url(folder: Path) -> str:
    """A shard has a file of its own: SQLite is for one host, and shards are on many."""
    return f"sqlite:///{folder / 'points.db'}"


def _give_known(store: Store, folder: Path, shards: Sequence[Shard]) -> None:
    with open_store(_url(folder), folder) as known:
        known.add([*store.solo_points(), *store.pair_points()])
    for shard in shards:
        shutil.copy(folder / "points.db", shard.folder)


def _take_all(folder: Path, store: Store) -> None:
    """Points have names of their own, so that each is added once."""
    for file in folder.glob("*/points.db"):
        with open_store(_url(file.parent), folder) as points:
            store.add([*points.solo_points(), *points.pair_points()])


def _clear(folder: Path, kept: Sequence[Shard]) -> None:
    """Remove what an earlier command left, whose points are in the store, but for good answers."""
    done = {s.folder for s in kept if (a := read_answer(s)) is not None and a.code == 0}
    for path in folder.iterdir():
        if path.is_dir() and path not in done:
            shutil.rmtree(path)


def _together(
    shards: Sequence[Shard], ended: Sequence[ShardAnswer], console: Console
) -> tuple[list[dict[str, Any]], int]:
    errors = [answer.said.get("error") for answer in ended]
    why = [
        f"{shard.name}: {error['message'].rstrip('.')}" if error else ""
        for shard, error in zip(shards, errors, strict=True)
    ]
    answers = [
        None if error else dict(answer.said) for answer, error in zip(ended, errors, strict=True)
    ]
    return together(answers, [answer.code for answer in ended], why, console)
