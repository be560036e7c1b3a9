"""What is to be measured: which jobs run together, each at which share."""

from dataclasses import dataclass, replace

from advisor.core.gpu import Share
from advisor.core.job import Job


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that takes part in windows.

    Attributes:
        copy: 1 for the second of two alike, where a job runs next to itself at the same share.
    """

    job: Job
    share: Share
    copy: int = 0

    def __str__(self) -> str:
        return f"{self.job.name} at {self.share} %"


@dataclass(frozen=True, slots=True)
class Target:
    """One window: a job alone, or two together, for the `repeat`-th time."""

    specs: tuple[ProcessSpec, ...]
    repeat: int = 0

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of its jobs."""
        return tuple(spec.job.name for spec in self.specs)

    def __str__(self) -> str:
        return " with ".join(map(str, self.specs))


def solo(job: Job, share: Share, repeat: int = 0) -> Target:
    """A job alone."""
    return Target((ProcessSpec(job, share),), repeat)


def pair(
    job_a: Job,
    share_a: Share,
    job_b: Job,
    share_b: Share,
    repeat: int = 0,
    *,
    two_ends: bool = False,
) -> Target:
    """Two jobs together; in the order of their names, alike ones in the order of their shares.

    With `two_ends` the second one's units are counted from the last down, as CU masks need it.
    """
    first, second = sorted(
        (ProcessSpec(job_a, share_a), ProcessSpec(job_b, share_b)),
        key=lambda r: (r.job.name, r.share.percent),
    )
    if first == second:
        second = ProcessSpec(second.job, second.share, copy=1)
    if two_ends:
        second = replace(second, share=replace(second.share, upper=True))
    return Target((first, second), repeat)
