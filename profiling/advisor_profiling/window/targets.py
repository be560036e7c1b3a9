"""What is to be measured: which jobs run together, each at which share."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from advisor.core.gpu import Share
from advisor.core.job import Job


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that takes part in windows.

    Attributes:
        copy: 1 for the second of several alike, where a job runs next to itself at the same share.
    """

    job: Job
    share: Share
    copy: int = 0

    def __str__(self) -> str:
        return f"{self.job.name} at {self.share} %"


@dataclass(frozen=True, slots=True)
class Target:
    """One window: a job alone, or several together, for the `repeat`-th time."""

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


def together(jobs: Iterable[tuple[Job, Share]], repeat: int = 0) -> Target:
    """Jobs side by side; in the order of their names, alike ones in the order of their shares."""
    specs = list[ProcessSpec]()
    for job, share in sorted(jobs, key=lambda of: (of[0].name, of[1].percent)):
        copy = sum((spec.job, spec.share) == (job, share) for spec in specs)
        specs.append(ProcessSpec(job, share, copy))
    return Target(tuple(specs), repeat)


def pair(
    job_a: Job,
    share_a: Share,
    job_b: Job,
    share_b: Share,
    repeat: int = 0,
    *,
    two_ends: bool = False,
) -> Target:
    """Two jobs together.

    With `two_ends` the second one's units are counted from the last down, as CU masks need it.
    """
    target = together(((job_a, share_a), (job_b, share_b)), repeat)
    if not two_ends:
        return target
    first, second = target.specs
    return Target((first, replace(second, share=replace(second.share, upper=True))), repeat)
