"""What the jobs of a launch did together, as its folder has it.

What is known for good is a line of `observations.jsonl`. The rest is a draft that is replaced as a
whole every few seconds: it counts where its supervisor is gone and can write no better one.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from advisor.core.observations import Observation
from advisor.files import open_file, replace_file, writing_private
from advisor.formats.rows import to_row
from advisor.launch.records.folder import LaunchFolder

OBSERVATIONS = "observations.jsonl"
DRAFT = "observing.jsonl"


def observation_lines(folder: LaunchFolder) -> list[bytes]:
    """Each observation once; what is added later comes behind. No line that was cut off.

    Raises:
        OSError: they cannot be read.
        UnsafeFileError: a file of them is none of ours.
    """
    # Asked first: a supervisor keeps its observations before it lets go.
    lives = folder.supervised()
    kept = _read(folder.path / OBSERVATIONS)
    drafts = [] if lives else _read(folder.path / DRAFT)
    # Killed between the two, it left the same one in both: no other one began at that moment.
    known = b"".join(kept)
    return kept + [one for one in drafts if json.loads(one)["started_at"].encode() not in known]


def append_observation(folder: Path, observation: Observation) -> None:
    """Add a line to the launch's observations; it is on disk when this returns.

    Raises:
        OSError: it cannot be written; the lines before are as they were.
    """
    with writing_private(folder / OBSERVATIONS, "ab") as file:
        before = os.fstat(file.fileno()).st_size
        try:
            _write_all(file.fileno(), _line(observation))
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def draft_observations(folder: Path, found: Iterable[Observation], *, durable: bool) -> None:
    """Keep these as far as they are known, in the place of those of before.

    Raises:
        OSError: they cannot be written; those of before stay.
    """
    replace_file(folder / DRAFT, b"".join(map(_line, found)), durable=durable)


def _read(path: Path) -> list[bytes]:
    with suppress(FileNotFoundError), os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read().split(b"\n")[:-1]
    return []


def _line(observation: Observation) -> bytes:
    return json.dumps(to_row(observation)).encode() + b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
