"""Which points can be used: degenerate ones, slow ones, copies, and those without a profile.

A product of which parts are never written, or one of NaNs, flips fewer bits and draws less power.
Fewer SMs never save energy by themselves: the same arithmetic at the same clock takes as much, and
what the GPU draws while it waits is spread over less work. So within a sweep a job's energy above
idle per unit of work falls with the share or stays; where it is lower at a smaller share, the work
was not the same. That needs no model of the GPU and no other job. It cannot find a job that is
wrong at all shares, or one whose power does not change: docs/measurements has how many are missed.

Jobs that were slow when they were alone are found, too: what they are compared with then is too
low. Sharing a GPU, or having fewer of its SMs, speeds nothing up. A job that was faster so was
slowed down by its host when it had the GPU to itself, and speeds relative to that count work that
was not done.

A sender can repeat another's window under its own name.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from advisor.core.gpu import WHOLE
from advisor.core.records import (
    BACKLOG,
    COUNTER_BOUND,
    CPU_BOUND,
    DEGENERATE,
    DOUBTFUL,
    JOB_CHANGED,
    NO_POWER,
    RESULTS_ONLY,
    SLOW_ALONE,
    UNREAD,
    WATCHED,
    WRONG,
    Observation,
    PairPoint,
    Part,
    Record,
    SoloPoint,
    grouped,
    is_catching_up,
)
from advisor.formats.moments import is_utc

LARGEST_SLOWDOWN = 0.12
"""How much slower than in its fastest run a job alone may be without being called disturbed.

