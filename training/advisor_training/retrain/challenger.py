"""A model learned from checked points, next to what the champion's points teach."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.core.wording import listed
from advisor.decide.recommend import TIE
from advisor.errors import InputError, ModelError
from advisor.predict.profiles import Floats
from advisor_models.manifest import (
    NEGLIGIBLE_PERCENT,
    Artefact,
    Manifest,
    check_intervals,
    write_artefact,
)
from advisor_training.held_out import HeldOut, Mask, OnFold, joined, predicted
from advisor_training.learners import LEARNERS, Learner
from advisor_training.noise import BootstrapEstimate, Resamples
from advisor_training.pairs import Classes, job_classes, measurement_of, whole_gpu
from advisor_training.retrain.points import (
    LONG_AGO,
    POINTS,
    PointSet,
    measurements,
    moment_of,
    points_file,
)
from advisor_training.rows import Names, Rows
from advisor_training.scoring import fractions
from advisor_training.train import (
    Trained,
    TrainingSet,
    fit_model,
    make_artefact,
    make_training_set,
    write_model,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scores:
    """How good answers are, one value for each of n (left-out job, measurement).

    Attributes:
        error: Mean relative error of both rates and of the power, at splits; shape (n,).
        regret: What the chosen split is worth less than the best of the nine, as a part of that;
            NaN where the nine were not all measured; shape (n,).
    """

    error: Floats
    regret: Floats


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Questions:
    """What both were asked: n (left-out job, measurement).

    Attributes:
        left_out: The job that neither had seen; shape (n,).
        row: A row of the measurement; shape (n,).
    """

    left_out: Names
    row: Sequence[int]
    pairs: tuple[tuple[str, str], ...]


def answers(
    learned: Rows, asked: Rows, learner: Learner, progress: OnFold | None = None
) -> HeldOut:
    """For each job asked for, what a learner fitted to rows without it says of its rows.

    Raises:
        InputError: without a job there is nothing to learn from.
    """
    parts: list[HeldOut] = []
    for count, job in enumerate(asked.jobs, 1):
        rest = ~learned.of(job)
        if not rest.any():
            raise InputError(
                f"there is nothing to learn from without {job}",
                why="all pairs that the champion has learned from have it",
                fix="measure pairs of other jobs: advisor colocate",
            )
        fitted = learner(learned.take(rest))
        parts.append(predicted(fitted, asked, asked.of(job), job))
        if progress is not None:
            progress(job, count, len(asked.jobs))
    return joined(parts)


def questions_of(rows: Rows, held_out: HeldOut) -> Questions:
    """What was asked, in the order of the scores."""
    found = [(name, int(held_out.row[places[0]])) for name, places in _tests(rows, held_out)]
    return Questions(
        left_out=np.array([name for name, _ in found]),
        row=[row for _, row in found],
        pairs=tuple((str(rows.job_a[row]), str(rows.job_b[row])) for _, row in found),
    )


def scores(rows: Rows, held_out: HeldOut) -> Scores:
    """How good answers are, test by test."""
    places = [which for _, which in _tests(rows, held_out)]
    return Scores(error=_each(_error, rows, held_out, places),
                  regret=_each(_regret, rows, held_out, places))  # fmt: skip


def _tests(rows: Rows, held_out: HeldOut) -> Iterator[tuple[str, list[int]]]:
    """Places in the answers of each (left-out job, measurement), splits without limits aside."""
    groups: dict[tuple[str, int], list[int]] = {}
    for place, (name, row) in enumerate(zip(held_out.left_out, held_out.row, strict=True)):
        if rows.kind[row] != "uncapped":
            groups.setdefault((str(name), int(rows.measurement[row])), []).append(place)
    return ((name, places) for (name, _), places in sorted(groups.items()))


def _each(
    score: Callable[[Rows, HeldOut], float],
    rows: Rows,
    held_out: HeldOut,
    places: Sequence[list[int]],
) -> Floats:
    return np.array([score(rows, held_out.take(np.array(which))) for which in places])


def _error(rows: Rows, of_test: HeldOut) -> float:
    row = of_test.row
    measured = np.column_stack([rows.speed_a[row], rows.speed_b[row], rows.power_w[row]])
    expected = np.column_stack([of_test.speed, of_test.power_w])
    known = measured > 0  # a rate of 0 has no relative error
    return float(np.abs(expected[known] / measured[known] - 1).mean()) if known.any() else 0.0


def _regret(rows: Rows, of_test: HeldOut) -> float:
    if not (rows.kind[of_test.row] == "nine").all():
        return np.nan
    found = fractions(rows, of_test, OBJECTIVES[DEFAULT_OBJECTIVE], TIE)
    return 1 - float(found[0]) if len(found) else np.nan


FigureName: TypeAlias = Literal["error", "regret"]
FIGURES: tuple[FigureName, ...] = ("error", "regret")

LEAST_JOBS = 4
"""Of a group that decides: drawing again from three jobs hardly ever shows another sign."""

LEAST_PAIRS = 6
"""The same: five pairs that do not hang together have one sign in one case of 16 by chance, which
is above the 5 % that the interval leaves out, and six in one of 32."""

ALL, NEWEST = "all", "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of both rivals over one group of tests; less is better.

    Attributes:
        group: "all", "newest", "GPU model NVIDIA H200", "job class HL".
        jobs: How many jobs were left out in turn.
        champion_percent: Mean over the tests.
        gain_percent: Champion less challenger, paired, in points.
        low_percent: Of its 95 % interval over jobs; `high_percent` is its other end.
        decides: Whether there are enough jobs to tell.
    """

    group: str
    figure: FigureName
    tests: int
    jobs: int
    champion_percent: float
    challenger_percent: float
    gain_percent: float
    low_percent: float
    high_percent: float
    decides: bool

    @property
    def is_better(self) -> bool:
        """Beyond noise, and a set of tests in which a gain counts."""
        return self.decides and self.group in (ALL, NEWEST) and self.low_percent > 0

    @property
    def is_worse(self) -> bool:
        """Beyond noise, and by more than a measured rate repeats."""
        return self.decides and self.high_percent < 0 and self.gain_percent < -NEGLIGIBLE_PERCENT


