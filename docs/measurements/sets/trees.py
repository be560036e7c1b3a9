"""Extra Trees on top of the law of sets: where do they beat it?

    python docs/measurements/sets/trees.py [RUN ...] [--gpu-model H200]

One model of speeds and one of watts, for pairs and sets, learn the logarithm of what was measured
over what `advisor.predict.sets` says, from what each job does alone, the most and the sum of what
the others do, and the way of sharing. Each job is left out of the trees that predict it. The last
row of each table is their error less that of the law: below 0 where they are nearer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, cast

import joblib
import numpy as np
from fitting import alone, as_it_stands, drawn, speeds
from rows import Off, Row, measured_pairs, measured_rows, tables

from advisor.predict.features import rounded
from advisor.predict.profiles import COLUMNS, Floats
from advisor.predict.sets import ACTIVE_IDLE_OVER_W, FULLER
from advisor_training.learners import LEAST_SPEED, PRIOR, PriorRegressor

MODES = "uncapped", "limits", "time-sliced"


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A job of a window, or a window; `x` is what the law says, then features."""

    row: Row
    kind: str
    jobs: frozenset[str]
    x: Floats
    measured: float
    is_told: bool = True


def main() -> None:
    """Print tables of speeds and of watts."""
    rows = [*measured_rows(__doc__), *measured_pairs()]
    every = [seen(row) for row in rows]
    for title, some, scale in (
        ("speeds, points", [one for own, _ in every for one in own], lambda _: 100.0),
        ("watts, %", [of_set for _, of_set in every], lambda one: 100.0 / one.measured),
    ):
        tables(title, list(offs(some, scale)))


def offs(every: Sequence[Seen], scale: Any) -> Iterator[Off]:
    """Errors of the law, of trees that did not see the job, and the difference."""
    x = np.array([one.x for one in every])
    y = np.maximum([one.measured for one in every], LEAST_SPEED)
    told = np.array([one.is_told for one in every])

    def asked(job: str) -> Iterator[Off]:
        has = np.array([job in one.row.jobs for one in every])
        trees = PriorRegressor(None, PRIOR).fit(x[told & ~has], y[told & ~has])
        places = np.flatnonzero([job in one.jobs for one in every]).tolist()
        learned = trees.predict(x[places]).tolist()
        for one, *said in zip([every[n] for n in places], x[places, PRIOR], learned, strict=True):
            most = 1.0 if one.kind == "server" else np.inf
            law, trees_off = (scale(one) * abs(min(s, most) - one.measured) for s in said)
            own = one.row, one.kind, frozenset([job])
            yield Off("the law", *own, law)
            yield Off("trees on the law", *own, trees_off)
            yield Off("trees less the law", *own, trees_off - law)

    jobs = sorted({job for one in every for job in one.jobs})
    run: Any = cast("Any", joblib).Parallel(n_jobs=-1, prefer="threads")
    for found in run(joblib.delayed(lambda job: list(asked(job)))(job) for job in jobs):
        yield from found


def seen(row: Row) -> tuple[list[Seen], Seen]:
    """Each job of a window, and the window."""
    jobs, kept = alone(row), as_it_stands(row)
    points = [[float(getattr(p.alone, n) or 0.0) for n in COLUMNS[1:]] for p in row.parts]
    hosts = row.column(lambda part: part.is_host)
    own = np.hstack([*(np.minimum(c, 1e9) for c in astuple(jobs)), np.array(points), hosts])
    of_all = [len(row.parts), row.fill, row.is_apart, *(row.mode == mode for mode in MODES)]
    said, watts = speeds(row, kept), float(drawn(ACTIVE_IDLE_OVER_W, FULLER)(row, kept)[0])

    def beside(n: int) -> Floats:
        others = np.delete(own, n, axis=0)
        return np.hstack([own[n], others.max(axis=0), others.sum(axis=0), of_all, kept[n]])

    parts = [
        Seen(
            row=row,
            kind=part.kind,
            jobs=frozenset([part.whole.job]),
            x=np.array([max(said[n], LEAST_SPEED), *rounded(beside(n))]),
            measured=part.speed,
            is_told=not (part.serves and part.speed >= 0.98),
        )
        for n, part in enumerate(row.parts)
    ]
    together = np.hstack([own.max(axis=0), own.min(axis=0), own.sum(axis=0), of_all])
    x = np.array([watts, *rounded(together), watts / min(row.limit_w, 1e4)])
    return parts, Seen(row, row.kind, row.jobs, x, row.power_w)


if __name__ == "__main__":
    main()
