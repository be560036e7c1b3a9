"""Measure what a client priority below normal does to a job that fills the GPU and to its company.

    python docs/measurements/own/priority.py rows.jsonl            # on a GPU; MPS must run
    python docs/measurements/own/priority.py rows.jsonl --table    # what the rows say

Each pair runs under MPS twice: as it is, and with CUDA_MPS_CLIENT_PRIORITY=1 for the job that fills
(MPS manual, 4.2.8); some with a limit of 50 % on it as well. Each job runs alone, too.
"""

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from windows import campaign, job_commands

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


def print_table(path: Path) -> None:
    """Medians without and with priority by kind of both jobs, over all pairs and GPUs."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    kinds = defaultdict[str, list[list[tuple[float, ...]]]](list)
    for row in map(json.loads, path.open()):
        rows[row["uuid"], *row["jobs"]] = row
    for uuid in {key[0] for key in rows}:
        for filler, small in pairs():
            names = filler.partition("@")[0], small
            ways = [rows.get((uuid, filler + sign, small)) for sign in ("", "!1")]
            alone = [rows.get((uuid, name)) for name in names]
            if not all(ways + alone):
                continue
            kind = f"{KINDS_OF_FILLERS[names[0]]}{filler[-3:] * ('@' in filler)}: {_kind_of(small)}"
            kinds[kind].append([seen(way, alone) for way in ways])
    print("| beside a filler of | n | small job's speed | filler's | work per joule | p99, ms |")
    for kind, found in sorted(kinds.items()):
        columns = zip(*(zip(*pair, strict=True) for pair in found), strict=True)
        told = (" to ".join(f"{median(v):.2f}" for v in zip(*c, strict=True)) for c in columns)
        print(f"| {kind} | {len(found)} | {' | '.join(told)} |")


def _kind_of(small: str) -> str:
    kinds = {"-serve-": "servers", "-train-": "trainings", "notebook": "notebook"}
    return next((kind for sign, kind in kinds.items() if sign in small), small)


def seen(way: dict[str, Any], alone: list[dict[str, Any]]) -> tuple[float, ...]:
    """Speeds of the small job and of the filler, work per joule over the two alone, p99 in ms."""
    pairs = zip(way["rates_per_s"], alone, strict=True)
    filler, small = (rate / single["rates_per_s"][0] for rate, single in pairs)
    watts = filler * alone[0]["power_w"] + small * alone[1]["power_w"]
    return small, filler, watts / way["power_w"], way["p99_ms"][1] or math.nan


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
