"""What ten shares cost: seconds of whole sweeps, and of the windows in them.

    .venv/bin/python docs/measurements/cost.py

`sweep-seconds.csv` holds what `profile_suite.py` printed at 77e7f90e; `gated-alone.parquet` two
sweeps that had their host to themselves.
"""

import csv
import statistics
from datetime import UTC, datetime
from pathlib import Path

from advisor.core.records import SoloPoint
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points

HERE = Path(__file__).parent


def main() -> None:
    """Print the figures of the page."""
    with (HERE / "sweep-seconds.csv").open() as file:
        rows = list(csv.DictReader(file))
    together = [float(row["seconds"]) for row in rows if row["sweeps_at_once"] == "4"]
    print(
        f"{len(together)} sweeps, four at once: median {statistics.median(together):.0f} s, "
        f"{sum(s < 90 for s in together)} under 90 s, longest {max(together):.0f} s"
    )
    for row in rows:
        if row["gated"] == "false":
            print(f"{row['job']}, not gated, whole command: {row['seconds']} s")
    for run in by_run(read_points(HERE / "gated-alone.parquet")):
        print(f"{run[0].job}, gated, alone, to the end of the last window: {length_s(run):.0f} s")
    inside = [
        sum(p.window_s + (p.settle_s or 0) for p in run) for run in by_run(bundled_solo_points())
    ]
    print(f"windows and settling, median of a sweep: {statistics.median(inside):.0f} s")


def by_run(points: list[SoloPoint]) -> list[list[SoloPoint]]:
    """The points of each run of each job."""
    keys = sorted({(p.job, p.run) for p in points})
    return [[p for p in points if (p.job, p.run) == key] for key in keys]


def length_s(run: list[SoloPoint]) -> float:
    """From the run's start, which its name carries, to the end of its last window."""
    begun = datetime.strptime(run[0].run.split("-")[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    ends = [datetime.fromisoformat(p.started_at).timestamp() + p.window_s for p in run]
    return max(ends) - begun.timestamp()


main()
