"""Measure what a client priority below normal does to a job that fills the GPU and to its company.

    python docs/measurements/own/priority.py rows.jsonl            # on a GPU; MPS must run
    python docs/measurements/own/priority.py rows.jsonl --table    # what the rows say
    python docs/measurements/own/priority.py rows.jsonl --law      # the law, and what it is off by

Each pair runs under MPS twice: as it is, and with CUDA_MPS_CLIENT_PRIORITY=1 for the job that fills
(MPS manual, 4.2.8); some with a limit of 50 % on it as well. Each job runs alone, too.

The law is `BelowNormal` of advisor.predict.sets, from the bundled profiles. The windows are in
eight parts, by card, half of the jobs that fill, and half of their company. Each part is predicted
by constants of the opposite one: another card, and none of its jobs.
"""

import argparse
import itertools
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from windows import campaign, job_commands

from advisor.core.gpu import Split
from advisor.decide.limits import Request
from advisor.predict import sets as together
from advisor.predict.predictions import Predictions
from advisor.predict.profiles import Profile, make_profiles
from advisor_data.bundled import bundled_solo_points

KINDS_OF_FILLERS = {
    "triad": "short blocks", "bert-infer": "short blocks", "vit-train": "short kernels",
    "resnet50-infer": "short blocks", "fft": "short blocks", "sorting": "short blocks",
    "mobilenet-train": "short kernels", "matmul-fp32": "fp32 products", "matmul-bf16": "one wave",
}  # fmt: skip
FILLERS = [*KINDS_OF_FILLERS]
SMALL = [
    "albert-train-b2", "bert-serve-30", "wav2vec2-infer-b2", "notebook-busy", "vit-serve-30",
    "resnet50-train-b2",
]  # fmt: skip
LIMITED, BESIDE_LIMITED = FILLERS[:3], SMALL[:3]


def pairs() -> list[tuple[str, str]]:
    """A job that fills, which may have a limit, and its company, in a random order."""
    every = [(filler, small) for filler in FILLERS for small in SMALL]
    every += [(f"{filler}@50", small) for filler in LIMITED for small in BESIDE_LIMITED]
    random.Random(0).shuffle(every)
    return every


def sets() -> Iterator[tuple[str, ...]]:
    """Jobs alone, then pairs; both windows of a pair follow each other."""
    yield from ((name,) for name in FILLERS + SMALL)
    for filler, small in pairs():
        yield filler, small
        yield f"{filler}!1", small


@dataclass(frozen=True, slots=True)
class Pair:
    """A job that fills and its company, in windows of one card.

    Attributes:
        windows: Without priority, and with it.
        alone: Each job by itself.
    """

    filler: str
    small: str
    uuid: str
    windows: tuple[dict[str, Any], ...]
    alone: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        """Of the job that fills."""
        return self.filler.partition("@")[0]

    @property
    def part(self) -> tuple[bool, bool, bool]:
        """Which eighth it is in."""
        cards = self.uuid < "GPU-8", FILLERS.index(self.name) % 2 > 0, SMALL.index(self.small) % 2
        return bool(cards[0]), cards[1], bool(cards[2])

    def speeds(self, way: int) -> tuple[float, ...]:
        """Of the job that fills and its company, 1 alone on the same card."""
        rates = zip(self.windows[way]["rates_per_s"], self.alone, strict=True)
        return tuple(rate / single["rates_per_s"][0] for rate, single in rates)

    def gain(self, way: int) -> float:
        """Work per joule over that on separate GPUs."""
        watts = zip(self.speeds(way), self.alone, strict=True)
        return sum(v * single["power_w"] for v, single in watts) / self.windows[way]["power_w"]

    def p99_ms(self, way: int) -> float:
        """Of a server, else not a number."""
        return self.windows[way]["p99_ms"][1] or math.nan


