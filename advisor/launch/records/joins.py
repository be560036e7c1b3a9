"""Requests to join a running launch, and their answers: two files each in the launch's folder."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from advisor.errors import InputError
from advisor.files import private_folder, replace_file
from advisor.launch.records.folder import LaunchFolder, dumps, loads
from advisor.launch.records.spec import Forecast, LaunchPart

T = TypeVar("T")

_ASKED, _ANSWERED, _PART = ".asked.json", ".answered.json", "part.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A job that is to run beside those of a launch, from now on.

    Attributes:
        share_percent: 100 is no limit.
        beside: Names of those that ran when it was advised.
        forecast: Of these, in their order, and then of the newcomer; None: nobody knows.
        asked_by: As of a launch.
        notes: What is to be said of it before anybody is asked.
    """

    part: LaunchPart
    share_percent: float
    beside: tuple[str, ...] = ()
    forecast: Forecast | None = None
    asked_by: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """What the supervisor says to it.

    Attributes:
        code: Stable name of what stood against it (advisor.errors); None: it runs with the others.
        cause: The same in words.
        units_granted: SMs or CUs that were read back under its limit.
        memory_limit_mib: At how much its memory is bounded, read back likewise.
        joined_at: When its gate opened, ISO 8601, UTC.
        share_percent, forecast: As in the request.
    """

    job: str
    code: str | None = None
    cause: str | None = None
    units_granted: int | None = None
    memory_limit_mib: int | None = None
    joined_at: str | None = None
    share_percent: float | None = None
    forecast: Forecast | None = None


def new_join_id() -> str:
    """A name for a request that no other has."""
    return secrets.token_hex(8)


def ask_join(folder: LaunchFolder, request: JoinRequest, name: str | None = None) -> str:
    """Ask the supervisor, which takes it up though this process may end; the name of the request.

    Raises:
        OSError: it cannot be written; nothing was asked then.
    """
    name = name or new_join_id()
    private_folder(_place(folder))
    replace_file(_place(folder) / (name + _ASKED), dumps(request))
    return name


def withdraw(folder: LaunchFolder, name: str) -> None:
    """Ask no more; a job that has joined by then stays."""
    (_place(folder) / (name + _ASKED)).unlink(missing_ok=True)


def asked(folder: LaunchFolder) -> Iterator[tuple[str, JoinRequest | None]]:
    """Those without an answer, the oldest first; None: it cannot be read."""
    for name, path in _requests(folder):
        if read_answer(folder, name) is not None:
            continue
        try:
            yield name, loads(JoinRequest, path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            yield name, None


def joins(folder: LaunchFolder) -> Iterator[tuple[JoinRequest, JoinAnswer | None]]:
    """All who have asked, the oldest first, and what was answered; None: nothing yet."""
    for name, path in _requests(folder):
        with suppress(OSError, ValueError):
            yield loads(JoinRequest, path.read_bytes()), read_answer(folder, name)


def still_asked(folder: LaunchFolder, name: str) -> bool:
    """Whether it was not withdrawn."""
    return (_place(folder) / (name + _ASKED)).exists()


def answer(folder: LaunchFolder, name: str, said: JoinAnswer) -> None:
    """Answer a request, once.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(_place(folder) / (name + _ANSWERED), dumps(said))


def read_request(folder: LaunchFolder, name: str) -> JoinRequest | None:
    """What was asked by that name; None: nothing, or it was withdrawn."""
    return _read(JoinRequest, _place(folder) / (name + _ASKED))


def last_answer(folder: LaunchFolder, name: str, job: str) -> JoinAnswer | None:
    """What was answered; None: nothing yet. Of a launch that is over nothing more will be."""
    # Looked at first: the last request is answered before the last word.
    over = folder.read_status().over
    if (said := read_answer(folder, name)) is not None or not over:
        return said
    return JoinAnswer(job=job, code=InputError.code, cause="the launch has ended meanwhile")


def read_answer(folder: LaunchFolder, name: str) -> JoinAnswer | None:
    """What was answered; None: nothing yet."""
    return _read(JoinAnswer, _place(folder) / (name + _ANSWERED))


def keep_part(place: Path, part: LaunchPart) -> None:
    """Keep, in the folder of a job that joins, what was asked for it.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(place / _PART, dumps(part))


def parts_of(folder: LaunchFolder, number: int) -> tuple[LaunchPart, ...]:
    """The jobs of a set, counted from 0, in the order of its status: who joined comes last.

    Raises:
        InputError: what is wanted cannot be read.
    """
    with InputError.instead_of((OSError, ValueError), f"{folder.launch_id} cannot be read"):
        places = folder.path.glob(f"{number}-joined-*/{_PART}")
        found = sorted((int(path.parent.name.rpartition("-")[2]), path) for path in places)
        more = (loads(LaunchPart, path.read_bytes()) for _, path in found)
        return (*folder.read_spec().pairs[number].parts, *more)


def _requests(folder: LaunchFolder) -> list[tuple[str, Path]]:
    found: list[tuple[int, Path]] = []
    for path in _place(folder).glob(f"*{_ASKED}"):
        # One that is withdrawn at this moment was never there.
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path))
    return [(path.name.removesuffix(_ASKED), path) for _, path in sorted(found)]


def _place(folder: LaunchFolder) -> Path:
    return folder.path / "joins"


def _read(kind: type[T], path: Path) -> T | None:
    with suppress(OSError, ValueError):
        return loads(kind, path.read_bytes())
    return None
