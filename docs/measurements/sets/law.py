"""The law that answers for sets of jobs, fitted to measured sets: its constants and its errors.

    python docs/measurements/sets/law.py NAME [NAME ...]

NAME is as for predict.py, whose words it speaks. It prints the constants of
`advisor.predict.set_law` as they stand there, and two tables of errors of jobs that the law was not
fitted to. Errors of classes are quotients, measured over predicted: 5th, 50th, 95th percentile.
"""

import argparse
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from predict import (
    CUTS,
    MODEL,
    MPS_CUTS,
    AnyNumber,
    Off,
    Part,
    Row,
    bundled_profiles,
    rows_of,
    table,
)

from advisor.core.records import FILLS_PERCENT
from advisor.core.split import Sharing
from advisor.predict.profiles import Floats
from advisor.predict.set_law import (
    SetClass,
    SideBySide,
    class_of,
    filling_beside,
    power_w,
    turns,
)

K = TypeVar("K", SideBySide, float)

Kept = Callable[[Row], Floats]
"""Part of its speed at its limit that each job keeps, shape (jobs, 1)."""

LAWS = tuple(
    SideBySide(*constants)
    for constants in itertools.product(
        (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0),
        (1.0, 1.5, 2.0, 3.0, 4.0),
        (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
        (4.0, 8.0, 12.0, 16.0, 24.0),
    )
)
EXPONENTS = tuple(power / 20 for power in range(1, 31))
OVER_W = tuple(map(float, range(20, 121, 5)))


def main() -> None:
    """Print constants and errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("campaigns", nargs="+")
    bundled, predictor = bundled_profiles(), AnyNumber(MODEL)
    campaigns: list[str] = parser.parse_args().campaigns
    rows = [row for name in campaigns for row in rows_of(name, bundled, predictor)]
    mps = [row for row in rows if row.mode != "time-sliced"]
    sliced = [row for row in rows if row.mode == "time-sliced"]
    laws = {law: side_by_side(law) for law in LAWS}
    exponents = {exponent: by_turns(exponent) for exponent in EXPONENTS}
    judged = [*left_out(mps, laws), *left_out(sliced, exponents)]
    print("MPS =", best(mps, laws, speed_off))
    print("TURNS_EXPONENT =", best(sliced, exponents, speed_off))
    for name, own, kept in (
        ("MPS", mps, laws[best(mps, laws, speed_off)]),
        ("time-sliced", sliced, exponents[best(sliced, exponents, speed_off)]),
    ):
        print(f"ACTIVE_IDLE_OVER_W {name}:", best(own, at_watts(kept), watts_off))
    of_classes(judged)
    of_choices(judged)
    speeds = [Off("the law", j.row, "cpu-bound" in j.part.whole.flags, j.points) for j in judged]
    of_rows: dict[int, list[Judged]] = defaultdict(list)
    for j in judged:
        of_rows[id(j.row)].append(j)
    watts = [
        Off("the law", its[0].row, is_host(its[0].row), statistics.fmean(j.percent for j in its))
        for its in of_rows.values()
    ]
    table("speeds, points", speeds, CUTS)
    table("speeds, MPS without limits", [o for o in speeds if o.row.mode == "uncapped"], MPS_CUTS)
    table("watts, %", watts, CUTS)
    table("watts, MPS without limits", [o for o in watts if o.row.mode == "uncapped"], MPS_CUTS)


# the law over measured rows


def side_by_side(law: SideBySide) -> Kept:
    """Under MPS."""

    def kept(row: Row) -> Floats:
        served = np.array([[part.whole.offered_rate is not None] for part in row.parts]) * 1.0
        return law.kept(*activities(row), fills(row), served)

    return kept


def by_turns(exponent: float) -> Kept:
    """Time-sliced."""
    return lambda row: turns(activities(row)[0], exponent)


def activities(row: Row) -> tuple[Floats, Floats]:
    """Of SMs and of DRAM."""
    sm, dram = (
        np.array([[part.activity(name)] for part in row.parts])
        for name in ("sm_active_percent", "dram_active_percent")
    )
    return sm, dram


def fills(row: Row) -> Floats:
    """1 for each job that fills the GPU; shape (jobs, 1)."""
    filling = [[(p.whole.sm_active_percent or 0.0) >= FILLS_PERCENT] for p in row.parts]
    return np.array(filling) * 1.0


def speeds(row: Row, kept: Floats) -> list[float]:
    """Relative speeds."""
    return [part.base * float(of) for part, of in zip(row.parts, kept[:, 0], strict=True)]


def watts(row: Row, kept: Floats, over_w: float) -> float:
    """Of the set; active idle power as it was measured, where it was."""
    idle_w = row.idle_w + over_w if math.isnan(row.active_idle_w) else row.active_idle_w
    alone_w = np.array([[part.alone.power_w or 0.0] for part in row.parts])
    in_turns = row.mode == "time-sliced"
    kept = np.minimum(1.0, kept)
    return float(power_w(kept, alone_w, idle_w, row.limit_w, in_turns=in_turns)[0])


# fitting


def speed_off(row: Row, kept: Floats) -> float:
    """Sum of the errors of a set's jobs."""
    said = zip(speeds(row, kept), row.parts, strict=True)
    return sum(abs(speed - part.speed) for speed, part in said)


def watts_off(row: Row, predicted_w: Floats) -> float:
    """Error of a set's power."""
    return abs(float(predicted_w[0, 0]) / row.power_w - 1)


def at_watts(kept: Kept) -> dict[float, Kept]:
    """Watts of a set by what is added to the idle power."""

    def over(over_w: float) -> Kept:
        return lambda row: np.array([[watts(row, kept(row), over_w)]])

    return {over_w: over(over_w) for over_w in OVER_W}


def best(
    rows: Sequence[Row],
    rules: Mapping[K, Kept],
    off: Callable[[Row, Floats], float],
) -> K:
    """The constants with the smallest error."""
    return min(rules, key=lambda name: sum(off(row, rules[name](row)) for row in rows))


@dataclass(frozen=True, slots=True)
class Judged:
    """What the law says of one job and its set, fitted to sets without that job."""

    row: Row
    part: Part
    of_class: SetClass
    set_class: SetClass
    speed: float
    power_w: float
    measured: float
    """Energy of the work on a card each over that together."""
    efficiency: float
    """Measured energy of the work on a card each over that together, for each 1 predicted."""

    @property
    def points(self) -> float:
        return 100 * abs(self.speed - self.part.speed)

    @property
    def percent(self) -> float:
        return 100 * abs(self.power_w / self.row.power_w - 1)


def left_out(rows: Sequence[Row], rules: Mapping[K, Kept]) -> list[Judged]:
    """Every job of every set, by the constants of all other jobs."""
    names = list(rules)
    kept = [[rules[name](row) for row in rows] for name in names]
    offs = np.array([[speed_off(*x) for x in zip(rows, its, strict=True)] for its in kept])
    found = list[Judged]()
    for job in sorted({job for row in rows for job in row.jobs}):
        free = np.array([job not in row.jobs for row in rows])
        own = kept[int(np.argmin(offs[:, free].sum(axis=1)))]
        others = zip(rows, own, free, strict=True)
        over_w = _over_w([(row, of) for row, of, is_free in others if is_free])
        for row, of in zip(rows, own, strict=True):
            found += judge(row, of, over_w, job)
    return found


def _over_w(rows: Sequence[tuple[Row, Floats]]) -> float:
    def off(over_w: float) -> float:
        return sum(abs(watts(row, kept, over_w) / row.power_w - 1) for row, kept in rows)

    return min(OVER_W, key=off)


def judge(row: Row, kept: Floats, over_w: float, job: str) -> Iterable[Judged]:
    """What is said of a job of a set."""
    said, predicted_w = speeds(row, kept), watts(row, kept, over_w)
    beside = filling_beside(activities(row)[0], fills(row))[:, 0].tolist()
    sharing = cast("Sharing", row.mode if row.mode == "time-sliced" else "uncapped")
    alone_w = [part.whole.power_w or 0.0 for part in row.parts]
    measured = sum(p.speed * w for p, w in zip(row.parts, alone_w, strict=True)) / row.power_w
    expected = sum(s * w for s, w in zip(said, alone_w, strict=True)) / predicted_w
    for part, speed, filling in zip(row.parts, said, beside, strict=True):
        if part.whole.job == job:
            yield Judged(
                row,
                part,
                class_of(sharing, filling),
                class_of(sharing, max(beside)),
                speed,
                predicted_w,
                measured,
                measured / expected,
            )


# classes


def of_classes(judged: Sequence[Judged]) -> None:
    """Print what each class is off by."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for j in judged:
        served = j.part.whole.offered_rate is not None
        name = "SPEED_ERRORS, served" if served else "SPEED_ERRORS"
        found[name, j.of_class].append(j.part.speed / j.speed)
        found["POWER_ERRORS", j.set_class].append(j.row.power_w / j.power_w)
        found["ENERGY_ERRORS", j.set_class].append(j.efficiency)
        if j.part.p99_ms and j.part.alone.latency_p99_ms:
            beside = len(j.row.parts) - 1 if j.of_class == "no filling" else 1
            ratio = j.part.p99_ms / j.part.alone.latency_p99_ms / beside
            found["P99_FACTORS", j.of_class].append(ratio)
    for (name, of_class), values in sorted(found.items()):
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        print(f"{name}, {of_class}: {low:.2f} {middle:.2f} {high:.2f} ({len(values)} jobs)")


def of_choices(judged: Sequence[Judged]) -> None:
    """Print how often the way that the law prefers saved more, of sets measured in two ways.

    Measured on one card, without limits and with one; the way is chosen by the mean over the jobs.
    """
    ways: dict[tuple[int, ...], dict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for j in judged:
        # Jobs alone of one campaign are the same points.
        if j.row.mode != "time-sliced":
            ways[tuple(sorted(id(p.whole) for p in j.row.parts))][j.row.mode].append(j)
    several = [of_set for of_set in ways.values() if len(of_set) > 1]
    parts: dict[str, list[float]] = defaultdict(list)
    for of_set in several:
        measured = {mode: its[0].measured for mode, its in of_set.items()}
        expected = {
            mode: statistics.fmean(j.measured / j.efficiency for j in its)
            for mode, its in of_set.items()
        }
        chosen, most = max(expected, key=lambda mode: expected[mode]), max(measured.values())
        for name, mode in (("the law", chosen), ("no limits", "uncapped"), ("one limit", "limits")):
            parts[name].append(measured[mode] / most)
    for name, of_best in parts.items():
        best = sum(part == 1 for part in of_best)
        mean = 100 * statistics.fmean(of_best)
        print(f"choice, {name}: best of {best} of {len(of_best)} sets, {mean:.1f} % of the best")


def is_host(row: Row) -> bool:
    """Whether one core bounds one of the jobs."""
    return any("cpu-bound" in part.whole.flags for part in row.parts)


if __name__ == "__main__":
    main()
