"""The points that are learned from: of files, of the store, of launches, or the bundled ones.

A launch has one split and no repeats, on a card of its own, and nobody watched over it as over a
campaign. So it teaches only where its results, its limits and its time together are beyond doubt.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from advisor.core.gpu import WHOLE
from advisor.core.records import (
    DOUBTFUL,
    OBSERVED_SOURCE,
    SETTLE_S,
    WRONG,
    Observation,
    ObservedPart,
    PairPoint,
    PointPart,
    SoloPoint,
)
from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.predict.profiles import make_profiles
from advisor.settings import Settings
from advisor.validity.points import own_results, undisputed, with_pair_flags, with_solo_flags
from advisor.validity.safe_counts import CheckedCounts, Safety
from advisor_data import is_begun, open_store
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
    select,
)
from advisor_data.files import read_points
from advisor_data.known import checked_counts
from advisor_training.rows import LeftOut, uses_the_gpu

_Kind = TypeVar("_Kind", SoloPoint, PairPoint)


@dataclass(frozen=True, slots=True)
class PointsSource:
    """Where points came from, and how many, before any is left out."""

    name: str
    pair_points: int
    solo_points: int

    def __str__(self) -> str:
        counts = {"pair point": self.pair_points, "solo point": self.solo_points}
        return f"{listed(count_of(n, what) for what, n in counts.items() if n)} {self.name}"


MEASURED_HERE = "that were measured here"
BUNDLED = "that come with advisor"
OF_LAUNCHES = "of launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPoints:
    """Points that passed every cross-check.

    Attributes:
        pairs: Two jobs together.
        profiled: Jobs alone at all shares, doubtful ones too, since `make_profiles` takes them
            where a share has no others; none of which the results are wrong.
        references: Jobs alone on the whole GPU in the runs of the pairs, where they are others.
        left_out: What did not pass.
    """

    pairs: tuple[PairPoint, ...]
    profiled: tuple[SoloPoint, ...]
    references: tuple[SoloPoint, ...]
    left_out: tuple[LeftOut, ...]
    sources: tuple[PointsSource, ...]


def read_own(settings: Settings, *, with_bundled: bool = False) -> CheckedPoints | None:
    """The points of this host's store; None where it has no pairs.

    Jobs that have no profile of their own get the bundled one of that GPU model.

    Raises:
        StoreError: the store cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return None
    with open_store(settings.database_url, settings.home) as store:
        pairs, solos = store.pair_points(), store.solo_points()
    if not pairs:
        return None
    own = PointsSource(MEASURED_HERE, len(pairs), len(solos))
    if with_bundled:
        return with_all_bundled(pairs, solos, own)
    borrowed = profiles_that_lack(pairs, solos, bundled_solo_points())
    sources = (own, PointsSource(BUNDLED, 0, len(borrowed))) if borrowed else (own,)
    return _checked(pairs, [*solos, *borrowed], (), sources)


def read_measured(
    pairs: Path | None, solo: Path | None, *, with_bundled: bool = False
) -> CheckedPoints:
    """Pair points and solo points of files; of those not given, the bundled ones.

    Raises:
        InputError: a file cannot be read, or has points of the other kind.
    """
    of_pairs = _read_kind(pairs, PairPoint) if pairs else []
    of_jobs = _read_kind(solo, SoloPoint) if solo else []
    files = " and ".join(str(file) for file in (pairs, solo) if file)
    source = PointsSource(f"of {files}", len(of_pairs), len(of_jobs))
    if with_bundled or not (pairs or solo):
        return with_all_bundled(of_pairs, of_jobs, source)
    if pairs and solo:
        return _checked(of_pairs, of_jobs, (), (source,))
    more_pairs = [] if pairs else bundled_pair_points()
    more_jobs = [] if solo else bundled_solo_points()
    return _checked(
        [*of_pairs, *more_pairs],
        [*of_jobs, *more_jobs],
        () if solo else bundled_reference_points(),
        (source, PointsSource(BUNDLED, len(more_pairs), len(more_jobs))),
    )


