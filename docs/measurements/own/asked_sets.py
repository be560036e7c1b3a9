"""Ask for sets that were never measured together, and measure what was predicted.

    python docs/measurements/own/asked_sets.py asked.jsonl --ask             # no GPU
    python docs/measurements/own/asked_sets.py asked.jsonl --measure FOLDER --part 1/4  # MPS runs

Sets of bundled jobs are drawn at random, so many of each kind. Each runs in the ways of `RULES`;
each of its jobs runs alone, too; ../against.py reads what came. asked.jsonl holds the first 24 sets
(drawn as at de64a98e: two to six jobs, at most one of which fills the GPU; eight have programs of
public/, prepared by public/prepare.py), then those of `OF_KIND`.
"""

import argparse
import json
import random
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windows import WORKLOADS, campaign, job_commands

OF_KIND = {(2, 1, 1): 10, (2, 0, 0): 4, (3, 0, 1): 3, (4, 0, 1): 3}
"""Sets by jobs, servers and jobs that fill the GPU."""

SEED, DRAWS, AT_ONCE, FIRST = 58, 5000, 4, 24
GPU_MODEL = "NVIDIA H200"
COLUMNS = re.compile("split|job|share_|speed_|latency_p99|power_|energy_saved|sharing")
"""What is kept of an option."""

RULES = ("advised", "uncapped", "below normal", "one limit", "equal limits", "time-sliced")

Row = Mapping[str, Any]


def drawn() -> Iterator[list[str]]:
    """Names of jobs that were never measured as a set."""
    from advisor.decide.limits import is_served
    from advisor.predict.sets import fills
    from advisor.settings import read_settings
    from advisor_advice.conditions import find_profiles
    from advisor_data.bundled import bundled_points_together

    measured = {frozenset(point.jobs) for point in bundled_points_together()}
    commands, settings = job_commands(), read_settings()
    bundled = sorted(name for name, (_, folder) in commands.items() if folder == WORKLOADS)
    profiles = find_profiles(bundled, settings, GPU_MODEL).profiles
    dice, left = random.Random(SEED), dict(OF_KIND)
    for _ in range(DRAWS):
        some = dice.sample(profiles, dice.randint(2, 4))
        kind = len(some), sum(map(is_served, some)), sum(map(fills, some))
        names = [profile.job for profile in some]
        if left.get(kind, 0) and frozenset(names) not in measured:
            left[kind] -= 1
            yield names


def ask(path: Path) -> None:
    """Write a line for each option that a rule gives; of equal limits the largest."""
    import advisor

    with path.open("a") as file:
        for number, jobs in enumerate(drawn(), FIRST):
            frame = advisor.recommend(*jobs, gpu_model=GPU_MODEL, every=True).to_frame()
            given = set[str]()
            for option in sorted(json.loads(frame.to_json(orient="records")), key=from_half):
                if rules := {*rules_of(option)} - given:
                    given |= rules
                    kept = {k: v for k, v in option.items() if v is not None and COLUMNS.match(k)}
                    line = {"set": number, "rules": sorted(rules)} | kept
                    file.write(json.dumps(line) + "\n")


def from_half(option: Row) -> float:
    """How far the smallest limit is from half of the GPU."""
    return abs(min(option[f"share_{n}_percent"] for n in numbers(option)) - 50)


def rules_of(option: Row) -> Iterator[str]:
    """Which simple rules give this option, and whether it is advised."""
    if option["is_choice"]:
        yield "advised"
    if option["sharing"] in RULES:
        yield "below normal" if ":low" in option["split"] else option["sharing"]
    if option["sharing"] == "limited":
        limits = [option[f"share_{n}_percent"] for n in numbers(option)]
        if len({*limits}) == 1:
            yield "equal limits"
        if sum(limit < 100 for limit in limits) == 1:
            yield "one limit"


def processes_of(option: Row) -> tuple[str, ...]:
    """`@` and a limit in percent, `!1` below normal, or `~` where they are time-sliced."""
    low = [share.endswith(":low") for share in option["split"].split("/")]
    names = list[str]()
    for n, below in zip(numbers(option), low * 7, strict=False):
        share = option[f"share_{n}_percent"]
        limit = f"@{share:g}" if share < 100 else "!1" if below else ""
        names.append(option[f"job_{n}"] + ("~" if option["sharing"] == "time-sliced" else limit))
    return tuple(names)


def numbers(option: Row) -> list[int]:
    """Of the jobs of an option."""
    return [n for n in range(1, 8) if option.get(f"job_{n}")]


def measure(asked: list[Row], folder: Path, seconds: float) -> None:
    """Some sets at a time, each time into a file with windows of their jobs alone."""
    commands, ends = job_commands(), time.monotonic() + seconds
    sets = sorted({option["set"] for option in asked})
    for first in range(0, len(sets), AT_ONCE):
        if time.monotonic() > ends:
            return
        some = [option for option in asked if option["set"] in sets[first : first + AT_ONCE]]
        ways = [processes_of(option) for option in some if option["sharing"] != "exclusive"]
        alone = [(name,) for name in sorted({o[f"job_{n}"] for o in some for n in numbers(o)})]
        names = {name for together in alone + ways for name in together}
        named = {name: commands[re.split("[@~!]", name)[0]] for name in names}
        file = folder / f"{sets[first]:02}.jsonl"
        campaign(file, named, alone + ways, ends - time.monotonic())


def main() -> None:
    """Ask, or measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("asked", type=Path)
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--measure", type=Path, metavar="FOLDER")
    parser.add_argument("--part", default="1/1", help="which part of the sets, such as 2/4")
    parser.add_argument("--seconds", type=float, default=500, help="no window starts after this")
    given = parser.parse_args()
    if given.ask:
        ask(given.asked)
        return
    asked = [o for line in given.asked.open() if (o := json.loads(line))["set"] >= FIRST]
    part, parts = map(int, given.part.split("/"))
    measure([o for o in asked if o["set"] % parts == part - 1], given.measure, given.seconds)


if __name__ == "__main__":
    main()
