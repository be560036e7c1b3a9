"""Ask for sets that were never measured together, and measure what was predicted.

    python docs/measurements/own/asked_sets.py asked.jsonl --ask             # no GPU
    python docs/measurements/own/asked_sets.py asked.jsonl --measure FOLDER --part 1/4  # MPS runs

Sets of two to six jobs are drawn at random; at most one of a set fills the GPU. Eight sets have one
or two of the programs of public/ (public/prepare.py; `advisor profile` each first), the others are
bundled jobs. Each set runs as advised, without limits, at equal limits and time-sliced; each of its
jobs runs alone, too; ../against.py reads what came.
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

BUNDLED_OF_SIZE = {2: 4, 3: 4, 4: 3, 5: 3, 6: 2}
PUBLIC_OF_SIZE = {2: 2, 3: 2, 4: 2, 5: 1, 6: 1}
SEED, MOST_FILLERS, DRAWS = 57, 1, 2000
GPU_MODEL = "NVIDIA H200"
COLUMNS = re.compile("split|job|share_|speed_|latency_p99|power_|energy_saved|sharing")
"""What is kept of an option."""

RULES = ("advised", "uncapped", "equal limits", "time-sliced")

Row = Mapping[str, Any]


def drawn() -> Iterator[list[str]]:
    """Names of jobs that were never measured as a set."""
    from advisor.predict.sets import fills
    from advisor.settings import read_settings
    from advisor_advice.conditions import find_profiles
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
    """`@` and a limit in percent, `!1` below normal, or `~` where they are time-sliced."""
    low = [share.endswith(":low") for share in option["split"].split("/")]
    names = list[str]()
    for n, below in zip(numbers(option), low * 7, strict=False):
        share = option[f"share_{n}_percent"]
        limit = f"@{share:g}" if share < 100 else "!1" if below else ""
        names.append(option[f"job_{n}"] + ("~" if option["sharing"] == "time-sliced" else limit))
    return tuple(names)


def is_shared(option: Row) -> bool:
    """Whether its jobs run at the same time."""
    return option["sharing"] != "exclusive"


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
        ways = [processes_of(option) for option in of_set if is_shared(option)]
        alone = [(of_set[0][f"job_{n}"],) for n in numbers(of_set[0])]
        names = {name for together in alone + ways for name in together}
        named = {name: commands[re.split("[@~!]", name)[0]] for name in names}
        campaign(folder / f"{number:02}.jsonl", named, alone + ways, ends - time.monotonic())


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
    asked = [json.loads(line) for line in given.asked.open()]
    part, parts = map(int, given.part.split("/"))
    measure([o for o in asked if o["set"] % parts == part - 1], given.measure, given.seconds)


if __name__ == "__main__":
    main()