def compare(
    rivals: tuple[Scores, Scores],
    tests: Questions,
    groups: Mapping[str, Mask],
) -> tuple[ComparedFigure, ...]:
    """Both figures of champion and challenger over every group, a mask of tests, that has some."""
    return tuple(
        found
        for group, mask in groups.items()
        for figure in FIGURES
        if (found := _compared(rivals, tests, group, figure, mask)) is not None
    )


def groups_of(rows: Rows, tests: Questions, newest: Mask, classes: Classes) -> dict[str, Mask]:
    """All tests, the newest, those of each GPU model, and those of each class of left-out jobs."""
    row = np.array(tests.row)
    models = rows.gpu_model[row]
    keys = zip(models.tolist(), tests.left_out.tolist(), strict=True)
    codes = np.array([classes.get(key, "") for key in keys])
    return {
        ALL: np.ones(len(row), dtype=bool),
        NEWEST: newest[row],
        **{f"GPU model {name}": models == name for name in np.unique(models)},
        **{f"job class {code}": codes == code for code in np.unique(codes) if code},
    }


def _compared(
    rivals: tuple[Scores, Scores], tests: Questions, group: str, figure: FigureName, mask: Mask
) -> ComparedFigure | None:
    champion, challenger = (_values(scores, figure) for scores in rivals)
    which = np.flatnonzero(mask & ~np.isnan(champion) & ~np.isnan(challenger))
    if not len(which):
        return None
    pairs = [tests.pairs[place] for place in which]
    jobs = len(set(tests.left_out[which].tolist()))
    gain = _percent(Resamples(pairs).mean((champion - challenger)[which]))
    return ComparedFigure(
        group=group,
        figure=figure,
        tests=len(which),
        jobs=jobs,
        champion_percent=round(100 * float(champion[which].mean()), 3),
        challenger_percent=round(100 * float(challenger[which].mean()), 3),
        gain_percent=gain.value,
        low_percent=gain.low,
        high_percent=gain.high,
        decides=jobs >= LEAST_JOBS and len(set(pairs)) >= LEAST_PAIRS,
    )


def _values(scores: Scores, figure: FigureName) -> npt.NDArray[np.float64]:
    return scores.error if figure == "error" else scores.regret


def _percent(part: BootstrapEstimate) -> BootstrapEstimate:
    return BootstrapEstimate(*(round(100 * v, 3) for v in (part.value, part.low, part.high)))


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """The verdict, and its reason in words."""

    promote: bool
    why: str


