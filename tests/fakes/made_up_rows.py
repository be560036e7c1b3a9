"""Rows of made-up pairs, as learners take them."""

import dataclasses
import functools
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import synthetic_pairs as made_up
from synthetic_pairs import MadeUpJob

from advisor.core.records import SoloPoint
from advisor_training.learners import Fitted, HeldOut, Predicted, as_predicted
from advisor_training.rows import Names, Rows
from advisor_training.train import TrainingSet, make_training_set


def solo_points(jobs: Iterable[MadeUpJob] = made_up.JOBS) -> list[SoloPoint]:
    """Each made-up job alone, with the power of the idle GPU."""
    idle_w = made_up.IDLE_W
    return [dataclasses.replace(p, idle_power_w=idle_w) for p in made_up.solo_points(jobs)]


def full_solo_points(jobs: Iterable[MadeUpJob] = made_up.JOBS) -> list[SoloPoint]:
    """The same with every counter that is a feature, and the power limit."""
    counters = dict.fromkeys(
        (
            "sm_clock_mhz", "job_cpu_percent", "sm_occupancy_percent", "fp32_active_percent",
            "fp64_active_percent", "tensor_active_percent", "integer_active_percent",
            "pcie_tx_mib_per_s", "pcie_rx_mib_per_s",
        ),
        10.0,
    )  # fmt: skip
    known = {**counters, "power_limit_w": made_up.POWER_LIMIT_W}
    return [dataclasses.replace(point, **known) for point in solo_points(jobs)]


@functools.cache
def training_set() -> TrainingSet:
    """Every made-up pair once; all tests of a process have the same one."""
    return make_training_set(made_up.pair_points(), solo_points())


def measured(rows: Rows, speed: float = 1.0, power: float = 1.0) -> Predicted:
    """A prediction that is so many times what was measured."""
    return as_predicted(speed * np.column_stack([rows.speed_a, rows.speed_b]), power * rows.power_w)


def as_measured(rows: Rows, speed: float = 1.0, power: float = 1.0) -> HeldOut:
    """Predictions of all rows, each job left out once, that are so many times what was measured."""
    row = np.concatenate([np.flatnonzero(rows.of(job)) for job in rows.jobs])
    left_out = np.concatenate([np.full(rows.of(job).sum(), job) for job in rows.jobs])
    return as_held_out(left_out, row, measured(rows.take(row), speed, power))


def as_held_out(left_out: Names, row: npt.NDArray[np.int64], found: Predicted) -> HeldOut:
    """Predictions of rows, with what was left out for each."""
    return HeldOut(
        left_out=left_out,
        row=row,
        tested=np.ones(len(row), dtype=bool),
        speed=found.speed,
        heads=found.heads,
    )


def spy(seen: list[tuple[Rows, Rows]]) -> Callable[[Rows], Fitted]:
    """A learner that knows everything and notes what it learned from and what it was asked."""

    def learn(rows: Rows) -> Fitted:
        def predict(asked: Rows) -> Predicted:
            seen.append((rows, asked))
            return measured(asked)

        return predict

    return learn
