"""What do the checks of `advisor retrain` find of bad points, and of good ones?

    .venv/bin/python docs/measurements/model/retrain_checks.py [--repeats 5]

Bundled pairs play a site: of each GPU model, the cards are its hosts. The champion has learned from
all cards but a third, drawn at random; what was measured on that third is new. First nothing is
wrong with it: refused points are false alarms. Then one fault at a time is put into a tenth of the
new points, or into one host with enough points, and what is caught and what is refused besides is
counted. Takes minutes for each repeat, most of them for the champion.
"""

import argparse
import dataclasses
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from advisor.core.records import PairPoint
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_training.dataset.pairs import make_pairs
from advisor_training.retrain.challenger import train_challenger, training_set
from advisor_training.retrain.collected import Collected, PointSet, bundled_points
from advisor_training.retrain.hosts import LEAST_PAIRS, LEAST_POINTS
from advisor_training.retrain.sifted import sift, usable_points, with_flags

NOW = datetime(2026, 12, 1, tzinfo=UTC)
NEW_PART = 1 / 3
BAD_PART = 0.1

Fault = Callable[[PairPoint], PairPoint]


def main() -> None:
    """Print a table, one line for each fault."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5)
    counts: dict[str, list[tuple[int, int, int, int]]] = {}
    for seed in range(options.parse_args().repeats):
        for fault, found in repeat(random.Random(seed)):
            counts.setdefault(fault, []).append(found)
    print("| fault | bad points | caught | good new points | refused |\n|---|---|---|---|---|")
    for fault, found in counts.items():
        bad, caught, good, refused = map(sum, zip(*found, strict=True))
        print(f"| {fault} | {bad} | {caught} | {good} | {refused} |")


def repeat(dice: random.Random) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Bad points, caught ones, good new points and refused ones of each fault."""
    points = learnable()
    cards = sorted({point.gpu_uuid for point in points.pairs})
    new = set(dice.sample(cards, round(NEW_PART * len(cards))))
    learned = points.where(lambda point: point.gpu_uuid not in new or not is_pair(point))
    champion = trained(learned)
    yield "none", counted(points, learned, champion, {}, lambda point: point)
    fresh = [point for point in points.pairs if point.gpu_uuid in new]
    some = {p.point_id: p for p in dice.sample(fresh, round(BAD_PART * len(fresh)))}
    for name, fault in of_points().items():
        yield f"{name}, a tenth of the points", counted(points, learned, champion, some, fault)
    host = {p.point_id: p for p in fresh if p.gpu_uuid == largest(fresh)}
    for name, fault in of_hosts().items():
        yield f"{name}, one host", counted(points, learned, champion, host, fault)


def learnable() -> PointSet:
    """Bundled points that a model is learned from; each card is a host."""
    usable = usable_points(with_flags(bundled_points()))
    pairs, _ = make_pairs(usable.pairs, [*usable.references, *usable.profiled], full=False)
    used = {(m.job_a, m.job_b, m.gpu_uuid, m.run) for pair in pairs for m in pair.measurements}
    kept = (p for p in usable.pairs if (*p.jobs, p.gpu_uuid, p.run) in used)
    hosts = tuple(dataclasses.replace(point, host=point.gpu_uuid) for point in kept)
    return dataclasses.replace(usable, pairs=hosts)


def is_pair(point: object) -> bool:
    """Profiles and references are known from the start."""
    return isinstance(point, PairPoint)


def trained(learned: PointSet) -> OnnxPredictor:
    """The champion of a site that knows these points."""
    with tempfile.TemporaryDirectory() as folder:
        made = train_challenger(learned, training_set(learned), NOW, lambda _: None)
        made.write(Path(folder))
        return OnnxPredictor(Path(folder))


def counted(
    points: PointSet,
    learned: PointSet,
    champion: OnnxPredictor,
    bad: Mapping[str, PairPoint],
    fault: Fault,
) -> tuple[int, int, int, int]:
    """Points with a fault and those caught; new points without one and those refused."""
    pairs = tuple(fault(point) if point.point_id in bad else point for point in points.pairs)
    own = dataclasses.replace(points, pairs=pairs)
    sifted = sift(Collected(own=own, bundled=PointSet()), learned, champion, NOW)
    refused = {one.point_id for one in sifted.refused}
    caught = len(refused & bad.keys())
    return len(bad), caught, sifted.new - len(bad), len(refused) - caught


def of_points() -> dict[str, Fault]:
    """What goes wrong with single points."""
    return {
        "rates twice as high": lambda p: with_rates(p, 2.0),
        "rates halved": lambda p: with_rates(p, 0.5),
        "rates a tenth": lambda p: with_rates(p, 0.1),
        "power halved": lambda p: with_power(p, 0.5),
        "power twice as high": lambda p: with_power(p, 2.0),
    }


def of_hosts() -> dict[str, Fault]:
    """What goes wrong with all points of a host."""
    return {
        "rates a fifth lower": lambda p: with_rates(p, 0.8),
        "rates halved": lambda p: with_rates(p, 0.5),
        "power a tenth lower": lambda p: with_power(p, 0.9),
        "power a fifth lower": lambda p: with_power(p, 0.8),
        "power halved": lambda p: with_power(p, 0.5),
    }


def with_rates(point: PairPoint, factor: float) -> PairPoint:
    """The point with other rates."""
    parts = tuple(dataclasses.replace(p, rate=p.rate and p.rate * factor) for p in point.parts)
    return dataclasses.replace(point, parts=parts)


def with_power(point: PairPoint, factor: float) -> PairPoint:
    """The point with another power."""
    return dataclasses.replace(point, power_w=point.power_w and point.power_w * factor)


def largest(fresh: list[PairPoint]) -> str:
    """The card with the most new points, which has to have enough to be judged."""
    cards = sorted({point.gpu_uuid for point in fresh})
    card = max(cards, key=lambda uuid: sum(point.gpu_uuid == uuid for point in fresh))
    pairs = [point.jobs for point in fresh if point.gpu_uuid == card]
    assert len(pairs) >= LEAST_POINTS
    assert len(set(pairs)) >= LEAST_PAIRS
    return card


if __name__ == "__main__":
    main()
