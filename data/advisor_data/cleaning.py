"""Removes what is beyond the bounds of `advisor.settings`: folders of launches that have ended.

Never one that runs, and never one of which anything is not kept elsewhere: what its jobs did has to
be in the store first, and its end in the table of launches where a service looks after it.
"""

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.core.records import Observation
from advisor.errors import AdvisorError, InputError, StoreError
from advisor.files import open_home
from advisor.formats.moments import now
from advisor.formats.rows import from_row, json_row
from advisor.launch.folder import (
    EndedLaunch,
    LaunchFolder,
    beyond,
    ended_launch,
    half_removed,
    list_folders,
    observation_lines,
    remove,
)
from advisor.launch.spec import OVER
from advisor.settings import Retention
from advisor.wire.answers import AuditEntry
from advisor_data import Store

if TYPE_CHECKING:
    from advisor_data.state import ServiceState  # loads SQLAlchemy

ACTION = "launch.remove"
"""In the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cleaned:
    """What was removed, and what could not be.

    Attributes:
        dry_run: Nothing was removed: this is what would be.
    """

    dry_run: bool
    removed: tuple[EndedLaunch, ...]
    kept: tuple[EndedLaunch, ...]

    @property
    def size_bytes(self) -> int:
        """Of the folders of all removed launches."""
        return sum(launch.size_bytes for launch in self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaner:
    """Cleans the folder of launches of one home.

    Attributes:
        root: `launches` in the home.
        store: Where observations have to be before their launch goes.
        state: Where launches and the audit log are.
        who: For the audit log.
    """

    root: Path
    bounds: Retention
    store: Store
    state: "ServiceState"
    who: str

    def clean(self, *, dry_run: bool = False) -> _Cleaned:
        """Remove what is beyond the bounds; a launch that cannot go keeps no other one.

        Raises:
            UnsafeFileError: other users may write to the folder of launches.
        """
        if not self.root.is_dir():
            return _Cleaned(dry_run=dry_run, removed=(), kept=())
        root = open_home(self.root.parent, self.root.name)
        ended: list[EndedLaunch] = []
        kept: list[EndedLaunch] = []
        for folder in list_folders(root):
            try:
                if launch := ended_launch(folder):
                    ended.append(launch)
            except OSError as error:
                why = f"it cannot be read: {error.strerror}"
                kept.append(EndedLaunch(launch_id=folder.launch_id, why=why))
        if not dry_run:
            # What removals that were killed have left.
            for path in half_removed(root):
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    why = f"it cannot be removed: {error}"
                    kept.append(EndedLaunch(launch_id=path.name, why=why))
        removed: list[EndedLaunch] = []
        for launch in beyond(ended, self.bounds, time.time()):
            if why := self._obstacle(root / launch.launch_id, dry_run=dry_run):
                kept.append(replace(launch, why=why))
            else:
                removed.append(launch)
        return _Cleaned(dry_run=dry_run, removed=tuple(removed), kept=tuple(kept))

    def _obstacle(self, folder: Path, *, dry_run: bool) -> str | None:
        """Remove a launch; why it stays, None where it went, or would go."""
        try:
            row = self.state.launch(folder.name)
            if row and row.state not in OVER:
                raise StoreError(
                    f"the service has not noticed yet that {folder.name} has ended",
                    fix="start the service, which does that at once",
                )
            missing = self._not_stored(folder)
            if dry_run:
                return None
            self.store.add(missing)
            remove(folder)
            entry = AuditEntry(
                at=now(), who=self.who, action=ACTION, subject=folder.name, outcome="done"
            )
            # It is gone: an error now would tell a lie, and room is freed on a full disk, too.
            with suppress(StoreError):
                self.state.audit(entry)
        except FileNotFoundError:
            # Somebody else has removed it at the same moment.
            return None
        except AdvisorError as error:
            return str(error)
        except OSError as error:
            return f"it cannot be removed: {error.strerror}"
        return None

    def _not_stored(self, folder: Path) -> list[Observation]:
        """What its jobs did and the store does not have; found by reading, as a full disk allows.

        Raises:
            InputError: it cannot be read from the folder.
            StoreError: the store cannot be read.
        """
        lines = observation_lines(LaunchFolder(folder))
        with InputError.instead_of(
            InputError,
            f"an observation of {folder.name} cannot be read",
            fix="look at its observations.jsonl, and remove the folder by hand",
        ):
            observations = [from_row(Observation, json_row(line)) for line in lines]
        return [
            observation
            for observation in observations
            if observation.point_id
            not in {o.point_id for o in self.store.observations(jobs=observation.jobs)}
        ]
