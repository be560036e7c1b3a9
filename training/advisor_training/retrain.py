"""One run of retraining: points are checked, a challenger is trained, and serves if no worse.

Nothing here looks at the clock, and nothing is changed before the end: a challenger is a draft
until it is whole and chosen, and the champion is one line of the registry's history. A run that is
killed leaves the champion as it was, and the next run does all of it again.

The folder of retraining is `retrain` in the folder of models: `lock` is held while a run goes on,
`last.json` has the points of the last run that came to its end, and `draft` is a challenger that is
being written.

The points are the bundled ones and this site's own: what was measured there, and what its launches
teach. A file next to a model says which of them it has learned from.
"""

import itertools
import json
import math
import shutil
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, POLICY
from advisor.core.records import (
    COUNTER_BOUND,
    DOUBTFUL,
    WRONG,
    PairPoint,
    Point,
    SoloPoint,
    grouped,
)
from advisor.core.wording import count_of, listed
from advisor.errors import BusyError, ModelError, StoreError
from advisor.files import private_folder, replace_file, try_lock, writing_private
from advisor.formats.moments import moment_fault
from advisor.formats.wire import read, write
from advisor.predict.profiles import make_profiles
from advisor.validity.points import (
    author_of,
    claim_of,
    undisputed,
    window_of,
    with_pair_flags,
    with_solo_flags,
)
from advisor_data import Store
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points
from advisor_models.registry import (
    BUNDLED_NAME,
    NEGLIGIBLE_PERCENT,
    Artefact,
    Manifest,
    Registry,
    check_intervals,
    read_artefact,
    write_artefact,
)
from advisor_training.learners import LEARNERS, HeldOut, OnFold, leave_job_out
from advisor_training.rows import (
    LeftOut,
    Mask,
    PointSet,
    Rows,
    job_classes,
    measurement_of,
    profiles_that_lack,
    taught_here,
    whole_gpu,
    with_right_results,
)
from advisor_training.scoring import Resamples, fractions, rounded_percent
from advisor_training.train import (
    TrainingSet,
    dataset_sha256,
    fit_model,
    make_artefact,
    make_training_set,
    write_into,
)

POINTS = "points.json"
"""A file of a model: the ids of its points; its hash is in the manifest, like that of any file."""

