"""Versions of the model on this host, and which of them is used: the champion.

    versions/20260131-3f2a91/   a model's folder, as it was added
    history.jsonl               every promotion and rollback; its last line names the champion
    retrain/                    what `advisor retrain` keeps between its runs
    lock                        held by the process that changes something

A version comes in under another name and gets its own when it is whole, and the champion is one
line of the history: at whatever moment a process is killed, the old or the new state is there.
Without a promotion the champion is the model that comes with the package.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError, ModelError, undone_by
from advisor.files import private_folder, sync_folder, writing_private
from advisor.formats.wire import read, to_plain, write
from advisor.installed import install
from advisor.wire.lists import Action, ChampionChange, ModelDetails, ModelList, ModelRow
from advisor_models.manifest import (
    BUNDLED_NAME,
    MANIFEST,
    Manifest,
    check_intervals,
    check_version,
    read_artefact,
    read_manifest,
    write_artefact,
)

if TYPE_CHECKING:
    from advisor_models.model_predictor import ModelPredictor


def standing(changes: Iterable[ChampionChange]) -> list[ChampionChange]:
    """The promotions that were not taken back: two rollbacks go two back, not there and back."""
    found: list[ChampionChange] = []
    for change in changes:
        found = [*found, change] if change.action == "promote" else found[:-1]
    return found


def _whole(data: bytes) -> int:
    """Length of the lines that have their end."""
    return data.rfind(b"\n") + 1


BUNDLED = Path(__file__).parent / "bundled"
"""The model that comes with the package."""

_DRAFT = ".adding-"


class Registry:
    """The models of a host, in a folder that is made when the first one is added.

    Without a promotion `bundled` is used, else the one that comes with the package.
    """

    def __init__(self, folder: Path, bundled: Path | None = None) -> None:
        self._folder = folder
        self._bundled = bundled or BUNDLED

    def versions(self) -> list[str]:
        """All versions, sorted by name, so by day; the bundled model is not among them."""
        folder = self._folder / "versions"
        return sorted(p.name for p in folder.glob("*") if not p.name.startswith("."))

    def champion(self) -> str:
        """The version in use; `bundled` without a promotion.

        Raises:
            ModelError: the history cannot be read.
        """
        changes = self.history()
        return changes[-1].version if changes else BUNDLED_NAME

    def history(self) -> list[ChampionChange]:
        """All promotions and rollbacks, the oldest first.

        Raises:
            ModelError: the history cannot be read, or a line of it is none.
        """
        path = self._folder / "history.jsonl"
        with ModelError.instead_of(OSError, f"{path} cannot be read"):
            data = path.read_bytes() if path.exists() else b""
        found: list[ChampionChange] = []
        for number, line in enumerate(data[: _whole(data)].splitlines(), start=1):
            with ModelError.instead_of(
                ValueError,
                f"{path}, line {number} is not a change of the champion",
                fix="repair the line, or move the file away: the bundled model is used then",
            ):
                found.append(read(ChampionChange, line))
        return found

    def stamp(self) -> tuple[int, int, int]:
        """What differs after a promotion or a rollback by any process; costs no reading.

        Raises:
            ModelError: the history cannot be looked at.
        """
        path = self._folder / "history.jsonl"
        try:
            found = path.stat()
        except FileNotFoundError:
            return 0, 0, 0
        except OSError as error:
            raise ModelError(f"{path} cannot be read", why=error.strerror or "") from error
        return found.st_ino, found.st_size, found.st_mtime_ns

    def folder(self, version: str) -> Path:
        """The folder of a version, or of `bundled`.

        Raises:
            ModelError: there is no such version.
        """
        if version == BUNDLED_NAME:
            if not (self._bundled / MANIFEST).is_file():
                raise ModelError(
                    "there is no model",
                    why="none was promoted, and none came with this installation",
                    fix="train one: advisor train",
                )
            return self._bundled
        folder = self._folder / "versions" / check_version(version)
        if not folder.is_dir():
            raise ModelError(
                f"there is no model {version}",
                why=f"{folder.parent} has {', '.join(self.versions()) or 'none'}",
                fix="list them: advisor models list",
            )
        return folder

    def open(self, version: str) -> "ModelPredictor":
        """The predictor of a version, or of `bundled`.

        Raises:
            ModelError: there is no such version, it is damaged, or was made for other features.
            InputError: numpy is not installed.
        """
        return self._load(self.folder(version))

    def _load(self, folder: Path) -> "ModelPredictor":
        # Listing models needs no numpy.
        with InputError.instead_of(ImportError, "predicting needs numpy", fix=install("advise")):
            from advisor_models.model_predictor import ModelPredictor
        return ModelPredictor(folder)

    def open_champion(self) -> "ModelPredictor":
        """The predictor in use.

        Raises:
            ModelError: as for `open`.
        """
        return self.open(self.champion())

    def add(self, folder: Path) -> Manifest:
        """Take a model in; one that is there already, with the same content, stays as it is.

        Raises:
            ModelError: it is not whole, has links for files, cannot be promoted, or its version is
                there with other content.
            OSError: it cannot be written.
        """
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.is_symlink():
                raise ModelError(
                    f"{path} is a link",
                    why="a model is taken in as it is, not as it may be by then",
                    fix="copy the whole folder with what the links point to: cp -rL",
                )
        check_intervals(self._load(folder).manifest)
        artefact = read_artefact(folder)
        version = artefact.manifest.version
        with self._locked():
            target = self._folder / "versions" / version
            if not target.exists():
                # It is there when it is whole and on disk.
                draft = target.with_name(_DRAFT + target.name)
                with undone_by(lambda: shutil.rmtree(draft, ignore_errors=True)):
                    draft.mkdir()
                    write_artefact(draft, artefact)
                    draft.rename(target)
                sync_folder(target.parent)
            elif read_artefact(target).manifest != artefact.manifest:
                raise ModelError(
                    f"there is another model {version}",
                    why=f"{target} has other content",
                    fix="give the new one another version",
                )
        return artefact.manifest

    def promote(self, version: str, at: datetime | None = None) -> Manifest:
        """Use a version, or `bundled`; nothing is recorded where it is in use.

        The history has the moment in UTC; None: now.

        Raises:
            ModelError: there is no such version, it cannot be used, or most of what was measured
                lies outside its intervals.
            OSError: it cannot be written.
        """
        manifest = self.open(version).manifest
        check_intervals(manifest)
        with self._locked():
            if self.champion() != version:
                self._record("promote", version, manifest, at)
        return manifest

    def rollback(self) -> Manifest:
        """Use again what the last promotion replaced, and so on back to the bundled model.

        Raises:
            ModelError: there is nothing to go back to, or it cannot be used.
            OSError: it cannot be written.
        """
        with self._locked():
            promotions = standing(self.history())
            if not promotions:
                raise ModelError(
                    "there is no model to go back to",
                    why="no promotion stands",
                    fix="see the versions: advisor models list",
                )
            version = promotions[-1].replaced
            manifest = self.open(version).manifest
            self._record("rollback", version, manifest)
        return manifest

    def remove(self, version: str) -> bool:
        """Delete a version, but the champion and what a rollback goes to; whether it went.

        Raises:
            ModelError: there is no such version.
            OSError: it cannot be deleted.
        """
        with self._locked():
            folder = self.folder(version)
            if version in (self.champion(), self.rollback_target()):
                return False
            # Under the name of a draft at once, so that no list ever has a half of it.
            folder.rename(draft := folder.with_name(_DRAFT + version))
            shutil.rmtree(draft)
            return True

    def rollback_target(self) -> str:
        """What a rollback goes to; `bundled` also where there is no promotion.

        Raises:
            ModelError: the history cannot be read.
        """
        promotions = standing(self.history())
        return promotions[-1].replaced if promotions else BUNDLED_NAME

    def _record(
        self, action: Action, version: str, manifest: Manifest, at: datetime | None = None
    ) -> None:
        now = (at or datetime.now(UTC)).isoformat(timespec="seconds")
        change = ChampionChange(
            at=now,
            action=action,
            version=version,
            replaced=self.champion(),
            figures=manifest.figures,
        )
        line = write(change).encode() + b"\n"
        with (self._folder / "history.jsonl").open("ab+") as file:
            file.seek(0)
            end = _whole(file.read())
            # What a killed process left of its line.
            file.truncate(end)
            with undone_by(lambda: file.truncate(end)):
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(self._folder)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Nobody else changes anything; what a killed process left behind is gone."""
        versions = private_folder(
            self._folder, "versions", ours=re.compile(r"versions|history\.jsonl|retrain|lock")
        )
        with writing_private(self._folder / "lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for draft in versions.glob(f"{_DRAFT}*"):
                shutil.rmtree(draft)
            yield


def model_rows(registry: Registry) -> list[ModelRow]:
    """All models, the bundled one first; a damaged one is one row of the list, not its end.

    Raises:
        ModelError: the history cannot be read.
    """
    champion = registry.champion()
    names = (BUNDLED_NAME, *registry.versions())
    return [_model_row(registry, name, name == champion) for name in names]


def _model_row(registry: Registry, name: str, champion: bool) -> ModelRow:
    m, fault = None, None
    try:
        m = read_manifest(registry.folder(name))
    except ModelError as error:
        fault = str(error)
    return ModelRow(
        model=name,
        champion=champion,
        version=m and m.version,
        created_at=m and m.created_at,
        gpu_models=m.gpu_models if m else (),
        pairs=m and m.dataset.pairs,
        figures=m.figures if m else {},
        error=fault,
    )


def model_list(registry: Registry, limit: int | None = None) -> ModelList:
    """All models, the champion first, then the newest, and what became of them.

    At most so many models and changes as `limit` says; None: all of them.

    Raises:
        ModelError: the history cannot be read.
    """
    rows = model_rows(registry)
    rows.sort(key=lambda row: (row.champion, row.created_at or ""), reverse=True)
    newest_first = registry.history()[::-1]
    return ModelList(models=tuple(rows[:limit]), history=tuple(newest_first[:limit]))


def model_details(registry: Registry, name: str, limit: int | None = None) -> ModelDetails:
    """All that is known of one model; `limit` is of the changes that it had a part in.

    Raises:
        ModelError: it is damaged, or the history cannot be read.
    """
    manifest = read_manifest(registry.folder(name))
    had_part = [c for c in registry.history()[::-1] if name in (c.version, c.replaced)]
    return ModelDetails(
        model=name,
        champion=name == registry.champion(),
        manifest=to_plain(manifest),
        history=tuple(had_part[:limit]),
    )
