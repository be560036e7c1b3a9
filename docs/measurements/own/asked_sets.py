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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import yaml
from windows import ROOT, WORKLOADS, campaign, job_commands, mean_of

BUNDLED_OF_SIZE = {2: 4, 3: 4, 4: 3, 5: 3, 6: 2}
PUBLIC_OF_SIZE = {2: 2, 3: 2, 4: 2, 5: 1, 6: 1}
SEED, MOST_FILLERS, DRAWS = 57, 1, 2000
GPU_MODEL = "NVIDIA H200"
TOLERANCE = 0.005
"""A measured rate repeats to half a percent."""

MOST_SPEED = 1.1
"""More than that is the host's doing, no gain."""

MIN_SPEED, MOST_TAIL = 0.4, 5.0
"""The policy by default: speed alone, and p99 alone."""

COLUMNS = re.compile("split|job|share_|speed_|latency_p99|power_|energy_saved|sharing")
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


def table(asked: list[Row], rows: Path) -> Iterator[str]:
    """For bundled and public sets a row for each rule: what came, how far off the prediction was.

    An interval holds 95 % of means of sets drawn anew. A set without equal limits is not shared; a
    set with an option that was not measured is left out.
    """
    windows = defaultdict[tuple[str, ...], list[Row]](list)
    for row in map(json.loads, rows.open()):
        windows[tuple(row["jobs"])].append(row)
    bundled = range(sum(BUNDLED_OF_SIZE.values()))
    missing = {o["set"] for o in asked if is_shared(o) and processes_of(o) not in windows}
    asked = [option for option in asked if option["set"] not in missing]
    numbers_of_sets = sorted({option["set"] for option in asked})
    seen = dict[tuple[int, str], Outcome]()
    for option in asked:
        seen |= {(option["set"], rule): outcome(option, windows) for rule in option["rules"]}
    yield (
        "| sets | rule | shared | work per joule | a broken limit as nothing | speeds broken "
        "| p99 broken | sets broken | watts off, % | speeds off, points |"
    )
    yield f"|---|---|{'--:|' * 8}"
    advised = {number for number, rule in seen if rule == "advised"}
    advised -= {number for number in advised if seen[number, "advised"] is ALONE}
    for name, some in (
        ("all", numbers_of_sets),
        ("advised to share", sorted(advised)),
        ("refused", [number for number in numbers_of_sets if number not in advised]),
        ("with a public program", [n for n in numbers_of_sets if n not in bundled]),
    ):
        for rule in RULES:
            came = [seen.get((number, rule), ALONE) for number in some]
            shared = [o for o in came if o is not ALONE]
            cells = [
                f"{len(shared)}",
                mean_of([o.per_joule for o in came]),
                mean_of([1.0 if o.slow or o.late else o.per_joule for o in came]),
                f"{sum(o.slow for o in came)}",
                f"{sum(o.late for o in came)}",
                f"{sum(o.slow or o.late for o in came)}",
                mean_of([o.watts_off for o in shared]),
                mean_of([o.speeds_off for o in shared]),
            ]
            yield f"| {name} | {rule} | {' | '.join(cells)} |"


@dataclass(frozen=True)
class Outcome:
    """Of one way to run a set: work per joule over that of one after the other, broken limits."""

    per_joule: float
    slow: bool
    late: bool
    watts_off: float
    speeds_off: float


ALONE = Outcome(1.0, slow=False, late=False, watts_off=0.0, speeds_off=0.0)


def outcome(option: Row, windows: Mapping[tuple[str, ...], list[Row]]) -> Outcome:
    """A server's speed is over its demand, another's over the median of its windows alone."""
    if not is_shared(option):
        return ALONE
    row = windows[processes_of(option)][0]
    work_w, speeds, tails, off = 0.0, list[float](), list[float](), list[float]()
    for n, rate, p99_ms in zip(numbers(option), row["rates_per_s"], row["p99_ms"], strict=True):
        alone = windows[option[f"job_{n}"],]
        usual = median(one["rates_per_s"][0] for one in alone)
        speeds.append(rate / (demand(option[f"job_{n}"]) or usual))
        if alone[0]["p99_ms"][0]:
            tails.append((p99_ms or math.inf) / median(one["p99_ms"][0] for one in alone))
        work_w += min(speeds[-1], MOST_SPEED) * median(one["power_w"] for one in alone)
        off.append(100 * abs(speeds[-1] - option[f"speed_{n}"]))
    return Outcome(
        per_joule=work_w / row["power_w"],
        slow=min(speeds) < MIN_SPEED - TOLERANCE,
        late=max(tails, default=0.0) > MOST_TAIL,
        watts_off=100 * abs(option["power_w"] / row["power_w"] - 1),
        speeds_off=fmean(off),
    )


@cache
def demand(job: str) -> float | None:
    """Requests per second that arrive at a bundled server."""
    path = ROOT / f"jobs/{job}.yaml"
    return yaml.safe_load(path.read_text()).get("offered_rate") if path.exists() else None


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
