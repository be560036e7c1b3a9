"""Made-up pairs that follow simple rules, so that a report's figures follow from the construction.

Nothing here was measured. A job's speed at a share saturates; two jobs slow each other when they
want more than the memory's bandwidth; power is a sum, and at the cap both jobs slow down.
"""

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

from flat_records import from_flat

from advisor.core.gpu import units_for_percent
from advisor.core.records import PairPoint, SoloPoint

GPU_MODEL = "Made-up GPU"
UNITS = 132
IDLE_W = 80.0
POWER_LIMIT_W = 700.0

NINE = tuple(
    (share, 100.0 - share) for share in (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)
)
OTHERS = (("uncapped", 100.0, 100.0), ("time-sliced", 100.0, 100.0), ("mps", 70.0, 70.0))

_UNCAPPED_SPEED = 0.8
"""What is left of an even split's speeds when nobody is limited."""

_TIME_SLICED_SPEED = 0.95
"""What switching between two jobs leaves of half a GPU's speed."""


@dataclass(frozen=True, slots=True)
class MadeUpJob:
    """How a job behaves.

    Attributes:
        rate: Progress per second alone on the whole GPU.
        saturation: Small: a small share is enough; large: speed grows with the share.
        bandwidth: Part of the memory's bandwidth that it takes at full speed.
        power_w: Power above idle at full speed.
        sm_active_percent: As the counter of that name, alone on the whole GPU.
        thrash: How much worse than in proportion a lack of bandwidth slows it.
    """

    name: str
    rate: float
    saturation: float
    bandwidth: float
    power_w: float
    sm_active_percent: float
    thrash: float = 1.0

    def speed(self, share_percent: float) -> float:
        """Relative speed alone at a share; 1 at 100 %."""
        share = share_percent / 100
        return share * (1 + self.saturation) / (share + self.saturation)


CLIMBER = MadeUpJob("climber", 200, 1000, 0.1, 400, 95)
"""Its speed is its share."""

SITTER = MadeUpJob("sitter", 900, 0.001, 0.05, 60, 15)
"""A tenth of the GPU is all it can use."""

HOG = MadeUpJob("hog", 1300, 0.02, 1.0, 450, 90, thrash=3)
"""Beside itself it loses: two of them get less done than one."""

MIDDLE = MadeUpJob("middle", 4000, 0.6, 0.4, 300, 80)
SLOW = MadeUpJob("slow", 3, 2.0, 0.6, 350, 70)

JOBS = (CLIMBER, SITTER, HOG, MIDDLE, SLOW)


def solo_points(
    jobs: Iterable[MadeUpJob] = JOBS, run: str = "solo", gpu_uuid: str = "GPU-made-up-0"
) -> list[SoloPoint]:
    """Each job alone at ten shares."""
    shares = [*(share for share, _ in NINE), 100.0]
    return [
        SoloPoint(
            job=job.name,
            gpu_model=GPU_MODEL,
            gpu_uuid=gpu_uuid,
            units_total=UNITS,
            share_percent=share,
            units_granted=units_for_percent(share, UNITS),
            rate=job.rate * job.speed(share),
            power_w=min(POWER_LIMIT_W, IDLE_W + job.power_w * job.speed(share)),
            sm_active_percent=job.sm_active_percent * share / 100,
            dram_active_percent=0.9 * 100 * job.bandwidth * job.speed(share),
            memory_busy_percent=100 * job.bandwidth * job.speed(share),
            window_s=5.0,
            started_at=_moment(number),
            run=run,
        )
        for number, (job, share) in enumerate(itertools.product(jobs, shares))
    ]


def pair_points(
    pairs: Iterable[tuple[MadeUpJob, MadeUpJob]] | None = None,
    run: str = "first",
    *,
    noise: float = 0.0,
    seed: int = 0,
    repeat: int = 0,
    gpu_uuid: str = "GPU-made-up-0",
) -> list[PairPoint]:
    """Pairs at the nine splits, uncapped, time-sliced and over-subscribed.

    Args:
        pairs: All pairs of `JOBS`, each next to itself too, where none are given.
        run: Name of the run.
        noise: Standard deviation of rates and power, relative.
        seed: Of the noise; two runs with other seeds have other noise.
        repeat: Which repeat of the run these are.
        gpu_uuid: The card.
    """
    chosen = itertools.combinations_with_replacement(JOBS, 2) if pairs is None else pairs
    splits = [("mps", *split) for split in NINE] + [*OTHERS]
    dice = random.Random(f"{seed} {run} {repeat}")
    return [
        _point(job_a, job_b, *split, run, repeat, gpu_uuid, number, noise, dice)
        for number, ((job_a, job_b), split) in enumerate(itertools.product(chosen, splits))
    ]


def speeds_and_power(
    job_a: MadeUpJob, job_b: MadeUpJob, mode: str, share_a: float, share_b: float
) -> tuple[float, float, float]:
    """Relative speeds of both jobs, and power in W, without noise."""
    if mode == "time-sliced":
        power_w = IDLE_W + (job_a.power_w + job_b.power_w) / 2
        return _TIME_SLICED_SPEED / 2, _TIME_SLICED_SPEED / 2, power_w
    if mode == "uncapped":
        a, b, power_w = speeds_and_power(job_a, job_b, "mps", 50, 50)
        return a * _UNCAPPED_SPEED, b * _UNCAPPED_SPEED, power_w
    a, b = job_a.speed(share_a), job_b.speed(share_b)
    excess = max(0.0, a * job_a.bandwidth + b * job_b.bandwidth - 1)
    a /= 1 + job_a.thrash * job_a.bandwidth * excess
    b /= 1 + job_b.thrash * job_b.bandwidth * excess
    dynamic_w = a * job_a.power_w + b * job_b.power_w
    slowed = min(1.0, (POWER_LIMIT_W - IDLE_W) / dynamic_w)
    return a * slowed, b * slowed, IDLE_W + dynamic_w * slowed


def _point(
    job_a: MadeUpJob,
    job_b: MadeUpJob,
    mode: str,
    share_a: float,
    share_b: float,
    run: str,
    repeat: int,
    gpu_uuid: str,
    number: int,
    noise: float,
    dice: random.Random,
) -> PairPoint:
    if job_a.name > job_b.name:
        job_a, job_b, share_a, share_b = job_b, job_a, share_b, share_a
    a, b, power_w = speeds_and_power(job_a, job_b, mode, share_a, share_b)
    limited = mode == "mps"
    return from_flat(
        PairPoint,
        job_1=job_a.name,
        job_2=job_b.name,
        gpu_model=GPU_MODEL,
        gpu_uuid=gpu_uuid,
        units_total=UNITS,
        mode=mode,
        share_1_percent=share_a,
        share_2_percent=share_b,
        units_1=units_for_percent(share_a, UNITS) if limited else UNITS,
        units_2=units_for_percent(share_b, UNITS) if limited else UNITS,
        rate_1=job_a.rate * a * (1 + noise * dice.gauss()),
        rate_2=job_b.rate * b * (1 + noise * dice.gauss()),
        power_w=power_w * (1 + noise * dice.gauss()),
        window_s=5.0,
        started_at=_moment(number),
        run=run,
        repeat=repeat,
    )


def _moment(number: int) -> str:
    minutes, seconds = divmod(number, 60)
    hours, minutes = divmod(minutes, 60)
    return f"2026-01-31T{hours:02}:{minutes:02}:{seconds:02}+00:00"