def with_launches(measured: CheckedPoints, settings: Settings) -> CheckedPoints:
    """The same points, and those that launches in this host's store make, where there are any.

    Raises:
        StoreError: the store or a check of counts cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return measured
    with open_store(settings.database_url, settings.home) as store:
        seen = store.observations()
    if not seen:
        return measured
    borrowed = profiles_that_lack(seen, measured.profiled, bundled_solo_points())
    profiled = (*measured.profiled, *right_ones(with_solo_flags(borrowed)))
    taught = taught_here(seen, profiled, settings.home)
    if not taught.points:
        return replace(measured, left_out=(*measured.left_out, *taught.left_out))
    of_launches = _checked(taught.points, profiled, taught.references, ())
    counts = PointsSource(OF_LAUNCHES, len(taught.points), len(taught.references))
    return CheckedPoints(
        pairs=(*measured.pairs, *of_launches.pairs),
        profiled=profiled,
        references=(*measured.references, *of_launches.references),
        left_out=(*measured.left_out, *taught.left_out, *of_launches.left_out),
        sources=(*measured.sources, counts),
    )


def with_all_bundled(
    pairs: Sequence[PairPoint], solos: Sequence[SoloPoint], source: PointsSource
) -> CheckedPoints:
    """These points and all bundled ones, each once."""
    more_pairs, more_solos = bundled_pair_points(), bundled_solo_points()
    bundled = PointsSource(BUNDLED, len(more_pairs), len(more_solos))
    return _checked(
        list(dict.fromkeys([*pairs, *more_pairs])),
        list(dict.fromkeys([*solos, *more_solos])),
        bundled_reference_points(),
        (source, bundled) if pairs or solos else (bundled,),
    )


def _checked(
    pairs: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint],
    sources: tuple[PointsSource, ...],
) -> CheckedPoints:
    solos, together = with_solo_flags(undisputed(profiled)), undisputed(pairs)
    disputed = len(profiled) - len(solos) + len(pairs) - len(together)
    selection = select(with_pair_flags(together, solos))
    return CheckedPoints(
        pairs=selection.points,
        profiled=right_ones(solos),
        references=right_ones(references),
        left_out=(
            *([LeftOut("unlike copies of a window", disputed)] if disputed else ()),
            *(
                LeftOut(f"pair points flagged {flag}", count)
                for flag, count in sorted(selection.left_out.items())
            ),
        ),
        sources=sources,
    )


def right_ones(points: Iterable[SoloPoint]) -> tuple[SoloPoint, ...]:
    """Those of which the results are not wrong."""
    return tuple(point for point in points if WRONG.isdisjoint(point.flags))


def _read_kind(path: Path, kind: type[_Kind]) -> list[_Kind]:
    """The points of a file.

    Raises:
        InputError: it cannot be read, or has points of the other kind.
    """
    points = read_points(path)
    found = [point for point in points if isinstance(point, kind)]
    if len(found) < len(points):
        raise InputError(
            f"{path} has solo points where pair points are wanted, or the other way round",
            fix="give pair points with --pairs and solo points with --solo",
        )
    return found


LEAST_S = 5.0
"""Shortest time that a mean of a launch teaches: as long as a window of the bundled pairs that
went on until its time was up (5.1 s), and so with no larger error. Of the time together the first
seconds (`SETTLE_S`) are in no mean, so jobs must have run together for 8 s."""

_LIMITED = ("mps", "cu_mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """What launches teach.

    Attributes:
        points: A pair point of each launch that can be learned from; its `source` says so.
        references: What went on alone on the whole GPU after another job had ended.
    """

    points: tuple[PairPoint, ...]
    references: tuple[SoloPoint, ...]
    left_out: tuple[LeftOut, ...]


def teach(
    observations: Iterable[Observation],
    solo_points: Iterable[SoloPoint],
    checks: Mapping[str, CheckedCounts] | None = None,
) -> Teaching:
    """What launches teach; the same one given twice teaches once.

    What a job reported alone at a count goes before the checks of its GPU model, and a job that is
    not the one that was profiled teaches nothing.
    """
    known = _Known(tuple(solo_points), checks or {})
    left_out: Counter[str] = Counter()
    taught: list[Observation] = []
    for seen in map(known.completed, {seen.point_id: seen for seen in observations}.values()):
        if reason := _fault(seen) or known.fault(seen):
            left_out[reason] += 1
        else:
            taught.append(seen)
    return Teaching(
        points=tuple(map(_point, taught)),
        references=tuple(point for seen in taught for point in _references(seen)),
        left_out=tuple(sorted(LeftOut(reason, count) for reason, count in left_out.items())),
    )


def taught_here(seen: Sequence[Observation], alone: Sequence[SoloPoint], home: Path) -> Teaching:
    """What launches teach at the site that keeps its checks of counts in `home`.

    Raises:
        StoreError: a check of counts cannot be read.
    """
    checks = {model: checked_counts(home, model) for model in {o.gpu_model for o in seen}}
    return teach(seen, alone, {model: check for model, check in checks.items() if check})


def profiles_that_lack(
    pairs: Iterable[PairPoint | Observation],
    alone: Iterable[SoloPoint],
    others: Iterable[SoloPoint],
) -> list[SoloPoint]:
    """Those of other points, of the pairs' jobs, that make no profile of their own."""
    wanted = {(job, point.gpu_model) for point in pairs for job in point.jobs}
    lacking = wanted - make_profiles(alone).keys()
    return [point for point in others if (point.job, point.gpu_model) in lacking]