def measured(path: Path) -> Iterator[Pair]:
    """Pairs with both windows, and both jobs alone on the same card."""
    rows = {
        (row["uuid"], *row["jobs"]): row for row in map(json.loads, path.read_text().splitlines())
    }
    for uuid in sorted({key[0] for key in rows}):
        for filler, small in sorted(pairs()):
            keys = [(filler, small), (f"{filler}!1", small), (filler.partition("@")[0],), (small,)]
            if not (lacking := [key for key in keys if (uuid, *key) not in rows]):
                found = [rows[uuid, *key] for key in keys]
                yield Pair(filler, small, uuid, tuple(found[:2]), tuple(found[2:]))
            else:
                print(f"not measured on {uuid}: {lacking}")


def print_table(path: Path) -> None:
    """By kind of both jobs: medians without and with priority, and what the best way gains.

    A way counts where both jobs keep their floors by the default policy; else separate GPUs do.
    The last row has each pair once, with and without a limit of 50 % where that was measured.
    """
    of_small = {"-serve-": "servers", "-train-": "trainings", "notebook": "notebook"}
    kinds, same = defaultdict[str, list[list[Pair]]](list), defaultdict[Any, list[Pair]](list)
    for pair in measured(path):
        limit = pair.filler[len(pair.name) :]
        small = next((kind for sign, kind in of_small.items() if sign in pair.small), pair.small)
        kinds[f"{KINDS_OF_FILLERS[pair.name]}{limit}: {small}"].append([pair])
        same[pair.name, pair.small, pair.uuid].append(pair)
    print(
        "| beside a filler of | n | small job's speed | filler's | work per joule | p99, ms |",
        end="",
    )
    print(" floors kept | best without | with | gain |")
    columns: list[Callable[[Pair, int], float]] = [
        *(lambda pair, way, n=n: pair.speeds(way)[n] for n in (1, 0)), Pair.gain, Pair.p99_ms
    ]  # fmt: skip
    profiles = bundled_profiles()
    for kind, own in [*sorted(kinds.items()), ("all", [*same.values()])]:
        told = [
            "→".join(f"{median(c(p, way) for one in own for p in one):.2f}" for way in (0, 1))
            for c in columns
        ]
        kept = [[[p.gain(w) for p in one if _keeps(p, w, profiles)] for w in (0, 1)] for one in own]
        counts = "→".join(str(sum(bool(gains[way]) for gains in kept)) for way in (0, 1))
        without = fmean(max([1.0, *gains[0]]) for gains in kept)
        best = fmean(max([1.0, *gains[0], *gains[1]]) for gains in kept)
        ends = f"{counts} | {without:.3f} | {best:.3f} | {100 * (best / without - 1):+.1f} %"
        print(f"| {kind} | {len(own)} | {' | '.join(told)} | {ends} |")


def _keeps(pair: Pair, way: int, profiles: dict[str, Profile]) -> bool:
    """Whether both keep the floors of the default policy, and a server its p99."""
    of_jobs, request = [profiles[pair.name], profiles[pair.small]], Request()
    speeds = zip(of_jobs, pair.speeds(way), strict=True)
    most, alone_ms = request.policy.p99_times_alone, pair.alone[1]["p99_ms"][0]
    in_time = alone_ms is None or pair.p99_ms(way) <= most * alone_ms
    return in_time and all(speed >= request.floor(profile) for profile, speed in speeds)


def bundled_profiles() -> dict[str, Profile]:
    """Of the jobs on H200."""
    found = make_profiles(bundled_solo_points())
    return {job: profile for (job, gpu), profile in found.items() if gpu == "NVIDIA H200"}


def said(pair: Pair, profiles: dict[str, Profile], way: int = 1) -> Predictions:
    """What the product predicts of a pair, by the constants that stand in it now."""
    share = pair.filler.partition("@")[2] or "100"
    split = Split.parse(f"{share}{':low' * way}/100")
    return together.SetPredictor().predict(_both(pair, profiles), [split])


def _both(pair: Pair, profiles: dict[str, Profile]) -> list[Profile]:
    return [profiles[pair.name], profiles[pair.small]]


