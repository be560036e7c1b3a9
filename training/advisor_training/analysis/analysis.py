"""The whole analysis of a dataset of pairs, as values and as plain JSON."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.objectives import OBJECTIVES, Objective
from advisor.core.records import REPLAY_SOURCE, PairPoint, SoloPoint
from advisor.errors import InputError
from advisor_training.analysis.gains import (
    BASELINES,
    Bin,
    Gain,
    JobGains,
    Relative,
    gain,
    histogram,
    job_gains,
    relative,
)
from advisor_training.analysis.grid import GridGain, grid_gain
from advisor_training.analysis.groups import Classes, GroupRow, group_of, group_rows
from advisor_training.analysis.losses import Loss, losses
from advisor_training.dataset.noise import Ceiling, noise_ceiling
from advisor_training.dataset.pairs import LeftOut, MeasuredPair, make_pairs
from advisor_training.dataset.paper import FIGURES, GROUPS, TITLE
from advisor_training.dataset.solo import SOLO_SOURCES, JobClass, job_classes, whole_gpu
from advisor_training.dataset.split_kinds import KINDS, kinds_of

JSON_SCHEMA = 2
"""Raised when a key of the JSON form changes its meaning or goes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveReport:
    """Everything about one objective.

    Attributes:
        ceiling: The noise ceiling; None where no pair was measured twice.
        uneven_pays_pairs: Pairs in which an uneven split beats 50/50 by more than the noise; by
            anything at all where the noise is not known.
        gains: The oracle over each baseline.
        losses: Pairs that are better off one after the other, by more than the noise likewise.
    """

    name: str
    meaning: str
    unit: str
    ceiling: Ceiling | None
    uneven_pays_pairs: int
    uneven_pays_percent: float
    best_splits: tuple[Bin, ...]
    gains: tuple[Gain, ...]
    job_gains: JobGains | None
    groups: tuple[GroupRow, ...]
    losses: tuple[Loss, ...]
    grid: GridGain | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """One pair, from its fullest measurement.

    Attributes:
        group: Classes of the jobs, the heavier first; None where one is not known.
        measurements: How often the pair was measured: cards and runs.
        objectives: Values against 50/50, by objective.
    """

    jobs: tuple[str, str]
    gpu_model: str
    gpu_uuid: str
    run: str
    solo_source: str
    group: tuple[str, str] | None
    measurements: int
    objectives: Mapping[str, Relative]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a dataset of pairs says.

    Attributes:
        pair_points: Points that were given, flagged ones not among them unless asked for.
        replayed_points: How many of them come from a replay.
        points_by_kind: How many of them there are of each kind of split.
        flags: How many of them carry which flag.
        solo_sources: How many measurements took their solo rates from where.
        left_out: What was not used, and why.
    """

    gpu_models: tuple[str, ...]
    cards: int
    runs: int
    pair_points: int
    replayed_points: int
    points_by_kind: Mapping[str, int]
    flags: Mapping[str, int]
    solo_sources: Mapping[str, int]
    left_out: tuple[LeftOut, ...]
    jobs: tuple[JobClass, ...]
    pairs: tuple[PairReport, ...]
    objectives: Mapping[str, ObjectiveReport]


def analyse(
    points: Sequence[PairPoint],
    solos: Sequence[SoloPoint],
    left_out: Iterable[LeftOut] = (),
) -> Analysis:
    """Analyse the pairs.

    Args:
        points: Pairs at splits; those to be left out for their flags are left out already.
        solos: The jobs alone.
        left_out: What was left out before, for the report.

    Raises:
        InputError: no pair has 50/50 and most of the other eight splits.
    """
    pairs, unused = make_pairs(points, solos)
    if not pairs:
        raise InputError(
            f"none of {len(points)} pair points can be analysed",
            why="; ".join(f"{item.points}: {item.reason}" for item in unused),
            fix="measure pairs at the nine splits, and their jobs alone at 100 %",
        )
    measurements = [m for pair in pairs for m in pair.measurements]
    classes = job_classes(whole_gpu(solos))
    reports = {o.name: _objective_report(o, pairs, classes) for o in OBJECTIVES.values()}
    sources = Counter(m.solo_source for m in measurements)
    used = {(pair.gpu_model, job) for pair in pairs for job in pair.jobs}
    return Analysis(
        gpu_models=tuple(sorted({pair.gpu_model for pair in pairs})),
        cards=len({m.gpu_uuid for m in measurements}),
        runs=len({m.run for m in measurements}),
        pair_points=len(points),
        replayed_points=sum(point.source == REPLAY_SOURCE for point in points),
        points_by_kind=_by_kind(points),
        flags=_by_flag(points),
        solo_sources={source: sources[source] for source in SOLO_SOURCES},
        left_out=(*left_out, *unused),
        jobs=tuple(found for key, found in classes.items() if key in used),
        pairs=tuple(_pair_report(pair, classes, reports) for pair in pairs),
        objectives=reports,
    )


def _by_kind(points: Sequence[PairPoint]) -> dict[str, int]:
    counts = Counter(kinds_of(points))
    return {kind: counts[kind] for kind in KINDS}


def _by_flag(points: Iterable[PairPoint]) -> dict[str, int]:
    counts = Counter(flag for point in points for flag in point.flags)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def to_json(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain JSON values, with the paper's numbers next to it."""
    paper = {
        "title": TITLE,
        "groups": [dataclasses.asdict(group) for group in GROUPS],
        "figures": [dataclasses.asdict(figure) for figure in FIGURES],
    }
    return {"schema": JSON_SCHEMA, **dataclasses.asdict(analysis), "paper": paper}


