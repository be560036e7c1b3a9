"""What lower power limits are worth: clocks at the limit, and savings of jobs that fill a GPU.

    python docs/measurements/power/limits.py

Clocks of bundled jobs alone at shares at which they draw their limit, over the most of the job, are
held against `advisor.predict.power_limit`. What a job would draw there without the limit follows
from its watts at smaller shares, which grow with the share. Then, of each two bundled jobs that
fill an H200: the energy that the advice saves, and the limit that saves most at 95 % of the speed,
shared as advised, or on a GPU for each. Speeds under other traces: advisor evaluate --public zeus.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from advisor.core.records import SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.power_limit import speed_left
from advisor.predict.profiles import make_profiles
from advisor.predict.sets import active_idle_w, fills
from advisor_advice.ask import recommend
from advisor_data.bundled import GPU_MODEL, bundled_solo_points


def clocks(points: Sequence[SoloPoint]) -> Iterator[tuple[str, float, float]]:
    """Job, measured and predicted clock at the limit, for each 1 of its highest clock."""
    for (job, model), profile in make_profiles(points).items():
        own = [p for p in points if (p.job, p.gpu_model) == (job, model) and p.sm_clock_mhz]
        limit_w, idle_w = profile.power_limit_w, active_idle_w(profile)
        most_mhz = max((p.sm_clock_mhz or 0.0 for p in own), default=0.0)
        free = [
            ((p.power_w or 0.0) - idle_w) / p.share_percent
            for p in own
            if (p.sm_clock_mhz or 0.0) >= 0.995 * most_mhz and p.share_percent >= 30
            and limit_w and (p.power_w or 0.0) < 0.95 * limit_w
        ]  # fmt: skip
        for p in own if free and limit_w else ():
            clock = (p.sm_clock_mhz or 0.0) / most_mhz
            if clock < 0.985 and (p.power_w or 0.0) >= NEAR_LIMIT * limit_w:
                wanted_w = idle_w + statistics.median(free) * p.share_percent
                yield job, clock, float(speed_left(limit_w, wanted_w, limit_w))


def main() -> None:
    """Print both."""
    points = bundled_solo_points()
    found = [*clocks(points)]
    jobs = len({job for job, *_ in found})
    off, none = (
        100 * statistics.fmean(abs(said / clock - 1) for clock, said in of)
        for of in ([row[1:] for row in found], [(clock, 1.0) for _, clock, _ in found])
    )
    print(f"clocks of {len(found)} windows of {jobs} jobs: {off:.1f} % off; no effect {none:.1f} %")
    filling = [p.job for (_, m), p in make_profiles(points).items() if m == GPU_MODEL and fills(p)]
    rows = list[tuple[float, float, float]]()
    for a, b in itertools.combinations(filling, 2):
        answer = recommend(a, b, gpu_model=GPU_MODEL)
        saved = answer.choice.energy_saved.value if answer.choice else 0.0
        of = [one.energy_saved for one in answer.lower_limits]
        each = 1 if answer.choice else 2
        rows.append((saved, sum(one.value for one in of) / each, sum(o.low for o in of) / each))
    sharing, limits, low = np.array(rows).T * 100
    print(f"{len(rows)} pairs of jobs that fill, energy saved, mean and quartiles in percent:")
    for name, of in (("sharing", sharing), ("the limit beside that", limits), ("at worst", low)):
        quartiles = ", ".join(f"{q:.1f}" for q in np.quantile(of, [0.25, 0.5, 0.75]))
        print(f"{name}: {of.mean():.1f} ({quartiles})")
    print(f"the limit saves more than sharing in {100 * np.mean(limits > sharing):.0f} %")


if __name__ == "__main__":
    main()