LAWS = [together.BelowNormal(s / 10, t / 10) for s, t in itertools.product(range(10), range(4, 13))]


def off(pair: Pair, p: Predictions) -> list[float]:
    """Errors of both speeds, none above 1."""
    return [
        abs(said - min(1.0, v)) for said, v in zip(p.speeds[0, :, 0], pair.speeds(1), strict=True)
    ]


def nearest(some: Sequence[Pair], profiles: dict[str, Profile]) -> tuple[Any, float]:
    """Constants that err least on some pairs, and the median of their p99 for each 1 said."""

    def error(law: together.BelowNormal) -> float:
        together.BELOW_NORMAL = law
        return fmean(each for pair in some for each in off(pair, said(pair, profiles)))

    together.BELOW_NORMAL = law = min(LAWS, key=error)
    return law, median(r for pair in some if (r := _late(pair, said(pair, profiles))) == r)


def _late(pair: Pair, p: Predictions) -> float:
    return pair.p99_ms(1) / (p.latencies_p99_ms[0, 1, 0] / together.LOW_P99.value)


def print_law(path: Path) -> None:
    """Constants of all windows, and errors and ranges of each part by those of the opposite one."""
    profiles, free = bundled_profiles(), Split.parse("100:low/100")
    every = [*measured(path)]
    found = [p for p in every if not together.why_not_below_normal(_both(p, profiles), free)]
    law, middle = nearest(found, profiles)
    print(f"BELOW_NORMAL, LOW_P99: {law} {middle:.2f} ({len(found)} of {len(every)} windows)")
    of_all = middle
    offs, ratios = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    floors = Counter[str]()
    for part in sorted({pair.part for pair in found}):
        opposite = [p for p in found if p.part == tuple(not side for side in part)]
        law, middle = nearest(opposite, profiles)
        for pair in (pair for pair in found if pair.part == part):
            together.BELOW_NORMAL, seat = law, "server" if "-serve-" in pair.small else "other"
            p, before = said(pair, profiles), said(pair, profiles, 0)
            for told, of in (("", p), (" by the law without priority", before)):
                for name, each in zip(("filler", seat), off(pair, of), strict=True):
                    offs[name + told].append(100 * each)
            speeds = pair.speeds(1) / p.speeds[0, :, 0]
            ratios["LOW_SPEEDS, filler"].append(speeds[0])
            ratios[f"LOW_SPEEDS, {seat}"].append(speeds[1])
            ratios["LOW_POWER"].append(pair.windows[1]["power_w"] / p.power_w[0, 0])
            ratios["LOW_ENERGY"].append(pair.gain(1) * (1 - p[0].energy_saved.value))
            if seat == "server":
                ratios["LOW_P99"].append(of_all * _late(pair, p) / middle)
            broken = Request().violations(p, _both(pair, profiles))[0]
            held = "held" if _keeps(pair, 1, profiles) else "broken"
            floors[f"{'refused' if broken else 'offered'}, floors {held}"] += 1
    for name, values in sorted(offs.items()):
        print(f"{name}: off by {fmean(values):.1f} points ({len(values)})")
    for name, values in ratios.items():
        ends = " ".join(f"{np.quantile(values, q):.2f}" for q in (0.05, 0.5, 0.95))
        said_1 = of_all if name == "LOW_P99" else 1.0
        near = fmean(abs(math.log(value / said_1)) < math.log(1.5) for value in values)
        print(f"{name}: {ends} within 1.5 in {100 * near:.0f} % ({len(values)})")
    for name, number in floors.items():
        print(f"{name}: {number}")


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seconds", type=float, default=550, help="no window starts after this")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--law", action="store_true")
    given = parser.parse_args()
    if given.table or given.law:
        print_table(given.rows) if given.table else print_law(given.rows)
        return
    commands = job_commands()
    names = {name for together in sets() for name in together}
    named = {name: commands[name.partition("@")[0].partition("!")[0]] for name in names}
    campaign(given.rows, named, sets(), given.seconds)


if __name__ == "__main__":
    main()
