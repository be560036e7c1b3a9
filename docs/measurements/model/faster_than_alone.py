"""Prints the measurements that are left out since a job ran faster beside another than alone.

    .venv/bin/python docs/measurements/model/faster_than_alone.py

A measurement is one pair on one card in one run. Listed are those whose jobs were as fast alone as
in their fastest run, so that nothing else speaks against them, and of which one job was more than
12 % faster beside the other than alone (`advisor.validity.slow_alone.FASTEST`). Sharing speeds
nothing up: the job was slow when it was measured alone.
"""

from collections.abc import Sequence

from advisor.core.flags import DOUBTFUL
from advisor.core.records import PairPoint, SoloPoint
from advisor.validity.slow_alone import FASTEST, LARGEST_SLOWDOWN
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_training.dataset.solo import SoloReference, solo_reference, whole_gpu

HEADINGS = ("pair", "GPU", "run", "points", "faster job", "highest relative speed", "at 50/50")


def main() -> None:
    """A line for each measurement."""
    solos = whole_gpu([*bundled_reference_points(), *bundled_solo_points()])
    alone = [point for point in solos if DOUBTFUL.isdisjoint(point.flags)]
    groups: dict[tuple[str, ...], list[PairPoint]] = {}
    for point in select(bundled_pair_points()).points:
        key = (*point.jobs, point.gpu_model, point.gpu_uuid, point.run)
        groups.setdefault(key, []).append(point)
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}")
    for _, group in sorted(groups.items()):
        references = [_reference(job, group[0], alone) for job in dict.fromkeys(group[0].jobs)]
        if all(ref and ref.slowdown <= LARGEST_SLOWDOWN for _, ref in references):
            _show(group, {job: ref.rate for job, ref in references if ref})


def _reference(
    job: str, point: PairPoint, alone: Sequence[SoloPoint]
) -> tuple[str, SoloReference | None]:
    own = [solo for solo in alone if solo.job == job]
    job_hash = next(part.job_hash for part in point.parts if part.job == job)
    return job, solo_reference(own, job_hash, point.gpu_model, point.gpu_uuid, point.run)


def _show(group: Sequence[PairPoint], alone: dict[str, float]) -> None:
    """The line of a measurement, if one of its jobs was too fast."""
    speeds = [
        ((part.rate or 0) / alone[part.job], part.job, point.shares_percent == (50, 50))
        for point in group
        for part in point.parts
    ]
    highest, job, _ = max(speeds)
    if highest <= FASTEST:
        return
    equal = max(speed for speed, name, at_equal in speeds if name == job and at_equal)
    point = group[0]
    pair, card = " + ".join(point.jobs), f"{point.gpu_model}, {point.gpu_uuid[:12]}"
    cells = pair, card, point.run, str(len(group)), job, f"{highest:.2f}", f"{equal:.2f}"
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
