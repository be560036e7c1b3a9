"""Draws and prints what `nights.py` wrote: errors by day, promotions, refusals, what drifted.

.venv/bin/python docs/measurements/quarter/draw.py RESULT... --png docs/measurements/quarter.png
"""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nights import POLICIES
from world import BAD_DAY, DRIFT_DAY, DRIVER_DAY, POISON_DAY, POISON_ENDS

from advisor_training.reports.document import BLUE, GREY, ORANGE, Figure, Ink, to_png

COLOURS = dict(zip(POLICIES, (GREY, ORANGE, BLUE), strict=True))
EVENTS = {
    DRIFT_DAY: "a job drifts",
    BAD_DAY: "bad data",
    POISON_DAY: "poisoned host",
    DRIVER_DAY: "new driver",
}
SPANS = (
    (0, DRIFT_DAY), (DRIFT_DAY, BAD_DAY), (BAD_DAY, POISON_DAY), (POISON_DAY, DRIVER_DAY),
    (DRIVER_DAY, POISON_ENDS), (POISON_ENDS, 90),
)  # fmt: skip


def main() -> None:
    """Print tables, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--png", type=Path)
    options = parser.parse_args()
    quarters = [found for path in options.results for found in json.loads(path.read_text())]
    errors(quarters)
    nights(quarters)
    drift(quarters)
    if options.png:
        figures = [
            Figure("rates", "Error of rates, %", panel(quarters, "rates_percent"), 0.6),
            Figure("power", "Error of power, %", panel(quarters, "power_percent"), 0.6),
        ]
        options.png.write_bytes(to_png(["Mean of the simulated quarters, three policies"], figures))


def errors(quarters: Sequence[Any]) -> None:
    """Mean error of each span of days, by policy, and retraining less learning from everything."""
    print(
        "| poison | days | " + " | ".join(f"{policy}: rates, power, %" for policy in POLICIES),
        end="",
    )
    print(" | rates, advisor retrain less blindly, each quarter |")
    print("| --- | --- |" + " --- |" * (len(POLICIES) + 1))
    for poison in sorted({quarter["poison"] for quarter in quarters}):
        of_poison = [quarter for quarter in quarters if quarter["poison"] == poison]
        for begin, end in (*SPANS, (0, 90)):
            row = _row(of_poison, begin, end)
            print(f"| {poison:g} | {begin} to {end - 1} | {' | '.join(row)} |")


def _row(quarters: Sequence[Any], begin: int, end: int) -> Iterator[str]:
    words = ("rates_percent", "power_percent")
    for policy in POLICIES:
        means = (
            statistics.fmean(mean(quarter, policy, word, begin, end) for quarter in quarters)
            for word in words
        )
        yield ", ".join(f"{value:.2f}" for value in means)
    gaps = (
        mean(quarter, POLICIES[2], words[0], begin, end)
        - mean(quarter, POLICIES[1], words[0], begin, end)
        for quarter in quarters
    )
    yield ", ".join(f"{gap:+.2f}" for gap in gaps)


def mean(quarter: Any, policy: str, word: str, begin: int, end: int) -> float:
    """Of one quarter and policy over some days."""
    return statistics.fmean(
        value for day, value in series(quarter, policy, word) if begin <= day < end
    )


def series(quarter: Any, policy: str, word: str) -> list[tuple[int, float]]:
    """A figure by day."""
    return [(row["day"], row[word]) for row in quarter["days"] if row["policy"] == policy]


def nights(quarters: Sequence[Any]) -> None:
    """What runs of retraining did, and what they left out of good and of wrong points."""
    print("\n| quarter, poison | promoted | kept | wrong points left out | good points left out |")
    print("| --- | --- | --- | --- | --- |")
    for quarter in quarters:
        done = [night for night in quarter["nights"] if night["policy"] == POLICIES[2]]
        outcomes = Counter(night["outcome"] for night in done)
        last = done[-1]
        left, bad = last["left_out"], last["bad_left_out"]
        good = {why: count - bad[why] for why, count in left.items() if count > bad[why]}
        cells = [
            f"{quarter['seed']}, {quarter['poison']:g}", outcomes["promoted"], outcomes["kept"],
            f"{sum(bad.values())} of {last['bad_there']}: {_words(bad)}", _words(good) or "none",
        ]  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |")


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in counts.items() if count)


def drift(quarters: Sequence[Any]) -> None:
    """When the drifting job was found, and what else was."""
    print(
        f"\n| quarter | drifts on day {DRIFT_DAY} | day found: rate, power | false alarms before | "
        f"other jobs until day {DRIVER_DAY} | more jobs later, first on day |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for quarter in quarters:
        found = [
            (row["day"], drift["job"], drift["quantity"])
            for row in quarter["days"]
            for drift in row.get("drifts", ())
        ]
        job = quarter["drifting"]
        own = [
            min(
                (day for day, j, q in found if (j, q) == (job, of) and day >= DRIFT_DAY),
                default=None,
            )
            for of in ("rate", "power")
        ]
        before = {(j, q) for day, j, q in found if day < DRIFT_DAY}
        others = {j for day, j, q in found if DRIFT_DAY <= day < DRIVER_DAY and j != job}
        after = {j for day, j, _ in found if day >= DRIVER_DAY and j not in others | {job}}
        begins = min((day for day, j, _ in found if day >= DRIVER_DAY and j in after), default=None)
        cells = [quarter["seed"], job, own, len(before), len(others), f"{len(after)}, {begins}"]
        print("| " + " | ".join(map(str, cells)) + " |")


def panel(quarters: Sequence[Any], word: str) -> Callable[[Any, Ink], None]:
    """Lines of all policies by day, the mean of the quarters."""

    def draw(axes: Any, ink: Ink) -> None:
        for policy, colour in COLOURS.items():
            every = [series(quarter, policy, word) for quarter in quarters]
            days = [day for day, _ in every[0]]
            means = [statistics.fmean(line[k][1] for line in every) for k in range(len(days))]
            axes.plot(days, means, color=colour, label=policy)
        for day, text in EVENTS.items():
            axes.axvline(day, color=ink.faint)
            axes.text(
                day + 0.5,
                axes.get_ylim()[1],
                text,
                rotation=90,
                va="top",
                color=ink.text,
                fontsize=6,
            )
        axes.set_xlabel("day")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)

    return draw


if __name__ == "__main__":
    main()
