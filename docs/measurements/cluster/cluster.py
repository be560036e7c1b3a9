"""A cluster of GPUs, event by event, until all jobs have ended.

Speeds and power are those of `truth.Truth`; where a job starts is decided by a policy, which knows
nothing of them.
"""

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import simpy
from partition import Finished, Metered, Partition
from policies import Policy
from truth import Truth
from workload import Job

EVERY_S = 900.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A whole simulation: every job, the meters by GPU model, and how many events there were.

    Attributes:
        held: Cards with jobs each `EVERY_S`, until the last job arrived.
    """

    finished: list[Finished]
    metered: Mapping[str, Metered]
    events: int
    held: list[int]

    @property
    def end_s(self) -> float:
        """When the last job ended."""
        return max(done.end_s for done in self.finished)


def simulate(
    sites: Mapping[str, Truth], gpus: Mapping[str, int], jobs: Sequence[Job], policy: Policy
) -> Ran:
    """Run all jobs to their ends."""
    env = simpy.Environment()
    finished: list[Finished] = []
    parts = {
        model: Partition(env, sites[model], gpus[model], policy.rules[model], finished)
        for model in gpus
    }
    env.process(_arrive(env, parts, jobs))
    held: list[int] = []
    env.process(_count(env, parts.values(), jobs[-1].arrival_s, held))
    events = 0
    while env.peek() < math.inf:
        env.step()
        events += 1
    return Ran(finished, {model: part.metered() for model, part in parts.items()}, events, held)


def _arrive(
    env: simpy.Environment, parts: Mapping[str, Partition], jobs: Sequence[Job]
) -> Generator[simpy.Event, Any, None]:
    """Each job joins the queue of its GPU model."""
    for job in jobs:
        if job.arrival_s > env.now:
            yield env.timeout(job.arrival_s - env.now)
        parts[job.gpu_model].submit(job)


def _count(
    env: simpy.Environment, parts: Collection[Partition], until_s: float, held: list[int]
) -> Generator[simpy.Event, Any, None]:
    """Cards with jobs, again and again."""
    while env.now < until_s:
        held.append(sum(part.held for part in parts))
        yield env.timeout(EVERY_S)
