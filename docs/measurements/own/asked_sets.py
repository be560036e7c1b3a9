"""Ask for sets that were never measured together, and measure what was predicted.

    python docs/measurements/own/asked_sets.py asked.jsonl --ask             # no GPU
    python docs/measurements/own/asked_sets.py asked.jsonl rows.jsonl --part 1/4     # MPS runs
    python docs/measurements/own/asked_sets.py asked.jsonl rows.jsonl --table

Sets of two to six bundled jobs are drawn at random; at most one of a set fills the GPU. Each runs
as advised, without limits, at equal limits and time-sliced; each of its jobs runs alone, too.
"""

import argparse
import json
import math
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from windows import campaign, job_commands

SETS_OF_SIZE = {2: 6, 3: 6, 4: 5, 5: 4, 6: 3}
SEED, MOST_FILLERS, DRAWS = 57, 1, 2000
GPU_MODEL = "NVIDIA H200"
TOLERANCE = 0.005
"""A measured rate repeats to half a percent."""

MIN_SPEED, MOST_TAIL = 0.4, 5.0
"""The policy by default: speed alone, and p99 alone."""

RULES = ("advised", "uncapped", "equal limits", "time-sliced")

Row = Mapping[str, Any]


def drawn() -> Iterator[list[str]]:
    """Names of jobs that were never measured as a set."""
    from advisor.predict.sets import fills
    from advisor.settings import read_settings
    from advisor_advice.profiles import find_profiles
    from advisor_data.bundled import bundled_points_together

    measured = {frozenset(point.jobs) for point in bundled_points_together()}
    dice, names = random.Random(SEED), sorted(job_commands())
    profiles = find_profiles(names, read_settings(), GPU_MODEL).profiles
    filling = {profile.job for profile in profiles if fills(profile)}
    for size, count in SETS_OF_SIZE.items():
        sets = (dice.sample(names, size) for _ in range(DRAWS))
        new = (s for s in sets if len(filling & {*s}) <= MOST_FILLERS)
        yield from [s for s in new if frozenset(s) not in measured][:count]


def ask(path: Path) -> None:
    """Write a line for each option that a rule gives; of equal limits the largest."""
    import advisor

    with path.open("x") as file:
        for number, jobs in enumerate(drawn()):
            frame = advisor.recommend(*jobs, gpu_model=GPU_MODEL, every=True).to_frame()
            options = frame.sort_values("share_1_percent", ascending=False, kind="stable")
            given = set[str]()
            for option in json.loads(options.to_json(orient="records")):
                if rules := {*rules_of(option)} - given:
                    given |= rules
                    line = {"set": number, "rules": sorted(rules)} | option
                    file.write(json.dumps(line) + "\n")


def rules_of(option: Row) -> Iterator[str]:
    """Which simple rules give this option, and whether it is advised."""
    if option["is_choice"]:
        yield "advised"
    if option["sharing"] in RULES:
        yield option["sharing"]
    limits = {option[f"share_{n}_percent"] for n in numbers(option)}
    if option["sharing"] == "limited" and len(limits) == 1:
        yield "equal limits"


def processes_of(option: Row) -> tuple[str, ...]:
    """`@` and a limit in percent, or `~` where they are time-sliced."""
    jobs = [(option[f"job_{n}"], option[f"share_{n}_percent"]) for n in numbers(option)]
    sign = "~" if option["sharing"] == "time-sliced" else ""
    return tuple(f"{job}@{share:g}" if share < 100 else job + sign for job, share in jobs)


def numbers(option: Row) -> list[int]:
    """Of the jobs of an option."""
    return [n for n in range(1, 8) if option.get(f"job_{n}")]


def measure(asked: list[Row], rows: Path, seconds: float) -> None:
    """Set by set: each has its processes, which stand before their gates until their turn."""
    commands, ends = job_commands(), time.monotonic() + seconds
    for number in sorted({option["set"] for option in asked}):
        of_set = [option for option in asked if option["set"] == number]
        ways = [processes_of(o) for o in of_set if o["sharing"] != "exclusive"]
        alone = [(of_set[0][f"job_{n}"],) for n in numbers(of_set[0])]
        names = {name for together in alone + ways for name in together}
        named = {name: commands[re.split("[@~]", name)[0]] for name in names}
        campaign(rows, named, alone + ways, ends - time.monotonic())


def table(asked: list[Row], rows: Path) -> Iterator[str]:
    """A row for each rule: what came, and how far off the prediction was."""
    windows = {(row["uuid"], *row["jobs"]): row for row in map(json.loads, rows.open())}
    seen: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for option in asked:
        for uuid in {uuid for uuid, *jobs in windows if jobs == [option["job_1"]]}:
            for rule in option["rules"]:
                seen[rule].append(outcome(option, uuid, windows))
    yield (
        "| rule | n | work per joule | saved, % | speeds broken, % | p99 broken, % "
        "| watts off, % | speeds off, points |"
    )
    yield f"|---|{'--:|' * 7}"
    for rule in RULES:
        means = " | ".join(f"{x:.3g}" for x in np.nanmean(np.array(seen[rule]), axis=0))
        yield f"| {rule} | {len(seen[rule])} | {means} |"


def outcome(option: Row, uuid: str, windows: Mapping[tuple[str, ...], Row]) -> tuple[float, ...]:
    """Work per joule over that alone, saved, whether a speed or a p99 broke; the two errors."""
    if option["sharing"] == "exclusive":
        return 1.0, 0.0, 0.0, 0.0, math.nan, math.nan
    row = windows[uuid, *processes_of(option)]
    work_w, speeds, tails, off = 0.0, list[float](), list[float](), list[float]()
    for n, rate, p99_ms in zip(numbers(option), row["rates_per_s"], row["p99_ms"], strict=True):
        alone = windows[uuid, option[f"job_{n}"]]
        speeds.append(rate / alone["rates_per_s"][0])
        tails.append((p99_ms or 0.0) / (alone["p99_ms"][0] or 1.0))
        work_w += speeds[-1] * alone["power_w"]
        off.append(100 * abs(speeds[-1] - option[f"speed_{n}"]))
    broken = min(speeds) < MIN_SPEED - TOLERANCE, max(tails) > MOST_TAIL
    per_joule = work_w / row["power_w"]
    watts = 100 * abs(option["power_w"] / row["power_w"] - 1)
    return (
        per_joule, 100 * (1 - 1 / per_joule), *(100.0 * b for b in broken), watts, fmean(off),
    )  # fmt: skip


def main() -> None:
    """Ask, measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("asked", type=Path)
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--part", default="1/1", help="which part of the sets, such as 2/4")
    parser.add_argument("--seconds", type=float, default=500, help="no window starts after this")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.ask:
        ask(given.asked)
        return
    asked = [json.loads(line) for line in given.asked.open()]
    if given.table:
        print(*table(asked, given.rows), sep="\n")
        return
    part, parts = map(int, given.part.split("/"))
    measure([o for o in asked if o["set"] % parts == part - 1], given.rows, given.seconds)


if __name__ == "__main__":
    main()
