"""The law that answers for sets of jobs, fitted to measured sets: its constants and its errors.

    python docs/measurements/sets/law.py [RUN ...] [--gpu-model H200]

Campaigns and the words of the tables are as rows.py has them. It prints the constants of
`advisor.predict.sets` as they stand there, and errors of jobs that the law was not fitted to,
beside simple rules: each fitted to the same way of sharing, to all sets without the job that is
judged. "Kernels guessed" is the law where kernels of no job are known. Where no campaign is named,
bundled pairs count, too. The last row is how far the same set on another card and host is from
itself. Errors of classes are quotients, measured over predicted: 5th, 50th, 95th percentile.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np
from fitting import (
    Fit,
    Judged,
    Kept,
    Nearest,
    alone,
    by_turns,
    fitted_watts,
    left_out,
    on_own_sms,
    round_robin,
)
from rows import Off, Row, again, measured_pairs, measured_rows, tables

from advisor.predict.profiles import Floats
from advisor.predict.sets import MANY_WIDER, RoundRobin

LAWS = tuple(
    RoundRobin(launch_us / 1e6, gaps, batches)
    for launch_us, gaps, batches in itertools.product(
        (8.0, 16.0, 24.0, 32.0, 40.0), (0.3, 0.4, 0.5, 0.6, 0.8), (1.0, 1.25, 1.5, 1.75, 2.0)
    )
)
CORNERS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0)
TURNS = tuple(kept / 50 for kept in range(35, 51))


def main() -> None:
    """Print constants and errors."""
    rows = [*measured_rows(__doc__), *measured_pairs()]
    constants, judged, guessed = fitted(rows)
    for name, value in constants.items():
        print(name, "=", value)
    for (name, of_class), (low, middle, high, jobs) in errors([*judged, *guessed]).items():
        print(f"{name}, {of_class}: {low:.2f} {middle:.2f} {high:.2f} ({jobs} jobs)")
    found = {"the law, job left out": judged, "the law, kernels guessed": guessed}
    for name, rule in RULES.items():  # by which a server draws as much for a request as alone
        all_w = [
            (own, lambda r, kept: (fitted_watts(r, kept)[0], 0.0)) for own in by_way(rows).values()
        ]
        found[name] = [it for own, watts in all_w for it in left_out(own, rule(own), watts)]
    print_errors(rows, found)
    print_clocks([row for row in rows if row.mode != "time-sliced" and row.is_at_limit])
    tables("held by the ranges of answers, %", held([*judged, *guessed]))


def by_way(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Those that one rule is fitted to."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found["own SMs" if row.mode == "limits" and row.is_apart else row.mode].append(row)
    return found


def fitted(rows: Sequence[Row]) -> tuple[dict[str, object], list[Judged], list[Judged]]:
    """Constants by their names, each job by those of sets without it, and with kernels guessed."""
    ways = by_way(rows)
    shared = [*ways["uncapped"], *ways["limits"]]
    all_laws = RoundRobin(*np.array([astuple(law) for law in LAWS]).T)

    def guess(law: RoundRobin) -> Kept:
        return round_robin(law, is_counted=False)

    gaps = Nearest(round_robin, LAWS, all_laws, shared)
    launches = Nearest(guess, LAWS, all_laws, shared)
    corners = Nearest(on_own_sms, CORNERS, np.array(CORNERS), ways["own SMs"])
    in_turns = Nearest(by_turns, TURNS, np.array(TURNS), ways["time-sliced"])
    judged = left_out(shared, gaps.fit)
    guessed = left_out(shared, launches.fit, is_counted=False)
    over_w, fuller = fitted_watts(shared, gaps.fit(shared))
    constants: dict[str, object] = {
        "ROUND_ROBIN": replace(launches.best(shared), gaps=gaps.best(shared).gaps),
        "ACTIVE_IDLE_OVER_W": over_w,
        "FULLER": fuller,
    }
    if own := ways["own SMs"]:
        constants["CORNER"] = corners.best(own)
        judged += left_out(own, corners.fit)
    if sliced := ways["time-sliced"]:
        constants["SLICING_KEPT"] = in_turns.best(sliced)
        judged += left_out(sliced, in_turns.fit, lambda rows, kept: (over_w, fuller))
    return constants, judged, guessed


def held(judged: Sequence[Judged]) -> list[Off]:
    """Whether ranges by sets without a job hold it: speeds where it has no demand, and watts."""
    found = list[Off]()
    for job in sorted({job for j in judged for job in j.jobs}):
        told = errors([j for j in judged if job not in j.row.jobs])
        for j in (j for j in judged if job in j.jobs):
            ranges = [("watts", told["POWER_ERRORS", j.set_class], j.row.power_w / j.power_w)]
            if not j.part.serves:
                of_class = told["SPEED_ERRORS", j.of_class]
                ranges.append((j.of_class, of_class, j.part.speed / j.speed))
            many, by = MANY_WIDER
            for name, (low, _, high, _), ratio in ranges:
                wider = by if len(j.row.parts) >= many and name != "watts" else 1.0
                is_held = low**wider <= ratio <= high**wider
                found.append(Off(name, j.row, j.part.kind, j.jobs, 100.0 * is_held))
    return found


def print_errors(rows: Sequence[Row], found: Mapping[str, Sequence[Judged]]) -> None:
    """Tables of speeds and of watts, with what another card differs by."""
    speeds, bias, watts = list[Off](), list[Off](), list[Off]()
    for name, its in found.items():
        speeds += [Off(name, j.row, j.part.kind, j.jobs, abs(j.points)) for j in its]
        bias += [Off(name, j.row, j.part.kind, j.jobs, j.points) for j in its]
        watts += offs_of_sets(name, its)
    speeds_again, watts_again = again(rows)
    tables("speeds, points", speeds + speeds_again)
    tables("said less measured, points", bias)
    tables("watts, %", watts + watts_again)


def print_clocks(rows: Sequence[Row]) -> None:
    """What the clock that all have at the power limit is off by."""
    said = [alone(r).clock(alone(r).could, r.limit_w).item() / r.clock for r in rows]
    none = [1 / row.clock for row in rows]
    for name, of in (("clocks at the limit", said), ("with no effect", none)):
        print(f"{name}, {len(of)} windows: {100 * statistics.fmean(abs(x - 1) for x in of):.1f} %")


def offs_of_sets(name: str, judged: Sequence[Judged]) -> list[Off]:
    """Errors of watts: of each set the mean over its jobs, each left out in turn."""
    of_rows: dict[int, list[Judged]] = defaultdict(list)
    for j in judged:
        of_rows[id(j.row)].append(j)
    return [
        Off(name, row, row.kind, row.jobs, statistics.fmean(j.percent for j in its))
        for its in of_rows.values()
        for row in (its[0].row,)
    ]


# simple rules


def untouched(row: Row) -> Floats:
    """Nobody loses anything; watts are the sum over active idle power."""
    return np.ones((len(row.parts), 1))


def linear(rows: Sequence[Row]) -> Kept:
    """Gpulets' form: SM and DRAM activity of the job and of all others, five constants."""

    def readings(row: Row) -> Floats:
        own = np.hstack([alone(row).sm, alone(row).dram])
        return np.hstack([untouched(row), own, own.sum(axis=0) - own])

    kept = np.concatenate([row.column(lambda part: part.speed / part.base) for row in rows])
    weights = np.linalg.lstsq(np.concatenate([readings(row) for row in rows]), kept, rcond=None)[0]
    return lambda row: np.clip(readings(row) @ weights, 0.02, 1.1)


RULES: Mapping[str, Callable[[Sequence[Row]], Fit]] = {
    "as many as fit, N times one": lambda rows: lambda free: untouched,
    "linear in activity (gpulets)": lambda rows: linear,
}


# classes


def errors(judged: Sequence[Judged]) -> dict[tuple[str, str], tuple[float, float, float, int]]:
    """What each class is off by, by the name of its constant: three percentiles, and how many."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for j in judged:
        name = "SPEED_ERRORS, served" if j.part.serves else "SPEED_ERRORS"
        found[name, j.of_class].append(j.part.speed / j.speed)
        found["POWER_ERRORS", j.set_class].append(j.row.power_w / j.power_w)
        found["ENERGY_ERRORS", j.set_class].append(j.efficiency)
    return {key: (*percentiles(own), len(own)) for key, own in sorted(found.items())}


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The 5th, the 50th and the 95th."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return low, middle, high


if __name__ == "__main__":
    main()
