"""Kills real runs of retraining with SIGKILL; prints what was seen as JSON.

    python killed_retrain.py FOLDER POINTS SEED

Each run is a process of its own on a copy of one site. So many runs are killed before a random
change of a file. After each kill the site is looked at, and the next run has to come to its end. At
last a run meets a file system that takes no large file.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retraining import FIRST_DAY, bundled_model, collected, few_trees

from advisor.errors import StoreError
from advisor_models.registry import Registry, read_artefact
from advisor_training.retrain import retrain

LARGEST_FILE = 4_000
"""Bytes; a model has more."""

CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}
"""Audit events of what may change a file."""


class Site:
    """A site whose runs can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._models = folder, folder / "models"
        self._bundled = bundled_model(folder / "bundled")

    def fresh(self) -> None:
        shutil.rmtree(self._models, ignore_errors=True)

    def run(self, before: Callable[[], object] = lambda: None) -> int:
        """Exit status of one run."""
        if (pid := os.fork()) == 0:
            os._exit(self._as_child(before))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _as_child(self, before: Callable[[], object]) -> int:
        before()
        registry = Registry(self._models, self._bundled)
        try:
            retrain(collected(), self._models, FIRST_DAY, registry=registry)
        except StoreError:
            return StoreError.exit_code
        return 0

    def look(self) -> list[Any]:
        """The versions, each of them whole, and the champion."""
        registry = Registry(self._models, self._bundled)
        for version in registry.versions():
            read_artefact(registry.folder(version))
        return [registry.versions(), registry.champion()]

    def drafts(self) -> list[str]:
        """What is left of models that were never finished."""
        versions, retraining = self._models / "versions", self._models / "retrain"
        return [str(p) for p in (*versions.glob(".*"), *retraining.glob("draft*"))]

    def die_at(self, change: int | None) -> None:
        """Have this process killed before that change of a file of the models, and count them."""
        done, ours = 0, str(self._models)
        count = os.open(self._folder / "changes", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal done
            if event not in CHANGES or not str(args[0]).startswith(ours):
                return
            if event == "open" and not int(args[2] or 0) & (os.O_WRONLY | os.O_RDWR):
                return
            done += 1
            os.pwrite(count, str(done).encode(), 0)
            if done == change:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    @property
    def changes(self) -> int:
        """How many changes the last run made whose changes were counted."""
        return int((self._folder / "changes").read_text())


def main(folder: Path, points: int, seed: int) -> None:
    site, dice = Site(folder), random.Random(seed)
    assert site.run(lambda: site.die_at(None)) == 0
    after, last, seen = site.look(), site.changes, list[Any]()
    for place in dice.sample(range(1, last + 1), points):
        site.fresh()
        assert site.run(lambda at=place: site.die_at(at)) == -signal.SIGKILL
        seen.append(site.look())
        assert (site.run(), site.look(), site.drafts()) == (0, after, [])
    site.fresh()
    full = site.run(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE)))
    found = {"seen": seen, "after": after, "changes": last, "full": full}
    print(json.dumps(found | {"left_when_full": [site.look(), site.drafts()]}))


with few_trees():
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
