"""What a plan of jobs that run in sets promised, and what its sets did on one GPU.

    python docs/measurements/planned_sets.py make PLAN.json --gpu-model 'NVIDIA H200' --seed 1
    python docs/measurements/planned_sets.py sets PLAN.json | while read sets; do
      advisor colocate --sets "$sets" --run NAME --window 4; done
    python docs/measurements/planned_sets.py read PLAN.json

`make` draws a queue as place_sets.py does and plans it for the least energy. A plan has the sets
that look best, so it has errors that flatter. Beside it as many sets are drawn by chance, as large
and of the same queue, that keep the same limits by the same predictions, each at its best split.
`read` takes the windows from PLAN.jsonl, which is `advisor data export` of solo points and pairs.
Speeds are of the job alone in that campaign. Energy is saved against a card each for the same work:
as measured alone there ("host"), and as the profiles say that the plan rests on. Jobs that the plan
leaves alone are not in it. Intervals (95 %) are of sets drawn again.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from place_sets import GPU_MODEL, bundled_jobs, drawn

from advisor.core.gpu import WHOLE
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import MOST_JOBS
from advisor.decide.limits import floor
from advisor.formats.moments import now
from advisor.place.sets.answers import SetAnswers, set_answers
from advisor.place.sets.many import LEVELS
from advisor.place.sets.placing import PlacedSet, Placing
from advisor.place.sets.solver import place_running
from advisor.predict.profiles import Floats
from advisor_data.files.files import read_points
from advisor_profiling.campaign.splits import Member, write_set
from advisor_profiling.reports import LEFT_OUT, SetPart, SetResult, alone_by_job, set_results

JOBS, GPUS = 80, 19
WAYS = ("planned", "by chance")

Told = Mapping[str, Any]
"""A plan or a set of it, as `make` writes it."""

Alone = Mapping[str, tuple[float, float]]
"""Rate and watts of each job on a card of its own."""

SETS_HEAD = (
    "way", "set", "W", "mean speed", "slowest", "saved, %: said, host, profiles", "floors", "p99 ms"
)  # fmt: skip
TOTALS_HEAD = (
    "way", "sets", "saved, %: said", "host", "profiles", "short, points: host", "profiles",
    "floors kept", "p99 as said",
)  # fmt: skip


def main() -> None:
    """Make a plan, name its sets, or print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("do", choices=("make", "sets", "read"))
    parser.add_argument("plan", type=Path)
    parser.add_argument("--windows", type=Path, help="read: in the place of PLAN.jsonl")
    parser.add_argument("--gpu-model", default=GPU_MODEL)
    parser.add_argument("--seed", type=int, default=1, help="by which jobs and sets are drawn")
    asked = parser.parse_args()
    if asked.do == "make":
        placing = queue(asked.gpu_model, asked.seed)
        asked.plan.write_text(json.dumps(made(placing, asked.seed), indent=1) + "\n")
        return
    told = json.loads(asked.plan.read_text())
    if asked.do == "sets":
        print(",".join(of_limited(told)))
        print(",".join(dict.fromkeys(map(text, sets_of(told)))))
    else:
        show(told, asked.windows or asked.plan.with_suffix(".jsonl"))


def queue(gpu_model: str, seed: int) -> Placing:
    """What is planned."""
    return drawn(JOBS, len(bundled_jobs(gpu_model)), GPUS, "least-energy", seed, gpu_model)


def made(placing: Placing, seed: int) -> Told:
    """The sets of the plan, and as many by chance, with what is predicted of them."""
    plan, pool = place_running(placing, time_limit_s=60.0), placing.pools[0]
    together = {one: cards for one, cards in plan.sets.items() if one.split}
    dice, answers = np.random.default_rng(seed), set_answers(placing, 0)
    by_chance = [chance_set(answers, len(one.kinds), dice) for one in together]
    alone = {p.job: [p.whole_gpu_rate, p.whole_gpu_power_w] for p in pool.profiles if p}
    return {
        "gpu_model": pool.gpu_model, "seed": seed, "made_at": now(), "gap": plan.gap,
        "queue": {kind.name: kind.count for kind in placing.kinds},
        "floors": {p.job: floor(p, pool.limits) for p in pool.profiles if p}, "alone": alone,
        WAYS[0]: [said(placing, one, cards) for one, cards in together.items()],
        WAYS[1]: [said(placing, one, 1) for one in by_chance],
    }  # fmt: skip


