"""When no more windows are spent on a job, or on a set of jobs, that fails again and again."""

from collections import Counter, defaultdict

MAX_FAILURES = 3
"""Failures in a row that are enough."""


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
