"""Recorded windows, found by which jobs ran in them and at which shares."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.gpu import Share
from advisor.core.job import NOTHING, Job, ProgressSettings, Reported, read_first
from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor.errors import InputError
from advisor.runtime.backend import Granted

JobAtShare = tuple[str, float]
"""Name of a job and its share in percent."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded window with its jobs in order of name and share."""

    point: SoloPoint | PairPoint
    parts: tuple[PointPart, ...]

    @property
    def reported(self) -> Reported:
        """What a job alone said of its results; of a pair that is not kept."""
        values = read_first(self.point.reported) if isinstance(self.point, SoloPoint) else None
        return values or NOTHING


class Recordings:
    """Windows of one way of sharing the GPU (`mode`, as of a testbed), without failed ones."""

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
        part = PointPart(
            job=point.job,
            share_percent=point.share_percent,
            rate=point.rate,
            rate_stderr=point.rate_stderr,
            memory_used_mib=point.memory_used_mib,
            cpu_percent=point.job_cpu_percent,
            latency_p50_ms=point.latency_p50_ms,
            latency_p99_ms=point.latency_p99_ms,
            results=point.results,
        )
        found = self._windows[(job_at_share,)]
        if not found or found[0].point.mode == point.mode:
            found.append(Recording(point, (part,)))
        self._units.setdefault(job_at_share, point.units_granted)
        self._jobs.setdefault(point.job, _job(point))

    def _add_pair(self, point: PairPoint) -> None:
        if any(part.rate is None for part in point.parts):
            return
        parts = tuple(sorted(point.parts, key=_seat))
        self._windows[tuple(map(_seat, parts))].append(Recording(point, parts))
        for part in point.parts:
            self._units.setdefault(_seat(part), part.units)


def _seat(part: PointPart) -> JobAtShare:
    return part.job, part.share_percent


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