def chance_set(answers: SetAnswers, size: int, dice: np.random.Generator) -> PlacedSet:
    """So many jobs of the queue that may share a card, at the split that costs least."""
    queue = np.repeat(np.arange(len(answers.placing.kinds)), answers.placing.counts.astype(int))
    levels = range(len(LEVELS)) if answers.is_of_law(size) else ()
    while True:
        kinds = tuple(sorted(dice.choice(queue, size, replace=False).tolist()))
        ways = [answers.by_law(kinds, level) for level in levels] or [answers.of(kinds)]
        if kept := [way for way in ways if way]:
            return min(kept, key=lambda way: way.cost)


def said(placing: Placing, one: PlacedSet, cards: int) -> Told:
    """What is predicted of a set."""
    assert one.split
    names = [placing.kinds[kind].name for kind in one.kinds]
    seats = sorted(zip(names, one.split.shares, one.speeds, one.p99_ms, strict=True))
    columns = ("job", "share_percent", "speed", "p99_ms")
    jobs = [dict(zip(columns, seat, strict=True)) for seat in seats]
    return {"cards": cards, "power_w": one.power_w, "jobs": jobs}


def sets_of(told: Told) -> list[Told]:
    """Planned ones, and those by chance."""
    return [one for way in WAYS for one in told[way]]


def of_limited(told: Told) -> Iterator[str]:
    """Sets of the jobs that are in all others with a limit, to be measured before those.

    `advisor colocate` measures a job alone at its limits in sets. So these are measured alone on
    the whole GPU, too; what they do together is of no use.
    """
    shares = {(job["job"], job["share_percent"]) for one in sets_of(told) for job in one["jobs"]}
    names = sorted({name for name, _ in shares} - {name for name, of in shares if of == WHOLE})
    for n in range(0, len(names), MOST_JOBS):
        some = names[n : n + MOST_JOBS]
        yield write_set(tuple(map(Member, some if len(some) > 1 else some * 2)))


def text(one: Told) -> str:
    """As `advisor colocate --sets` takes it."""
    return write_set(tuple(Member(job["job"], job["share_percent"]) for job in one["jobs"]))


def show(told: Told, windows: Path) -> None:
    """Print each set, the totals, and how the host is beside the profiles."""
    here, found = measured(windows)
    line(SETS_HEAD)
    line(["---"] * len(SETS_HEAD))
    rows: dict[str, list[Floats]] = {way: [] for way in WAYS}
    for way, one in ((name, one) for name in WAYS for one in told[name]):
        if result := found.get(text(one)):
            of_set, cells = compared(one, result, told, here)
            rows[way].append(of_set)
            line([way, text(one), *cells])
        else:
            line([way, text(one), "not measured, or flagged", *[""] * 5])
    totals({way: np.array(of_way) for way, of_way in rows.items() if of_way})
    for n, what in enumerate(("rate", "watts")):
        parts = [reading[n] / told["alone"][job][n] for job, reading in here.items()]
        low, mid, high = min(parts), median(parts), max(parts)
        print(f"{what} alone, of its profile: {low:.2f} to {high:.2f}, {mid:.2f} in the median")


def measured(windows: Path) -> tuple[Alone, dict[str, SetResult]]:
    """Jobs alone, and sets by their texts."""
    points = read_points(windows)
    solo = [point for point in points if isinstance(point, SoloPoint)]
    pairs = [point for point in points if isinstance(point, PairPoint)]
    found = {text_of(result): result for result in set_results(pairs, solo)}
    return alone_by_job(solo, LEFT_OUT), found


