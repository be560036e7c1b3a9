"""The law that answers for sets of jobs, fitted to measured sets: its constants and its errors.

    python docs/measurements/sets/law.py [RUN ...] [--gpu-model H200]

Campaigns and the words of the tables are as rows.py has them. It prints the constants of
`advisor.predict.sets` as they stand there, and errors of jobs that the law was not fitted to,
beside simple rules: each fitted to the same way of sharing, to all sets without the job that is
judged. "Kernels guessed" is the law where kernels of no job are known. Where no campaign is named,
bundled pairs and sets asked first count, too. The last row is how far the same set on another card
and host is from itself. Errors of classes are quotients, measured over predicted: 5th, 50th, 95th
percentile.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from rows import (
    CUTS,
    MPS_CUTS,
    Off,
    Row,
    again,
    asked_rows,
    cell,
    measured_pairs,
    measured_rows,
    tables,
)

from advisor.predict.profiles import Floats, Serving
from advisor.predict.sets import RoundRobin, of_server

LAWS = tuple(
    RoundRobin(launch_us / 1e6, gaps, batches, room)
    for launch_us, gaps, batches, room in itertools.product(
        (16.0, 24.0, 32.0), (0.4, 0.5, 0.6), (1.25, 1.5, 1.75, 2.0), (0.5, 0.6, 0.7, 0.8, 0.9)
    )
)
CORNERS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0)
TURNS = tuple(kept / 50 for kept in range(35, 51))


def main() -> None:
    """Print constants and errors."""
    rows = [*measured_rows(__doc__), *measured_pairs(), *asked_rows()]
    constants, judged, guessed = fitted(rows)
    for name, value in constants.items():
        print(name, "=", value)
    for (name, of_class), (low, middle, high, jobs) in errors([*judged, *guessed]).items():
        print(f"{name}, {of_class}: {low:.2f} {middle:.2f} {high:.2f} ({jobs})")
    found = {"the law, job left out": judged, "the law, kernels guessed": guessed}
    for name, rule in RULES.items():  # by which a server draws as much for a request as alone
        all_w = [
            (own, lambda r, kept: (fitted_watts(r, kept)[0], 0.0)) for own in by_way(rows).values()
        ]
        found[name] = [it for own, watts in all_w for it in left_out(own, rule(own), watts)]
    print_errors(rows, found)
    print_clocks([row for row in rows if row.mode != "time-sliced" and row.is_at_limit])
    print_held([*held(judged), *held(guessed, "kernels guessed")])


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
    counted = gaps.best(shared)
    constants: dict[str, object] = {
        "ROUND_ROBIN": replace(launches.best(shared), gaps=counted.gaps, room=counted.room),
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


def held(judged: Sequence[Judged], name: str = "speeds") -> Iterator[tuple[Off, float]]:
    """Whether ranges by sets without a job hold it and its sets, and high over low ends."""
    for job in sorted({job for j in judged for job in j.jobs}):
        told = errors([j for j in judged if job not in j.row.jobs])
        for j in (j for j in judged if job in j.jobs):
            of_class, rule = j.of_class, name
            if j.part.serves:
                of_class, rule = of_server(of_class), f"{name} of servers"
            ratios = {rule: ("SPEED_ERRORS", of_class, j.part.speed / j.could)}
            if name == "speeds":
                ratios["watts"] = "POWER_ERRORS", j.set_class, j.row.power_w / j.power_w
                ratios["energy"] = "ENERGY_ERRORS", j.set_class, j.efficiency
            for what, (errors_of, by, ratio) in ratios.items():
                low, _, high, _ = told[errors_of, by]
                if what == f"{name} of servers":  # it serves no more than it is asked for
                    noise = (j.part.whole.rate_stderr or 0.0) / j.part.whole.rate
                    serving = Serving(offered_rate=1.0, rate_noise=noise, latency_p99_ms=())
                    bounds = j.could * np.array([[j.speed / j.could], [low], [high]])
                    _, low, high = serving.served(bounds)[:, 0] / j.could
                is_held = low <= ratio <= high
                yield Off(what, j.row, j.part.kind, j.jobs, 100.0 * is_held), high / low


def print_held(found: Sequence[tuple[Off, float]]) -> None:
    """By kind: percent in ranges for 90 %, the high end over the low one, jobs, and how many."""
    names = [*dict.fromkeys(off.rule for off, _ in found)]
    print(f"\n| in ranges, % | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
    for kind, cut in {**CUTS, **MPS_CUTS}.items():
        cells = list[str]()
        for name in names:
            own = [it for it in found if it[0].rule == name and cut(it[0])]
            own = [it for it in own if kind in CUTS or it[0].row.mode == "uncapped"]
            jobs = len({job for off, _ in own for job in off.jobs})
            wide = np.exp(np.mean([math.log(wide) for _, wide in own] or [0.0]))
            text = f"{cell([off for off, _ in own])}, {wide:.2f}, {jobs} ({len(own)})"
            cells.append(text if own else "")
        print(f"| {kind} | {' | '.join(cells)} |")


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
    """What each class is off by, by the name of its constant: both ends, middle, and how many."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    jobs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for j in judged:
        # Beside one that fills a server waits as any other does.
        is_own = j.part.serves and not j.of_class.startswith("beside")
        name = "SPEED_ERRORS, served" if is_own else "SPEED_ERRORS"
        for key, ratio in (
            ((name, j.of_class), j.part.speed / j.speed),
            (("POWER_ERRORS", j.set_class), j.row.power_w / j.power_w),
            (("ENERGY_ERRORS", j.set_class), j.efficiency),
        ):
            found[key].append(ratio)
            jobs[key] |= j.jobs
    return {k: (*percentiles(own, len(jobs[k])), len(own)) for k, own in sorted(found.items())}


def percentiles(values: Sequence[float], jobs: float = math.inf) -> tuple[float, float, float]:
    """Ends of 90 %, raised by one over the jobs (`advisor_training.intervals`), and the middle."""
    outside = (1 - min(1.0, 0.9 * (1 + 1 / jobs))) / 2
    low, middle, high = np.quantile(values, [outside, 0.5, 1 - outside]).tolist()
    return low, middle, high


if __name__ == "__main__":
    main()
