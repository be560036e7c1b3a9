"""What lower power limits are worth: clocks at the limit, and savings of jobs that fill a GPU.

    python docs/measurements/power/limits.py

Clocks of bundled jobs alone at shares at which they draw their limit, over the most of the job, are
held against `advisor.predict.predictions`. What a job would draw there without the limit follows
from its watts at smaller shares, which grow with the share. Then, of each two bundled jobs that
fill an H200, and of 60 threes: what the advice saves, and what the limit that saves most at 95 % of
the speed saves and costs. Speeds under other traces: advisor evaluate --public zeus.
"""

import itertools
import random
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from advisor.core.records import SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.profiles import make_profiles, speed_left
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
    pairs = [*itertools.combinations(filling, 2)]
    threes = random.Random(0).sample([*itertools.combinations(filling, 3)], 60)
    for name, sets in (("pairs", pairs), ("sets of three", threes)):
        rows = np.array([worth(*jobs) for jobs in sets]) * 100
        print(f"{len(rows)} {name} of jobs that fill, mean and quartiles in percent:")
        for column, of in zip(COLUMNS, rows.T, strict=True):
            quartiles = ", ".join(f"{q:.1f}" for q in np.quantile(of, [0.25, 0.5, 0.75]))
            print(f"{column}: {of.mean():.1f} ({quartiles})")
        print(
            f"the limit saves more than sharing in {100 * np.mean(rows[:, 1] > rows[:, 0]):.0f} %"
        )


COLUMNS = ("sharing saves", "the limit beside that", "at worst", "it takes longer", "at worst")


def worth(*jobs: str) -> tuple[float, ...]:
    """Parts that sharing saves, that the limit saves and takes longer, each with its worst."""
    answer = recommend(*jobs, gpu_model=GPU_MODEL)
    of = answer.lower_limits
    parts = [
        (one.energy_saved.value, one.energy_saved.low, one.longer.value, one.longer.high)
        for one in of
    ]
    saved = answer.choice.energy_saved.value if answer.choice else 0.0
    return saved, *(map(statistics.fmean, zip(*parts, strict=True)) if of else (0.0,) * 4)


if __name__ == "__main__":
    main()
