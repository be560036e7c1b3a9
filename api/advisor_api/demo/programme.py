"""What a demonstration plays on a GPU model: what advice would launch, where that was recorded."""

import itertools
import random
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from advisor.core.flags import DOUBTFUL
from advisor.core.gpu import WHOLE, Gpu
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import ADVISED_JOBS
from advisor.errors import AdvisorError
from advisor.launch.records.spec import LaunchSpec
from advisor.settings import Settings
from advisor.wire.launch_request import LaunchRequest
from advisor.wire.requests import JobRequest
from advisor_advice.launching import ResolvedLaunch, make_spec

_PROMISED = 10.0
"""Times the p99 that a server has alone: what its users were told. It is a limit of the advice, and
is watched."""

_WHO = "demo"

_FASTEST = 1.05
"""Of what a job does alone; those that wait for their host were faster on a faster one."""


class Programme:
    """Sets of jobs of one GPU model.

    Args:
        settings: Of the demonstration.
        solo: Jobs alone on that model.
        together: The same together.
        jobs: Names of those that can be launched.
    """

    def __init__(
        self,
        settings: Settings,
        solo: Sequence[SoloPoint],
        together: Sequence[PairPoint],
        jobs: Collection[str],
    ) -> None:
        whole = sorted((p for p in solo if p.share_percent == WHOLE), key=lambda p: p.job)
        of_job = itertools.groupby(whole, lambda point: point.job)
        alone = {job: statistics.median(p.rate for p in points) for job, points in of_job}
        self.solo, self.together = solo, [p for p in together if _is_explained(p, alone)]
        self._settings = settings
        self._splits = _recorded(self.together, set(jobs) & {point.job for point in solo})
        self._alone_ms = {point.job: point.latency_p99_ms for point in whole}
        self._specs: dict[tuple[str, ...], LaunchSpec | None] = {}

    def draw(self, chance: random.Random, gpu: Gpu) -> LaunchSpec:
        """One of them, a set of three and more as often as a pair."""
        most = chance.choice((ADVISED_JOBS, 1000))
        among = sorted(jobs for jobs in self._splits if (len(jobs) <= ADVISED_JOBS) == (most == 2))
        while True:
            jobs = chance.choice(among)
            if jobs not in self._specs:
                self._specs[jobs] = self._spec(jobs, gpu)
            if spec := self._specs[jobs]:
                return spec
            among.remove(jobs)

    def _spec(self, jobs: tuple[str, ...], gpu: Gpu) -> LaunchSpec | None:
        """As `advisor launch` makes it; None: these do not share, or not as recorded."""
        asked = LaunchRequest(jobs=tuple(map(self._asked, jobs)))
        launch = ResolvedLaunch(request=asked, gpu=gpu.uuid, card=gpu, asked_by=_WHO)
        try:
            spec = make_spec(launch, self._settings)
        except AdvisorError:
            return None
        return spec if str(spec.pairs[0].split) in self._splits[jobs] else None

    def _asked(self, job: str) -> JobRequest:
        alone_ms = self._alone_ms.get(job)
        promised_ms = alone_ms and float(f"{_PROMISED * alone_ms:.1g}")
        return JobRequest(job=job, max_p99_ms=promised_ms)


def _is_explained(point: PairPoint, alone: Mapping[str, float]) -> bool:
    """Whether no job was faster beside others than alone, which would look like a gain."""
    return all((part.rate or 0.0) <= _FASTEST * alone.get(part.job, 0.0) for part in point.parts)


def _recorded(points: Sequence[PairPoint], jobs: set[str]) -> dict[tuple[str, ...], set[str]]:
    """Splits at which jobs are on record with right results; turns are no split."""
    found: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for point in points:
        known = DOUBTFUL.isdisjoint(point.flags) and jobs.issuperset(point.jobs)
        if known and point.mode == "uncapped":
            found[point.jobs].add(point.mode)
        elif known and point.mode == "mps":
            found[point.jobs].add("/".join(f"{share:g}" for share in point.shares_percent))
    return dict(found)