def text_of(result: SetResult | PairPoint) -> str:
    """The same of a measured one."""
    return write_set(tuple(sorted(Member(p.job, p.share_percent) for p in result.parts)))


def compared(one: Told, result: SetResult, told: Told, here: Alone) -> tuple[Floats, list[str]]:
    """What is added up, and what is shown.

    Added up are watts said and measured; watts alone for the same work as said, by host and by
    profiles; jobs that kept their floors, and all; tails within what was said, and all.
    """
    jobs, parts, work_w = one["jobs"], seated(result), np.zeros(3)
    for job, part in zip(jobs, parts, strict=True):
        (rate, watts), (rate_here, watts_here) = told["alone"][part.job], here[part.job]
        by_profile = part.speed * rate_here / rate
        work_w += job["speed"] * watts, part.speed * watts_here, by_profile * watts
    floors = [part.speed >= told["floors"][part.job] for part in parts]
    tails = [(job["p99_ms"], p.latency_p99_ms) for job, p in zip(jobs, parts, strict=True)]
    known = [(said_ms, ms) for said_ms, ms in tails if said_ms and ms]
    held = sum(ms <= said_ms for said_ms, ms in known)
    counts = [sum(floors), len(floors), held, len(known)]
    of_set = np.array([one["power_w"], result.power_w, *work_w, *counts]) * one["cards"]
    speeds = [job["speed"] for job in jobs], [part.speed for part in parts]
    longest = (f"{max(of):.0f}" for of in zip(*known, strict=True))
    return of_set, [
        f"{one['power_w']:.0f} → {result.power_w:.0f}",
        *(" → ".join(f"{of(own):.2f}" for own in speeds) for of in (fmean, min)),
        " → ".join(f"{part:.0f}" for part in saved(of_set)[:3]),
        f"{sum(floors)} of {len(floors)}",
        " → ".join(longest),
    ]


def seated(result: SetResult) -> list[SetPart]:
    """Its jobs in the order of those of a plan."""
    return sorted(result.parts, key=lambda part: (part.job, part.share_percent, part.speed))


def saved(rows: Floats) -> Floats:
    """Percent saved: said, by host, by profiles; and points short, by both; shape (5, ...)."""
    watts = np.moveaxis(rows, -1, 0)
    parts = 100 * (1 - watts[[0, 1, 1]] / watts[2:5])
    return np.concatenate([parts, parts[0] - parts[1:]])


def totals(rows: Mapping[str, Floats]) -> None:
    """Print those of all sets, and by how much more planned ones fall short."""
    dice, again, found = np.random.default_rng(0), dict[str, Floats](), dict[str, Floats]()
    print()
    line(TOTALS_HEAD)
    line(["---"] * len(TOTALS_HEAD))
    for way, of in rows.items():
        found[way] = saved(of.sum(axis=0))
        again[way] = saved(of[dice.integers(0, len(of), (10_000, len(of)))].sum(axis=1))
        kept, jobs, tails, servers = of.sum(axis=0)[5:]
        cells = map(interval, found[way], again[way])
        line(
            [
                way,
                f"{len(of)}",
                *cells,
                f"{kept:.0f} of {jobs:.0f}",
                f"{tails:.0f} of {servers:.0f}",
            ]
        )
    if len(rows) == len(WAYS):
        more, draws = (np.subtract(*(of[way][3:] for way in WAYS)) for of in (found, again))
        line(["planned less chance", *[""] * 4, *map(interval, more, draws), "", ""])


def interval(value: float, draws: Floats) -> str:
    """With 95 % of the draws."""
    low, high = np.percentile(draws, (2.5, 97.5))
    return f"{value:.1f} [{low:.1f} {high:.1f}]"


def line(cells: Iterable[str]) -> None:
    """Of a table."""
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
