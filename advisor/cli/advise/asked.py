"""Options of advice as the request that they stand for."""

from collections.abc import Mapping, Sequence

from advisor.cli.advise.min_speeds import min_speeds
from advisor.wire.requests import JobRequest


def asked_jobs(
    names: Sequence[str],
    every_name: Sequence[str],
    least: Sequence[str],
    longest_ms: Mapping[str, float],
    works_s: Mapping[str, float] | None = None,
) -> tuple[JobRequest, ...]:
    """The jobs of a pair with what each must keep.

    Args:
        names: Of the pair.
        every_name: Those that options may name.
        least: Options `--min-speed`.
        longest_ms: p99 latencies by name of job.
        works_s: What each has to do; None: they run on and on.

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
