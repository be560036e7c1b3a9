"""The solo sweep: one job alone at each share."""

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job
from advisor.core.records import SoloPoint
from advisor.core.telemetry import MEMORY_USED
from advisor.errors import LimitBrokenError, LimitNotProvenError
from advisor_data import Store
from advisor_profiling.campaign.blocks import cut
from advisor_profiling.campaign.campaign import Failure, Reporter, conditions_on, measure_blocks
from advisor_profiling.testbed.replay import Testbed
from advisor_profiling.window.points import Target, solo
from advisor_profiling.window.window import WindowRules, measure_idle

DEFAULT_SHARES = tuple(Share(float(percent)) for percent in range(10, 101, 10))

IDLE_DRIFT_W = 5
"""Idle power that moved by more than this between start and end is worth a word."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep measured in this process; points of an earlier part are in the store."""

    run: str
    points: tuple[SoloPoint, ...]
    failures: tuple[Failure, ...]
    idle_before_w: float | None
    idle_after_w: float | None
    duration_s: float


def plan(job: Job, shares: Iterable[Share], repeats: int, run: str) -> list[Target]:
    """All windows in an order that is random but the same for the same run."""
    targets = [solo(job, share, repeat) for share in shares for repeat in range(repeats)]
    random.Random(run).shuffle(targets)
    return targets


def new_run(moment: str) -> str:
    """Name of a run: its start and four random hex digits."""
    start = datetime.fromisoformat(moment)
    return f"{start:%Y%m%dT%H%M%S}-{os.urandom(2).hex()}"


def unfinished_run(
    points: Sequence[SoloPoint], job: Job, gpu: Gpu, mode: str
) -> tuple[str, list[SoloPoint]] | None:
    """The newest run of exactly this job on this card, with its points."""
    same = [
        p
        for p in points
        if (p.job_hash, p.gpu_uuid, p.mode) == (job.job_hash, gpu.uuid, mode)
        and p.driver == gpu.driver
    ]
    if not same:
        return None
    run = max(same, key=lambda p: p.started_at).run
    return run, [p for p in same if p.run == run]


def sweep(
    targets: Sequence[Target],
    run: str,
    testbed: Testbed,
    store: Store,
    reporter: Reporter,
    rules: WindowRules,
) -> SweepResult:
    """Measure `targets` on `testbed`; what failed is tried once more, alone.

    Raises:
        LimitBrokenError: the job does not stay under its share, or a stranger computes.
        LimitNotProvenError: the share of the job is not in force.
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
    """
    if not targets:
        return SweepResult(run, (), (), None, None, 0.0)
    begun_s = testbed.clock.now_s()
    reporter.phase("measuring idle power")
    conditions = conditions_on(testbed, run, rules)
    free_mib = testbed.gpu.memory_mib
    if free_mib is not None:
        free_mib -= testbed.source.read((MEMORY_USED,))[MEMORY_USED] or 0
    blocks = cut(targets, testbed.max_clients, free_mib, run, alone=False)
    outcome = measure_blocks(blocks, conditions, testbed, store, reporter)
    for failure in outcome.failures:
        # A job that lifts its limit is the only one here: no other share is believed either.
        if isinstance(failure.cause, LimitNotProvenError | LimitBrokenError):
            raise failure.cause
    reporter.phase("measuring idle power again")
    return SweepResult(
        run=run,
        points=tuple(p for p in outcome.points if isinstance(p, SoloPoint)),
        failures=outcome.failures,
        idle_before_w=conditions.idle_power_w,
        idle_after_w=_idle_again(testbed, rules, conditions.idle_power_w),
        duration_s=testbed.clock.now_s() - begun_s,
    )


def _idle_again(testbed: Testbed, rules: WindowRules, before_w: float | None) -> float | None:
    """Idle power after the last job; the card takes some seconds to lower its clocks."""
    deadline_s = testbed.clock.now_s() + 8
    while True:
        after_w = measure_idle(testbed.source, testbed.clock, rules)
        cool = before_w is None or after_w is None or after_w <= before_w + IDLE_DRIFT_W
        if cool or testbed.clock.now_s() >= deadline_s:
            return after_w
