"""What stands next to a model, its versions on this host, and which of them is used: the champion.

A model is a folder with `manifest.json` and the files that it names by their SHA-256. Nothing of a
folder is used before every hash was checked, and what was hashed is what gets used: a file is read
once.

Bounds say by stratum how far a prediction may be off. They are conformal, quantiles of the log
error that jobs left out of training had. A stratum is what has an interval of its own: a place
("split", "at the power limit" or "uncapped") and what the jobs are beside each other
(`advisor.predict.profiles`), and of a pair each of these "on NVIDIA H200" where enough jobs were
measured on that GPU model.

    versions/20260131-3f2a91/   a model's folder, as it was added
    history.jsonl               every promotion and rollback; its last line names the champion
    retrain/                    what `advisor retrain` keeps between its runs
    lock                        held by the process that changes something

A version comes in under another name and gets its own when it is whole, and the champion is one
line of the history: at whatever moment a process is killed, the old or the new state is there.
Without a promotion the champion is the model that comes with the package.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from advisor.errors import InputError, ModelError, install, undone_by
from advisor.files import (
    NAME,
    PUBLIC_FILE,
    private_folder,
    read_whole,
    replace_file,
    sync_folder,
    writing_private,
)
from advisor.formats.moments import is_utc
from advisor.formats.wire import read, to_plain, write
from advisor.wire.answers import Action, ChampionChange, ModelDetails, ModelList, ModelRow

UNCAPPED = "uncapped"
"""Without limits of SMs."""

SPLIT = "split"
"""With limits of SMs."""

LIMITED = "at the power limit"
"""With limits of SMs, where the card is expected at its power limit: there the power is known
beforehand, whatever the card. Absent where that was measured too rarely."""

_ON, _IN = " on ", ", "


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What to add to the logarithm of a prediction for its lower and its upper bound."""

    low: float
    high: float

    @property
    def factors(self) -> tuple[float, float]:
        """What to multiply a prediction with for its bounds."""
        return math.exp(self.low), math.exp(self.high)

    def wider(self, factor: float) -> "LogBounds":
        """Further apart by a factor of 1 or more."""
        return LogBounds(min(self.low, self.low * factor), max(self.high, self.high * factor))


Strata: TypeAlias = Mapping[str, LogBounds]
"""Bounds by stratum."""


def bounds_of_stratum(strata: Strata, name: str, gpu_model: str = "") -> LogBounds:
    """Bounds of a stratum; of a GPU model with some of its own the wider ones of both.

    Its cards are few, so a GPU model's own bounds may be too narrow for the next card. A situation
    that was not measured has the lowest low and the highest high of its place.
    """
    place = place_of(name)
    if place == LIMITED and not any(place_of(stratum) == LIMITED for stratum in strata):
        return bounds_of_stratum(strata, name.replace(LIMITED, SPLIT, 1), gpu_model)
    of_stratum = [
        strata[stratum] for stratum in (on_gpu_model(name, gpu_model), name) if stratum in strata
    ]
    every = [
        b for stratum, b in strata.items() if place_of(stratum) == place and _ON not in stratum
    ]
    wide = of_stratum if name in strata else of_stratum + every
    return LogBounds(min(b.low for b in wide), max(b.high for b in wide))


def place_of(name: str) -> str:
    """The place of a stratum."""
    return name.partition(_ON)[0].partition(_IN)[0]


def on_gpu_model(name: str, gpu_model: str) -> str:
    """Name of the part of a pair's stratum that was measured on one GPU model."""
    return f"{name}{_ON}{gpu_model}"


def wider(strata: Strata, factor: float) -> dict[str, LogBounds]:
    """All bounds further apart by a factor of 1 or more."""
    return {name: bounds.wider(factor) for name, bounds in strata.items()}


