"""Made-up pairs on two GPU models; the second one follows from the first by stated rules."""

import dataclasses
from collections.abc import Iterable
from itertools import combinations_with_replacement
from typing import Any

import synthetic_pairs as made_up
from flat_records import changed
from made_up_rows import full_solo_points

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

Solos = list[SoloPoint]
Pairs = list[PairPoint]


def known(jobs: Iterable[made_up.MadeUpJob] = made_up.JOBS) -> tuple[Pairs, Solos]:
    """Pairs and profiles on the first GPU model, with every counter that is a feature."""
    jobs = tuple(jobs)
    return made_up.pair_points(combinations_with_replacement(jobs, 2)), full_solo_points(jobs)


def slower_memory(jobs: Iterable[made_up.MadeUpJob] = JOBS) -> tuple[Pairs, Solos]:
    """Other watts and rates, and less bandwidth."""
    pairs, solos = known(jobs)
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