def _fault(seen: Observation) -> str | None:
    """Why a launch by itself teaches nothing; None where it does."""
    if len(seen.parts) > 2:
        return "launches of more than two jobs"
    if flags := sorted(DOUBTFUL.intersection(seen.flags)):
        return f"launches flagged {', '.join(flags)}"
    if any(part.results in ("wrong", "differ") for part in seen.parts):
        return "launches whose results were wrong"
    if seen.state == "failed":
        return "launches that failed"
    if not seen.power_w or not all(part.rate for part in seen.parts):
        return "launches without a rate or the power"
    if _settled_s(seen) < LEAST_S:
        return f"launches together for less than {SETTLE_S + LEAST_S:g} s"
    if seen.mode in _LIMITED and not all(part.units for part in seen.parts):
        return "launches whose limits were not read back"
    if seen.mode != "uncapped" and not (seen.mode in _LIMITED and uses_the_gpu(_point(seen))):
        return "launches time-sliced, over-subscribed, or on too little of the GPU"
    return None


def _settled_s(seen: Observation) -> float:
    # Older versions did not keep it.
    return seen.overlap_s - SETTLE_S if seen.settled_s is None else seen.settled_s


class _Known:
    """What is known of jobs by their points alone, and by checks."""

    def __init__(self, solos: Sequence[SoloPoint], checks: Mapping[str, CheckedCounts]) -> None:
        self._checks = checks
        self._solos: dict[tuple[str, str], list[SoloPoint]] = {}
        for point in sorted(solos, key=lambda point: point.started_at):
            self._solos.setdefault((point.job, point.gpu_model), []).append(point)

    def completed(self, seen: Observation) -> Observation:
        """With the units of its GPU, which older versions did not keep."""
        check = self._checks.get(seen.gpu_model)
        if seen.units_total or check is None:
            return seen
        return replace(seen, units_total=check.units_total)

    def fault(self, seen: Observation) -> str | None:
        """Why a launch teaches nothing by what is known of its jobs; None where it does."""
        if any(self._has_changed(part, seen.gpu_model) for part in seen.parts):
            return "launches of a job that is not the one that was profiled"
        if any(self._is_unread(part, seen) for part in seen.parts):
            return "launches at a count that is not safe, whose results were not read"
        return None

    def _has_changed(self, part: ObservedPart, gpu_model: str) -> bool:
        hashes = [p.job_hash for p in self._solos.get((part.job, gpu_model), ()) if p.job_hash]
        return bool(hashes) and part.job_hash not in (None, hashes[-1])

    def _is_unread(self, part: ObservedPart, seen: Observation) -> bool:
        if part.results == "right" or seen.mode not in _LIMITED or part.units is None:
            return False
        right, wrong = own_results(self._solos.get((part.job, seen.gpu_model), ()))
        host = self._checks.get(seen.gpu_model)
        total = host.units_total if host else seen.units_total or part.units
        safety = Safety(units_total=total, host=host, right=right, wrong=wrong)
        return part.units in safety.unsafe


def _origin(seen: Observation) -> dict[str, Any]:
    names = ("gpu_model", "gpu_uuid", "units_total", "mode", "power_limit_w", "started_at")
    same = {
        name: getattr(seen, name)
        for name in (*names, "driver", "host", "tool_version", "written_by")
    }
    # Of the card: the same pair at the same split is one row, however often it is launched.
    return {**same, "run": f"launches on {seen.gpu_uuid}", "source": OBSERVED_SOURCE}


def _point(seen: Observation) -> PairPoint:
    return PairPoint(
        parts=tuple(
            PointPart(
                job=part.job,
                share_percent=part.share_percent,
                units=part.units,
                rate=part.rate,
                rate_unit=part.rate_unit,
                job_hash=part.job_hash,
                results=part.results,
            )
            for part in seen.parts
        ),
        power_w=seen.power_w,
        window_s=_settled_s(seen),
        flags=seen.flags,
        **_origin(seen),
    )


def _references(seen: Observation) -> Iterable[SoloPoint]:
    """The job that went on, where nothing limited it."""
    rest_s, rest_j = seen.rest_s or 0.0, seen.rest_energy_j
    left = [part for part in seen.parts if not part.ended_first]
    if seen.mode != "uncapped" or len(left) != 1 or rest_s < SETTLE_S + LEAST_S or not rest_j:
        return
    (part,) = left
    if part.rest_rate:
        yield SoloPoint(
            job=part.job,
            share_percent=WHOLE,
            units_granted=seen.units_total,
            rate=part.rest_rate,
            rate_unit=part.rate_unit,
            job_hash=part.job_hash,
            results=part.results,
            power_w=rest_j / rest_s,
            window_s=rest_s,
            **_origin(seen),
        )
