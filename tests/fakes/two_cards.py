"""Made-up pairs on two GPU models; the second one follows from the first by stated rules."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import synthetic_pairs as made_up
from flat_records import changed

from advisor.core.records import PairPoint, SoloPoint

OTHER_MODEL = "Other made-up GPU"
OTHER_CARD = "GPU-made-up-1"

WATTS = 1.25
"""The other GPU draws this much more, at a limit that is as much higher."""

RATES = 0.8
"""Everything takes longer there."""

BANDWIDTH = 0.7
"""The memory is slower, so that jobs want more of it."""

JOBS = tuple(
    dataclasses.replace(job, bandwidth=min(1.0, job.bandwidth / BANDWIDTH)) for job in made_up.JOBS
)
"""The made-up jobs as a GPU with less bandwidth has them."""

_COUNTERS = (
    "sm_clock_mhz", "job_cpu_percent", "sm_occupancy_percent", "fp32_active_percent",
    "fp64_active_percent", "tensor_active_percent", "integer_active_percent",
    "pcie_tx_mib_per_s", "pcie_rx_mib_per_s",
)  # fmt: skip

Solos = list[SoloPoint]
Pairs = list[PairPoint]


def known(jobs: Iterable[made_up.MadeUpJob] = made_up.JOBS) -> tuple[Pairs, Solos]:
    """Pairs and profiles on the first GPU model, with every counter that is a feature."""
    jobs = tuple(jobs)
    pairs = [(a, b) for n, a in enumerate(jobs) for b in jobs[n:]]
    card: dict[str, Any] = {
        **dict.fromkeys(_COUNTERS, 10.0),
        "idle_power_w": made_up.IDLE_W,
        "power_limit_w": made_up.POWER_LIMIT_W,
    }
    solos = [dataclasses.replace(point, **card) for point in made_up.solo_points(jobs)]
    return made_up.pair_points(pairs), solos


def twin() -> tuple[Pairs, Solos]:
    """The same on a GPU model whose watts and rates are larger by factors, and nothing else."""
    return _elsewhere(*known())


def slower_memory(jobs: Iterable[made_up.MadeUpJob] = JOBS) -> tuple[Pairs, Solos]:
    """Other watts and rates, and less bandwidth."""
    return _elsewhere(*known(jobs))


def _elsewhere(pairs: Pairs, solos: Solos) -> tuple[Pairs, Solos]:
    moved: dict[str, Any] = {"gpu_model": OTHER_MODEL, "gpu_uuid": OTHER_CARD}
    return (
        [
            changed(
                point,
                **moved,
                rate_1=RATES * (point.parts[0].rate or 0),
                rate_2=RATES * (point.parts[1].rate or 0),
                power_w=WATTS * (point.power_w or 0),
            )
            for point in pairs
        ],
        [
            dataclasses.replace(
                point,
                **moved,
                rate=RATES * point.rate,
                power_w=WATTS * (point.power_w or 0),
                idle_power_w=WATTS * made_up.IDLE_W,
                power_limit_w=WATTS * made_up.POWER_LIMIT_W,
            )
            for point in solos
        ],
    )
