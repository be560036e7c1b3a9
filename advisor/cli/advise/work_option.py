"""The option --work: how much each job has to do, in time that it takes alone."""

from collections.abc import Sequence

from advisor.core.durations import read_duration
from advisor.core.finish import Work
from advisor.errors import InputError


def read_work(options: Sequence[str], job_a: str, job_b: str) -> Work | None:
    """The work of two jobs; None where nothing was said of it.

    Args:
        options: `JOB=3h`, or `3h` for both jobs.
        job_a: The first job.
        job_b: The second job; the same name means the same work.

    Raises:
        InputError: no time, a job that is not there, or nothing for one of them.
    """
    seconds: dict[str, float] = {}
    for option in options:
        job, _, time = option.rpartition("=")
        if job and job not in (job_a, job_b):
            raise InputError(
                f"--work {option} is for a job that is not there",
                why=f"the jobs are {job_a} and {job_b}",
            )
        seconds |= dict.fromkeys([job] if job else [job_a, job_b], read_duration(time))
    if not seconds:
        return None
    if lacking := [job for job in (job_a, job_b) if job not in seconds]:
        raise InputError(f"--work says nothing of {lacking[0]}", fix=f"add --work {lacking[0]}=1h")
    return Work((seconds[job_a], seconds[job_b]))
