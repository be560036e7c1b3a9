"""The points that a run of retraining can learn from: this site's own, and the bundled ones.

The site's own are what was measured there, and what its launches teach. Which of them a model has
learned from a file next to it says.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from advisor.core.records import (
    COUNTER_BOUND,
    DOUBTFUL,
    WRONG,
    PairPoint,
    Point,
    SoloPoint,
)
from advisor.core.wording import listed
from advisor.errors import ModelError
from advisor.formats.moments import moment_fault
from advisor.predict.profiles import Profile, make_profiles
from advisor.validity.points import told, window_of, with_pair_flags, with_solo_flags
from advisor_data import Store
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points
from advisor_models.manifest import Artefact
from advisor_training.pairs import LeftOut
from advisor_training.points import profiles_that_lack, right_ones, taught_here
from advisor_training.rows import Rows

POINTS = "points.json"
"""A file of a model: the ids of its points; its hash is in the manifest, like that of any file."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""Of points whose moment nobody can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Points of all kinds.

    Attributes:
        profiled: Jobs alone at all shares.
        references: Jobs alone on the whole GPU in the runs of the pairs, where those are others.
    """

    pairs: tuple[PairPoint, ...] = ()
    profiled: tuple[SoloPoint, ...] = ()
    references: tuple[SoloPoint, ...] = ()

    def __iter__(self) -> Iterator[Point]:
        yield from self.pairs
        yield from self.profiled
        yield from self.references

    def __or__(self, more: "PointSet") -> "PointSet":
        """The points of both, each once."""
        return PointSet(
            pairs=tuple(dict.fromkeys((*self.pairs, *more.pairs))),
            profiled=tuple(dict.fromkeys((*self.profiled, *more.profiled))),
            references=tuple(dict.fromkeys((*self.references, *more.references))),
        )

    def where(self, wanted: Callable[[Point], bool]) -> "PointSet":
        """Those points of each kind that are wanted."""
        return PointSet(
            pairs=tuple(filter(wanted, self.pairs)),
            profiled=tuple(filter(wanted, self.profiled)),
            references=tuple(filter(wanted, self.references)),
        )

    @property
    def ids(self) -> frozenset[str]:
        """`point_id` of every point of all kinds."""
        return frozenset(point.point_id for point in self)


def measurements(rows: Rows) -> list[tuple[str, ...]]:
    """Which measurement each row is of: both jobs, GPU model, card and run."""
    names = zip(rows.job_a, rows.job_b, rows.gpu_model, rows.card, rows.run, strict=True)
    return [tuple(map(str, name)) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What there is to learn from.

    Attributes:
        own: Measured at this site, or observed there in launches.
        bundled: What the model of the package was learned from.
        with_bundled: Whether a challenger learns from the bundled pairs, too.
        launches_left_out: Launches that teach nothing, and why; no point is made of them.
    """

    own: PointSet
    bundled: PointSet
    with_bundled: bool = True
    launches_left_out: tuple[LeftOut, ...] = ()

    @property
    def candidates(self) -> PointSet:
        """What a challenger may learn from."""
        return self.own | (self.bundled if self.with_bundled else self._borrowed)

    @property
    def _borrowed(self) -> PointSet:
        """Bundled profiles of jobs in own pairs that have no profile of their own."""
        own, solos = self.own, self.bundled.profiled
        return PointSet(profiled=tuple(profiles_that_lack(own.pairs, own.profiled, solos)))


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
        return Collected(own=PointSet(), bundled=bundled, with_bundled=with_bundled)
    measured = PointSet(pairs=tuple(store.pair_points()), profiled=tuple(store.solo_points()))
    seen = store.observations() if with_launches else []
    borrowed = profiles_that_lack(seen, measured.profiled, bundled.profiled)
    taught = taught_here(seen, [*measured.profiled, *borrowed], home)
    return Collected(
        own=measured | PointSet(pairs=taught.points, references=taught.references),
        bundled=bundled,
        with_bundled=with_bundled,
        launches_left_out=taught.left_out,
    )


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


def points_file(learned: PointSet) -> bytes:
    """The content of `POINTS`."""
    return json.dumps(sorted(learned.ids), indent=0).encode() + b"\n"


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
        return (collected.own | collected.bundled).where(lambda point: point.point_id in ids)
    if is_bundled:
        return collected.bundled
    made = datetime.fromisoformat(champion.manifest.created_at)
    return collected.candidates.where(lambda point: moment_of(point, made) < made)


