"""How fast each core is."""

import itertools
import os

import pytest

from advisor_profiling.doctor import core_speeds


def test_every_core_is_looked_at_and_the_thread_goes_back() -> None:
    before = os.sched_getaffinity(0)
    speeds = core_speeds(before, seconds=0.001)
    assert speeds.keys() == before
    assert min(speeds.values()) > 0
    assert os.sched_getaffinity(0) == before


def test_a_core_that_takes_twice_as_long_is_half_as_fast() -> None:
    """A clock on which every round takes twice as long."""
    assert _speed(0.002) == pytest.approx(_speed(0.001) / 2, rel=0.01)


def _speed(step_s: float) -> float:
    """Speed of one core by a clock that goes on by `step_s` each time it is read."""
    core = min(os.sched_getaffinity(0))
    ticks = itertools.count()
    return core_speeds([core], 1.0, lambda: next(ticks) * step_s)[core]
