"""Jobs that deviate from their prediction, and did not before: a CUSUM test. Pure.

Values are standardised by the model's own intervals; `advisor.validity.drift` says when they have
moved.

What a model gets wrong of two jobs at a split it gets wrong each time, and that is no change. So a
value is held against the model at first, and then more and more against what was seen in the same
setting before: recursive residuals, which are independent and have a variance of 1 as long as
nothing changes (Brown, Durbin and Evans, "Techniques for testing the constancy of regression
relationships over time", 1975). Two sums, one upwards and one downwards, trip at a threshold (Page,
"Continuous inspection schemes", 1954). docs/drift.md has how often that is wrong, and how long it
takes.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from advisor.core.objectives import NORMAL_90, Interval
from advisor.core.records import grouped
from advisor.wire.answers import DriftedJob, DriftQuantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One observed value of a launch, and what the model in use expects of it.

    Attributes:
        job: The job of the rate, or a job of the set that drew the power.
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
    series = grouped(
        (value for value in compared if value.observed > 0 and value.expected.value > 0),
        lambda value: (value.job, value.gpu_model, value.gpu_uuid or "", value.quantity),
    )
    return tuple(
        drift
        for key in sorted(series)
        if (drift := _drift(sorted(series[key], key=lambda value: value.at)))
    )


def _drift(values: Sequence[Compared]) -> DriftedJob | None:
    changes, level = find_changes([(value.setting, value.standardised) for value in values])
    if not changes or abs(level) <= SLACK:
        return None
    first, since = changes[0], changes[-1]
    off = statistics.fmean(value.log_ratio for value in values[since:])
    if first and abs(off) <= abs(statistics.fmean(value.log_ratio for value in values[:first])):
        return None
    old = {name for value in values[:since] for name in value.software}
    new = {name for value in values[since:] for name in value.software if name not in old}
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
    there = (d for d in drifts if d.gpu_model == gpu_model and gpu_uuid in (None, d.gpu_uuid))
    of_jobs = grouped((d for d in there if d.job in names), lambda d: (d.job, d.quantity))
    return {key: max(of, key=lambda d: abs(math.log(d.ratio))) for key, of in of_jobs.items()}


SLACK = 0.5
"""What a residual has to exceed to count: half of the least shift that is to be found, in standard
deviations (Montgomery, "Introduction to Statistical Quality Control", on designing a CUSUM)."""

MOST = 3.0
"""A residual counts as no more than this, so that it takes four launches to trip the test."""

THRESHOLD = 8.0
"""The sum that trips. With the usual 5 two to four series of a hundred are false alarms, with this
less than one, and a change by a tenth is found two launches later (docs/measurements/drift.py)."""

NOISE = 0.25
"""Part of the variance of an interval that is new in each launch: pairs measured again in other
runs, mostly on other cards, repeat within 2.7 % in power, where intervals mean 5.4 %
(docs/measurements/drift.py). The rest is the model's error, the same each time."""

# What else was the same, as text, and how far off a value was, in standard deviations.
_Value: TypeAlias = tuple[str, float]


def find_changes(values: Sequence[_Value]) -> tuple[list[int], float]:
    """The changes of a series, in the order of time.

    Returns:
        Number of the first value of each new regime, a way back among them; and how far all values
        are off since the last one, against those before the first.
    """
    changes, level, nothing = list[int](), _Level(), (0.0, 0)
    up, down = nothing, nothing
    for number, value in enumerate(values):
        residual = level.residual(value)
        up, down = _summed(up, number, residual), _summed(down, number, -residual)
        level.learn(value)
        largest, since = up if up[0] > down[0] else down
        if largest >= THRESHOLD:
            changes.append(since)
            level, up, down = _changed(values[: number + 1], changes), nothing, nothing
    return changes, level.off


def _changed(values: Sequence[_Value], changes: Sequence[int]) -> "_Level":
    """The level after changes: errors of settings as before, and all values off by the rest."""
    level = _Level()
    for begin, end in itertools.pairwise((0, *changes, len(values))):
        if begin:
            level.off += statistics.fmean(map(level.miss, values[begin:end]))
        for value in values[begin:end]:
            level.learn(value)
    return level


@dataclass(slots=True)
class _Level:
    """What the values of a regime are like.

    Attributes:
        off: How far all of them are off; 0 until something has changed.
        by_setting: Of each setting the number of values and the sum of how far they were from that.
    """

    off: float = 0.0
    by_setting: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    def learn(self, value: _Value) -> None:
        """Remember a value."""
        setting, standardised = value
        count, total = self.by_setting.get(setting, (0, 0.0))
        self.by_setting[setting] = count + 1, total + standardised - self.off

    def miss(self, value: _Value) -> float:
        """How far a value is from what the values before it say."""
        setting, standardised = value
        return standardised - self.off - self._error(setting)[0]

    def residual(self, value: _Value) -> float:
        """The same with a variance of 1 while nothing changes."""
        return self.miss(value) / math.sqrt(self._error(value[0])[1] + NOISE)

    def _error(self, setting: str) -> tuple[float, float]:
        """Mean and variance of a setting's own error.

        Its variance is 1 - NOISE at first; each value seen has NOISE on top of it.
        """
        count, total = self.by_setting.get(setting, (0, 0.0))
        precision = (1 - NOISE) * count + NOISE
        return (1 - NOISE) * total / precision, (1 - NOISE) * NOISE / precision


# Of residuals on one side, and the number of the value at which it last began to rise.
_Sum: TypeAlias = tuple[float, int]


def _summed(before: _Sum, number: int, residual: float) -> _Sum:
    """With one more residual; the sum trips from `THRESHOLD` on."""
    value, since = before
    total = value + max(-MOST, min(MOST, residual)) - SLACK
    return max(0.0, total), since if value else number
