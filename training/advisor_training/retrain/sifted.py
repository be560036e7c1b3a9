"""New points through every check: what a challenger learns from, and what it does not.

Which points no GPU can have measured, whatever the jobs, is found without a model.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.core.records import COUNTER_BOUND, DOUBTFUL, WRONG, PairPoint, Point, SoloPoint
from advisor.core.wording import listed
from advisor.formats.moments import moment_fault
from advisor.predict.profiles import Profile, make_profiles
from advisor.validity.points import told, window_of, with_pair_flags, with_solo_flags
from advisor_training.dataset.measured import right_ones
from advisor_training.retrain.collected import Collected, PointSet
from advisor_training.retrain.refused import Refused, refuse, without

WRONG_RESULTS = ("wrong", "differ")
"""What a part says of its own results where they are not right."""


FASTEST = 1.3
"""A job beside another one gets at most so much of the rate that it has alone at that share: the
bound at which launches call a job too fast. Launch-bound jobs alone differ by up to 12 %."""

MOST_TAUGHT, LEAST_TAUGHT = 0.25, 200
"""What one writer may teach in a run: a part of the pairs that were learned from, or so many."""

_Profiles = Mapping[tuple[str, str], Profile]


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
    refused = list(_implausible(new, points.where(lambda p: p.point_id in known), now))
    flagged = with_flags(without(points, refused))
    refused += _doubtful(flagged, known)
    usable = usable_points(flagged)
    fresh = [point for point in usable.pairs if point.point_id not in known]
    refused += too_fast(fresh, usable.profiled)
    gone = {one.point_id for one in refused}
    left = (point for point in fresh if point.point_id not in gone)
    refused += _too_many(left, len(learned.pairs))
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


def _implausible(new: PointSet, others: PointSet, now: datetime) -> Iterator[Refused]:
    """New points that are malformed, claim what is impossible, are there twice, or in two ways.

    Also a copy of a known point is a duplicate.
    """
    yield from _first_of_each(_refused_alone(new, now), _copies(new, others))


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


def _first_of_each(*found: Iterable[Refused]) -> Iterator[Refused]:
    seen: set[str] = set()
    for one in (one for some in found for one in some):
        if one.point_id not in seen:
            seen.add(one.point_id)
            yield one


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
