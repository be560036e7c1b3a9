"""Recorded windows, found by which jobs ran in them and at which shares."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.gpu import Share
from advisor.core.job import Job, ProgressSettings
from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor.core.results import NOTHING, Reported, read_first
from advisor.errors import InputError
from advisor.runtime.backends.backend import Granted

JobAtShare = tuple[str, float]
"""Name of a job and its share in percent."""


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """What one job did in a recorded window."""

    rate: float
    rate_stderr: float | None
    memory_used_mib: float | None
    cpu_percent: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    results: str | None = None
    reported: Reported = NOTHING


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded window with its jobs in order of name and share."""

    point: SoloPoint | PairPoint
    parts: tuple[RecordedPart, ...]


class Recordings:
    """Windows of one way of sharing the GPU.

    Args:
        points: Solo points.
        pairs: Pair points; those of jobs that failed are left out.
        mode: As of a testbed.
    """

    def __init__(self, points: Sequence[SoloPoint], pairs: Sequence[PairPoint], mode: str) -> None:
        self._windows: defaultdict[tuple[JobAtShare, ...], list[Recording]] = defaultdict(list)
        self._units: dict[JobAtShare, int | None] = {}
        self._jobs: dict[str, Job] = {}
        newest = sorted(points, key=lambda p: p.started_at, reverse=True)
        for point in sorted(newest, key=lambda p: p.mode != mode):
            self._add_solo(point)
        modes = {"time-sliced"} if mode == "uncapped" else {mode, "uncapped"}
        shown = [p for p in pairs if p.mode in modes and "failed" not in p.flags]
        for pair in _most_complete_first(shown):
            self._add_pair(pair)
        self._mps = mode == "mps"

    def find(self, jobs_at_shares: Sequence[JobAtShare]) -> list[Recording]:
        """Windows in which exactly these ran, the one to prefer first; empty if there is none."""
        return self._windows[tuple(sorted(jobs_at_shares))]

    def jobs(self) -> dict[str, Job]:
        """The recorded jobs, with what their points tell of them; all can wait at a gate."""
        return self._jobs

    def granted(self, job: str, share: Share) -> Granted:
        """What was read back for a job at a share.

        Raises:
            InputError: it was recorded neither alone nor in a pair.
        """
        if (job, share.percent) not in self._units:
            shares = sorted(percent for name, percent in self._units if name == job)
            known = [f"{percent:g} %" for percent in shares] or sorted(self._jobs)
            raise InputError(
                f"no recorded point of {job} at {share} %",
                fix=f"recorded are: {', '.join(known)}",
            )
        return Granted(self._units[job, share.percent], mps=self._mps)

    def _add_solo(self, point: SoloPoint) -> None:
        job_at_share = point.job, point.share_percent
        part = RecordedPart(
            point.rate,
            point.rate_stderr,
            point.memory_used_mib,
            point.job_cpu_percent,
            point.latency_p50_ms,
            point.latency_p99_ms,
            point.results,
            read_first(point.reported) or NOTHING,
        )
        found = self._windows[(job_at_share,)]
        if not found or found[0].point.mode == point.mode:
            found.append(Recording(point, (part,)))
        self._units.setdefault(job_at_share, point.units_granted)
        self._jobs.setdefault(point.job, _job(point))

    def _add_pair(self, point: PairPoint) -> None:
        if any(part.rate is None for part in point.parts):
            return
        ordered = sorted(point.parts, key=_seat)
        parts = tuple(map(_part, ordered))
        self._windows[tuple(map(_seat, ordered))].append(Recording(point, parts))
        for part in point.parts:
            self._units.setdefault(_seat(part), part.units)


def _seat(part: PointPart) -> JobAtShare:
    return part.job, part.share_percent


def _part(part: PointPart) -> RecordedPart:
    return RecordedPart(
        part.rate or 0.0,
        part.rate_stderr,
        part.memory_used_mib,
        part.cpu_percent,
        part.latency_p50_ms,
        part.latency_p99_ms,
        part.results,
    )


def _most_complete_first(pairs: Sequence[PairPoint]) -> list[PairPoint]:
    """All splits of a pair come from one run on one card where one has them all."""
    groups: defaultdict[tuple[str, ...], list[PairPoint]] = defaultdict(list)
    for point in sorted(pairs, key=lambda p: p.started_at, reverse=True):
        groups[*point.jobs, point.run, point.gpu_uuid].append(point)
    # Groups of equally many splits stay in the order of their newest windows.
    ordered = sorted(groups.values(), key=_splits, reverse=True)
    return [point for group in ordered for point in group]


def _splits(pairs: Sequence[PairPoint]) -> int:
    """How many there are, however often each was measured."""
    return len({(p.mode, *p.shares_percent) for p in pairs})


def _job(point: SoloPoint) -> Job:
    used_mib = point.memory_used_mib
    return Job(
        name=point.job,
        command=("replay",),
        progress=ProgressSettings(unit=point.rate_unit, gate=True),
        memory_mib=None if used_mib is None else math.ceil(used_mib),
        offered_rate=point.offered_rate,
    )