Of = Literal["job", "pair"]
"""What a head has a value of: each of the jobs, seen from it, or all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFacts:
    """What a head of a model predicts.

    Attributes:
        name: Such as "speed" or "power"; the file of its trees has the same name.
        of: What it has a value of.
        unit: Of the target; "1" is a ratio.
        prior: What the trees tell the logarithm of the distance to, in words; another prior needs
            other words, since a model that was trained over one must not be used with the other.
    """

    name: str
    of: Of
    target: str
    unit: str
    prior: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedHead(HeadFacts):
    """A head of a model: prediction = exp(mean of its trees) x prior.

    Attributes:
        features: Names in the order of the columns.
        ranges: Smallest and largest value of each feature in training.
        intervals: Bounds by stratum.
    """

    features: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]
    intervals: Strata


def _head_faults(head: TrainedHead) -> dict[str, bool]:
    strata = head.intervals.keys()
    return {
        f"a feature of {head.name} has no range, or a range no feature": (
            len(head.features) != len(head.ranges)
        ),
        f"of {head.name}, a low is above its high": any(
            low > high
            for low, high in (*((b.low, b.high) for b in head.intervals.values()), *head.ranges)
        ),
        f"the intervals of {head.name} are of {', '.join(strata) or 'nothing'}": (
            not {SPLIT, UNCAPPED} <= {*map(place_of, strata)} <= {SPLIT, UNCAPPED, LIMITED}
        ),
    }


@dataclass(frozen=True, slots=True)
class OtherGpu:
    """What to expect of predictions for a GPU model that a model has not seen.

    Attributes:
        widening: By head, how much further apart the bounds are there; 1 or more.
        left_out: GPU models that were left out of training, one at a time, to find this out; empty
            where there is one only: the widening is then `HeadLearner.single_gpu_widening`.
        pairs_to_par: Measured pairs of the new GPU model from which on intervals hold what they
            promise without being wider; None: more than `MOST_PAIRS`.
    """

    widening: Mapping[str, float]
    left_out: tuple[str, ...]
    pairs_to_par: int | None


MOST_PAIRS = 20
"""The most pairs of a new GPU model that are tried."""

SCHEMA = 5
MANIFEST = "manifest.json"

BUNDLED_NAME = "bundled"
"""What people call the model that comes with the package; no other one can be called so."""

# Of one file of a model; the largest bundled one has 0.4 million.
_MOST_BYTES = 64 << 20

RETRAIN = "train one with this version: advisor train"

REPLACE = f"{RETRAIN}; or use the one that came with it: advisor models promote bundled"
"""What to do about a model that another version made."""

NEGLIGIBLE_PERCENT = 1.0
"""A measured rate repeats no better, so a smaller error is none."""


def write_parsed(
    folder: Path,
    files: Mapping[str, bytes],
    manifest: object,
    parsed: Callable[[Path, bytes], object],
) -> None:
    """Write files, and their manifest of any kind, which raises where it could not be read back.

    The manifest comes last, so that files half written are no model.
    """
    text = json.dumps(to_plain(manifest), indent=1).encode() + b"\n"
    parsed(folder / MANIFEST, text)
    for name, data in {**files, MANIFEST: text}.items():
        replace_file(folder / name, data, PUBLIC_FILE)


def sha256(data: bytes) -> str:
    """The hash as manifests have it."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What a model was trained on.

    Attributes:
        sha256: Of the points.
        cards: GPUs that they were measured on.
    """

    sha256: str
    pair_points: int
    pairs: int
    jobs: tuple[str, ...]
    cards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that is known of a model.

    Attributes:
        created_at: ISO 8601, UTC.
        gpu_models: GPU models whose pairs it has seen.
        fill: Value of a profile column for profiles that lack it.
        coverage: Part of the measured values that the intervals are to hold.
        efficiency: Bounds of `energy-efficiency` by stratum; empty where not known. Power in
            watts differs from card to card, which energy for the same work hardly does: cards that
            draw more draw more for each job alone, too. So it has bounds of its own errors, not
            those of speeds and power together, which count the card twice.
        other_gpu: How much wider the intervals are for a GPU model that it has not seen.
        no_counters: By head, how much wider they are for profiles without counters; None: not
            known.
        settings: How the trees were grown.
        files: SHA-256 of each file next to the manifest, by name.
    """

    schema: int
    version: str
    learner: str
    created_at: str
    gpu_models: tuple[str, ...]
    fill: Mapping[str, float]
    coverage: float
    heads: tuple[TrainedHead, ...]
    efficiency: Strata
    other_gpu: OtherGpu
    no_counters: Mapping[str, float] | None
    dataset: DatasetFacts
    figures: Mapping[str, float]
    settings: Mapping[str, int | float]
    libraries: Mapping[str, str]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A folder whose files, content by name, all are what its manifest says."""

    manifest: Manifest
    files: Mapping[str, bytes]


def read_artefact(folder: Path) -> Artefact:
    """A model from its folder, every file checked against its hash.

    Raises:
        ModelError: the manifest or a file is missing, damaged, unnamed or of a newer schema.
    """
    manifest = _parsed(folder / MANIFEST, whole_file(folder / MANIFEST))
    return Artefact(manifest, {n: checked_file(folder / n, h) for n, h in manifest.files.items()})


def trees_file(head: str) -> str:
    """Name of the file with the trees of a head."""
    return f"{head}.trees"


def named(manifest: Manifest, contents: Mapping[str, bytes]) -> Artefact:
    """A model with these files, under the name that is its own."""
    whole = replace(manifest, files=hashes(contents))
    return Artefact(replace(whole, version=version_of(whole)), contents)


def version_of(manifest: object) -> str:
    """The name of a model: its day, and the hash of its manifest, so of all its files.

    Only when it was made is no part of the hash: the same model made again has the same name.
    """
    plain = to_plain(manifest)
    day = plain["created_at"][:10].replace("-", "")
    content = json.dumps({**plain, "version": "", "created_at": ""}, sort_keys=True)
    return f"{day}-{sha256(content.encode())[:12]}"


def hashes(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Of files, as manifests have them."""
    return {name: sha256(data) for name, data in contents.items()}


