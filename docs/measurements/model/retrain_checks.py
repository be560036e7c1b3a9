"""Prints what the checks of `advisor retrain` refuse of good points, and what they catch of bad.

    OMP_NUM_THREADS=1 .venv/bin/python docs/measurements/model/retrain_checks.py

The bundled H200 points, each card a host. In each of three draws six jobs are left out, and all
points of theirs are new. First as they were measured: what is refused is a good point lost. Then
with one fault at a time: what is refused of the points that have it is caught.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor_training.retrain.collected import Collected, PointSet, bundled_points
from advisor_training.retrain.refused import Refused
from advisor_training.retrain.sifted import sift, usable_points, with_flags

GPU_MODEL = "NVIDIA H200"
DRAWS, LEFT_OUT = 3, 6
EVERY = 10
NOW = datetime(2026, 12, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a champion has learned from, and what is new."""

    learned: PointSet
    new: PointSet

    def refused(self, new: PointSet) -> tuple[Refused, ...]:
        """What the checks leave out of new points."""
        site = Collected(own=new, bundled=self.learned)
        return sift(site, self.learned, NOW).refused

    @property
    def host(self) -> str:
        """The one with the most new points."""
        return Counter(str(point.host) for point in self.new.pairs).most_common(1)[0][0]


def main() -> None:
    """Both tables."""
    draws = list(_draws())
    good = [{one.point_id: one for one in draw.refused(draw.new)} for draw in draws]
    _tell_good(draws, good)
    print("\n| fault | points with it | caught | by | good points refused more |")
    print("| --- | --: | --: | --- | --: |")
    for name, spoil in FAULTS.items():
        _tell_fault(name, spoil, draws, good)


def _draws() -> Iterator[Draw]:
    points = points_of_hosts()
    jobs = sorted({job for point in points.pairs for job in point.jobs})
    random = np.random.default_rng(0)
    for number in range(DRAWS):
        out = set(random.choice(jobs, LEFT_OUT, replace=False).tolist())
        print(f"draw {number}: without {', '.join(sorted(out))}", flush=True)
        new = points.where(lambda point, out=out: not out.isdisjoint(_jobs(point)))
        yield Draw(points.where(lambda point, out=out: out.isdisjoint(_jobs(point))), new)


def points_of_hosts() -> PointSet:
    """The usable ones of the GPU model, each card a host."""
    usable = usable_points(with_flags(bundled_points()))
    ours = usable.where(lambda point: point.gpu_model == GPU_MODEL)
    return PointSet(
        pairs=tuple(replace(p, host=p.gpu_uuid) for p in ours.pairs),
        profiled=tuple(replace(p, host=p.gpu_uuid) for p in ours.profiled),
        references=tuple(replace(p, host=p.gpu_uuid) for p in ours.references),
    )


def _jobs(point: PairPoint | SoloPoint) -> tuple[str, ...]:
    return (point.job,) if isinstance(point, SoloPoint) else point.jobs


# faults

Fault = Callable[[PairPoint], PairPoint]
Spoil = Callable[[Draw], PointSet]


def _with_parts(point: PairPoint, change: Callable[[PointPart], PointPart]) -> PairPoint:
    return replace(point, parts=tuple(map(change, point.parts)))


def faster(factor: float) -> Fault:
    """All rates times a factor."""

    def change(part: PointPart) -> PointPart:
        return replace(part, rate=None if part.rate is None else factor * part.rate)

    return lambda point: _with_parts(point, change)


def with_power(factor: float) -> Fault:
    """The power times a factor."""
    return lambda point: replace(point, power_w=point.power_w and factor * point.power_w)


def _swapped(point: PairPoint) -> PairPoint:
    """Each job with what the other one did."""
    first, second = point.parts
    return replace(
        point, parts=(replace(first, rate=second.rate), replace(second, rate=first.rate))
    )


def _every(fault: Fault) -> Spoil:
    """A tenth of the pair points."""
    return lambda draw: replace(
        draw.new,
        pairs=tuple(fault(p) if n % EVERY == 0 else p for n, p in enumerate(draw.new.pairs)),
    )


def _of_host(fault: Fault) -> Spoil:
    """All pair points of one host."""
    return lambda draw: replace(
        draw.new, pairs=tuple(fault(p) if p.host == draw.host else p for p in draw.new.pairs)
    )


def _references(factor: float) -> Spoil:
    """The rates of one host's jobs alone on the whole GPU."""

    def change(draw: Draw, points: Sequence[SoloPoint]) -> tuple[SoloPoint, ...]:
        whole = {p for p in points if p.host == draw.host and p.share_percent == WHOLE}
        return tuple(replace(p, rate=factor * p.rate) if p in whole else p for p in points)

    return lambda draw: replace(
        draw.new,
        profiled=change(draw, draw.new.profiled),
        references=change(draw, draw.new.references),
    )


FAULTS: dict[str, Spoil] = {
    "rates x1000, a tenth": _every(faster(1000)),
    "rates x1.3, a tenth": _every(faster(1.3)),
    "rates x1.3, one host": _of_host(faster(1.3)),
    "rates x1.3 alone at 100 %, one host": _references(1.3),
    "power 5 W, a tenth": _every(lambda point: replace(point, power_w=5.0)),
    "power +30 %, a tenth": _every(with_power(1.3)),
    "power +30 %, one host": _of_host(with_power(1.3)),
    "jobs swapped, a tenth": _every(_swapped),
    "results wrong, a tenth": _every(
        lambda point: _with_parts(point, lambda part: replace(part, results="wrong"))
    ),
}


# tables


def _tell_good(draws: Sequence[Draw], good: Sequence[dict[str, Refused]]) -> None:
    reasons = Counter(one.reason for found in good for one in found.values())
    total = sum(len(draw.new.ids) for draw in draws)
    print("\n| good points | refused | by |\n| --: | --: | --- |")
    print(f"| {total} | {_share(sum(reasons.values()), total)} | {_words(reasons)} |")


def _tell_fault(
    name: str, spoil: Spoil, draws: Sequence[Draw], good: Sequence[dict[str, Refused]]
) -> None:
    bad, lost, reasons = 0, 0, Counter[str]()
    for draw, refused in zip(draws, good, strict=True):
        spoilt = spoil(draw)
        was = set(draw.new)
        ids = {point.point_id for point in spoilt if point not in was}
        found = draw.refused(spoilt)
        reasons.update(one.reason for one in found if one.point_id in ids)
        lost += sum(one.point_id not in ids and one.point_id not in refused for one in found)
        bad += len(ids)
    caught = _share(sum(reasons.values()), bad)
    print(f"| {name} | {bad} | {caught} | {_words(reasons)} | {lost} |", flush=True)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if total else "-"


def _words(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())) or "-"


if __name__ == "__main__":
    main()
