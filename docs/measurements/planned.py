"""Prints what the law of sets says of sets that `advisor place` planned and that then ran.

    git archive 5ec0cd15^ docs/measurements/planned | tar -x -C /tmp
    .venv/bin/python docs/measurements/planned.py /tmp/docs/measurements/planned

By GPU model, at the power limit and below it: jobs below their floors as measured and as said, sets
of which every speed keeps its floor with 9 chances of 10, and errors in points of batch jobs
that ran alone there, first without the common clock at the limit, then with it.
"""

import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from advisor.core.gpu import WHOLE, Split, without_limits
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.decide.limits import sure_speeds
from advisor.predict.profiles import Floats, Profile, make_profiles
from advisor.predict.sets import JobsAlone, SetPredictor
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points

# A job is below its floor where it misses it by more than half a point.
TOLERANCE = 0.005


def show(folder: Path, name: str, profiles: dict[str, Profile]) -> None:
    """Print the figures of the sets of one GPU model."""
    points = read_points(folder / f"{name}.jsonl")
    floors: dict[str, float] = json.loads((folder / f"{name}.json").read_text("utf-8"))["floors"]
    alone: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if isinstance(point, SoloPoint) and point.share_percent == WHOLE and point.rate:
            alone[point.job].append(point.rate)
    counts, off = Counter[tuple[str, str]](), defaultdict[str, list[float]](list)
    for point in points:
        if not isinstance(point, PairPoint) or point.error or not point.power_w:
            continue
        known = [profiles[part.job] for part in point.parts if part.job in profiles and part.rate]
        if len(known) < len(point.parts):
            continue
        at = point.power_w >= NEAR_LIMIT * (point.power_limit_w or known[0].power_limit_w or 0)
        where, shares = "at the limit" if at else "below it", point.shares_percent
        is_open = min(shares) == WHOLE
        split = without_limits("uncapped", len(shares)) if is_open else Split(shares)
        said = SetPredictor().predict(known, [split])
        sure = sure_speeds(said.speeds[0], said.speeds[1], 0.9)
        least = [floors.get(part.job, 0.4) - TOLERANCE for part in point.parts]
        rates = [(p.rate or 0.0, alone[p.job] or [own.whole_gpu_rate])
                 for p, own in zip(point.parts, known, strict=True)]  # fmt: skip
        speeds = np.array([rate / statistics.median(of) for rate, of in rates])
        broken, is_kept = int((speeds < least).sum()), bool((sure[:, 0] >= least).all())
        counts[where, "sets"] += 1
        counts[where, "jobs"] += len(known)
        counts[where, "below, measured"] += broken
        counts[where, "below, said"] += int((said.speeds[0][:, 0] < least).sum())
        counts[where, "sets offered"] += is_kept
        counts[where, "jobs below in them"] += broken * is_kept
        batch = np.array([p.serving is None and p.job in alone for p in known])
        off[where] += [*abs(np.minimum(said.speeds[0][:, 0], 1) - speeds)[batch]]
    for where in sorted(off):
        texts = [f"{what} {count}" for (of, what), count in counts.items() if of == where]
        print(f"{name} {where}: {', '.join(texts)}; {100 * statistics.fmean(off[where]):.1f} off")


def main() -> None:
    """Print both, for each GPU model."""
    profiles = make_profiles(bundled_solo_points())
    clocks = JobsAlone.clocks
    for is_common in (False, True):
        print("with the common clock" if is_common else "without it")
        JobsAlone.clocks = clocks if is_common else _ones
        for name, model in (("h200", "NVIDIA H200"), ("h100", "NVIDIA H100 80GB HBM3")):
            show(
                Path(sys.argv[1]),
                name,
                {job: p for (job, of), p in profiles.items() if of == model},
            )


def _ones(self: JobsAlone, could: Floats, limit_w: float) -> Floats:
    del self, limit_w
    return np.ones_like(could)


if __name__ == "__main__":
    main()
