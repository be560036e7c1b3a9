"""Jobs that do other than what is expected of them, and did not before. Pure.

Values are standardised by the model's own intervals; `advisor.validity.cusum` says when they have
moved.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.interval import NORMAL_90, Interval
from advisor.validity.cusum import SLACK, find_changes
from advisor.wire.answers import DriftedJob, DriftQuantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One observed value of a launch, and what the model in use expects of it.

    Attributes:
        job: Whose rate it is, or beside whom the power was drawn.
        gpu_uuid: The card; None: not known.
        setting: What the same was expected in: the jobs and their split.
        at: Start, ISO 8601, UTC.
        software: Versions that were in use, as far as they are known: `driver 580.159.04`.
    """

    job: str
    gpu_model: str
    gpu_uuid: str | None
    quantity: DriftQuantity
    setting: str
    observed: float
    expected: Interval
    at: str
    software: tuple[str, ...] = ()

    @property
    def log_ratio(self) -> float:
        """Of observed over expected; finite for positive values."""
        return math.log(self.observed / self.expected.value)

    @property
    def standardised(self) -> float:
        """The same in standard deviations, as the interval on its side means them."""
        bound = self.expected.high if self.log_ratio > 0 else self.expected.low
        width = abs(math.log(bound / self.expected.value)) if bound > 0 else math.inf
        return NORMAL_90 * self.log_ratio / max(width, 1e-9)


def find_drifts(compared: Iterable[Compared]) -> tuple[DriftedJob, ...]:
    """The quantities that drift, by job, GPU model, card and quantity; values in any order."""
    series: defaultdict[tuple[str, str, str, DriftQuantity], list[Compared]] = defaultdict(list)
    for one in compared:
        if one.observed > 0 and one.expected.value > 0:
            series[one.job, one.gpu_model, one.gpu_uuid or "", one.quantity].append(one)
    in_time = (sorted(series[key], key=lambda one: one.at) for key in sorted(series))
    return tuple(drift for values in in_time if (drift := _drift(values)))


def _drift(values: Sequence[Compared]) -> DriftedJob | None:
    """The last change, unless it led back, or to what is expected."""
    changes, level = find_changes([(one.setting, one.standardised) for one in values])
    if not changes or abs(level) <= SLACK:
        return None
    first, since = changes[0], changes[-1]
    off = statistics.fmean(one.log_ratio for one in values[since:])
    if first and abs(off) <= abs(statistics.fmean(one.log_ratio for one in values[:first])):
        return None
    old = {name for one in values[:since] for name in one.software}
    new = {name for one in values[since:] for name in one.software if name not in old}
    return DriftedJob(
        job=values[since].job,
        gpu_model=values[since].gpu_model,
        gpu_uuid=values[since].gpu_uuid,
        quantity=values[since].quantity,
        ratio=math.exp(off),
        since=values[since].at,
        observations=len(values) - since,
        software=tuple(sorted(new)) if old else (),
    )


def widened(interval: Interval, ratio: float) -> Interval:
    """Bounds that also hold the drifted value's: moved out on its side by the ratio."""
    return Interval(interval.value, interval.low * min(1.0, ratio), interval.high * max(1.0, ratio))


def drifts_of(
    drifts: Iterable[DriftedJob], jobs: Iterable[str], gpu_model: str, gpu_uuid: str | None
) -> Mapping[tuple[str, str], DriftedJob]:
    """The drift furthest off of each job and quantity on a card, or on any card of a GPU model."""
    names = set(jobs)
    found: dict[tuple[str, str], DriftedJob] = {}
    for drift in drifts:
        there = drift.gpu_model == gpu_model and gpu_uuid in (None, drift.gpu_uuid)
        if drift.job in names and there:
            key = drift.job, drift.quantity
            found[key] = max(found.get(key, drift), drift, key=lambda d: abs(math.log(d.ratio)))
    return found
