"""Measure what a client priority below normal does to a job that fills the GPU and to its company.

    python docs/measurements/own/priority.py rows.jsonl            # on a GPU; MPS must run
    python docs/measurements/own/priority.py rows.jsonl --table    # what the rows say

Each pair runs under MPS twice: as it is, and with CUDA_MPS_CLIENT_PRIORITY=1 for the job that fills
(MPS manual, 4.2.8); some with a limit of 50 % on it as well. Each job runs alone, too.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

from windows import campaign, job_commands

FILLERS = [
    "triad", "bert-infer", "vit-train", "resnet50-infer", "fft", "sorting", "mobilenet-train",
    "matmul-fp32", "matmul-bf16",
]  # fmt: skip
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


def print_table(path: Path) -> None:
    """A line for each pair and card: speeds, p99 and work per joule, without and with priority."""
    rows: dict[str, dict[tuple[str, ...], dict[str, list[float]]]] = {}
    for row in map(json.loads, path.open()):
        rows.setdefault(row["uuid"], {})[tuple(row["jobs"])] = row
    print("| pair | speeds | with priority | p99, ms | work per joule |\n|---|---|---|---|---|")
    for windows in rows.values():
        for filler, small in sorted(pairs()):
            names = filler.partition("@")[0], small
            both = [windows.get((filler + sign, small)) for sign in ("", "!1")]
            alone = [windows.get((name,)) for name in names]
            if None in both + alone:
                continue
            told, worth = [], []
            for window in both:
                speeds = [
                    rate / single["rates_per_s"][0]
                    for rate, single in zip(window["rates_per_s"], alone, strict=True)
                ]
                energy = sum(s * w["power_w"] for s, w in zip(speeds, alone, strict=True))
                worth.append(f"{energy / window['power_w']:.2f}")
                told.append(", ".join(f"{speed:.2f}" for speed in speeds))
            tails = " -> ".join(f"{w['p99_ms'][1]:.0f}" for w in both if w["p99_ms"][1])
            print(f"| {filler}, {small} | {' | '.join(told)} | {tails} | {' -> '.join(worth)} |")


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seconds", type=float, default=550, help="no window starts after this")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print_table(given.rows)
        return
    commands = job_commands()
    names = {name for together in sets() for name in together}
    named = {name: commands[name.partition("@")[0].partition("!")[0]] for name in names}
    campaign(given.rows, named, sets(), given.seconds)


if __name__ == "__main__":
    main()