def write_artefact(folder: Path, artefact: Artefact) -> None:
    """Write a model into a folder that is there; other files in it stay.

    Raises:
        ModelError: the manifest could not be read back.
        OSError: it cannot be written.
    """
    write_parsed(folder, artefact.files, artefact.manifest, _parsed)


def check_version(version: str) -> str:
    """A name of a model that can be the name of a folder.

    Raises:
        ModelError: it cannot.
    """
    if version == BUNDLED_NAME or not NAME.fullmatch(version):
        raise ModelError(
            f"{version!r} is not a model version",
            why="a version is letters, digits, dots and dashes, and bundled is the package's own",
            fix="list them: advisor models list",
        )
    return version


def check_intervals(manifest: Manifest) -> None:
    """A model whose intervals hold most of what they promise.

    Raises:
        ModelError: of one head they held less than half of it, for jobs left out, and the mean
            error was above `NEGLIGIBLE_PERCENT`.
    """
    promised = 100 * manifest.coverage
    for what in (figure_word(head.name) for head in manifest.heads):
        held = manifest.figures.get(f"{what}_coverage_percent", promised)
        error = manifest.figures.get(f"{what}_mean_error_percent", 0.0)
        if held < promised / 2 and error > NEGLIGIBLE_PERCENT:
            raise ModelError(
                f"the model {manifest.version} cannot be relied on",
                why=f"its intervals for {promised:g} % held {held:g} % of the measured {what}s, "
                f"which were off by {error:g} %",
                fix="learn from more pairs: advisor colocate, then advisor train; the bundled ones "
                "help: advisor train --with-bundled",
            )


def figure_word(head: str) -> str:
    """What the figures call a head: errors of speeds are errors of the rates that were measured."""
    return "rate" if head == "speed" else head


def checked_file(path: Path, expected: str, retrain: str = RETRAIN) -> bytes:
    """The content of a file of a model, whose SHA-256 must be the expected one.

    Raises:
        ModelError: it cannot be read, or has another hash; `retrain` is what else to do.
    """
    if sha256(data := whole_file(path, retrain)) != expected:
        raise ModelError(
            f"{path} is not the file that was written",
            why=f"its SHA-256 differs from that in {MANIFEST}",
            fix=f"copy the whole folder again, or {retrain}",
        )
    return data


