"""One run of retraining: points are checked, a challenger is trained, and serves if no worse.

Nothing here looks at the clock, and nothing is changed before the end: a challenger is a draft
until it is whole and chosen, and the champion is one line of the registry's history. A run that is
killed leaves the champion as it was, and the next run does all of it again.

The folder of retraining is `retrain` in the folder of models: `lock` is held while a run goes on,
`last.json` has the points of the last run that came to its end, and `draft` is a challenger that is
being written.
"""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from advisor.core.wording import count_of
from advisor.errors import BusyError, StoreError
from advisor.files import private_folder, replace_file, try_lock, writing_private
from advisor.formats.wire import read, write
from advisor_models.manifest import BUNDLED_NAME, Manifest, read_artefact
from advisor_models.registry import Registry
from advisor_training.pairs import LeftOut
from advisor_training.retrain.challenger import (
    Challenger,
    ComparedFigure,
    OnStage,
    PromotionDecision,
    compare_with,
    decide,
    train_challenger,
    training_set,
)
from advisor_training.retrain.points import (
    POINTS,
    Collected,
    PointSet,
    RefusedPoints,
    Sifted,
    by_reason,
    learned_from,
    sift,
    usable_points,
    with_flags,
)
from advisor_training.train import dataset_sha256

_Outcome: TypeAlias = Literal["nothing-new", "promoted", "kept"]
OUTCOMES: tuple[_Outcome, ...] = get_args(_Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainReport:
    """A run, from the points to the decision.

    Attributes:
        at: When, ISO 8601, UTC.
        outcome: nothing-new: nothing was trained. kept: the challenger did not become the champion.
        champion: The model in use after the run.
        challenger: Version of the model that was trained.
        new_points: Points that the champion has not learned from, left-out ones among them.
        used_points: Points that the challenger has learned from; None where there is none.
        left_out: New points that it has not learned from, by reason.
        launches_left_out: Launches that teach nothing, and why; they are no points, and are the
            same in each run.
        removed: Versions that were deleted, as newer ones took their place.
    """

    at: str
    outcome: _Outcome
    why: str
    champion: str
    replaced: str | None = None
    challenger: str | None = None
    new_points: int = 0
    used_points: int | None = None
    left_out: tuple[RefusedPoints, ...] = ()
    launches_left_out: tuple[LeftOut, ...] = ()
    compared: tuple[ComparedFigure, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to tell: nothing was trained and nothing left out."""
        return self.outcome == "nothing-new" and not self.left_out

    @property
    def summary(self) -> str:
        """One line for the mail of cron."""
        promoted = self.outcome == "promoted"
        verdict = f"replaces {self.replaced}" if promoted else "stays"
        line = f"{self.champion} {verdict}: {self.why}; "
        line += count_of(self.new_points, "new point")
        if out := sum(of_reason.points for of_reason in self.left_out):
            reasons = ", ".join(f"{one.points} {one.reason}" for one in self.left_out)
            line += f", {out} left out: {reasons}"
        return line


@dataclass(frozen=True, slots=True)
class _LastRun:
    """What a run had looked at.

    Attributes:
        points_sha256: Of all points that were there, refused ones among them.
        at: When, ISO 8601, UTC.
        why: How it ended.
    """

    points_sha256: str
    at: str
    why: str


@dataclass(frozen=True, slots=True)
class _Workplace:
    """The folder of a run that holds the lock."""

    folder: Path

    @property
    def draft(self) -> Path:
        """Where the challenger is written before the registry takes it."""
        return self.folder / "draft"

    def clear(self) -> None:
        """Remove the draft of this run, or of one that was killed."""
        shutil.rmtree(self.draft, ignore_errors=True)

    def last_run(self) -> _LastRun | None:
        """The last run that came to its end; None where there is none, or nobody can read it."""
        try:
            return read(_LastRun, (self.folder / "last.json").read_bytes())
        except (OSError, ValueError):
            return None

    def remember(self, run: _LastRun) -> None:
        """Keep what a run has looked at.

        Raises:
            OSError: it cannot be written.
        """
        replace_file(self.folder / "last.json", write(run).encode() + b"\n")


@contextmanager
def working_in(models: Path) -> Generator[_Workplace]:
    """The workplace below the folder of models, for one run at a time.

    Raises:
        BusyError: another run goes on.
        OSError: it cannot be made.
    """
    folder = private_folder(models, "retrain")
    with writing_private(folder / "lock", "r+") as lock:
        if not try_lock(lock):
            raise BusyError(
                "another advisor retrain is running",
                why=f"{folder / 'lock'} is held",
                fix="wait for it to end; cron will call again",
            )
        place = _Workplace(folder)
        place.clear()
        try:
            yield place
        finally:
            place.clear()


KEPT_VERSIONS = 10
"""Versions of retraining that stay on disk; one takes about 2 MB."""


def retrain(
    collected: Collected,
    models: Path,
    now: datetime,
    *,
    registry: Registry | None = None,
    keep: int = KEPT_VERSIONS,
    on_stage: OnStage = lambda _: None,
) -> RetrainReport:
    """Check what is new at a moment in UTC, train a challenger, and promote it unless it is worse.

    `models` is the folder of the registry, which may be given where its bundled model is another
    one than the package's; `keep` says how many versions of retraining stay.

    Raises:
        BusyError: another run goes on.
        InputError: too little to learn from.
        ModelError: the champion cannot be used.
        StoreError: the challenger cannot be written; the champion is as it was.
    """
    with (
        StoreError.instead_of(
            OSError,
            f"the run could not write to {models}",
            fix="make room there; the model in use is as it was, and the next run starts again",
        ),
        working_in(models) as place,
    ):
        return _run(collected, registry or Registry(models), place, now, keep, on_stage)


def _run(
    collected: Collected,
    registry: Registry,
    place: _Workplace,
    now: datetime,
    keep: int,
    on_stage: OnStage,
) -> RetrainReport:
    champion = registry.champion()
    artefact = read_artefact(registry.folder(champion))
    learned = learned_from(artefact, collected, is_bundled=champion == BUNDLED_NAME)
    nothing = RetrainReport(
        at=now.isoformat(timespec="seconds"),
        outcome="nothing-new",
        why="nothing new was measured",
        champion=champion,
        launches_left_out=collected.launches_left_out,
    )
    if collected.candidates.ids <= learned.ids:
        return nothing
    points_sha256 = dataset_sha256(collected.candidates)
    last = place.last_run()
    if last is not None and last.points_sha256 == points_sha256:
        return replace(nothing, why=f"nothing new since {last.at}, when it was: {last.why}")
    sifted = sift(collected, learned, now)
    report = replace(nothing, new_points=sifted.new, left_out=by_reason(sifted.refused))
    report = _challenged(
        report, sifted, learned, (registry, place, artefact.manifest), now, on_stage
    )
    # Of one who wrote more than a run learns from, the next run learns the rest.
    if report.outcome != "promoted" or all(one.reason != "too-many" for one in report.left_out):
        place.remember(_LastRun(points_sha256, report.at, report.why))
    # Those of other makers stay.
    made = [v for v in registry.versions() if (registry.folder(v) / POINTS).exists()]
    removed = tuple(v for v in made[: max(len(made) - keep, 0)] if registry.remove(v))
    return replace(report, removed=removed)


def _challenged(
    report: RetrainReport,
    sifted: Sifted,
    learned: PointSet,
    where: tuple[Registry, _Workplace, Manifest],
    now: datetime,
    on_stage: OnStage,
) -> RetrainReport:
    """Train a challenger where there is something to learn, and promote it unless it is worse."""
    registry, place, champion = where
    made_from = training_set(sifted.accepted)
    if made_from.facts.sha256 == champion.dataset.sha256:
        return replace(report, why="nothing of what is new can be learned from")
    challenger = train_challenger(sifted.accepted, made_from, now, on_stage)
    compared = compare_with(usable_points(with_flags(learned)), challenger, on_stage)
    new, old = challenger.manifest, champion
    jobs = sorted(set(new.dataset.jobs) - set(old.dataset.jobs))
    verdict = decide(compared, jobs + sorted(set(new.gpu_models) - set(old.gpu_models)))
    if fault := challenger.fault:
        verdict = PromotionDecision(False, fault)
    report = replace(
        report,
        outcome="kept",
        why=verdict.why,
        challenger=challenger.manifest.version,
        used_points=len(sifted.accepted.ids),
        compared=compared,
    )
    if not verdict.promote:
        return report
    version = _promote(challenger, registry, place, now)
    return replace(report, outcome="promoted", champion=version, replaced=report.champion)


def _promote(challenger: Challenger, registry: Registry, place: _Workplace, now: datetime) -> str:
    """Take it in and use it; the version may be there from a run that was killed."""
    version = challenger.manifest.version
    if version not in registry.versions():
        challenger.write(place.draft)
        registry.add(place.draft)
    registry.promote(version, now)
    return version
