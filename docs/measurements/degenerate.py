"""Prints how well `degenerate-data` finds wrong results, what it flags, and the gains without it.

.venv/bin/python docs/measurements/degenerate.py
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import yaml
from uneven import gain

from advisor.core.flags import DEGENERATE, DOUBTFUL, UNREAD
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.core.records import PairPoint, SoloPoint
from advisor.validity.degenerate import (
    LARGEST_DROP,
    energy_above_idle_j,
    is_degenerate,
    with_pair_flags,
    with_solo_flags,
)
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_training.dataset.pairs import BASELINES, MeasuredPair, Measurement, make_pairs

_Point = TypeVar("_Point", SoloPoint, PairPoint)

JOBS = Path(__file__).resolve().parents[2] / "jobs"

SAFE_UNITS = frozenset(
    {8, 10, 12, 14, 16, 22, 30, 32, 34, 62, 64, 66, 70, 118, 120, 122, 124, 126, 128, 130, 132}
)
"""Even counts of SMs, 8 to 132, at which all bf16 products were right on H100 and H200 (2026-11-22,
driver 580.159.04, cuBLAS 13.1.0.3)."""

SAFE_SPLITS = ((10.0, 90.0), (50.0, 50.0), (90.0, 10.0))
"""Those of the nine that give both jobs such a count: 12 + 118, 66 + 66 and 118 + 12 SMs."""

BOUNDS = (0.06, 0.08, LARGEST_DROP, 0.12, 0.15, 0.20)

ACCEPTED_DROP = 0.18
"""No unflagged point may take so much less energy for its work than on the whole GPU."""

WORDS = {
    "equal": "50/50",
    "uncapped": "uncapped",
    "time-sliced": "time-sliced, without MPS",
    "exclusive": "one after the other",
}

GPU_MODELS = {"NVIDIA H200": "H200", "NVIDIA H100 80GB HBM3": "H100"}

NAMES = {
    "wrong": "training and dit-step at unsafe counts",
    "right": "at safe counts, and jobs without bf16 products",
    "not known": "other bf16 jobs at unsafe counts",
}


def main() -> None:
    """Print all tables."""
    bf16 = {path.stem for path in JOBS.glob("*.yaml") if is_bf16(path)}
    solos = with_solo_flags(unflagged(bundled_solo_points()))
    pairs = with_pair_flags(unflagged(bundled_pair_points()), solos)
    print_bounds(solos, lambda point: truth_of(point, bf16))
    print_flagged(solos)
    print_pairs(pairs)
    print_gains(pairs, [*solos, *bundled_reference_points()])


def print_bounds(solos: Sequence[SoloPoint], truth: Callable[[SoloPoint], str]) -> None:
    """What each bound finds among points that nothing else speaks against."""
    sweeps = sweeps_of(solos)
    clean = [p for p in solos if not (DOUBTFUL - {DEGENERATE, UNREAD}).intersection(p.flags)]
    groups = {name: [p for p in clean if truth(p) == name] for name in NAMES}
    columns = [f"{NAMES[name]} ({len(found)})" for name, found in groups.items()]
    last = f"not flagged, {ACCEPTED_DROP:.0%} or more below the whole GPU"
    row("energy per unit of work may be lower by", *columns, last)
    row(*["---"] * (len(columns) + 2))
    for bound in BOUNDS:
        counts = [
            sum(is_degenerate(p, sweeps[sweep_of(p)], bound) for p in found)
            for found in groups.values()
        ]
        left = sum(
            _part_of_whole(p, sweeps) <= 1 - ACCEPTED_DROP
            and not is_degenerate(p, sweeps[sweep_of(p)], bound)
            for p in clean
        )
        row(f"{bound:.0%}", *map(str, counts), str(left))
    print()


def print_flagged(solos: Sequence[SoloPoint]) -> None:
    """At which counts each job is flagged, and its energy there against the whole GPU."""
    sweeps = sweeps_of(solos)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for p in sorted(solos, key=lambda p: (p.job, p.run, p.units_granted or 0)):
        if DEGENERATE in p.flags:
            found[p.job].append(f"{p.units_granted} ({_part_of_whole(p, sweeps):.0%})")
    row("job", "flagged at SMs (energy above idle per unit of work, of that at 132)")
    row("---", "---")
    for job, counts in found.items():
        row(job, ", ".join(counts))
    print(f"\n{sum(map(len, found.values()))} of {len(solos)} solo points of {len(found)} jobs.\n")


def print_pairs(pairs: Sequence[PairPoint]) -> None:
    """How many pair points and pairs are flagged, and how many others nobody can vouch for."""
    row("pair points", *(f"{short}: points, pairs" for short in GPU_MODELS.values()))
    row(*["---"] * (1 + len(GPU_MODELS)))
    kinds = {
        "all": pairs,
        f"flagged `{DEGENERATE}`": [p for p in pairs if DEGENERATE in p.flags],
        f"flagged `{UNREAD}` only": [
            p for p in pairs if UNREAD in p.flags and DEGENERATE not in p.flags
        ],
    }
    for name, found in kinds.items():
        of_models = ([p for p in found if p.gpu_model == model] for model in GPU_MODELS)
        row(name, *(f"{len(points)}, {_names(points)}" for points in of_models))
    print()


def print_gains(pairs: Sequence[PairPoint], solos: Sequence[SoloPoint]) -> None:
    """The gains as they were published, and on what is left."""
    h200, h100 = GPU_MODELS
    every = [p for p in _pairs(_without(pairs), _without(solos)) if p.gpu_model == h200]
    likely = [p for p in _pairs(_read(pairs), solos) if p.gpu_model == h200]
    left = _pairs(pairs, solos)
    kinds = {
        "H200: all points, as published": every,
        f"H200: not flagged `{DEGENERATE}`": likely,
        "H200: 12 + 118, 66 + 66 and 118 + 12 SMs only": list(map(_at_safe_splits, every)),
        f"H200: nor `{UNREAD}`": [pair for pair in left if pair.gpu_model == h200],
        f"H100: nor `{UNREAD}`": [pair for pair in left if pair.gpu_model == h100],
        f"both: nor `{UNREAD}`": left,
    }
    row("points", "best split over", "pairs", "mean", "median", "most", "least")
    row(*["---"] * 7)
    for name, found in kinds.items():
        for baseline, find in BASELINES.items():
            g = gain(found, OBJECTIVES[DEFAULT_OBJECTIVE], find)
            values = (g.mean_percent, g.median_percent, g.most_percent, g.least_percent)
            cells = ["-" if value is None else f"{value:+.1f} %" for value in values]
            row(name, WORDS[baseline], str(g.pairs), *cells)


def _pairs(points: Iterable[PairPoint], solos: Iterable[SoloPoint]) -> list[MeasuredPair]:
    """The pairs that `uneven.py` looks at."""
    alone = [point for point in solos if DOUBTFUL.isdisjoint(point.flags)]
    return make_pairs(select(points).points, alone)[0]


def _at_safe_splits(pair: MeasuredPair) -> MeasuredPair:
    return replace(pair, measurements=tuple(map(_measured_safely, pair.measurements)))


def _measured_safely(found: Measurement) -> Measurement:
    nine = {split: result for split, result in found.nine.items() if split.shares in SAFE_SPLITS}
    return replace(found, splits={**found.splits, "nine": nine})


def is_bf16(job_file: Path) -> bool:
    """Whether a job says that it computes in bf16."""
    return yaml.safe_load(job_file.read_text("utf-8")).get("input", {}).get("dtype") == "bf16"


def truth_of(point: SoloPoint, bf16: set[str]) -> str:
    """What is known of a point by its job and its count of SMs: a key of `NAMES`."""
    if point.units_granted in SAFE_UNITS or point.job not in bf16:
        return "right"
    return "wrong" if "-train" in point.job or point.job == "dit-step" else "not known"


def sweep_of(point: SoloPoint) -> tuple[str, str, str]:
    """What points of one sweep have in common."""
    return point.job, point.gpu_uuid, point.run


def sweeps_of(solos: Iterable[SoloPoint]) -> dict[tuple[str, str, str], list[SoloPoint]]:
    """The points of each sweep."""
    found: defaultdict[tuple[str, str, str], list[SoloPoint]] = defaultdict(list)
    for point in solos:
        found[sweep_of(point)].append(point)
    return found


def _part_of_whole(point: SoloPoint, sweeps: dict[tuple[str, str, str], list[SoloPoint]]) -> float:
    """Energy above idle per unit of work, of that on the whole GPU."""
    whole = next(p for p in sweeps[sweep_of(point)] if p.share_percent == 100)
    return (energy_above_idle_j(point) or 0) / (energy_above_idle_j(whole) or 1)


def unflagged(points: Iterable[_Point], flags: Collection[str] = (DEGENERATE,)) -> list[_Point]:
    """The points without these flags."""
    return [replace(p, flags=tuple(f for f in p.flags if f not in flags)) for p in points]


def _without(points: Iterable[_Point]) -> list[_Point]:
    return unflagged(points, (DEGENERATE, UNREAD))


def _read(points: Iterable[_Point]) -> list[_Point]:
    """As if the results of all of them had been read."""
    return unflagged(points, (UNREAD,))


def _names(pairs: Iterable[PairPoint]) -> str:
    return str(len(Counter(point.jobs for point in pairs)))


def row(*cells: str) -> None:
    """Print a row of a table in Markdown."""
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
