"""Extra Trees on top of the law of sets: where are they nearer to what was measured?

    python docs/measurements/sets/trees.py [RUN ...] [--gpu-model H200]

One model of speeds and one of watts, for pairs and sets, learn the logarithm of what was measured
over what the law says, from what each job does alone, the most and the sum of what the others do,
and the way of sharing. Each job is left out of the trees that predict it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any, TypeAlias, cast

import joblib
import numpy as np
from fitting import alone, as_it_stands, drawn, speeds
from rows import Off, Row, measured_pairs, measured_rows, tables

from advisor.predict.features import rounded
from advisor.predict.profiles import COLUMNS, Floats
from advisor.predict.sets import ACTIVE_IDLE_OVER_W, FULLER
from advisor_training.learners import LEAST_SPEED, PRIOR, PriorRegressor

Seen: TypeAlias = tuple[Row, str, frozenset[str], Floats, float]
"""A job of a window, or all of its: the kind, the jobs, what is said and features, and measured."""


def main() -> None:
    """Print tables; the last row of each is the error of the trees less that of the law."""
    every = [seen(row) for row in [*measured_rows(__doc__), *measured_pairs()]]
    tables("speeds, points", [*offs([one for parts, _ in every for one in parts])])
    tables("watts, %", [*offs([together for _, together in every], is_relative=True)])


def offs(every: Sequence[Seen], *, is_relative: bool = False) -> Iterator[Off]:
    """Errors of the law, of trees that did not see the job, and the difference."""
    x, y = (np.array([one[n] for one in every]) for n in (3, 4))
    # Of a server that met its demand its speed only says that it could do no less.
    told = np.array([one[1] != "server" or one[4] < 0.98 for one in every])

    def asked(job: str) -> list[tuple[Seen, float]]:
        free = told & np.array([job not in row.jobs for row, *_ in every])
        trees = PriorRegressor(None, PRIOR).fit(x[free], np.maximum(y[free], LEAST_SPEED))
        its = [one for one in every if job in one[2]]
        learned = trees.predict(np.array([one[3] for one in its])).tolist()
        return [
            ((*one[:2], frozenset([job]), *one[3:]), to)
            for one, to in zip(its, learned, strict=True)
        ]

    jobs = sorted({job for one in every for job in one[2]})
    lib = cast("Any", joblib)
    for found in lib.Parallel(n_jobs=-1, prefer="threads")(map(lib.delayed(asked), jobs)):
        for (row, kind, own, features, measured), said in found:
            most, scale = (1.0 if kind == "server" else np.inf), measured if is_relative else 1.0
            law, trees = (
                100 * abs(min(value, most) - measured) / scale for value in (features[PRIOR], said)
            )
            for rule, off in (("the law", law), ("trees", trees), ("trees less law", trees - law)):
                yield Off(rule, row, kind, own, off)


def seen(row: Row) -> tuple[list[Seen], Seen]:
    """Each job of a window, and the window."""
    jobs, kept = alone(row), as_it_stands(row)
    points = [[float(getattr(p.alone, n) or 0.0) for n in COLUMNS[1:]] for p in row.parts]
    hosts = row.column(lambda part: part.is_host)
    own = np.hstack([*(np.minimum(c, 1e9) for c in astuple(jobs)), np.array(points), hosts])
    of_all = [len(row.parts), row.fill, row.is_apart, row.mode == "uncapped", row.mode == "limits"]
    said, watts = speeds(row, kept), float(drawn(ACTIVE_IDLE_OVER_W, FULLER)(row, kept)[0])
    parts = list[Seen]()
    for n, part in enumerate(row.parts):
        others = np.delete(own, n, axis=0)
        features = np.hstack([own[n], others.max(axis=0), others.sum(axis=0), of_all, kept[n]])
        x = np.array([max(said[n], LEAST_SPEED), *rounded(features)])
        parts.append((row, part.kind, frozenset([part.whole.job]), x, part.speed))
    features = np.hstack([own.max(axis=0), own.min(axis=0), own.sum(axis=0), of_all])
    x = np.array([watts, *rounded(features), watts / min(row.limit_w, 1e4)])
    return parts, (row, row.kind, row.jobs, x, row.power_w)


if __name__ == "__main__":
    main()
