"""What comes of a campaign, what it costs, what watches while it runs, and when it gives up.

Results of each window are judged against those of the same job on the whole GPU.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from typing import Protocol

from advisor.core.gpu import WHOLE
from advisor.core.job import Reported, ResultsSettings, Verdict, judge, read_first
from advisor.core.records import Point, SoloPoint
from advisor.errors import AdvisorError
from advisor_profiling.window.points import JobResult, WindowResult
from advisor_profiling.window.targets import ProcessSpec, Target

MAX_FAILURES = 3
"""Failures in a row that are enough."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that could not be measured.

    Attributes:
        error: The whole message, with where to look.
        reason: The same in a line without paths, as a point keeps it.
        cause: What was raised.
    """

    target: Target
    error: str
    reason: str = ""
    cause: AdvisorError | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a campaign took on one GPU.

    Attributes:
        duration_s: From its first process's start to its last window's end.
        measuring_s: Of it, time with a job running in a window or settling for one.
        window_s: Of it, time inside windows.
        starting_s: Time in which processes were ended and started.
        waiting_s: Time in which the windows and starts of other GPUs of the host were waited for.
        starts: Processes that were started.
    """

    duration_s: float = 0.0
    measuring_s: float = 0.0
    window_s: float = 0.0
    starting_s: float = 0.0
    waiting_s: float = 0.0
    starts: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        mine, others = astuple(self), astuple(other)
        return Cost(*(a + b for a, b in zip(mine, others, strict=True)))


@dataclass(frozen=True, slots=True)
class CampaignOutcome:
    """What was measured in this process; points of an earlier part are in the store."""

    points: tuple[Point, ...]
    failures: tuple[Failure, ...]
    cost: Cost


class Reporter(Protocol):
    """What watches a campaign."""

    def phase(self, text: str) -> None:
        """Something begins that takes a while."""
        ...

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        """A point was measured and written."""
        ...

    def failure(self, failure: Failure) -> None:
        """A window failed for good."""
        ...


class RetryLimit:
    """Counts failures by who ran: a faulty job takes its neighbours down, who did nothing wrong.

    So a job is given up when it failed alone, or when no other was in all of its failures; jobs
    that failed together as often are given up as a set, without a verdict on each.
    """

    def __init__(self) -> None:
        self._beside: defaultdict[str, list[set[str]]] = defaultdict(list)
        self._sets: Counter[tuple[str, ...]] = Counter()

    def failed(self, jobs: tuple[str, ...]) -> None:
        """A window of these jobs, one or more, failed."""
        self._sets[jobs] += 1
        # A job next to itself failed once.
        for job in set(jobs):
            self._beside[job].append(set((Counter(jobs) - Counter([job])).elements()))

    def worked(self, jobs: tuple[str, ...]) -> None:
        """A window of these jobs was measured: what was before is forgotten."""
        self._sets.pop(jobs, None)
        for job in jobs:
            self._beside.pop(job, None)

    def verdict(self, jobs: tuple[str, ...]) -> str | None:
        """Why these are not tried again; None while they are."""
        for job in jobs:
            beside = self._beside.get(job, list[set[str]]())
            if len(beside) >= MAX_FAILURES and not beside[0].intersection(*beside):
                return f"{job} failed {len(beside)} times in a row before"
        if self._sets[jobs] >= MAX_FAILURES:
            return f"{' with '.join(jobs)} failed {self._sets[jobs]} times in a row before"
        return None


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
