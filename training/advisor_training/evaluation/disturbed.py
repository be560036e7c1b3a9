"""All measured pairs, those on a disturbed host too: how much the filter flatters.

The filter of `advisor_training.dataset.pairs` leaves out what ran next to a job that was slower
alone than
in another run. The model still learns without these; here it is only asked for them.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from advisor.core.records import PairPoint, SoloPoint
from advisor.predict.profiles import make_profiles
from advisor_training.dataset.data import Data, data_of
from advisor_training.dataset.pairs import MeasuredPair, Measurement, make_pairs
from advisor_training.learn.learners import Learner

PointKey = tuple[str, str, str, str]


def make_all_data(
    points: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint] = (),
) -> Data:
    """Pairs, rows and profiles of points, as `make_data`, whatever the host did meanwhile.

    Raises:
        InputError: no measured pair has profiles of both its jobs.
    """
    pairs: dict[tuple[tuple[str, str], str], list[Measurement]] = {}
    for found in _by_run(points, [*references, *profiled]):
        for pair in found:
            key = (pair.jobs, pair.gpu_model)
            pairs.setdefault(key, []).extend(pair.measurements)
    whole = [MeasuredPair(jobs, gpu, tuple(found)) for (jobs, gpu), found in sorted(pairs.items())]
    return data_of(whole, make_profiles(profiled), [*references, *profiled], ())


def learn_undisturbed(learner: Learner, every: Data, undisturbed: Data) -> Learner:
    """A learner that is given all rows and learns from the undisturbed ones only."""
    known = {_key(m) for m in undisturbed.measurements}
    numbers = [n for n, m in enumerate(every.measurements) if _key(m) in known]
    return lambda rows: learner(rows.take(np.isin(rows.measurement, numbers)))


def _by_run(
    points: Sequence[PairPoint], solos: Sequence[SoloPoint]
) -> Iterator[list[MeasuredPair]]:
    """The pairs of each run on each card by itself, so no other run tells that it was slow."""
    groups: dict[tuple[str, str], list[PairPoint]] = {}
    for point in points:
        groups.setdefault((point.run, point.gpu_uuid), []).append(point)
    for key, found in groups.items():
        own = [s for s in solos if (s.run, s.gpu_uuid) == key and s.share_percent == 100]
        jobs = {s.job for s in own}
        others = [s for s in solos if s.job not in jobs]
        yield make_pairs(found, [*own, *others], full=False)[0]


def _key(measurement: Measurement) -> PointKey:
    m = measurement
    return *m.jobs, m.run, m.gpu_uuid
