"""When no more windows are spent on a job, or on a pair, that fails again and again."""

from collections import Counter, defaultdict

MAX_FAILURES = 3
"""Failures in a row that are enough."""


class RetryLimit:
    """Counts failures by who ran: a faulty job takes its neighbours down, who did nothing wrong.

    So a job is given up when it failed alone, or next to more than one other; a pair that failed
    as often is given up without a verdict on its jobs.
    """

    def __init__(self) -> None:
        self._beside: defaultdict[str, list[str]] = defaultdict(list)
        self._pairs: Counter[tuple[str, ...]] = Counter()

    def failed(self, jobs: tuple[str, ...]) -> None:
        """A window of these jobs, one or two, failed."""
        self._pairs[jobs] += 1
        # A job next to itself failed once.
        for job, other in dict(zip(jobs, reversed(jobs), strict=True)).items():
            self._beside[job].append(other if len(jobs) > 1 else "")

    def worked(self, jobs: tuple[str, ...]) -> None:
        """A window of these jobs was measured: what was before is forgotten."""
        self._pairs.pop(jobs, None)
        for job in jobs:
            self._beside.pop(job, None)

    def verdict(self, jobs: tuple[str, ...]) -> str | None:
        """Why these are not tried again; None while they are."""
        for job in jobs:
            beside = self._beside.get(job, [])
            if len(beside) >= MAX_FAILURES and (len(set(beside)) > 1 or "" in beside):
                return f"{job} failed {len(beside)} times in a row before"
        if self._pairs[jobs] >= MAX_FAILURES:
            return f"{' with '.join(jobs)} failed {self._pairs[jobs]} times in a row before"
        return None
