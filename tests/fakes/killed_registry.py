"""Kills a process that changes the registry before each of its steps; prints what is left as JSON.

    python killed_registry.py FOLDER

FOLDER has models `old` and `new`. For adding, promoting and rolling back: the states that were seen
after the kills, and how many steps were killed.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from small_model import free_names

from advisor.files import replace_file
from advisor_models import registry
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry, read_artefact, write_parsed

WRITERS = {write_parsed.__code__, replace_file.__code__}

Act = Callable[[Registry], object]


def main(folder: Path) -> None:
    acts: dict[str, tuple[Act, Act]] = {
        "add": (lambda r: r.add(folder / "old"), lambda r: r.add(folder / "new")),
        "promote": (lambda r: prepare(r, folder, "old"), lambda r: r.promote("new")),
        "rollback": (lambda r: prepare(r, folder, "old", "new"), lambda r: r.rollback()),
    }
    # Kills are for what is written; reading every bundled window a step each takes minutes.
    with free_names(), patch.object(ModelPredictor, "bundled_figures", dict):
        print(json.dumps({name: kill_at_every_step(folder, *act) for name, act in acts.items()}))


def prepare(made: Registry, folder: Path, *promoted: str) -> None:
    """Both models are there, and these were promoted."""
    for version in ("old", "new"):
        made.add(folder / version)
    for version in promoted:
        made.promote(version)


def kill_at_every_step(folder: Path, before: Act, act: Act) -> dict[str, Any]:
    """The states after `act` was killed at its first step, its second, and so on to its end."""
    seen, met = list[Any](), set[Any]()
    start, work = folder / "start", folder / "work"
    shutil.rmtree(start, ignore_errors=True)
    before(Registry(start))
    for step in itertools.count(1):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(start, work)
        killed, left = run(lambda: act(Registry(work)), step), files_in(work)
        # Most steps change no file.
        if killed and left in met:
            continue
        met.add(left)
        if (state := look(Registry(work))) not in seen:
            seen.append(state)
        if not killed:
            return {"seen": seen, "steps": step}
        # Whatever the kill left does not stand in the way.
        Registry(work).add(folder / "new")
        Registry(work).promote("new")
        assert look(Registry(work)) == [["new", "old"], "new"]
        assert len(list((work / "versions").iterdir())) == 2
    return {}


def files_in(folder: Path) -> tuple[tuple[str, bytes], ...]:
    """Names and contents of all that is there; a folder has none."""
    found = sorted(folder.rglob("*"))
    return tuple((str(p), p.read_bytes() if p.is_file() else b"") for p in found)


def look(made: Registry) -> Any:
    """The versions, each of them whole, and the champion."""
    for version in made.versions():
        read_artefact(made.folder(version))
    return [made.versions(), made.champion()]


def run(act: Callable[[], object], step: int) -> bool:
    """Whether a process was killed at that step of `act`, rather than come to its end."""
    if (pid := os.fork()) == 0:
        left = step

        def line(_frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal left
            left -= event == "line"
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return line

        def call(frame: FrameType, _event: str, _arg: Any) -> Any:
            code = frame.f_code
            return line if code.co_filename == registry.__file__ or code in WRITERS else None

        sys.settrace(call)
        act()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


# What was written outlives a kill without being on disk, and waiting for the disk takes seconds.
os.fsync = lambda fd: None
main(Path(sys.argv[1]))
