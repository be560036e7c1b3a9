"""Judges the results of each window against those of the same job on the whole GPU."""

from collections.abc import Iterable
from dataclasses import replace

from advisor.core.gpu import WHOLE
from advisor.core.job import ResultsSettings
from advisor.core.records import SoloPoint
from advisor.core.results import Reported, Verdict, judge, read_first
from advisor_profiling.window.points import JobResult, WindowResult
from advisor_profiling.window.targets import ProcessSpec, Target


class References:
    """What jobs reported on the whole GPU of one model and driver, by hash of the job."""

    def __init__(self, points: Iterable[SoloPoint] = ()) -> None:
        self._known: dict[str, Reported] = {}
        for point in points:
            reported = read_first(point.reported)
            whole = point.share_percent == WHOLE and point.results == "right"
            if whole and reported is not None and point.job_hash is not None:
                self._known[point.job_hash] = reported

    def judged(self, result: WindowResult) -> WindowResult:
        """The window with a verdict for each of its jobs."""
        target = result.target
        if is_reference(target):
            self._keep(target.specs[0], result.parts[0].reported)
        sides = zip(target.specs, result.parts, strict=True)
        return replace(result, parts=tuple(self._judged(spec, part) for spec, part in sides))

    def _keep(self, spec: ProcessSpec, reported: Reported) -> None:
        if reported.count and not reported.not_finite:
            self._known[spec.job.job_hash] = reported

    def _judged(self, spec: ProcessSpec, part: JobResult) -> JobResult:
        reference = self._known.get(spec.job.job_hash)
        tolerance = (spec.job.results or ResultsSettings()).tolerance
        verdict: Verdict | None = judge(part.reported, reference, tolerance)
        return replace(part, verdict=verdict)


def is_reference(target: Target) -> bool:
    """Whether it is a job alone on the whole GPU."""
    return len(target.specs) == 1 and target.specs[0].share.percent == WHOLE
