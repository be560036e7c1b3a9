"""Judges the results of each window against those of the same job on the whole GPU."""

from collections.abc import Iterable
from dataclasses import replace

from advisor.core.gpu import WHOLE
from advisor.core.job import Results
from advisor.core.records import SoloPoint
from advisor.core.results import Reported, Verdict, judge, read_first
from advisor_profiling.window.points import Part, Taken
from advisor_profiling.window.targets import Runner, Target


class References:
    """What jobs reported on the whole GPU, by hash of the job.

    Args:
        points: Earlier points of the same GPU model and driver.
    """

    def __init__(self, points: Iterable[SoloPoint] = ()) -> None:
        self._known: dict[str, Reported] = {}
        for point in points:
            reported = read_first(point.reported)
            whole = point.share_percent == WHOLE and point.results == "right"
            if whole and reported is not None and point.job_hash is not None:
                self._known[point.job_hash] = reported

    def judged(self, taken: Taken) -> Taken:
        """The window with a verdict for each of its jobs."""
        target = taken.target
        if is_reference(target):
            self._keep(target.runners[0], taken.parts[0].reported)
        sides = zip(target.runners, taken.parts, strict=True)
        return replace(taken, parts=tuple(self._judged(runner, part) for runner, part in sides))

    def _keep(self, runner: Runner, reported: Reported) -> None:
        if reported.count and not reported.not_finite:
            self._known[runner.job.job_hash] = reported

    def _judged(self, runner: Runner, part: Part) -> Part:
        reference = self._known.get(runner.job.job_hash)
        tolerance = (runner.job.results or Results()).tolerance
        verdict: Verdict | None = judge(part.reported, reference, tolerance)
        return replace(part, verdict=verdict)


def is_reference(target: Target) -> bool:
    """Whether it is a job alone on the whole GPU."""
    return len(target.runners) == 1 and target.runners[0].share.percent == WHOLE
