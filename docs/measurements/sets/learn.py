"""Whether Extra Trees on top of the law of sets know more than the law.

    python docs/measurements/sets/learn.py [RUN ...] [--gpu-model H200]

Campaigns and the words of the tables are as rows.py has them. For each job left out, trees learn
the logarithm of measured over the law as it stands, of speeds and of watts, from all sets without
it, and in a second row from bundled pairs without it, too. They know of a job its readings alone at
its limit, the largest of the others' and their sum, how many there are, who fills the GPU, and the
way of sharing. "Less" rows are errors of trees less those of the law: below 0 trees are better,
beyond noise where the whole bracket is. The constants of the law have seen the job that is left
out, which favours it by what its two rows in law.py differ by.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from fitting import Judged, as_it_stands, beside, judge, speeds, watts
from law import offs_of_sets
from rows import Off, Row, again, measured_rows, rows_of_pairs, tables
from sklearn.ensemble import ExtraTreesRegressor

from advisor.predict.profiles import Floats
from advisor.predict.sets import ACTIVE_IDLE_OVER_W

MODES = ("uncapped", "limits", "time-sliced")
READINGS = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "dram_active_percent",
    "tensor_active_percent",
    "fp32_active_percent",
    "power_w",
    "job_cpu_percent",
)


def main() -> None:
    """Print errors of the law, of trees on top of it, and of another card."""
    rows, pairs = measured_rows(__doc__), rows_of_pairs()
    law = offs("the law as it stands", stands(rows))
    trees = {
        "trees on sets": offs("trees on sets", learned(rows, [])),
        "trees on sets and pairs": offs("trees on sets and pairs", learned(rows, pairs)),
    }
    others = again(rows)
    for n, title in enumerate(("speeds, points", "watts, %")):
        found = [*law[n]]
        for name, own in trees.items():
            found += own[n]
            found += [
                replace(after, rule=f"{name}, less the law", error=after.error - before.error)
                for before, after in zip(law[n], own[n], strict=True)
            ]
        tables(title, found + others[n])


def offs(name: str, judged: Sequence[Judged]) -> tuple[list[Off], list[Off]]:
    """Errors of speeds and of watts."""
    return [Off(name, j.row, j.part.is_host, j.points) for j in judged], offs_of_sets(name, judged)


def stands(rows: Sequence[Row]) -> list[Judged]:
    """What the law of the package says of every job, in their order."""
    return [
        it for row in rows for it in judge(row, as_it_stands(row), ACTIVE_IDLE_OVER_W, *row.jobs)
    ]


def learned(rows: Sequence[Row], more: Sequence[Row]) -> list[Judged]:
    """The same by trees on top, each job by those that learned without it."""
    said = dict[tuple[str, int], tuple[Floats, float]]()
    for job in sorted({job for row in rows for job in row.jobs}):
        free = [row for row in (*rows, *more) if job not in row.jobs]
        of_speed = fitted(free, of_jobs, missed_speeds)
        of_watts = fitted(free, of_set, missed_watts)
        for row in rows:
            if job in row.jobs:
                said[job, id(row)] = of_speed(of_jobs(row)), float(of_watts(of_set(row))[0])
    found = list[Judged]()
    for row in rows:
        for n, judged in enumerate(stands([row])):
            factors, factor = said[judged.part.whole.job, id(row)]
            speed = judged.speed * float(factors[n])
            speed = min(1.0, speed) if judged.part.serves else speed
            power_w = min(row.limit_w, judged.power_w * factor)
            found.append(replace(judged, speed=speed, power_w=power_w))
    return found


def fitted(
    rows: Sequence[Row], known: Callable[[Row], Floats], missed: Callable[[Row], Floats]
) -> Callable[[Floats], Floats]:
    """Trees of what the law misses, as a factor."""
    trees: Any = ExtraTreesRegressor(150, min_samples_leaf=3, max_features=0.5, random_state=1)
    trees.fit(
        np.concatenate([known(row) for row in rows]), np.concatenate([missed(row) for row in rows])
    )
    return lambda asked: np.exp(trees.predict(asked))


def missed_speeds(row: Row) -> Floats:
    """Logarithm of measured over the law, of each job."""
    said = np.array(speeds(row, as_it_stands(row)))
    return np.log(np.maximum([part.speed for part in row.parts], 0.02) / said)


def missed_watts(row: Row) -> Floats:
    """The same of the watts."""
    return np.log([row.power_w / watts(row, as_it_stands(row), ACTIVE_IDLE_OVER_W)])


def of_jobs(row: Row) -> Floats:
    """What trees know of each job; shape (jobs, features)."""
    own = np.hstack([row.column(lambda p, x=x: getattr(p.alone, x, None) or 0.0) for x in READINGS])
    largest = [np.delete(own, n, axis=0).max(axis=0) for n in range(len(own))]
    shares = row.column(lambda part: part.alone.share_percent)
    flags = np.hstack([row.column(lambda p: p.serves), row.column(lambda p: p.fills)])
    alike = np.tile(_alike(row), (len(own), 1))
    law = np.hstack([as_it_stands(row), beside(row)])
    return np.hstack([own, largest, own.sum(axis=0) - own, shares, flags, law, alike])


def of_set(row: Row) -> Floats:
    """What trees know of a set; shape (1, features)."""
    jobs = of_jobs(row)
    return np.hstack([jobs.max(axis=0), jobs.sum(axis=0)])[None, :]


def _alike(row: Row) -> list[float]:
    said_w = watts(row, as_it_stands(row), ACTIVE_IDLE_OVER_W)
    return [len(row.parts), row.fill, said_w, *(float(row.mode == mode) for mode in MODES)]


if __name__ == "__main__":
    main()