# Of points without a readable moment.
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def _measurements(rows: Rows) -> list[tuple[str, ...]]:
    """Which measurement each row is of: both jobs, GPU model, card and run."""
    names = zip(rows.job_a, rows.job_b, rows.gpu_model, rows.card, rows.run, strict=True)
    return [tuple(map(str, name)) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What there is to learn from.

    Attributes:
        local: Measured at this site, or observed there in launches; of launches that teach nothing
            no point is made, and they are left out.
        bundled: What the model of the package was learned from.
        with_bundled: Whether a challenger learns from the bundled pairs, too.
    """

    local: PointSet
    bundled: PointSet
    with_bundled: bool = True

    @property
    def candidates(self) -> PointSet:
        """What a challenger may learn from.

        Without the bundled points still the profiles of jobs in own pairs that have none here.
        """
        if self.with_bundled:
            return self.local | self.bundled
        lacking = profiles_that_lack(self.local.pairs, self.local.profiled, self.bundled.profiled)
        return self.local | PointSet(profiled=tuple(lacking))


def collect(
    store: Store | None, home: Path, *, with_bundled: bool = True, with_launches: bool = True
) -> Collected:
    """All points of a store, those that its launches make if they teach, and the bundled ones.

    Without a store nothing was measured here. `home` is where this host keeps its checks of counts.

    Raises:
        StoreError: the store or a check of counts cannot be read.
    """
    bundled = bundled_points()
    if store is None:
        return Collected(local=PointSet(), bundled=bundled, with_bundled=with_bundled)
    measured = PointSet(pairs=tuple(store.pair_points()), profiled=tuple(store.solo_points()))
    observations = store.observations() if with_launches else []
    borrowed = profiles_that_lack(observations, measured.profiled, bundled.profiled)
    taught = taught_here(observations, [*measured.profiled, *borrowed], home)
    return Collected(local=measured | taught, bundled=bundled, with_bundled=with_bundled)


def bundled_points() -> PointSet:
    """The points that come with the package.

    Raises:
        StoreError: the installation lacks a file of them.
    """
    return PointSet(
        pairs=tuple(bundled_pair_points()),
        profiled=tuple(bundled_solo_points()),
        references=tuple(bundled_reference_points()),
    )


def learned_from(champion: Artefact, collected: Collected, *, is_bundled: bool) -> PointSet:
    """The points of the champion among those that are there.

    A model that `advisor train` made has no list of them: it knows what was measured before it. The
    bundled one knows the bundled points.

    Raises:
        ModelError: the list of its points is no list.
    """
    if POINTS in champion.files:
        with ModelError.instead_of(
            (ValueError, TypeError),
            f"{POINTS} of the model in use is not a list of points",
            fix="promote another model: advisor models list",
        ):
            ids = frozenset[str](json.loads(champion.files[POINTS]))
        return (collected.local | collected.bundled).where(lambda point: point.point_id in ids)
    if is_bundled:
        return collected.bundled
    made = datetime.fromisoformat(champion.manifest.created_at)
    return collected.candidates.where(lambda point: _moment_of(point, made) < made)


def _moment_of(point: Point, otherwise: datetime) -> datetime:
    """When a point was measured, with a time zone; otherwise if it is unreadable."""
    try:
        moment = datetime.fromisoformat(point.started_at)
    except ValueError:
        return otherwise
    return moment if moment.tzinfo else moment.replace(tzinfo=otherwise.tzinfo)


_Reason: TypeAlias = Literal[
    "malformed", "duplicate", "disputed", "voids", "impossible", "flagged", "too-many"
]
REASONS: tuple[_Reason, ...] = get_args(_Reason)


@dataclass(frozen=True, slots=True)
class _Refused:
    """A point, and why it is not learned from.

    Attributes:
        why: With the value that is wrong.
    """

    point_id: str
    reason: _Reason
    why: str


@dataclass(frozen=True, slots=True)
class RefusedPoints(LeftOut):
    """All points that were left out for one of the `REASONS`.

    Attributes:
        example: Why the first of them was.
    """

    example: str
    point_ids: tuple[str, ...]


def _refuse(point: Point, reason: _Reason, why: str) -> _Refused:
    """A refusal that names the point's jobs and moment."""
    jobs = (point.job,) if isinstance(point, SoloPoint) else point.jobs
    return _Refused(point.point_id, reason, f"{' + '.join(jobs)} at {point.started_at}: {why}")


def without(points: PointSet, refused: Iterable[_Refused]) -> PointSet:
    """The points that were not refused."""
    ids = {point.point_id for point in refused}
    return points.where(lambda point: point.point_id not in ids)


def by_reason(refused: Iterable[_Refused]) -> tuple[RefusedPoints, ...]:
    """Counted by reason, in the order of `REASONS`."""
    groups = grouped(refused, lambda point: point.reason)
    return tuple(
        RefusedPoints(
            reason, len(group), group[0].why, tuple(sorted(point.point_id for point in group))
        )
        for reason in REASONS
        if (group := groups.get(reason))
    )


# What a part says of its own results where they are not right.
_WRONG_RESULTS = ("wrong", "differ")


# A job beside another one gets at most so much of the rate that it has alone at that share: the
# bound at which launches call a job too fast. Launch-bound jobs alone differ by up to 12 %.
_FASTEST = 1.3

# What one writer may teach in a run, as a part of the pairs that were learned from.
MOST_TAUGHT = 0.25

# Pairs that one writer may teach in a run, however few were learned from.
LEAST_TAUGHT = 200

MOST_VOIDED = 10
"""Pairs of others that one writer's profiles may make impossible; with more they are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """Points after the checks.

    Attributes:
        accepted: What is learned from, new and known.
        refused: New points that are not; one refusal each.
        new: How many points the champion has not learned from.
    """

    accepted: PointSet
    refused: tuple[_Refused, ...]
    new: int


def sift(collected: Collected, learned: PointSet, now: datetime) -> Sifted:
    """Check the points that the champion has not learned from.

    Known points pass the cross-checks again, too, which newer profiles may sharpen; they are not
    counted as refused.
    """
    points, learned_ids = collected.candidates, learned.ids
    new = points.where(lambda point: point.point_id not in learned_ids)
    old = points.where(lambda point: point.point_id in learned_ids)
    first: dict[str, _Refused] = {}
    for refusal in (*_refused_alone(new, now), *_copies(new, old)):
        first.setdefault(refusal.point_id, refusal)
    refused = [*first.values()]
    flagged = with_flags(without(points, refused))
    refused += (
        _refuse(point, "flagged", doubt)
        for point in flagged.pairs
        if point.point_id not in learned_ids and (doubt := _doubt(point))
    )
    refused += (
        _refuse(point, "flagged", ", ".join(sorted(flags)))
        for point in flagged.profiled
        if point.point_id not in learned_ids and (flags := WRONG.intersection(point.flags))
    )
    usable = usable_points(flagged)
    fresh = usable.where(lambda point: point.point_id not in learned_ids)
    refused += _voiding(fresh, usable.profiled)
    fresh, usable = without(fresh, refused), without(usable, refused)
    refused += too_fast(fresh.pairs, usable.profiled)
    refused += _too_many(without(fresh, refused).pairs, len(learned.pairs))
    return Sifted(accepted=without(usable, refused), refused=tuple(refused), new=len(new.ids))


def with_flags(points: PointSet) -> PointSet:
    """The points with the flags of the cross-checks between them."""
    solos = with_solo_flags(points.profiled)
    return replace(points, profiled=tuple(solos), pairs=tuple(with_pair_flags(points.pairs, solos)))


def usable_points(flagged: PointSet) -> PointSet:
    """What may be learned from, as `advisor train` has it.

    Doubtful profiles stay, since they are taken at shares that have no others.
    """
    return PointSet(
        pairs=tuple(point for point in flagged.pairs if _doubt(point) is None),
        profiled=with_right_results(flagged.profiled),
        references=with_right_results(flagged.references),
    )


def _doubt(point: PairPoint) -> str | None:
    """The flag of a cross-check, or what a job says of its own results."""
    flag = next((flag for flag in point.flags if flag in DOUBTFUL), None)
    wrong = (part.job for part in point.parts if part.results in _WRONG_RESULTS)
    return flag or next((f"results of {job} are not right" for job in wrong), None)


def too_fast(pairs: Iterable[PairPoint], alone: Iterable[SoloPoint]) -> Iterator[_Refused]:
    """Points at which a job was much faster than alone at its share, where it has a profile."""
    profiles = make_profiles(alone)
    for point in pairs:
        for job, share, rate in _rates(point):
            if (profile := profiles.get((job, point.gpu_model))) is None:
                continue
            # At a share below the profile, that at its smallest.
            limit = float(profile.at([max(share, float(profile.shares[0]))])["rate"][0])
            if rate > _FASTEST * limit:
                why = f"{job} did {rate:.4g}/s at {share:g} %, alone it does {limit:.4g}/s"
                yield _refuse(point, "impossible", why)
                break


def _voiding(fresh: PointSet, alone: Sequence[SoloPoint]) -> Iterator[_Refused]:
    """Profiles by which one writer would void more than `MOST_VOIDED` pairs of others."""
    impossible = {refusal.point_id for refusal in too_fast(fresh.pairs, alone)}
    for writer in sorted({point.written_by for point in fresh.profiled if point.written_by}):
        pairs = [p for p in fresh.pairs if p.written_by != writer and p.point_id in impossible]
        left = [point for point in alone if point.written_by != writer]
        voided = len(pairs) - sum(1 for _ in too_fast(pairs, left))
        if voided > MOST_VOIDED:
            why = f"profiles of {writer} would make {voided} pairs of others impossible"
            yield from (
                _refuse(point, "voids", f"{why}, {MOST_VOIDED} at most: measure those jobs again")
                for point in fresh.profiled
                if point.written_by == writer
            )


def _too_many(fresh: Iterable[PairPoint], learned: int) -> Iterator[_Refused]:
    """The newest pairs beyond the limit of one writer; points without a signature have no limit.

    This limits how many points one token contributes per retraining.
    """
    most = max(LEAST_TAUGHT, int(MOST_TAUGHT * learned))
    in_order = sorted(fresh, key=lambda point: (point.started_at, point.point_id))
    for writer, points in grouped(in_order, lambda point: point.written_by).items():
        why = f"{writer} teaches {most} pairs at most in one run; the others come in the next ones"
        yield from (
            _refuse(point, "too-many", why) for point in points[most:] if writer is not None
        )


def _refused_alone(new: PointSet, now: datetime) -> Iterator[_Refused]:
    """Points with a moment, a share or a number that is none, or with a power that cannot be.

    That is more than the limit or less than the idle GPU, by more than instruments disagree.
    """
    for point in new:
        if fault := moment_fault(point.started_at, now):
            yield _refuse(point, "malformed", fault)
        for job, share, rate in _rates(point):
            if not (0 < share <= 100 and 0 <= rate < math.inf):
                yield _refuse(point, "malformed", f"{job} at {share:g} % with {rate:g}/s")
        power, limit, idle = point.power_w, point.power_limit_w, point.idle_power_w
        if power is not None and not 0 <= power < math.inf:
            yield _refuse(point, "malformed", f"power_w is {power:g}")
        if not 0 < point.window_s < math.inf:
            yield _refuse(point, "malformed", f"window_s is {point.window_s:g}")
        if power is not None and limit is not None and power > (1 + COUNTER_BOUND) * limit:
            why = f"{power:.0f} W is above the limit of {limit:.0f} W"
            yield _refuse(point, "impossible", why)
        if power is not None and idle is not None and power < (1 - COUNTER_BOUND) * idle:
            why = f"{power:.0f} W is below the {idle:.0f} W of the idle GPU"
            yield _refuse(point, "impossible", why)


def _copies(new: PointSet, others: PointSet) -> Iterator[_Refused]:
    """A card measures one thing at a time: the same window again is a copy.

    Of unlike ones count those that `undisputed` has. What was learned from already stays: else a
    copy would take it away.
    """
    first_ids = {window_of(point): point.point_id for point in others}
    for window, its in grouped(new, window_of).items():
        copies = {point.point_id: point for point in its}
        if window not in first_ids and len(set(map(claim_of, copies.values()))) > 1:
            whose = sorted(set(map(author_of, copies.values())))
            why = (
                f"{len(copies)} unlike copies of this window are there, by {listed(whose)}; "
                "measure it again, or remove what one wrote: advisor data delete --written-by NAME"
            )
            counted = {point.point_id: point for point in undisputed(copies.values())}
            yield from (
                _refuse(point, "disputed", why) for of, point in copies.items() if of not in counted
            )
            copies = counted
        if not copies:
            continue
        first = first_ids.get(window, min(copies))
        yield from (
            _refuse(point, "duplicate", f"the same window is there as {first}")
            for point in copies.values()
            if point.point_id != first
        )


def _rates(point: Point) -> list[tuple[str, float, float]]:
    parts = (point,) if isinstance(point, SoloPoint) else point.parts
    return [(p.job, p.share_percent, p.rate) for p in parts if p.rate is not None]


def scores(rows: Rows, held_out: HeldOut) -> pd.DataFrame:
    """How good answers are, one row for each (left-out job, measurement), sorted.

    Columns: `left_out`; `row`, one of the measurement; `job_a`, `job_b`; `error`, mean relative
    error of both rates and of the power at splits; `regret`, value of the chosen split below that
    of the best of the nine, as a part of it, NaN where the nine were not all measured.
    """
    windows = held_out.by_measurement(rows, rows.kind != "uncapped")
    row = np.array([held_out.row[places[0]] for _, places in windows])
    tests = [held_out.take(np.array(places)) for _, places in windows]
    return pd.DataFrame(
        {
            "left_out": [name for (name, _), _ in windows],
            "row": row,
            "job_a": rows.job_a[row],
            "job_b": rows.job_b[row],
            "error": [_error(rows, test) for test in tests],
            "regret": [_regret(rows, test) for test in tests],
        }
    )


def _error(rows: Rows, of_test: HeldOut) -> float:
    row = of_test.row
    measured = np.column_stack([rows.speed_a[row], rows.speed_b[row], rows.power_w[row]])
    expected = np.column_stack([of_test.speed, of_test.power_w])
    positive = measured > 0  # a rate of 0 has no relative error
    return (
        float(np.abs(expected[positive] / measured[positive] - 1).mean()) if positive.any() else 0.0
    )


def _regret(rows: Rows, of_test: HeldOut) -> float:
    if not (rows.kind[of_test.row] == "nine").all():
        return np.nan
    parts = fractions(rows, of_test, OBJECTIVES[DEFAULT_OBJECTIVE], POLICY.tie)
    return 1 - float(parts[0]) if len(parts) else np.nan


_FIGURES: tuple[Literal["error", "regret"], ...] = ("error", "regret")

# Of a group that decides: drawing again from three jobs hardly ever shows another sign.
_LEAST_JOBS = 4

# The same: five pairs that do not hang together have one sign in one case of 16 by chance, which
# is above the 5 % that the interval leaves out, and six in one of 32.
_LEAST_PAIRS = 6

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
    figure: Literal["error", "regret"]
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
    champion: pd.DataFrame, challenger: pd.DataFrame, groups: Mapping[str, Mask]
) -> Iterator[ComparedFigure]:
    """Both figures of two `scores` over every group, a mask of their rows, that has some."""
    for (group, mask), figure in itertools.product(groups.items(), _FIGURES):
        both = champion[["left_out", "job_a", "job_b"]][mask]
        both = both.assign(champion=champion[figure], challenger=challenger[figure]).dropna()
        if both.empty:
            continue
        jobs = both["left_out"].nunique()
        pairs = list(zip(both["job_a"], both["job_b"], strict=True))
        gain = Resamples(pairs).mean((both["champion"] - both["challenger"]).to_numpy())
        yield ComparedFigure(
            group=group,
            figure=figure,
            tests=len(both),
            jobs=jobs,
            champion_percent=rounded_percent(both["champion"].mean()),
            challenger_percent=rounded_percent(both["challenger"].mean()),
            gain_percent=rounded_percent(gain.value),
            low_percent=rounded_percent(gain.low),
            high_percent=rounded_percent(gain.high),
            decides=jobs >= _LEAST_JOBS and len(set(pairs)) >= _LEAST_PAIRS,
        )


def decide(compared: Sequence[ComparedFigure], news: Sequence[str]) -> tuple[bool, str]:
    """Whether to promote, and why in words: what is worse nowhere.

    What a model learns of a job or a pair cannot show in tests that leave the job out, so a
    challenger need not be better in these: it has learned from newer points. `news` are jobs and
    GPU models that only the challenger has seen.
    """
    if worse := [figure for figure in compared if figure.is_worse]:
        return False, f"worse for {listed(map(_words, worse))}"
    if better := [figure for figure in compared if figure.is_better]:
        return True, f"better for {listed(map(_words, better))}"
    seen = f"seen {listed(news)}" if news else "learned from newer points"
    return True, f"not worse, and has {seen}"


def _words(figure: ComparedFigure) -> str:
    return (
        f"{figure.group} ({figure.figure} by {abs(figure.gain_percent):.2f} "
        f"[{figure.low_percent:.2f} {figure.high_percent:.2f}] points)"
    )


HALF_LIFE_DAYS = 30.0
# A measurement counts half as much after a month, and never less than a quarter: drivers,
# libraries and jobs change, and a new point says more of today. In simulated quarters rates are
# wrong by 6 % less so, and as much where nothing changes (quarter/ages.py at 4efadd9f).
_LEAST_WEIGHT = 0.25

OnStage: TypeAlias = Callable[[str], OnFold | None]
"""Takes the name of a stage that begins; what it returns is called after each fit."""


def training_set(points: PointSet) -> TrainingSet:
    """Rows of checked points, of which older ones count less.

    Raises:
        InputError: nothing can be learned from them.
    """
    made_from = make_training_set(points.pairs, points.profiled, points.references)
    # What rows count by their age, measured from the newest of them; shape (n,).
    begun = {
        key: min(_moment_of(point, _LONG_AGO) for point in its)
        for key, its in grouped(points.pairs, measurement_of).items()
    }
    at = [begun[key] for key in _measurements(made_from.rows)]
    days = np.array([(max(at) - moment) / timedelta(days=1) for moment in at])
    weights = np.maximum(0.5 ** (days / HALF_LIFE_DAYS), _LEAST_WEIGHT)
    return replace(
        made_from,
        rows=made_from.rows.assign(weight=made_from.rows.weight * weights),
        blind=made_from.blind.assign(weight=made_from.blind.weight * weights),
    )


def _compare_with(
    learned: PointSet, points: PointSet, rows: Rows, held_out: HeldOut, on_stage: OnStage
) -> tuple[ComparedFigure, ...]:
    """What the champion's checked points teach against what the challenger's do, on the same rows.

    The champion has learned from its own jobs, so what it says of them is no measure. For each job,
    the learner is fitted to the champion's points without that job and to the challenger's without
    it, and both answer every row with the job: `held_out` are the challenger's answers about rows
    of its points.

    Raises:
        InputError: nothing can be learned from the champion's points.
    """
    stage = on_stage("asking the champion's points")
    of_champion = leave_job_out(training_set(learned).rows, LEARNERS["extra-trees"], stage, rows)
    tests = scores(rows, held_out)
    solos = whole_gpu((*points.references, *points.profiled))
    learned_ids = learned.ids
    new = {measurement_of(p) for p in points.pairs if p.point_id not in learned_ids}
    newest = np.array([key in new for key in _measurements(rows)])
    row, classes = tests["row"].to_numpy(), job_classes(solos)
    models = rows.gpu_model[row]
    keys = zip(models.tolist(), tests["left_out"].tolist(), strict=True)
    codes = np.array([classes.get(key, "") for key in keys])
    groups = {
        ALL: np.ones(len(row), dtype=bool),
        NEWEST: newest[row],
        **{f"GPU model {name}": models == name for name in np.unique(models)},
        **{f"job class {code}": codes == code for code in np.unique(codes) if code},
    }
    return tuple(compare(scores(rows, of_champion), tests, groups))


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
    def summary(self) -> str:
        """One line for the mail of cron."""
        verdict = f"replaces {self.replaced}" if self.outcome == "promoted" else "stays"
        line = f"{self.champion} {verdict}: {self.why}; {count_of(self.new_points, 'new point')}"
        counts = {refused.reason: refused.points for refused in self.left_out}
        reasons = ", ".join(f"{points} {reason}" for reason, points in counts.items())
        return f"{line}, {sum(counts.values())} left out: {reasons}" if counts else line


@contextmanager
def working_in(models: Path) -> Generator[Path]:
    """The folder of retraining below that of models, for one run at a time.

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
        # A run that was killed leaves its draft.
        shutil.rmtree(folder / "draft", ignore_errors=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder / "draft", ignore_errors=True)


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
        working_in(models) as folder,
    ):
        registry = registry or Registry(models)
        champion = registry.champion()
        artefact = read_artefact(registry.folder(champion))
        learned = learned_from(artefact, collected, is_bundled=champion == BUNDLED_NAME)
        nothing = RetrainReport(
            at=now.isoformat(timespec="seconds"),
            outcome="nothing-new",
            why="nothing new was measured",
            champion=champion,
            launches_left_out=collected.local.left_out,
        )
        if collected.candidates.ids <= learned.ids:
            return nothing
        points_sha256 = dataset_sha256(collected.candidates)
        last: dict[str, str] = {}
        with suppress(OSError, ValueError):  # no run came to its end, or its file cannot be read
            last = read(dict[str, str], (folder / "last.json").read_bytes())
        if last.get("points_sha256") == points_sha256:
            return replace(
                nothing, why=f"nothing new since {last['at']}, when it was: {last['why']}"
            )
        sifted = sift(collected, learned, now)
        report = replace(nothing, new_points=sifted.new, left_out=by_reason(sifted.refused))
        report = _challenged(
            report, sifted, learned, (registry, folder / "draft", artefact.manifest), now, on_stage
        )
        # A writer's points beyond the limit of a run are learned in the next.
        if report.outcome != "promoted" or all(
            refused.reason != "too-many" for refused in report.left_out
        ):
            # The hash is of all points that were there, refused ones among them.
            run = {"points_sha256": points_sha256, "at": report.at, "why": report.why}
            replace_file(folder / "last.json", write(run).encode() + b"\n")
        # Those of other makers stay.
        made = [v for v in registry.versions() if (registry.folder(v) / POINTS).exists()]
        removed = tuple(v for v in made[: max(len(made) - keep, 0)] if registry.remove(v))
        return replace(report, removed=removed)


