"""The law that answers for sets of jobs, fitted to measured sets: its constants and its errors.

    python docs/measurements/sets/law.py [RUN ...] [--gpu-model H200]

Campaigns and the words of the tables are as rows.py has them. It prints the constants of
`advisor.predict.sets` as they stand there, and errors of jobs that the law was not fitted to,
beside simple rules: each fitted to the same way of sharing, to all sets without the job that is
judged. "As it stands" is the law of the package, so of campaigns that came after it these are
errors of answers. Where no campaign is named, bundled pairs in turns count, too. The last row is
how far the same set on another card and host is from itself.
Errors of classes are quotients, measured over predicted: 5th, 50th, 95th percentile.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple

import numpy as np
from fitting import (
    Fit,
    Judged,
    Kept,
    Nearest,
    active,
    as_it_stands,
    beside,
    by_turns,
    judge,
    left_out,
    over_w,
    side_by_side,
)
from rows import Off, Row, again, measured_rows, pairs_in_turns, tables

from advisor.predict.profiles import Floats
from advisor.predict.sets import (
    ACTIVE_IDLE_OVER_W,
    HELD,
    POWER_ERRORS,
    SPEED_ERRORS,
    SideBySide,
    room,
    room_in,
)

LAWS = tuple(
    SideBySide(*constants)
    for constants in itertools.product(
        (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0),
        (1.0, 1.5, 2.0, 3.0, 4.0),
        (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
        (4.0, 8.0, 12.0, 16.0, 24.0),
    )
)
LOSSES = tuple(loss / 50 for loss in range(31))
TURNS = tuple(part / 20 for part in range(1, 21))
MET = 0.9
"""Part of its demand that a server has to answer."""


def main() -> None:
    """Print constants and errors."""
    rows = [*measured_rows(__doc__), *pairs_in_turns()]
    by_mode = {mode: [row for row in rows if row.mode == mode] for mode in {r.mode for r in rows}}
    constants, judged = fitted(rows)
    for name, value in constants.items():
        print(name, "=", value)
    of_room([row for row in rows if row.mode != "time-sliced"])
    for (name, of_class), (low, middle, high, jobs) in errors(judged).items():
        print(f"{name}, {of_class}: {low:.2f} {middle:.2f} {high:.2f} ({jobs} jobs)")
    of_choices(judged)
    stand = [it for r in rows for it in judge(r, as_it_stands(r), ACTIVE_IDLE_OVER_W, *r.jobs)]
    found = {"the law, job left out": judged, "the law as it stands": stand}
    for name, rule in RULES.items():
        found[name] = [it for own in by_mode.values() for it in left_out(own, rule(own))]
    print_errors(rows, found)
    tables("held by the ranges of answers, %", held(judged))


def fitted(rows: Sequence[Row]) -> tuple[dict[str, object], list[Judged]]:
    """Constants of the law by their names, and each job by those of sets without it."""
    sliced = [row for row in rows if row.mode == "time-sliced"]
    mps = [row for row in rows if row.mode != "time-sliced"]
    laws = Nearest(side_by_side, LAWS, SideBySide(*np.array([astuple(law) for law in LAWS]).T), mps)
    in_turns = Nearest(by_turns, TURNS, np.array(TURNS), sliced)
    judged = [*left_out(mps, laws.fit), *left_out(sliced, in_turns.fit)]
    constants: dict[str, object] = {
        "MPS": laws.best(mps),
        "ACTIVE_IDLE_OVER_W": over_w(mps, laws.fit(mps)),
    }
    if sliced:
        constants["TURNS_KEPT"] = in_turns.best(sliced)
    return constants, judged


def held(judged: Sequence[Judged]) -> list[Off]:
    """Whether ranges hold what was measured: speeds of jobs without a demand, and watts."""
    found = list[Off]()
    for j in judged:
        ranges = [("watts", POWER_ERRORS[j.set_class], j.row.power_w / j.power_w)]
        if not j.part.serves:
            ranges.append(("speeds", SPEED_ERRORS[j.of_class], j.part.speed / j.speed))
        for name, (low, high), ratio in ranges:
            found.append(Off(name, j.row, j.part.is_host, 100.0 * (low <= ratio <= high)))
    return found


def print_errors(rows: Sequence[Row], found: Mapping[str, Sequence[Judged]]) -> None:
    """Tables of speeds and of watts, with what another card differs by."""
    speeds, watts = list[Off](), list[Off]()
    for name, its in found.items():
        speeds += [Off(name, j.row, j.part.is_host, j.points) for j in its]
        watts += offs_of_sets(name, its)
    speeds_again, watts_again = again(rows)
    tables("speeds, points", speeds + speeds_again)
    tables("watts, %", watts + watts_again)


def offs_of_sets(name: str, judged: Sequence[Judged]) -> list[Off]:
    """Errors of watts: of each set the mean over its jobs, each left out in turn."""
    of_rows: dict[int, list[Judged]] = defaultdict(list)
    for j in judged:
        of_rows[id(j.row)].append(j)
    return [
        Off(name, its[0].row, is_host(its[0].row), statistics.fmean(j.percent for j in its))
        for its in of_rows.values()
    ]


# simple rules


def untouched(row: Row) -> Floats:
    """Nobody loses anything; watts are the sum over active idle power."""
    return np.ones((len(row.parts), 1))


def tax(loss: float) -> Kept:
    """The same loss for each neighbour, whatever it does."""
    return lambda row: untouched(row) / (1 + loss * (len(row.parts) - 1))


def linear(rows: Sequence[Row]) -> Kept:
    """Gpulets' form: SM and DRAM activity of the job and of all others, five constants."""

    def readings(row: Row) -> Floats:
        own = np.hstack([active(row), active(row, "dram")])
        return np.hstack([untouched(row), own, own.sum(axis=0) - own])

    kept = np.concatenate([row.column(lambda part: part.speed / part.base) for row in rows])
    weights = np.linalg.lstsq(np.concatenate([readings(row) for row in rows]), kept, rcond=None)[0]
    return lambda row: np.clip(readings(row) @ weights, 0.02, 1.1)


