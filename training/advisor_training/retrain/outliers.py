"""Points that are far from all others: from what the champion expects, or from other runs alone.

What pairs are divided by is compared with the job's fastest run, and a run that is over
`LARGEST_SLOWDOWN` slower counts as disturbed (`advisor_training.dataset.pairs`). So one point of a
job alone that is too fast would take the pairs of all other runs out of training.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from advisor.core.records import SoloPoint
from advisor.validity.slow_alone import FASTEST
from advisor_training.dataset.solo import whole_gpu
from advisor_training.retrain.collected import measurement_of
from advisor_training.retrain.hosts import host_of
from advisor_training.retrain.refused import Refused, refuse
from advisor_training.retrain.surprises import Surprise

FARTHEST = 3.0
"""Times the distance from the prediction to the bound of its 90 % interval."""

LEAST_NEWS = 3
"""Points of a measurement that can be news: a launch has one, and by itself it may be disturbed."""

LEAST_RUNS = 2
"""Other runs that a point is held against: with one, nobody knows which of the two is wrong."""

LARGEST_SPREAD = 1 / 0.35
"""Between hosts, of jobs that are bound by the CPU, whose rate is that of a core: one such job
alone was seen at 35 % to 100 % of its rate (`LARGEST_SLOWDOWN`)."""

Run = tuple[str, str]
"""A run on a card."""


def outliers(found: Sequence[Surprise]) -> Iterator[Refused]:
    """Points beyond `FARTHEST` that nothing bears out.

    Where most points of a measurement are that far off, three at least, they are no outliers but
    news: a job that the champion does not understand, which is what retraining is for. Of launches
    on one card the third that is off makes all of them news. So does another host on which the
    same pair is off to the same side.
    """
    groups: dict[tuple[str, ...], list[Surprise]] = {}
    for one in found:
        groups.setdefault(measurement_of(one.point), []).append(one)
    far = [one for group in groups.values() if not _are_news(group) for one in group if _sides(one)]
    everywhere = [one for one in found if _sides(one)]
    for one in far:
        if not any(_agree(one, other) for other in everywhere):
            yield _refused(one)


def _are_news(group: Sequence[Surprise]) -> bool:
    far = sum(1 for one in group if _sides(one))
    return far >= LEAST_NEWS and 2 * far >= len(group)


def _sides(one: Surprise) -> set[tuple[int, bool]]:
    """Which of both rates and the power are beyond `FARTHEST`, and whether above."""
    values = enumerate((*one.rates, one.power))
    return {(place, value > 0) for place, value in values if abs(value) > FARTHEST}


def _agree(one: Surprise, other: Surprise) -> bool:
    """Whether another host saw the same of the same pair."""
    same_pair = (*one.point.jobs, one.point.gpu_model) == (*other.point.jobs, other.point.gpu_model)
    other_host = host_of(one.point) != host_of(other.point)
    return same_pair and other_host and not _sides(one).isdisjoint(_sides(other))


def _refused(one: Surprise) -> Refused:
    why = f"{one.largest:.1f} times as far from the prediction as its bound"
    return refuse(one.point, "outlier", why)


def too_fast_alone(solos: Iterable[SoloPoint], known: frozenset[str]) -> Iterator[Refused]:
    """New points at 100 % that would make every other run of the job a disturbed one.

    They are held against the runs that the champion has learned from, and the new ones of other
    cards: what one card says twice is no second opinion.

    Args:
        solos: All points of jobs alone.
        known: Ids of those that the champion has learned from.
    """
    of_job: dict[tuple[str, str], list[SoloPoint]] = {}
    for point in whole_gpu(solos):
        of_job.setdefault((point.job, point.gpu_model), []).append(point)
    for points in of_job.values():
        for point in points:
            if point.point_id not in known:
                yield from _judged(point, _others(point, points, known))


def _judged(point: SoloPoint, others: Mapping[Run, float]) -> Iterator[Refused]:
    bound = LARGEST_SPREAD if "cpu-bound" in point.flags else FASTEST
    if len(others) >= LEAST_RUNS and point.rate > bound * max(others.values()):
        why = (
            f"{point.rate:.4g}/s alone on the whole GPU, "
            f"{max(others.values()):.4g}/s in the fastest of {len(others)} other runs"
        )
        yield refuse(point, "outlier", why)


def _others(
    point: SoloPoint, points: Iterable[SoloPoint], known: frozenset[str]
) -> dict[Run, float]:
    """Median rate of each run that a point can be held against, of the same definition."""
    rates: dict[Run, list[float]] = {}
    for other in points:
        same_job = None in (point.job_hash, other.job_hash) or point.job_hash == other.job_hash
        if same_job and (other.point_id in known or other.gpu_uuid != point.gpu_uuid):
            rates.setdefault((other.run, other.gpu_uuid), []).append(other.rate)
    return {run: statistics.median(found) for run, found in rates.items()}
