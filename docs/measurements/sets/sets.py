"""Which sets of jobs a campaign measures: drawn by chance, the same for the same seed."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor_profiling.window.targets import ProcessSpec, Target

MOST_JOBS = 7
"""Of a set."""

NOT_FILLING = (
    "albert-train-b2", "bert-infer-b2", "bert-serve-10", "bert-serve-30", "bert-train-b2",
    "llm-serve-10", "mobilenet-infer-b2", "mobilenet-train-b2", "resnet50-infer-b2",
    "resnet50-train-b2", "resnet50-train-b32", "resnet50-train-waiting", "vit-infer-b2",
    "vit-serve-30", "vit-train-b2", "wav2vec2-infer-b2", "whisper-infer-b2",
)  # fmt: skip
"""Jobs that do on a fifth of an H100 at least 70 % of what they do on all of it, and servers whose
demand is less than half of what the card serves."""

LIMITS = (26.0, 50.0, 90.0)
"""Percent, for a job that fills the card: 34, 66 and 118 SMs of 132, where libraries computed right
results (docs/check.md)."""

SMALL, BIG = 7, 3
"""Jobs of each kind in one campaign."""

_NO_LIMIT = Share(100.0)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sets of one campaign: under MPS, and time-sliced without it."""

    limited: tuple[Target, ...]
    sliced: tuple[Target, ...]


def draw(jobs: Mapping[str, Job], seed: int) -> Drawn:
    """Sets of jobs that were drawn with the seed.

    Args:
        jobs: All jobs, by name.
        seed: The same one gives the same sets, if the jobs are the same.
    """
    chance = random.Random(seed)
    small = chance.sample([jobs[name] for name in NOT_FILLING], SMALL)
    big = chance.sample([j for name, j in sorted(jobs.items()) if name not in NOT_FILLING], BIG)
    copies = [_together([job] * n) for job in small[:2] for n in (2, 3)]
    copies.append(_together([small[0]] * 5))
    mixed = [_together(_some(small, n, chance)) for n in (2, 3, 3, 4, 5, 5, 6, 7)]
    partners = enumerate((1, 2, 3, 4, 1, 2))
    around = [(big[k % BIG], _some(small, n, chance)) for k, n in partners]
    free = [_together([job, *others]) for job, others in around]
    limited = [_together(others, (job, chance.choice(LIMITS))) for job, others in around]
    full = [_together([*big[:2], *_some(small, n, chance)]) for n in (0, 1)]
    sliced = (*copies[:2], copies[-1], *mixed[1::2], *free[:4])
    return Drawn((*copies, *mixed, *free, *limited, *full), tuple(sliced))


def _some(jobs: Sequence[Job], count: int, chance: random.Random) -> list[Job]:
    """So many of the jobs, some of them twice."""
    return sorted(chance.sample([*jobs, *jobs], count), key=lambda job: job.name)


def _together(free: Sequence[Job], *limited: tuple[Job, float]) -> Target:
    """A window of jobs without a limit, and of some with one; alike processes are numbered."""
    specs = [*_numbered(free), *(ProcessSpec(job, Share(low)) for job, low in limited)]
    return Target(tuple(sorted(specs, key=lambda s: (s.job.name, s.share.percent, s.copy))))


def _numbered(jobs: Sequence[Job]) -> Iterator[ProcessSpec]:
    for number, job in enumerate(jobs):
        yield ProcessSpec(job, _NO_LIMIT, copy=list(jobs[:number]).count(job))
