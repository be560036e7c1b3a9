"""How well a solo profile repeats: every job of the bundled data that was profiled twice.

.venv/bin/python docs/measurements/repeatability.py
"""

import statistics
from itertools import combinations
from pathlib import Path

from advisor.core.records import SoloPoint
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points

HERE = Path(__file__).parent


def main() -> None:
    """Print the difference of two runs on the same card, and of eight processes at one share."""
    points = bundled_solo_points()
    print("job                   rate: median  largest   power: median  largest   job CPU")
    for job in sorted({p.job for p in points}):
        runs = runs_of([p for p in points if p.job == job])
        if len(runs) == 2:
            print(line(job, *runs))
    print("\neight processes of mobilenet-infer-b2 at 50 %, one after the other on a quiet host:")
    processes = read_points(HERE / "launch-bound-processes.parquet")
    for job in sorted({p.job for p in processes}):
        rates = [p.rate for p in processes if p.job == job]
        print(f"{job:12} {spread(rates)}")


def runs_of(points: list[SoloPoint]) -> list[dict[float, SoloPoint]]:
    """Runs in order of time, each by share."""
    runs: dict[str, dict[float, SoloPoint]] = {}
    for point in sorted(points, key=lambda p: p.started_at):
        runs.setdefault(point.run, {})[point.share_percent] = point
    return list(runs.values())


def line(job: str, first: dict[float, SoloPoint], second: dict[float, SoloPoint]) -> str:
    """Relative differences over the shares that both runs have."""
    shares = sorted(first.keys() & second.keys())
    assert {p.gpu_uuid for p in first.values()} == {p.gpu_uuid for p in second.values()}
    rate = [abs(second[s].rate / first[s].rate - 1) for s in shares]
    power = [abs((second[s].power_w or 0) / (first[s].power_w or 1) - 1) for s in shares]
    cpu = statistics.median(p.job_cpu_percent or 0 for p in first.values())
    return (
        f"{job:20} {100 * statistics.median(rate):13.2f} % {100 * max(rate):6.2f} % "
        f"{100 * statistics.median(power):12.2f} % {100 * max(power):6.2f} % {cpu:8.0f} %"
    )


def spread(rates: list[float]) -> str:
    """Standard deviation, and the median difference between any two."""
    mean = statistics.fmean(rates)
    pairs = [abs(b / a - 1) for a, b in combinations(rates, 2)]
    return (
        f"{mean:6.1f}/s, standard deviation {100 * statistics.stdev(rates) / mean:.1f} %, "
        f"median difference of two {100 * statistics.median(pairs):.1f} %"
    )


main()
