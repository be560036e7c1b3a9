"""Values of the options of advice, from words on a command line or from Python."""

import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from advisor.errors import InputError
from advisor.formats.moments import read_duration
from advisor.wire.requests import JobRequest

ByJob: TypeAlias = float | str | Mapping[str, float | str] | Iterable[str] | None
"""An option of jobs: one value for all, one for each by name, or words such as `JOB=0.5`."""

_OPTION = re.compile(r"(?:(.+)=)?([0-9]+(?:\.[0-9]+)?) ?(ms|s)")


def words(said: ByJob) -> tuple[str, ...]:
    """As a command line has it.

    Raises:
        InputError: values that do not say of which job they are.
    """
    given: Any = said  # one of numpy's numbers, too
    match given:
        case None:
            return ()
        case str() | numbers.Real():
            return (str(said),)
        case Mapping():
            return tuple(
                f"{job}={value}" for job, value in cast("Mapping[str, float | str]", given).items()
            )
        case _:
            every = tuple(cast("Iterable[str]", given))
    if unnamed := [word for word in every if not isinstance(word, str)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"{unnamed[0]!r} in a list does not say whose it is",
            fix='name the jobs: {"a": 0.5, "b": 0.7}',
        )
    return every


def job_requests(
    names: Sequence[str],
    every_name: Sequence[str],
    least: Sequence[str],
    longest_ms: Mapping[str, float],
    works_s: Mapping[str, float] | None = None,
) -> tuple[JobRequest, ...]:
    """The jobs of a pair with what each must keep, as options for `every_name` say it.

    Without works they run on and on.

    Raises:
        InputError: an option has no number, or names no job of these.
    """
    speeds = min_speeds(least, every_name)
    return tuple(
        JobRequest(
            job=name,
            min_speed=speeds.get(name),
            max_p99_ms=longest_ms.get(name),
            work_s=(works_s or {}).get(name),
        )
        for name in names
    )


def every_job(texts: Sequence[str]) -> tuple[str, ...]:
    """Each job as often as it is asked for; `A*3` or `A:3` stands for three of A.

    Raises:
        InputError: a count that is none.
    """
    names = list[str]()
    for text in texts:
        job, sign, count = text.rpartition("*" if "*" in text else ":")
        if job and count.isdecimal() and 0 < int(count) < 100:
            names += [job] * int(count)
        elif sign != "*":
            names.append(text)  # perhaps the name of a file
        else:
            raise InputError(f"{text!r} is no number of a job", fix="write A*3 for three of A")
    return tuple(names)


def _check_job(option: str, job: str, jobs: Sequence[str]) -> None:
    """Refuse an option that is for another job than those there are; "" is for all."""
    if job and job not in jobs:
        raise InputError(
            f"{option} is for a job that is not there, or cannot have it",
            why=f"it can be for {', '.join(dict.fromkeys(jobs))}",
        )


def min_speeds(options: Sequence[str], jobs: Sequence[str]) -> dict[str, float]:
    """The minimum speed of each job that has one, `JOB=0.5` or `50%` for all; the last word counts.

    Raises:
        InputError: an option has no number, or names no job of these.
    """
    return _by_job("--min-speed", options, jobs, _read_speed)


def read_works(
    options: Sequence[str], names: Sequence[str], flag: str = "--work"
) -> dict[str, float]:
    """Seconds of each job that has some, `JOB=3h` or `3h` for all; the last word counts.

    Raises:
        InputError: no time, or a job that is not there.
    """
    return _by_job(flag, options, names, read_duration)


def _by_job(
    flag: str, options: Sequence[str], jobs: Sequence[str], read: Callable[[str], float]
) -> dict[str, float]:
    values: dict[str, float] = {}
    for option in options:
        job, _, text = option.rpartition("=")
        _check_job(f"{flag} {option}", job, jobs)
        values |= dict.fromkeys([job] if job else jobs, read(text))
    return values


def _read_speed(text: str) -> float:
    with InputError.instead_of(
        ValueError, f"--min-speed {text} has no number", why="", fix="write 0.5, 50% or JOB=0.5"
    ):
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def longest_p99_ms(
    options: Sequence[str], jobs: Sequence[str]
) -> tuple[dict[str, float], float | None]:
    """The longest latency by name of job, and that of every other job that answers requests.

    Options are `JOB=50ms`, or `50ms` for all of them; the last one of each counts.

    Raises:
        InputError: an option has no time with its unit, or names no job of these.
    """
    longest_ms: dict[str, float] = {}
    for option in options:
        if not (match := _OPTION.fullmatch(option)):
            raise InputError(
                f"--max-p99 {option} has no time with a unit",
                fix=f"write --max-p99 {jobs[0]}=50ms, or --max-p99 50ms for all that serve",
            )
        job = match[1] or ""
        _check_job(f"--max-p99 {option}", job, jobs)
        longest_ms[job] = float(match[2]) * (1000 if match[3] == "s" else 1)
    for_all_ms = longest_ms.pop("", None)
    return longest_ms, for_all_ms
