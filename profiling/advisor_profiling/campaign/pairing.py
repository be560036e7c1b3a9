"""Which jobs are paired: every job with jobs of every kind, all jobs about equally often."""

import difflib
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from advisor.core.flags import CPU_BOUND
from advisor.core.job import Job
from advisor.core.records import FILLS_PERCENT, SoloPoint
from advisor.errors import InputError

BoundBy = Literal["compute", "memory", "launch"]
PairNames = tuple[str, str]

_HALF_PERCENT = 50
"""Below it in SM activity a GPU idles most of the time, so two such jobs fit into each other's
gaps; from it on in DRAM activity two jobs together ask for more than the memory interface has.
"Energy-efficient GPU SM allocation" (table 1) parts its workloads at 50 % of both as well, and so
does `advisor_training.pairs`, by the same counters. On an H200 no job is near: 47 % and
76 % are the nearest in SM activity, 45 % and 51 % in DRAM activity.
"""


def kind_of(points: Iterable[SoloPoint]) -> BoundBy | None:
    """What bounds a job, by its newest point at its largest share.

    Args:
        points: Solo points of one job on one GPU model.

    Returns:
        "launch" for a job that keeps the GPU waiting, "memory" or "compute"; None where there is
        no point, or its counters were not available.
    """
    point = max(points, key=lambda p: (p.share_percent, p.started_at), default=None)
    if point is None:
        return None
    if CPU_BOUND in point.flags:
        return "launch"
    if point.sm_active_percent is None or point.dram_active_percent is None:
        return None
    if point.sm_active_percent < _HALF_PERCENT:
        return "launch"
    return "memory" if point.dram_active_percent >= _HALF_PERCENT else "compute"


def kinds_of(points: Iterable[SoloPoint]) -> dict[str, BoundBy]:
    """The kind of each job that has one; on several GPU models that with most of its points."""
    found: dict[str, dict[str, list[SoloPoint]]] = {}
    for point in points:
        found.setdefault(point.job, {}).setdefault(point.gpu_model, []).append(point)
    most = {job: max(by_model.values(), key=len) for job, by_model in found.items()}
    return {job: kind for job, its in most.items() if (kind := kind_of(its)) is not None}


def filling_jobs(points: Iterable[SoloPoint], gpu_model: str) -> set[str]:
    """Jobs that fill the GPU: at their largest share its SMs are active half of the time or more.

    What was measured on that GPU model goes before the same on others; a job of which nothing is
    known is not among them.
    """
    read = [p for p in points if p.sm_active_percent is not None]
    read.sort(key=lambda p: (p.gpu_model == gpu_model, p.share_percent, p.started_at))
    newest = {p.job: p.sm_active_percent or 0.0 for p in read}
    return {job for job, active in newest.items() if active >= FILLS_PERCENT}


def all_pairs(jobs: Iterable[str], *, selves: bool = True) -> list[PairNames]:
    """Every pair of the jobs, each in the order of names; with `selves` also each beside itself."""
    names = sorted(set(jobs))
    if selves:
        return list(itertools.combinations_with_replacement(names, 2))
    return list(itertools.combinations(names, 2))


def sample(
    jobs: Iterable[str], count: int, seed: str, kinds: Mapping[str, BoundBy], *, selves: bool = True
) -> list[PairNames]:
    """A balanced sample of the pairs of `jobs`, the same for the same seed.

    One pair after the other: that of the two jobs that were drawn least, and of those one whose
    jobs met the other's kind least. Jobs next to themselves have the same part of the sample as of
    all pairs.

    Jobs without a kind count as a kind of their own; of fewer pairs than `count` all are drawn.
    """
    names, chance = sorted(set(jobs)), random.Random(seed)
    left, drawn = all_pairs(names, selves=False), list[PairNames]()
    chance.shuffle(left)
    if selves and names:
        part = min(1, count / (len(left) + len(names)))
        drawn = [(name, name) for name in chance.sample(names, round(part * len(names)))]
    times = Counter(name for name, _ in drawn)
    met = Counter((name, kinds.get(name)) for name, _ in drawn)

    def cost(pair: PairNames) -> tuple[int, int]:
        a, b = pair
        return times[a] + times[b], met[a, kinds.get(b)] + met[b, kinds.get(a)]

    while left and len(drawn) < count:
        a, b = min(left, key=cost)
        left.remove((a, b))
        drawn.append((a, b))
        times.update((a, b))
        met.update([(a, kinds.get(b)), (b, kinds.get(a))])
    return sorted(drawn)


def named(name: str, jobs: Mapping[str, Job]) -> Job:
    """The job of that name.

    Raises:
        InputError: there is none.
    """
    if name not in jobs:
        raise no_such_job(name, jobs)
    return jobs[name]


def no_such_job(name: str, known: Collection[str]) -> InputError:
    """The error for a name that no job has; it names the nearest."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return InputError(
        f"there is no job {name!r} among {len(known)}",
        fix=f"the nearest is {near[0]}" if near else "",
    )