def decide(compared: Sequence[ComparedFigure], news: Sequence[str]) -> PromotionDecision:
    """Promote what is worse nowhere.

    What a model learns of a job or a pair cannot show in tests that leave the job out, so a
    challenger need not be better in these: it has learned from newer points. `news` are jobs and
    GPU models that only the challenger has seen.
    """
    if worse := [one for one in compared if one.is_worse]:
        return PromotionDecision(False, f"worse for {listed(map(_words, worse))}")
    if better := [one for one in compared if one.is_better]:
        return PromotionDecision(True, f"better for {listed(map(_words, better))}")
    if news:
        return PromotionDecision(True, f"not worse, and has seen {listed(news)}")
    return PromotionDecision(True, "not worse, and has learned from newer points")


def _words(one: ComparedFigure) -> str:
    gain = f"{abs(one.gain_percent):.2f} [{one.low_percent:.2f} {one.high_percent:.2f}] points"
    return f"{one.group} ({one.figure} by {gain})"


HALF_LIFE_DAYS = 30.0
LEAST_WEIGHT = 0.25
"""A measurement counts half as much after a month, and never less than a quarter: drivers,
libraries and jobs change, and a new point says more of today. In simulated quarters rates are
wrong by 6 % less so, and as much where nothing changes (docs/measurements/quarter.md)."""

OnStage: TypeAlias = Callable[[str], OnFold | None]
"""Takes the name of a stage that begins; what it returns is called after each fit."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Challenger:
    """A trained model that no folder has yet."""

    points: PointSet
    made_from: TrainingSet
    trained: Trained
    artefact: Artefact

    @property
    def manifest(self) -> Manifest:
        """As it will be written beside the graph."""
        return self.artefact.manifest

    @property
    def fault(self) -> str | None:
        """Why it cannot be promoted; None where it can."""
        try:
            check_intervals(self.manifest)
        except ModelError as error:
            return str(error)
        return None

    def write(self, folder: Path) -> None:
        """Write it, with the list of its points.

        Raises:
            StoreError: the files cannot be written.
        """
        write_model(folder, lambda folder: write_artefact(folder, self.artefact))


def training_set(points: PointSet) -> TrainingSet:
    """Rows of checked points, of which older ones count less.

    Raises:
        InputError: nothing can be learned from them.
    """
    made_from = make_training_set(points.pairs, points.profiled, points.references)
    weights = _by_age(made_from.rows, points)
    return replace(
        made_from,
        rows=replace(made_from.rows, weight=made_from.rows.weight * weights),
        blind=replace(made_from.blind, weight=made_from.blind.weight * weights),
    )


def _by_age(rows: Rows, points: PointSet) -> Floats:
    """What rows count by their age, measured from the newest of them; shape (n,)."""
    begun: dict[tuple[str, ...], datetime] = {}
    for point in points.pairs:
        key, at = measurement_of(point), moment_of(point, LONG_AGO)
        begun[key] = min(begun.get(key, at), at)
    at = [begun[key] for key in measurements(rows)]
    days = np.array([(max(at) - one) / timedelta(days=1) for one in at])
    return np.maximum(0.5 ** (days / HALF_LIFE_DAYS), LEAST_WEIGHT)


def train_challenger(
    points: PointSet, made_from: TrainingSet, now: datetime, on_stage: OnStage
) -> Challenger:
    """Learn from all checked points.

    Raises:
        InputError: there are too few jobs.
    """
    trained = fit_model(made_from.rows, on_stage("training the challenger"), made_from.blind)
    artefact = make_artefact(made_from, trained, now, {POINTS: points_file(points)})
    return Challenger(points=points, made_from=made_from, trained=trained, artefact=artefact)


def compare_with(
    learned: PointSet, challenger: Challenger, on_stage: OnStage
) -> tuple[ComparedFigure, ...]:
    """What the champion's checked points teach against what the challenger's do, on the same rows.

    Raises:
        InputError: nothing can be learned from the champion's points.
    """
    rows = challenger.made_from.rows
    of_champion = answers(
        training_set(learned).rows,
        rows,
        LEARNERS["extra-trees"],
        on_stage("asking the champion's points"),
    )
    of_challenger = challenger.trained.held_out
    tests = questions_of(rows, of_challenger)
    solos = whole_gpu((*challenger.points.references, *challenger.points.profiled))
    return compare(
        (scores(rows, of_champion), scores(rows, of_challenger)),
        tests,
        groups_of(rows, tests, _newest(rows, challenger.points, learned), job_classes(solos)),
    )


def _newest(rows: Rows, points: PointSet, learned: PointSet) -> Mask:
    """Rows of measurements with points that the champion has not learned from."""
    known = learned.ids
    new = {measurement_of(point) for point in points.pairs if point.point_id not in known}
    return np.array([key in new for key in measurements(rows)])
