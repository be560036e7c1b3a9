"""What do other data change in pairs at the power limit?

    .venv/bin/python docs/measurements/power/data_at_limit.py [FOLDER]

No GPU: pairs of data_pairs.py, by default those of an H100 in data-pairs/. What a product's data
change is taken from its splits where nothing held the clock back, so that no model of power by data
is judged here. Compared with the power and the rate that were measured at the limit are those of
the same pair with random numbers: as they are, less half of the change, as the correction once
said, and as `data_predictor` says.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measured_pair import MeasuredPair, at_limit
from product_points import OPERANDS, RANDOM, partner_of, product_of, split_of

from advisor.core.interval import Interval
from advisor.core.records import PairPoint, SoloPoint
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile, make_profiles
from advisor_data.files.files import read_points
from advisor_power.model.data_predictor import DataPredictor
from advisor_power.model.other_data import data_change

FOLDER = Path(__file__).parent / "data-pairs"


@dataclass(frozen=True, slots=True)
class Row:
    """A pair at the limit.

    Attributes:
        clock: With these data, for each one with random numbers.
        rate: Of the product, likewise.
        expected_rate: With its bounds.
        power: Errors of power as it is, less half of the change, and expected.
        within: Whether the measured power is within its bounds.
    """

    name: str
    clock: float
    rate: float
    expected_rate: Interval
    power: tuple[float, float, float]
    within: bool


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args().folder
    found = [row for stem in sorted(_stems(folder)) for row in rows(*points_of(folder, stem))]
    print("| pair | clock | rate | expected | bounds | power as it is, % | less half | expected |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in found:
        errors = " | ".join(f"{100 * error:+.1f}" for error in row.power)
        bounds = f"{row.expected_rate.low:.3f} {row.expected_rate.high:.3f}"
        print(
            f"| {row.name} | {row.clock:.3f} | {row.rate:.3f} | {row.expected_rate.value:.3f} | "
            f"{bounds} | {errors} |"
        )
    print(_summary(found))


def _summary(found: Sequence[Row]) -> str:
    powers = [100 * statistics.fmean(abs(row.power[place]) for row in found) for place in range(3)]
    as_it_is, off = (
        100 * statistics.fmean(abs(row.rate - other) for row, other in of)
        for of in ([(r, 1.0) for r in found], [(r, r.expected_rate.value) for r in found])
    )
    rates, watts = sum(map(_rate_within, found)), sum(row.within for row in found)
    means = " | ".join(f"{power:.1f}" for power in powers)
    return (
        f"| mean size, {len(found)} splits | | {as_it_is:.1f} % off 1 | {off:.1f} % off | "
        f"{rates} within | {means}, {watts} within |"
    )


def _stems(folder: Path) -> Iterator[str]:
    return (path.name.removesuffix("-pairs.jsonl") for path in folder.glob("*-pairs.jsonl"))


def points_of(folder: Path, stem: str) -> tuple[list[PairPoint], list[SoloPoint]]:
    """Pairs and jobs alone of one card."""
    pairs, solos = (read_points(folder / f"{stem}-{kind}.jsonl") for kind in ("pairs", "solo"))
    return (
        [p for p in pairs if isinstance(p, PairPoint)],
        [p for p in solos if isinstance(p, SoloPoint)],
    )


def rows(points: Sequence[PairPoint], solos: Sequence[SoloPoint]) -> Iterator[Row]:
    """One for each pair that was at the limit with random numbers, and with other data."""
    profiles = {job: profile for (job, _), profile in make_profiles(solos).items()}
    usual = {_place(p): p for p in points if RANDOM in p.jobs}
    works_w = _works_w(points, usual, profiles[RANDOM].whole_gpu_rate)
    for point in sorted(points, key=lambda p: (p.jobs, p.shares_percent)):
        before, product = usual.get(_place(point)), product_of(point)
        if product in works_w and before and at_limit(before):
            own = [profiles[RANDOM if job in OPERANDS else job] for job in before.jobs]
            yield _row(point, MeasuredPair(before, tuple(own)), works_w)


def _works_w(
    points: Sequence[PairPoint], usual: dict[tuple[str, str], PairPoint], whole_gpu_rate: float
) -> dict[str, float]:
    """By product, what its data change at the rate of the whole GPU, by splits below the limit."""
    found: dict[str, list[float]] = {}
    for point in points:
        before, product = usual.get(_place(point)), product_of(point)
        if product == RANDOM or not before or "throttled" in (*before.flags, *point.flags):
            continue
        more_w = (point.power_w or 0.0) - (before.power_w or 0.0)
        found.setdefault(product, []).append(more_w * whole_gpu_rate / _rate(before))
    return {product: statistics.fmean(watts) for product, watts in found.items()}


def _row(point: PairPoint, before: MeasuredPair, works_w: dict[str, float]) -> Row:
    profile = next(p for p in before.profiles if p.job == RANDOM)
    work_w = works_w[product_of(point)]
    expected = _with_data(before, profile, work_w)
    place = before.point.jobs.index(RANDOM)
    share_w = work_w * before.seen.parts[place].speed.value
    was_w, is_w = before.point.power_w or 0.0, point.power_w or 0.0
    powers_w = (was_w, was_w + min(share_w, 0.0) / 2, expected.power_w.value)
    now = expected.parts[place].rate
    return Row(
        name=f"{product_of(point)} + {' at '.join(_place(point))}",
        clock=(point.sm_clock_mhz or np.nan) / (before.point.sm_clock_mhz or np.nan),
        rate=_rate(point) / _rate(before.point),
        expected_rate=now.times(1 / _rate(before.point)),
        power=(powers_w[0] / is_w - 1, powers_w[1] / is_w - 1, powers_w[2] / is_w - 1),
        within=expected.power_w.low <= is_w <= 1.01 * expected.power_w.high,
    )


def _with_data(before: MeasuredPair, profile: Profile, work_w: float) -> Prediction:
    change = data_change(profile, Interval(work_w, work_w, work_w))
    there = DataPredictor(before, before.profiles, {RANDOM: change})
    return there.predict(there.changed(before.profiles), [before.split])[0]


def _rate_within(row: Row) -> bool:
    """As well as rates of pairs repeat."""
    return row.expected_rate.low - 0.01 <= row.rate <= row.expected_rate.high + 0.01


def _place(point: PairPoint) -> tuple[str, str]:
    return partner_of(point), split_of(point)


def _rate(point: PairPoint) -> float:
    """Of the product."""
    return next(part.rate or 0.0 for part in point.parts if part.job in OPERANDS)


if __name__ == "__main__":
    main()