def moment_of(point: Point, otherwise: datetime) -> datetime:
    """When a point was measured, with a time zone; otherwise where nobody can read it."""
    try:
        found = datetime.fromisoformat(point.started_at)
    except ValueError:
        return otherwise
    return found if found.tzinfo else found.replace(tzinfo=otherwise.tzinfo)


_Reason: TypeAlias = Literal[
    "malformed", "duplicate", "disputed", "impossible", "flagged", "too-many"
]
REASONS: tuple[_Reason, ...] = get_args(_Reason)


@dataclass(frozen=True, slots=True)
class Refused:
    """A point, and why it is not learned from.

    Attributes:
        why: With the value that is wrong.
    """

    point_id: str
    reason: _Reason
    why: str


@dataclass(frozen=True, slots=True)
class RefusedPoints:
    """All points that were left out for one reason.

    Attributes:
        example: Why the first of them was.
    """

    reason: _Reason
    points: int
    example: str
    point_ids: tuple[str, ...]


def refuse(point: Point, reason: _Reason, why: str) -> Refused:
    """A refusal that names the point's jobs and moment."""
    jobs = (point.job,) if isinstance(point, SoloPoint) else point.jobs
    return Refused(point.point_id, reason, f"{' + '.join(jobs)} at {point.started_at}: {why}")


def without(points: PointSet, refused: Iterable[Refused]) -> PointSet:
    """The points that were not refused."""
    ids = {one.point_id for one in refused}
    return points.where(lambda point: point.point_id not in ids)


def by_reason(refused: Iterable[Refused]) -> tuple[RefusedPoints, ...]:
    """Counted by reason, in the order of `REASONS`."""
    groups: dict[_Reason, list[Refused]] = {}
    for one in refused:
        groups.setdefault(one.reason, []).append(one)
    return tuple(
        RefusedPoints(
            reason, len(found), found[0].why, tuple(sorted(one.point_id for one in found))
        )
        for reason in REASONS
        if (found := groups.get(reason))
    )


WRONG_RESULTS = ("wrong", "differ")
"""What a part says of its own results where they are not right."""


FASTEST = 1.3
"""A job beside another one gets at most so much of the rate that it has alone at that share: the
bound at which launches call a job too fast. Launch-bound jobs alone differ by up to 12 %."""

