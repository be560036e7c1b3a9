"""One run of retraining: points are checked, a challenger is trained, and serves if no worse.

Nothing here looks at the clock, and nothing is changed before the end: a challenger is a draft
until it is whole and chosen, and the champion is one line of the registry's history. A run that is
killed leaves the champion as it was, and the next run does all of it again.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from advisor.errors import StoreError
from advisor_models.manifest import Manifest, read_artefact
from advisor_models.registry import Registry
from advisor_training.retrain.challenger import (
    Challenger,
    OnStage,
    compare_with,
    train_challenger,
    training_set,
)
from advisor_training.retrain.collected import POINTS, Collected, PointSet, learned_from
from advisor_training.retrain.comparison import PromotionDecision, decide
from advisor_training.retrain.refused import by_reason
from advisor_training.retrain.report import RetrainReport, moment_text
from advisor_training.retrain.sifted import Sifted, sift, usable_points, with_flags
from advisor_training.retrain.workplace import LastRun, Workplace, working_in
from advisor_training.train import dataset_sha256

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
    place: Workplace,
    now: datetime,
    keep: int,
    on_stage: OnStage,
) -> RetrainReport:
    champion = registry.champion()
    artefact = read_artefact(registry.folder(champion))
    learned = learned_from(artefact, collected, is_bundled=champion is None)
    nothing = RetrainReport(
        at=moment_text(now),
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
        place.remember(LastRun(points_sha256, report.at, report.why))
    return replace(report, removed=_prune(registry, keep))


def _challenged(
    report: RetrainReport,
    sifted: Sifted,
    learned: PointSet,
    where: tuple[Registry, Workplace, Manifest],
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
    verdict = decide(compared, _news(challenger.manifest, champion))
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


def _news(challenger: Manifest, champion: Manifest) -> Sequence[str]:
    jobs = set(challenger.dataset.jobs) - set(champion.dataset.jobs)
    return sorted(jobs) + sorted(set(challenger.gpu_models) - set(champion.gpu_models))


def _promote(challenger: Challenger, registry: Registry, place: Workplace, now: datetime) -> str:
    """Take it in and use it; the version may be there from a run that was killed."""
    version = challenger.manifest.version
    if version not in registry.versions():
        challenger.write(place.draft)
        registry.add(place.draft)
    registry.promote(version, now)
    return version


def _prune(registry: Registry, keep: int) -> tuple[str, ...]:
    """Delete all but the last versions of retraining; those of other makers stay."""
    made = [v for v in registry.versions() if (registry.folder(v) / POINTS).exists()]
    return tuple(
        version for version in made[: max(len(made) - keep, 0)] if registry.remove(version)
    )
