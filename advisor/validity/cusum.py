"""When a series of values has moved away from what was expected of it: a CUSUM test. Pure.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

SLACK = 0.5
"""What a residual has to exceed to count: half of the least shift that is to be found, in standard
deviations (Montgomery, "Introduction to Statistical Quality Control", on designing a CUSUM)."""

THRESHOLD = 8.0
"""The sum that trips. With the usual 5 two to four series of a hundred are false alarms, with this
less than one, and a change by a tenth is found two launches later (docs/measurements/drift.py)."""

MOST = 3.0
"""A residual counts as no more than this, so that it takes four launches to trip the test."""

NOISE = 0.25
"""Part of the variance of an interval that is new in each launch: pairs measured again in other
runs, mostly on other cards, repeat within 2.7 % in power, where intervals mean 5.4 %
(docs/measurements/drift.py). The rest is the model's error, the same each time."""

Value: TypeAlias = tuple[str, float]
"""What else was the same, as text, and how far off a value was, in standard deviations."""


def find_changes(values: Sequence[Value]) -> tuple[list[int], float]:
    """The changes of a series, in the order of time.

    Returns:
        Number of the first value of each new regime, a way back among them; and how far all values
        are off since the last one, against those before the first.
    """
    changes, level, sums = list[int](), _Level(), _Sums()
    for number, value in enumerate(values):
        since = sums.add(number, level.residual(value))
        level.learn(value)
        if since is not None:
            changes.append(since)
            level, sums = _changed(values[: number + 1], changes), _Sums()
    return changes, level.off


def _changed(values: Sequence[Value], changes: Sequence[int]) -> "_Level":
    """The level after changes: errors of settings as before, and all values off by the rest."""
    level = _Level()
    for begin, end in itertools.pairwise((0, *changes, len(values))):
        regime = values[begin:end]
        if begin:
            level.off += statistics.fmean(map(level.miss, regime))
        for value in regime:
            level.learn(value)
    return level


@dataclass(slots=True)
class _Level:
    """What the values of a regime are like.

    Attributes:
        off: How far all of them are off; 0 until something has changed.
        seen: Of each setting the number of values and the sum of how far they were from that.
    """

    off: float = 0.0
    seen: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    def learn(self, value: Value) -> None:
        """Remember a value."""
        setting, standardised = value
        count, total = self.seen.get(setting, (0, 0.0))
        self.seen[setting] = count + 1, total + standardised - self.off

    def miss(self, value: Value) -> float:
        """How far a value is from what the values before it say."""
        setting, standardised = value
        return standardised - self.off - self._error(setting)[0]

    def residual(self, value: Value) -> float:
        """The same with a variance of 1 while nothing changes."""
        return self.miss(value) / math.sqrt(self._error(value[0])[1] + NOISE)

    def _error(self, setting: str) -> tuple[float, float]:
        """Mean and variance of a setting's own error.

        Its variance is 1 - NOISE at first; each value seen has NOISE on top of it.
        """
        count, total = self.seen.get(setting, (0, 0.0))
        precision = (1 - NOISE) * count + NOISE
        return (1 - NOISE) * total / precision, (1 - NOISE) * NOISE / precision


@dataclass(slots=True)
class _Sums:
    """Both sums, and the numbers of the values at which they last began to rise."""

    up: float = 0.0
    down: float = 0.0
    up_since: int = 0
    down_since: int = 0

    def add(self, number: int, residual: float) -> int | None:
        """Count a residual; the number of the first value that was off, where a sum trips."""
        if self.up == 0:
            self.up_since = number
        if self.down == 0:
            self.down_since = number
        bounded = max(-MOST, min(MOST, residual))
        self.up = max(0.0, self.up + bounded - SLACK)
        self.down = max(0.0, self.down - bounded - SLACK)
        if max(self.up, self.down) < THRESHOLD:
            return None
        return self.up_since if self.up > self.down else self.down_since