MOST_TAUGHT, LEAST_TAUGHT = 0.25, 200
"""What one writer may teach in a run: a part of the pairs that were learned from, or so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """Points after the checks.

    Attributes:
        accepted: What is learned from, new and known.
        refused: New points that are not; one refusal each.
        new: How many points the champion has not learned from.
    """

    accepted: PointSet
    refused: tuple[Refused, ...]
    new: int


def sift(collected: Collected, learned: PointSet, now: datetime) -> Sifted:
    """Check the points that the champion has not learned from.

    Known points pass the cross-checks again, too, which newer profiles may sharpen; they are not
    counted as refused.
    """
    points, known = collected.candidates, learned.ids
    new = points.where(lambda point: point.point_id not in known)
    old = points.where(lambda point: point.point_id in known)
    first: dict[str, Refused] = {}
    for one in (*_refused_alone(new, now), *_copies(new, old)):
        first.setdefault(one.point_id, one)
    refused = [*first.values()]
    flagged = with_flags(without(points, refused))
    refused += _doubtful(flagged, known)
    usable = usable_points(flagged)
    fresh = usable.where(lambda point: point.point_id not in known)
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
        profiled=right_ones(flagged.profiled),
        references=right_ones(flagged.references),
    )


def _doubtful(flagged: PointSet, known: frozenset[str]) -> Iterator[Refused]:
    for point in flagged.pairs:
        if point.point_id not in known and (doubt := _doubt(point)):
            yield refuse(point, "flagged", doubt)
    for point in flagged.profiled:
        if point.point_id not in known and (flags := WRONG.intersection(point.flags)):
            yield refuse(point, "flagged", ", ".join(sorted(flags)))


def _doubt(point: PairPoint) -> str | None:
    """The flag of a cross-check, or what a job says of its own results."""
    flag = next((flag for flag in point.flags if flag in DOUBTFUL), None)
    wrong = (part.job for part in point.parts if part.results in WRONG_RESULTS)
    return flag or next((f"results of {job} are not right" for job in wrong), None)


def too_fast(pairs: Iterable[PairPoint], alone: Iterable[SoloPoint]) -> Iterator[Refused]:
    """Points at which a job was much faster than alone at its share, where it has a profile."""
    profiles = make_profiles(alone)
    for point in pairs:
        for job, share, rate in _rates(point):
            limit = _most(profiles.get((job, point.gpu_model)), share)
            if limit is not None and rate > FASTEST * limit:
                why = f"{job} did {rate:.4g}/s at {share:g} %, alone it does {limit:.4g}/s"
                yield refuse(point, "impossible", why)
                break


def _too_many(fresh: Iterable[PairPoint], learned: int) -> Iterator[Refused]:
    """Pairs beyond what one writer may teach at once, the newest; what no service signed is free.

    Who holds a token moves the model by steps, each of which has to be no worse than the last.
    """
    most = max(LEAST_TAUGHT, int(MOST_TAUGHT * learned))
    counts: Counter[str] = Counter()
    for point in sorted(fresh, key=lambda point: (point.started_at, point.point_id)):
        if point.written_by is not None:
            counts[point.written_by] += 1
            if counts[point.written_by] > most:
                why = f"{point.written_by} teaches {most} pairs at most in one run"
                yield refuse(point, "too-many", f"{why}; the others come in the next ones")


def _refused_alone(new: PointSet, now: datetime) -> Iterator[Refused]:
    for point in new:
        if why := _malformed(point, now):
            yield refuse(point, "malformed", why)
        elif why := _impossible_power(point):
            yield refuse(point, "impossible", why)


def _malformed(point: Point, now: datetime) -> str | None:
    """What makes a point unreadable: a moment, a share or a number that is none."""
    if fault := moment_fault(point.started_at, now):
        return fault
    for job, share, rate in _rates(point):
        if not (0 < share <= 100 and 0 <= rate < math.inf):
            return f"{job} at {share:g} % with {rate:g}/s"
    if point.power_w is not None and not 0 <= point.power_w < math.inf:
        return f"power_w is {point.power_w:g}"
    return None if 0 < point.window_s < math.inf else f"window_s is {point.window_s:g}"


def _impossible_power(point: Point) -> str | None:
    """More than the limit or less than the idle GPU, by more than instruments disagree."""
    power, limit, idle = point.power_w, point.power_limit_w, point.idle_power_w
    if power is None:
        return None
    if limit is not None and power > (1 + COUNTER_BOUND) * limit:
        return f"{power:.0f} W is above the limit of {limit:.0f} W"
    if idle is not None and power < (1 - COUNTER_BOUND) * idle:
        return f"{power:.0f} W is below the {idle:.0f} W of the idle GPU"
    return None


def _copies(new: PointSet, others: PointSet) -> Iterator[Refused]:
    """A card measures one thing at a time: the same window again is a copy.

    Nobody can say which of two unlike ones is the true one, so neither is learned from. What was
    learned from already stays: else a copy would take it away.
    """
    found: dict[Hashable, dict[str, Point]] = {}
    for point in new:
        found.setdefault(window_of(point), {})[point.point_id] = point
    known = {window_of(point): point.point_id for point in others}
    for window, copies in found.items():
        if window not in known and len(set(map(told, copies.values()))) > 1:
            yield from (_disputed(point, copies.values()) for point in copies.values())
            continue
        first = known.get(window, min(copies))
        for point in copies.values():
            if point.point_id != first:
                yield refuse(point, "duplicate", f"the same window is there as {first}")


def _disputed(point: Point, copies: Collection[Point]) -> Refused:
    whose = sorted({copy.written_by or "this site itself" for copy in copies})
    why = f"{len(copies)} unlike copies of this window are there, by {listed(whose)}"
    fix = "measure it again, or remove what one wrote: advisor data delete --written-by NAME"
    return refuse(point, "disputed", f"{why}; {fix}")


def _rates(point: Point) -> list[tuple[str, float, float]]:
    parts = (point,) if isinstance(point, SoloPoint) else point.parts
    return [(p.job, p.share_percent, p.rate) for p in parts if p.rate is not None]


def _most(profile: Profile | None, share: float) -> float | None:
    """The rate alone at a share; at one below the profile, that at its smallest."""
    if profile is None:
        return None
    return float(profile.at([max(share, float(profile.shares[0]))])["rate"][0])