def _challenged(
    report: RetrainReport,
    sifted: Sifted,
    learned: PointSet,
    where: tuple[Registry, Path, Manifest],
    now: datetime,
    on_stage: OnStage,
) -> RetrainReport:
    """Train a challenger where there is something to learn, and promote it unless it is worse."""
    registry, draft, old = where
    accepted, known = sifted.accepted, learned.ids
    paired = {job for pair in accepted.pairs for job in pair.jobs}
    solos = (p.job for p in (*accepted.profiled, *accepted.references) if p.point_id not in known)
    # A profile of a job that is in no pair says nothing of jobs together.
    is_apart = paired.isdisjoint(solos) and {p.point_id for p in accepted.pairs} <= known
    made_from = training_set(accepted)
    if is_apart or made_from.facts.sha256 == old.dataset.sha256:
        return replace(report, why="nothing of what is new can be learned from")
    trained = fit_model(made_from.rows, on_stage("training the challenger"), made_from.blind)
    ids = json.dumps(sorted(accepted.ids), indent=0).encode() + b"\n"
    artefact = make_artefact(made_from, trained, now, {POINTS: ids})
    checked, rows = usable_points(with_flags(learned)), made_from.rows
    compared = _compare_with(checked, accepted, rows, trained.held_out, on_stage)
    new = artefact.manifest
    jobs = sorted(set(new.dataset.jobs) - set(old.dataset.jobs))
    promote, why = decide(compared, jobs + sorted(set(new.gpu_models) - set(old.gpu_models)))
    try:
        check_intervals(new)
    except ModelError as error:
        promote, why = False, str(error)
    report = replace(
        report,
        outcome="kept",
        why=why,
        challenger=new.version,
        used_points=len(accepted.ids),
        compared=compared,
    )
    if not promote:
        return report
    # The version may be there from a run that was killed.
    if new.version not in registry.versions():
        write_into(draft, lambda folder: write_artefact(folder, artefact))
        registry.add(draft)
    registry.promote(new.version, now)
    return replace(report, outcome="promoted", champion=new.version, replaced=report.champion)
