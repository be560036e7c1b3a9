"""Ask for sets that were never measured together, and measure what was predicted.

    python docs/measurements/own/asked_sets.py asked.jsonl --ask             # no GPU
    python docs/measurements/own/asked_sets.py asked.jsonl --measure FOLDER --part 1/4  # MPS runs
    python docs/measurements/own/asked_sets.py asked.jsonl --table asked-h200.jsonl

Sets of two to six jobs are drawn at random; at most one of a set fills the GPU. Eight sets have one
or two of the programs of public/ (public/prepare.py; `advisor profile` each first), the others are
bundled jobs. Each set runs as advised, without limits, at equal limits and time-sliced; each of its
jobs runs alone, too.
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
from windows import WORKLOADS, campaign, job_commands

BUNDLED_OF_SIZE = {2: 4, 3: 4, 4: 3, 5: 3, 6: 2}
PUBLIC_OF_SIZE = {2: 2, 3: 2, 4: 2, 5: 1, 6: 1}
SEED, MOST_FILLERS, DRAWS = 57, 1, 2000
GPU_MODEL = "NVIDIA H200"
TOLERANCE = 0.005
"""A measured rate repeats to half a percent."""

MIN_SPEED, MOST_TAIL = 0.4, 5.0
"""The policy by default: speed alone, and p99 alone."""

COLUMNS = re.compile("job|share_|speed_|latency_p99|power_|energy_saved|sharing")
"""What is kept of an option."""

RULES = ("advised", "uncapped", "equal limits", "time-sliced")

Row = Mapping[str, Any]


def drawn() -> Iterator[list[str]]:
    """Names of jobs that were never measured as a set."""
    from advisor.predict.sets import fills
    from advisor.settings import read_settings
    from advisor_advice.profiles import find_profiles
    from advisor_data.bundled import bundled_points_together

    measured = {frozenset(point.jobs) for point in bundled_points_together()}
    dice, commands = random.Random(SEED), job_commands()
    public = sorted(name for name, (_, folder) in commands.items() if folder != WORKLOADS)
    bundled = sorted(commands.keys() - {*public})
    profiles = find_profiles(sorted(commands), read_settings(), GPU_MODEL).profiles
    filling = {profile.job for profile in profiles if fills(profile)}
    for of_size, most_public in ((BUNDLED_OF_SIZE, 0), (PUBLIC_OF_SIZE, 2)):
        for size, count in of_size.items():
            new = list[list[str]]()
            for _ in range(DRAWS):
                some = dice.sample(public, dice.randint(min(1, most_public), most_public))
                jobs = some + dice.sample(bundled, size - len(some))
                if len(filling & {*jobs}) <= MOST_FILLERS and frozenset(jobs) not in measured:
                    new.append(jobs)
            yield from new[:count]


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
                    kept = {k: v for k, v in option.items() if v is not None and COLUMNS.match(k)}
                    line = {"set": number, "rules": sorted(rules)} | kept
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


def measure(asked: list[Row], folder: Path, seconds: float) -> None:
    """Set by set, each into a file of its own, so that each has windows of its jobs alone."""
    commands, ends = job_commands(), time.monotonic() + seconds
    for number in sorted({option["set"] for option in asked}):
        if time.monotonic() > ends:
            return
        of_set = [option for option in asked if option["set"] == number]
        ways = [processes_of(o) for o in of_set if o["sharing"] != "exclusive"]
        alone = [(of_set[0][f"job_{n}"],) for n in numbers(of_set[0])]
        names = {name for together in alone + ways for name in together}
        named = {name: commands[re.split("[@~]", name)[0]] for name in names}
        campaign(folder / f"{number:02}.jsonl", named, alone + ways, ends - time.monotonic())


def table(asked: list[Row], rows: Path) -> Iterator[str]:
    """A row for each rule: what came, and how far off the prediction was."""
    windows = defaultdict[tuple[str, ...], list[Row]](list)
    for row in map(json.loads, rows.open()):
        windows[row["uuid"], *row["jobs"]].append(row)
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
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--measure", type=Path, metavar="FOLDER")
    parser.add_argument("--part", default="1/1", help="which part of the sets, such as 2/4")
    parser.add_argument("--seconds", type=float, default=500, help="no window starts after this")
    parser.add_argument("--table", type=Path, metavar="ROWS")
    given = parser.parse_args()
    if given.ask:
        ask(given.asked)
        return
    asked = [json.loads(line) for line in given.asked.open()]
    if given.table:
        print(*table(asked, given.table), sep="\n")
        return
    part, parts = map(int, given.part.split("/"))
    measure([o for o in asked if o["set"] % parts == part - 1], given.measure, given.seconds)


if __name__ == "__main__":
    main()
