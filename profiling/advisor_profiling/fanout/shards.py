"""A shard: a part of a plan for one GPU of some node, and the folder by which all sides meet.

The folder is on a file system that every node sees. In it a shard finds what was known when it was
submitted, and keeps its points, how far it is, what it says and its answer; so one that is started
again on another node goes on where the lost one stopped.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.core.records import Point
from advisor.files.safe_files import make_folder
from advisor.files.whole_files import replace_file
from advisor_data import Store
from advisor_data.store.file_store import FileStore
from advisor_data.store.store import FILES_PREFIX
from advisor_profiling.campaign.outcome import Failure, Reporter

_POINTS, _PROGRESS, _ANSWER, LOG = "points", "progress.json", "answer.json", "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What one GPU is to do.

    Attributes:
        name: For people, such as `shard 2 of 8`.
        folder: The shard's own, the same on every node.
        arguments: Command line of `advisor` that does it, without the GPU.
        cwd: Where the command runs, as relative paths in it mean.
        environment: Variables that the command needs on every node; no secrets.
        gpu: What `--gpu` is; None: the one that the engine gives.
    """

    name: str
    folder: Path
    arguments: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a shard is since it was last started.

    Attributes:
        done: Windows that were measured.
        total: Windows that were left when it was started.
        eta_s: How long the rest takes.
    """

    done: int
    total: int
    eta_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """How a shard's command ended.

    Attributes:
        code: Its exit code.
        said: Its answer as JSON.
    """

    code: int
    said: Mapping[str, Any]


class ShardReporter:
    """Writes how far a shard is into its folder, next to what another reporter says."""

    def __init__(self, folder: Path, said: Reporter) -> None:
        self._folder, self._said = folder, said

    def phase(self, text: str) -> None:
        self._said.phase(text)

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        text = json.dumps(asdict(Progress(done, total, eta_s)))
        replace_file(self._folder / _PROGRESS, text.encode(), durable=False)
        self._said.point(point, done, total, eta_s)

    def failure(self, failure: Failure) -> None:
        self._said.failure(failure)


def points_url(folder: Path) -> str:
    """Where a shard keeps its points."""
    return f"{FILES_PREFIX}{folder / _POINTS}"


def prepare(shards: Sequence[Shard], known: Store | None) -> None:
    """Make the folders of shards, with what is known already.

    Args:
        shards: None of them runs.
        known: Points that each shard gets a copy of; None: none, or they have a store in common.
    """
    for shard in shards:
        make_folder(shard.folder)
    if known is None:
        return
    first, *others = (shard.folder / _POINTS for shard in shards)
    FileStore(first).add([*known.solo_points(), *known.pair_points()])
    for folder in others if first.exists() else ():
        shutil.copytree(first, folder, dirs_exist_ok=True)


def merge(folder: Path, store: Store) -> int:
    """Take the points of all shards below a folder into a store, each once.

    Returns:
        How many were new.
    """
    found = sorted(folder.glob(f"*/{_POINTS}"))
    return sum(store.add([*s.solo_points(), *s.pair_points()]) for s in map(FileStore, found))


def read_progress(folder: Path) -> Progress | None:
    """How far a shard is; None before its first window."""
    found = _read(folder / _PROGRESS)
    return None if found is None else Progress(**found)


def write_answer(folder: Path, answer: Answer) -> None:
    """Say that a shard is done."""
    replace_file(folder / _ANSWER, json.dumps(asdict(answer)).encode())


def read_answer(folder: Path) -> Answer | None:
    """A shard's answer; None where it has none yet."""
    # A network file system looks for new files when a folder is listed.
    with suppress(OSError):
        list(folder.iterdir())
    found = _read(folder / _ANSWER)
    return None if found is None else Answer(**found)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