RULES: Mapping[str, Callable[[Sequence[Row]], Fit]] = {
    "as many as fit, N times one": lambda rows: lambda free: untouched,
    "a tax for each neighbour": lambda rows: Nearest(tax, LOSSES, np.array(LOSSES), rows).fit,
    "linear in activity (gpulets)": lambda rows: linear,
}


def of_room(rows: Sequence[Row]) -> None:
    """Print how sure servers are of their demand by how much of what others want is lost to them.

    Of those that no job starves: the mean error in points, how many could do with the low end of
    their range, and how many of those served less than nine tenths.
    """
    calm = [row for row in rows if (beside(row) < HELD).all()]
    low, _ = SPEED_ERRORS["no filling"]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        could = {id(r): room(1 / active(r), active(r), 1 / len(r.parts), part) for r in calm}
        servers = [
            (float(of), job.speed)
            for row in calm
            for job, of in zip(row.parts, could[id(row)][:, 0], strict=True)
            if job.serves
        ]
        off = statistics.fmean(abs(min(1.0, of) - speed) for of, speed in servers)
        sure = [speed for of, speed in servers if low * of >= 1]
        less = sum(speed < MET for speed in sure)
        print(f"TAKEN {part}: {100 * off:.1f}, {len(sure)} of {len(servers)} sure, {less} not")
    of_busiest(calm, low)


def of_busiest(calm: Sequence[Row], low: float) -> None:
    """Print the same by how busy all SMs can be, and how busy those sets were that lacked some."""
    for busiest in (1.0, 1.1, 1.2, 1.3, 1.4, math.inf):
        servers = list[tuple[float, bool, float]]()
        for row in calm:
            sm, equal = active(row), 1 / len(row.parts)
            could, most = room(1 / sm, sm, equal), room_in(busiest, sm)
            pairs = zip(row.parts, could[:, 0].tolist(), most[:, 0].tolist(), strict=True)
            servers += [
                (min(1.0, of, at_most), min(low * of, at_most) >= 1, part.speed)
                for part, of, at_most in pairs
                if part.serves
            ]
        off = statistics.fmean(abs(said - speed) for said, _, speed in servers)
        sure = [speed for _, is_sure, speed in servers if is_sure]
        less = sum(speed < MET for speed in sure)
        print(f"BUSIEST {busiest}: {100 * off:.1f}, {len(sure)} sure, {less} not")
    lacking = [
        sum(part.activity() * part.speed for part in row.parts)
        for row in calm
        if any(part.serves and part.speed < MET for part in row.parts) and active(row).sum() > 1
    ]
    print("busy where some is not served:", ", ".join(f"{busy:.2f}" for busy in sorted(lacking)))


# classes


def errors(judged: Sequence[Judged]) -> dict[tuple[str, str], tuple[float, float, float, int]]:
    """What each class is off by, by the name of its constant: three percentiles, and how many."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for j in judged:
        name = "SPEED_ERRORS, served" if j.part.serves else "SPEED_ERRORS"
        found[name, j.of_class].append(j.part.speed / j.speed)
        found["POWER_ERRORS", j.set_class].append(j.row.power_w / j.power_w)
        found["ENERGY_ERRORS", j.set_class].append(j.efficiency)
    return {key: (*percentiles(values), len(values)) for key, values in sorted(found.items())}


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The 5th, the 50th and the 95th."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return low, middle, high


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
    return any(part.is_host for part in row.parts)


if __name__ == "__main__":
    main()