Launch-bound jobs measure a core of the CPU, and other tenants of the host slow that down unseen:
docs/measurements has the same job alone at 35 % to 100 % of its rate while the reported CPU steal
was 0. Two undisturbed runs of such a job differ by up to 11.7 % (docs/measurements, "Does a profile
repeat?").
"""

FASTEST = 1 / (1 - LARGEST_SLOWDOWN)
"""Relative speed above which a job did not run faster than alone: it was slow when it was alone."""

_Point = TypeVar("_Point", SoloPoint, PairPoint)

LARGEST_DROP = 0.10
"""Energy above idle per unit of work may be so much lower than at a larger share.

Chosen on the bundled points: docs/measurements/results.md says what other bounds would do.
"""

SAME_CLOCK = 0.03
"""A point at a clock higher by more is no measure: a lower clock honestly takes less energy."""

SAME_ARITHMETIC = 0.10
"""Pipe cycles per unit of work may differ by so much; else the library chose another kernel."""

# Flags of points that others are not compared with. Wrong results take less energy, never more,
# so a point with unread results condemns no other.
_NO_MEASURE = DOUBTFUL - {UNREAD}

_ARITHMETIC = ("tensor_active_percent", "fp32_active_percent", "fp64_active_percent")

# A pipe that is busy for less of the time at both points tells nothing.
_LEAST_ACTIVE_PERCENT = 1.0


def with_solo_flags(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points, in their order, flagged by their sweep: degenerate, slow alone, a backlog.

    A sweep is judged by those of its points that are here.
    """
    # One after the other: a share that leaves work out may be the faster one.
    points = _judged(_judged(points, _is_degenerate, DEGENERATE), _is_slow_alone, SLOW_ALONE)
    return _judged(points, _has_backlog, BACKLOG)


def _judged(
    points: Iterable[SoloPoint],
    is_bad: Callable[[SoloPoint, Sequence[SoloPoint]], bool],
    flag: str,
) -> list[SoloPoint]:
    listed = list(points)
    sweeps = grouped(listed, lambda p: (p.job, p.job_hash, p.gpu_uuid, p.run))
    return [
        _flagged(p, flag) if is_bad(p, sweeps[p.job, p.job_hash, p.gpu_uuid, p.run]) else p
        for p in listed
    ]


def with_pair_flags(points: Iterable[PairPoint], solos: Iterable[SoloPoint]) -> list[PairPoint]:
    """The pairs, in their order, with `degenerate-data` where a job alone has it at that share.

    The power of two jobs cannot be told apart, so a pair is judged by the profiles of its jobs on
    the same GPU model, flagged by `with_solo_flags`. A share between two measured ones is flagged
    if one of them is.
    """
    shares: defaultdict[tuple[str, str], dict[float, bool]] = defaultdict(dict)
    for solo in solos:
        of_job = shares[solo.job, solo.gpu_model]
        bad = DEGENERATE in solo.flags
        of_job[solo.share_percent] = bad or of_job.get(solo.share_percent, False)

    def is_bad(point: PairPoint) -> bool:
        return any(part.results != "right" for part in point.parts) and any(
            _at(shares[p.job, point.gpu_model], p.share_percent) for p in point.parts
        )

    return [_flagged(point, DEGENERATE) if is_bad(point) else point for point in points]


def with_flags(records: Iterable[Record]) -> list[Record]:
    """Records of all kinds, in their order, flagged by the solo points among them."""
    listed = list(records)
    solos = with_solo_flags(record for record in listed if isinstance(record, SoloPoint))
    pairs = with_pair_flags((record for record in listed if isinstance(record, PairPoint)), solos)
    flagged = {point.point_id: point for point in (*solos, *pairs)}
    return [flagged.get(record.point_id, record) for record in listed]


def _is_degenerate(point: SoloPoint, sweep: Sequence[SoloPoint]) -> bool:
    """Whether a job took much less energy for its work than at a larger share of the sweep.

    A job that waits for its host draws active idle power meanwhile, so a host that is faster for
    one window lowers its energy above idle. Where active idle power is known, the energy above that
    has to be too low as well, and a difference within two standard errors is none.
    """
    return point.results != "right" and all(
        _lacks_energy(point, sweep, idle)
        for idle in ("idle_power_w", "active_idle_power_w")
        if idle == "idle_power_w" or getattr(point, idle) is not None
    )


def _lacks_energy(point: SoloPoint, sweep: Iterable[SoloPoint], idle: str) -> bool:
    energy, expected = energy_above_j(point, idle), expected_energy_j(point, sweep, idle)
    if energy is None or expected is None:
        return False
    return expected[0] - energy[0] > max(
        LARGEST_DROP * expected[0],
        COUNTER_BOUND * (point.power_w or 0) / point.rate,
        2 * math.hypot(energy[1], expected[1]),
    )


def expected_energy_j(
    point: SoloPoint, sweep: Iterable[SoloPoint], idle: str = "idle_power_w"
) -> tuple[float, float] | None:
    """What a unit of work should take at least: the most that it took at a larger share.

    Of larger shares at which the job was bound by the CPU, the second most: a busy host makes such
    a job slow for one window, and each of its steps expensive (docs/measurements, "Does a profile
    repeat?"). One of them alone is no measure.

    Returns:
        As `energy_above_j`; None where no point of the sweep can be compared.
    """
    # A set: references may have points of the sweep once more.
    larger = {
        other
        for other in sweep
        if other.share_percent > point.share_percent
        and _NO_MEASURE.isdisjoint(other.flags)
        and _clock(other) <= (1 + SAME_CLOCK) * _clock(point)
        and all(_same_arithmetic(other, point, pipe) for pipe in _ARITHMETIC)
    }
    steady = (energy_above_j(other, idle) for other in larger if CPU_BOUND not in other.flags)
    every = sorted(e for other in larger if (e := energy_above_j(other, idle)) is not None)
    return max((*every[-2:-1], *(e for e in steady if e is not None)), default=None)


def energy_above_j(point: SoloPoint, idle: str = "idle_power_w") -> tuple[float, float] | None:
    """Energy of a unit of work above a column of idle power, and its standard error, J.

    None where a reading is missing.
    """
    idle_w: float | None = getattr(point, idle)
    if point.power_w is None or idle_w is None or not point.rate:
        return None
    energy_j = (point.power_w - idle_w) / point.rate
    stderrs_w = point.power_stderr_w or 0.0, energy_j * (point.rate_stderr or 0.0)
    return energy_j, math.hypot(*stderrs_w) / point.rate


def _same_arithmetic(point: SoloPoint, other: SoloPoint, pipe: str) -> bool:
    """Whether a pipe was busy for as many cycles per unit of work."""
    actives: list[float] = [
        percent for p in (point, other) if (percent := getattr(p, pipe)) is not None
    ]
    if len(actives) < 2 or max(actives) < _LEAST_ACTIVE_PERCENT or not (point.rate and other.rate):
        return True
    cycles = (actives[0] * _clock(point) / point.rate, actives[1] * _clock(other) / other.rate)
    return max(cycles) <= (1 + SAME_ARITHMETIC) * min(cycles)


def _clock(point: SoloPoint) -> float:
    return point.sm_clock_mhz or 1.0


def _at(shares: dict[float, bool], share: float) -> bool:
    """Whether the measured share is flagged, or one of the two around it."""
    measured = sorted(shares)
    below, above = bisect_right(measured, share) - 1, bisect_left(measured, share)
    near = {max(below, 0), min(above, len(measured) - 1)} if measured else set[int]()
    return any(shares[measured[place]] for place in near)


def _flagged(point: _Point, flag: str) -> _Point:
    return point if flag in point.flags else replace(point, flags=(*point.flags, flag))


def _is_slow_alone(point: SoloPoint, sweep: Iterable[SoloPoint]) -> bool:
    """Whether a job had less than its usual rate on the whole GPU: a smaller share was faster.

    Points of the sweep that failed a cross-check say nothing.
    """
    if point.share_percent != WHOLE or not point.rate:
        return False
    trusted = (other.rate for other in sweep if DOUBTFUL.isdisjoint(other.flags))
    return max(trusted, default=0.0) > FASTEST * point.rate


def _has_backlog(point: SoloPoint, sweep: Iterable[SoloPoint]) -> bool:
    """Whether a queue was emptied: more SMs neither make requests nor answer any of them later."""
    tails_ms = [
        (abs(other.share_percent - WHOLE / 2), other.latency_p99_ms)
        for other in sweep
        if other.share_percent < WHOLE and other.latency_p99_ms and DOUBTFUL.isdisjoint(other.flags)
    ]
    # p99 on the whole GPU over that at half was 0.02 to 1.0 in the 22 bundled sweeps of servers.
    most_ms = 1.5 * min(tails_ms)[1] if tails_ms else math.inf
    is_late = point.share_percent == WHOLE and (point.latency_p99_ms or 0.0) > most_ms
    return is_late or is_catching_up(point.rate, point.offered_rate, point.window_s)


NO_PROFILE = WRONG | {RESULTS_ONLY, WATCHED}
"""Flags of points that are in no profile; what was seen makes an estimate where there is none."""


def is_usable(point: SoloPoint) -> bool:
    """Whether it has what predictions divide by: a rate and a power."""
    return point.rate > 0 and (point.power_w or 0) > 0


def why_no_profile(points: Iterable[SoloPoint]) -> str | None:
    """Why points of one job on one GPU model make no profile; None where they make one."""
    flagged = newest_program(with_solo_flags(points))
    live = ("nvml", "amd", "dcgm")
    if flagged and all(p.power_w is None and (p.source or "").startswith(live) for p in flagged):
        return NO_POWER
    shares = {point.share_percent for point in flagged if not _fault(point)}
    if WHOLE in shares and len(shares) > 1:
        return None
    if WHOLE in shares:
        return (
            f"only the one at {WHOLE:g} % can be used, and a smaller share is needed, too, or "
            "sm_active_percent for an estimate"
        )
    whole = sorted({_fault(point) for point in flagged if point.share_percent == WHOLE})
    return f"at {WHOLE:g} % {', '.join(whole)}" if whole else f"there is no point at {WHOLE:g} %"


def _fault(point: SoloPoint) -> str:
    """What keeps a point out of a profile; empty where nothing does."""
    if point.rate <= 0:
        return "rate is 0"
    if not point.power_w:
        return "power_w is missing" if point.power_w is None else "power_w is 0"
    if WATCHED in point.flags and point.sm_active_percent is point.gpu_busy_percent is None:
        return "the GPU's activity is missing, so smaller shares cannot be estimated"
    flags = sorted(NO_PROFILE.intersection(point.flags))
    return f"the point is flagged {', '.join(flags)}" if flags else ""


def newest_program(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """Of one job's points on one GPU model those of the program that was profiled last.

    Programs are told apart by `job_hash`; points without one are of any. Where others are left
    out, all have the flag `job-changed`. Flags of sweeps should be there already.
    """
    listed = list(points)
    usable = (point for point in listed if point.job_hash and not _fault(point))
    newest = max(usable, key=lambda point: point.started_at, default=None)
    kept = [p for p in listed if newest is None or p.job_hash in (None, newest.job_hash)]
    return kept if len(kept) == len(listed) else [_flagged(p, JOB_CHANGED) for p in kept]


def results_of_job(points: Iterable[SoloPoint]) -> tuple[frozenset[int], frozenset[int]]:
    """Counts at which results were read as right, and those at which they were wrong.

    Results that are not finite are wrong, and so are those that differ from the full GPU's by more
    than the job tolerates. A count with both is wrong. Points of which no results were read say
    nothing.
    """
    read = [(point.results, point.units_granted) for point in points if point.units_granted]
    right, wrong, differ = (
        {units for results, units in read if results == name}
        for name in ("right", "wrong", "differ")
    )
    return frozenset(right - wrong - differ), frozenset(wrong | differ)


_R = TypeVar("_R", bound=Record)


def undisputed(records: Iterable[_R]) -> list[_R]:
    """The records, in their order, but for unlike copies of a window.

    This site's own measurements count, whatever a writer sends. Of two unlike copies of others the
    true one is unknown: stores refuse the second.
    """
    windows = [(window_of(record), record) for record in records]
    claims = defaultdict[Hashable, dict[bool, set[Hashable]]](lambda: defaultdict(set))
    for window, record in windows:
        claims[window][record.written_by is None].add(claim_of(record))
    return [
        r
        for window, r in windows
        if (claims[window][True] or claims[window][False]) == {claim_of(r)}
    ]


def author_of(record: Record) -> str:
    """The sender of a record, in words."""
    return record.written_by or "this site itself"


def window_of(record: Record) -> Hashable:
    """What was measured, where and when: the same of all copies of a window."""
    what = tuple((part.job, part.share_percent) for part in _parts(record))
    moment = record.started_at
    # The same moment may be written with Z or +00:00.
    when = datetime.fromisoformat(moment) if is_utc(moment) else moment
    return what, record.mode, record.gpu_uuid, when


def claim_of(record: Record) -> Hashable:
    """What a window is said to have shown."""
    length_s = record.overlap_s if isinstance(record, Observation) else record.window_s
    return tuple(part.rate for part in _parts(record)), record.power_w, length_s


def _parts(record: Record) -> Iterable[SoloPoint | Part]:
    return (record,) if isinstance(record, SoloPoint) else record.parts