def whole_file(path: Path, retrain: str = RETRAIN) -> bytes:
    """As `checked_file`, of a file that has no hash.

    Raises:
        ModelError: it cannot be read.
    """
    with ModelError.instead_of(
        OSError, f"{path} cannot be read", fix=f"copy the whole folder again, or {retrain}"
    ):
        return read_whole(path, _MOST_BYTES)


def _parsed(path: Path, text: bytes) -> Manifest:
    with ModelError.instead_of(
        ValueError, f"{path} is not a model manifest", fix=f"copy it again, or {RETRAIN}"
    ):
        # Other schemas have other fields, so the schema is looked at before anything else.
        try:
            schema = json.loads(text)["schema"]
        except (ValueError, KeyError, TypeError, RecursionError):
            schema = None  # `read` says what is wrong
        if type(schema) is int and schema != SCHEMA:
            raise ModelError(
                f"the model's manifest has schema {schema}",
                why=f"this version reads {SCHEMA}",
                fix="install a newer advisor" if schema > SCHEMA else REPLACE,
            )
        manifest = read(Manifest, text)
        if wrong := next((fault for fault, is_so in _faults(manifest).items() if is_so), None):
            raise ValueError(wrong)
    check_version(manifest.version)
    return manifest


def _faults(m: Manifest) -> dict[str, bool]:
    """What types do not say, and whether it is wrong."""
    names = [head.name for head in m.heads]
    elsewhere, blind = m.other_gpu.widening.values(), (m.no_counters or {}).values()
    return {
        f"created_at is {m.created_at!r}, not a moment in UTC": not is_utc(m.created_at),
        "gpu_models is empty": not m.gpu_models,
        f"heads are {', '.join(names) or 'none'}": len(names) != len(set(names)) or not names,
        **{name: wrong for head in m.heads for name, wrong in _head_faults(head).items()},
        "of the efficiency, a low is above its high": any(
            bounds.low > bounds.high for bounds in m.efficiency.values()
        ),
        f"coverage is {m.coverage}": not 0 < m.coverage < 1,
        "intervals are widened of other heads than there are": any(
            set(widening) != set(names)
            for widening in [w for w in (m.other_gpu.widening, m.no_counters) if w is not None]
        ),
        "the intervals of another GPU model are narrower": min(elsewhere, default=1) < 1,
        "the intervals of profiles without counters are narrower": min(blind, default=1) < 1,
        **file_faults(m.files, names),
    }


def file_faults(files: Mapping[str, str], trees: Iterable[str]) -> dict[str, bool]:
    """What may be wrong with the hashes by name of a manifest that has these trees.

    A name is of a file of the same folder, on any system; the manifest names not itself.
    """
    return {
        **{f"{trees_file(name)} has no hash": trees_file(name) not in files for name in trees},
        "a file has a path for a name": any(not NAME.fullmatch(n) or n == MANIFEST for n in files),
        "a hash is not a SHA-256 hash": any(
            not re.fullmatch(r"[0-9a-f]{64}", h) for h in files.values()
        ),
    }


if TYPE_CHECKING:
    from advisor_models.model_predictor import ModelPredictor


