"""Prints how often the drift test trips without a drift, and how soon it does with one.

    .venv/bin/python docs/measurements/drift.py

First how well pairs repeat: points of the same jobs at the same split from two runs. Then made-up
series of one job beside several others: the model's error of each pair stays, each launch adds
noise. False alarms are of series of launches in which nothing changes; delays are launches from a
change by some percent until the test trips, of the series that had no alarm before.
"""

import math
import random
import statistics
from collections.abc import Iterator

from advisor.core.objectives import Interval
from advisor.core.records import DOUBTFUL
from advisor.validity.drift import NOISE, Compared, find_drifts
from advisor_data.bundled import bundled_pair_points

SERIES = 1000
POWER, RATE = 0.054, 0.15
"""Standard deviations of the log error that intervals mean: power below the limit, rates."""


def main() -> None:
    """Both tables."""
    steady, waiting = [*rates(waiting=False)], [*rates(waiting=True)]
    for name, logs in (
        ("power", [math.log(a.power_w / b.power_w) for a, b in repeats()]),
        ("rate", steady),
        ("rate, cpu-bound", waiting),
    ):
        rms = math.sqrt(statistics.fmean(log * log for log in logs) / 2)
        print(f"{name}: {len(logs)} repeats, standard deviation {100 * rms:.1f} %")
    print("\n| partners | launches | series with a false alarm, % |\n| --- | --- | --- |")
    for partners in (1, 5):
        for launches in (20, 100, 500):
            n = SERIES if launches < 500 else SERIES // 5
            alarms = [tripped_at(series(partners, launches, seed)) for seed in range(n)]
            wrong = 100 * statistics.fmean(alarm is not None for alarm in alarms)
            print(f"| {partners} | {launches} | {wrong:.1f} |")
    print("\n| partners | launches before | power changes by | missed in 50, % | delay, median | "
          "p90 |\n|" + " --- |" * 6)  # fmt: skip
    for partners in (1, 5):
        for before in (5, 30):
            for percent in (-5, -10, 20):
                found = delays(partners, before, percent)
                print(f"| {partners} | {before} | {percent:+d} % | {found} |")


def delays(partners: int, before: int, percent: int) -> str:
    """How many are missed, and how long the others take."""
    found: list[float] = []
    for seed in range(SERIES // 5):
        values = series(partners, before + 50, seed, before, math.log1p(percent / 100))
        at = tripped_at(values, least=before + 1)
        if tripped_at(values[:before]) is None:
            found.append(math.inf if at is None else at - before)
    found.sort()
    missed = 100 * statistics.fmean(map(math.isinf, found))
    return f"{missed:.0f} | {found[len(found) // 2]:g} | {found[int(0.9 * len(found))]:g}"


def tripped_at(values: list[Compared], least: int = 1) -> int | None:
    """After how many launches the test says drift; looked for by halving, as it stays."""
    if not find_drifts(values):
        return None
    low, high = least, len(values)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if find_drifts(values[:middle]) else (middle + 1, high)
    return low


def series(
    partners: int, launches: int, seed: int, change: int = 0, log_change: float = 0.0
) -> list[Compared]:
    """Launches in turn beside each partner; from one on everything is off."""
    draw = random.Random(seed)
    error = [draw.gauss(0, POWER * math.sqrt(1 - NOISE)) for _ in range(partners)]
    half = 1.645 * POWER
    expected = Interval(500.0, 500 * math.exp(-half), 500 * math.exp(half))
    values: list[Compared] = []
    for n in range(launches):
        partner = draw.randrange(partners)
        log = error[partner] + draw.gauss(0, POWER * math.sqrt(NOISE))
        log += log_change if change and n >= change else 0.0
        values.append(
            Compared(
                job="job", gpu_model="GPU", gpu_uuid="GPU-1", quantity="power", at=f"{n:06d}",
                setting=f"job + {partner}", observed=500 * math.exp(log), expected=expected,
            )
        )  # fmt: skip
    return values


def rates(*, waiting: bool) -> Iterator[float]:
    """Log ratios of rates, of pairs with a job that waits for the CPU or without."""
    for a, b in repeats():
        if waiting == ("cpu-bound" in {*a.flags, *b.flags}):
            for x, y in zip(a.parts, b.parts, strict=True):
                if x.rate and y.rate:
                    yield math.log(x.rate / y.rate)


def repeats() -> Iterator:
    """Points of the same jobs at the same split from two runs."""
    first = {}
    for point in bundled_pair_points():
        if point.mode != "mps" or not DOUBTFUL.isdisjoint(point.flags) or not point.power_w:
            continue
        key = (point.gpu_model, point.jobs, tuple(part.share_percent for part in point.parts))
        if key in first and first[key].run != point.run:
            yield first[key], point
        first[key] = point


if __name__ == "__main__":
    main()
