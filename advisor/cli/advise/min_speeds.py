"""The option --min-speed: what each job must keep of its speed."""

from collections.abc import Sequence

from advisor.errors import InputError


def min_speeds(options: Sequence[str], jobs: Sequence[str]) -> dict[str, float]:
    """The minimum speed of each job that has one; the last word counts.

    Args:
        options: `JOB=0.5`, or `0.5` for all jobs.
        jobs: Their names.

    Raises:
        InputError: an option has no number, or names no job of these.
    """
    least: dict[str, float] = {}
    for option in options:
        job, _, number = option.rpartition("=")
        try:
            speed = float(number)
        except ValueError as error:
            raise _no_number(option, job, number, jobs[0]) from error
        if job and job not in jobs:
            raise InputError(
                f"--min-speed {option} is for a job that is not there",
                why=f"the jobs are {', '.join(jobs)}",
            )
        least |= dict.fromkeys([job] if job else jobs, speed)
    return least


def _no_number(option: str, job: str, number: str, first: str) -> InputError:
    percent = number.removesuffix("%")
    if percent != number and percent.replace(".", "", 1).isdecimal():
        part = f"{float(percent) / 100:g}"
        return InputError(
            f"--min-speed {option} is in percent",
            why="a speed is a part of the job's speed alone on the whole GPU",
            fix=f"write --min-speed {job}={part}" if job else f"write --min-speed {part}",
        )
    return InputError(f"--min-speed {option} has no number", fix=f"write --min-speed {first}=0.5")
