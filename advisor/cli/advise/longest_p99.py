"""The option --max-p99: how long the answers of a job that serves requests may take."""

import re
from collections.abc import Sequence

from advisor.errors import InputError

_OPTION = re.compile(r"(?:(.+)=)?([0-9]+(?:\.[0-9]+)?) ?(ms|s)")


def longest_p99_ms(
    options: Sequence[str], jobs: Sequence[str]
) -> tuple[dict[str, float], float | None]:
    """The longest latency by name of job, and that of every other job that answers requests.

    Args:
        options: `JOB=50ms`, or `50ms` for all of them; the last one of each counts.
        jobs: Their names.

    Raises:
        InputError: an option has no time with its unit, or names no job of these.
    """
    by_job: dict[str, float] = {}
    for_all: float | None = None
    for option in options:
        found = _OPTION.fullmatch(option)
        if not found:
            raise InputError(
                f"--max-p99 {option} has no time with a unit",
                fix=f"write --max-p99 {jobs[0]}=50ms, or --max-p99 50ms for all that serve",
            )
        job, longest_ms = found[1], float(found[2]) * (1000 if found[3] == "s" else 1)
        if job is None:
            for_all = longest_ms
        elif job in jobs:
            by_job[job] = longest_ms
        else:
            raise InputError(
                f"--max-p99 {option} is for a job that is not there",
                why=f"the jobs are {', '.join(jobs)}",
            )
    return by_job, for_all