def standing(changes: Iterable[ChampionChange]) -> list[ChampionChange]:
    """The promotions that were not taken back: two rollbacks go two back, not there and back."""
    applied: list[ChampionChange] = []
    for change in changes:
        applied = [*applied, change] if change.action == "promote" else applied[:-1]
    return applied


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
        return sorted(
            p.name for p in (self._folder / "versions").glob("*") if not p.name.startswith(".")
        )

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
        changes: list[ChampionChange] = []
        # The last line may have lost its end with a killed process.
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
            with ModelError.instead_of(
                ValueError,
                f"{path}, line {number} is not a change of the champion",
                fix="repair the line, or move the file away: the bundled model is used then",
            ):
                changes.append(read(ChampionChange, line))
        return changes

    def stamp(self) -> tuple[int, int, int]:
        """What differs after a promotion or a rollback by any process; costs no reading.

        Raises:
            ModelError: the history cannot be looked at.
        """
        path = self._folder / "history.jsonl"
        with ModelError.instead_of(OSError, f"{path} cannot be read"), suppress(FileNotFoundError):
            state = path.stat()
            return state.st_ino, state.st_size, state.st_mtime_ns
        return 0, 0, 0

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
            ModelError: it is not whole, has links for files or another's name, cannot be promoted,
                or its version is there with other content.
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
        if version != (actual := version_of(artefact.manifest)):
            raise ModelError(
                f"the model in {folder} calls itself {version}",
                why=f"by its content it is {actual}",
                fix=f"copy the whole folder again, or {RETRAIN}",
            )
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

        It predicts the bundled windows of the GPU models that it has seen. The history has what
        was found beside what the manifest claims, and the moment in UTC; None: now.

        Raises:
            ModelError: there is no such version, it cannot be used, or most of what was measured
                lies outside its intervals.
            OSError: it cannot be written.
        """
        model = self.open(version)
        check_intervals(manifest := model.manifest)
        figures_here = model.bundled_figures()
        check_intervals(replace(manifest, figures=figures_here))
        figures = {f"bundled_{name}": of for name, of in figures_here.items()}
        with self._locked():
            if self.champion() != version:
                self._record("promote", version, {**manifest.figures, **figures}, at)
        return manifest

    def rollback(self) -> Manifest:
        """Use again what the last promotion replaced, and so on back to the bundled model.

        Raises:
            ModelError: there is nothing to go back to, or it cannot be used.
            OSError: it cannot be written.
        """
        with self._locked():
            if not (promotions := standing(self.history())):
                raise ModelError(
                    "there is no model to go back to",
                    why="no promotion stands",
                    fix="see the versions: advisor models list",
                )
            version = promotions[-1].replaced
            manifest = self.open(version).manifest
            self._record("rollback", version, manifest.figures)
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
        self,
        action: Action,
        version: str,
        figures: Mapping[str, float],
        at: datetime | None = None,
    ) -> None:
        change = ChampionChange(
            at=(at or datetime.now(UTC)).isoformat(timespec="seconds"),
            action=action,
            version=version,
            replaced=self.champion(),
            figures=figures,
        )
        line = write(change).encode() + b"\n"
        with (self._folder / "history.jsonl").open("ab+") as file:
            file.seek(0)
            end = file.read().rfind(b"\n") + 1
            # What a killed process left of its line.
            file.truncate(end)
            with undone_by(lambda: file.truncate(end)):
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(self._folder)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Hold the registry exclusively; drafts of killed processes are removed."""
        versions = private_folder(
            self._folder, "versions", ours=re.compile(r"versions|history\.jsonl|retrain|lock")
        )
        with writing_private(self._folder / "lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for draft in versions.glob(f"{_DRAFT}*"):
                shutil.rmtree(draft)
            yield


def model_list(registry: Registry, limit: int | None = None) -> ModelList:
    """All models, the champion first, then the newest, and what became of them.

    A damaged one is one row of the list, not its end. At most so many models and changes as `limit`
    says; None: all of them.

    Raises:
        ModelError: the history cannot be read.
    """
    champion, rows = registry.champion(), list[ModelRow]()
    for name in (BUNDLED_NAME, *registry.versions()):
        m, fault = None, None
        try:
            m = read_artefact(registry.folder(name)).manifest
        except ModelError as error:
            fault = str(error)
        rows.append(
            ModelRow(
                model=name,
                champion=name == champion,
                version=m and m.version,
                created_at=m and m.created_at,
                gpu_models=m.gpu_models if m else (),
                pairs=m and m.dataset.pairs,
                figures=m.figures if m else {},
                error=fault,
            )
        )
    rows.sort(key=lambda row: (row.champion, row.created_at or ""), reverse=True)
    return ModelList(models=tuple(rows[:limit]), history=tuple(registry.history()[::-1][:limit]))


def model_details(registry: Registry, name: str, limit: int | None = None) -> ModelDetails:
    """All that is known of one model; `limit` is of the changes that it had a part in.

    Raises:
        ModelError: it is damaged, or the history cannot be read.
    """
    had_part = [c for c in registry.history()[::-1] if name in (c.version, c.replaced)]
    return ModelDetails(
        model=name,
        champion=name == registry.champion(),
        manifest=to_plain(read_artefact(registry.folder(name)).manifest),
        history=tuple(had_part[:limit]),
    )