def _objective_report(
    objective: Objective, pairs: Sequence[MeasuredPair], classes: Classes
) -> ObjectiveReport:
    ceiling = noise_ceiling(pairs, objective)
    tie = ceiling.tie if ceiling else 0.0
    bins = histogram(pairs, objective, tie, _busier(classes))
    uneven = sum(b.to_busier + b.to_other + b.undirected for b in bins[1:])
    return ObjectiveReport(
        name=objective.name,
        meaning=objective.meaning,
        unit=objective.unit,
        ceiling=ceiling,
        uneven_pays_pairs=uneven,
        uneven_pays_percent=100 * uneven / len(pairs),
        best_splits=bins,
        gains=tuple(gain(pairs, objective, baseline, tie) for baseline in BASELINES),
        job_gains=job_gains(pairs, objective),
        groups=group_rows(pairs, classes, objective),
        losses=losses(pairs, objective, tie),
        grid=grid_gain(pairs, objective, tie),
    )


def _busier(classes: Classes) -> Callable[[MeasuredPair], str | None]:
    """A function that names the job of a pair with the higher SM activity alone."""

    def busier(pair: MeasuredPair) -> str | None:
        found = [classes.get((pair.gpu_model, job)) for job in pair.jobs]
        active = [(j.sm_active_percent, j.job) for j in found if j and j.sm_active_percent]
        return max(active)[1] if len(active) == 2 else None

    return busier


def _pair_report(
    pair: MeasuredPair, classes: Classes, reports: Mapping[str, ObjectiveReport]
) -> PairReport:
    ties = {name: report.ceiling.tie if report.ceiling else 0.0 for name, report in reports.items()}
    busier = _busier(classes)(pair)
    return PairReport(
        jobs=pair.jobs,
        gpu_model=pair.gpu_model,
        gpu_uuid=pair.main.gpu_uuid,
        run=pair.main.run,
        solo_source=pair.main.solo_source,
        group=group_of(pair, classes),
        measurements=len(pair.measurements),
        objectives={
            name: relative(pair, OBJECTIVES[name], tie, busier) for name, tie in ties.items()
        },
    )
