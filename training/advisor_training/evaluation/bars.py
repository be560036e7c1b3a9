"""Choices and errors by the job that was left out."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.predict.situation import is_launch_bound
from advisor_training.dataset.data import Data
from advisor_training.evaluation.choices import Choice
from advisor_training.evaluation.errors import Error, compare, error
from advisor_training.learn.held_out import HeldOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Mean fractions of the oracle over some pairs, and of 50/50 in the same pairs.

    Attributes:
        gain_percent: Gain of the first mean over the second; None where the second is 0.
    """

    choices: int
    fraction_percent: float
    equal_percent: float
    gain_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """One job that was left out: all pairs with it.

    Attributes:
        own: Error of the job's own relative speed; `beside` of the jobs next to it.
    """

    job: str
    gpu_model: str
    launch_bound: bool
    sm_active_percent: float
    bars: Mapping[str, Bar]
    own: Error | None
    beside: Error | None
    power: Error | None


def by_job(
    data: Data, held_out: HeldOut, choices: Mapping[str, Sequence[Choice]]
) -> tuple[JobFigures, ...]:
    """One entry for each job that was left out and GPU model, the busiest SMs first."""
    groups: dict[tuple[str, str], dict[str, list[Choice]]] = {}
    for objective, found in choices.items():
        for choice in found:
            key = choice.left_out, data.measurements[choice.number].gpu_model
            groups.setdefault(key, {}).setdefault(objective, []).append(choice)
    jobs = [
        _job(data, held_out, key, {name: bar_of(its) for name, its in group.items()})
        for key, group in groups.items()
    ]
    return tuple(sorted(jobs, key=lambda job: (-job.sm_active_percent, job.job)))


def bar_of(choices: Sequence[Choice]) -> Bar:
    """The mean of choices; at least one."""
    ours = statistics.mean(choice.fraction for choice in choices)
    # A pair in which 50/50 is worth nothing has no ratio to it, and 50/50 is 0 of its oracle.
    equal = statistics.mean(
        choice.fraction / choice.over["equal"] if choice.over.get("equal") else 0.0
        for choice in choices
    )
    return Bar(
        choices=len(choices),
        fraction_percent=100 * ours,
        equal_percent=100 * equal,
        gain_percent=100 * (ours / equal - 1) if equal > 0 else None,
    )


def _job(
    data: Data, held_out: HeldOut, key: tuple[str, str], bars: Mapping[str, Bar]
) -> JobFigures:
    rows, profile = data.rows, data.profiles[key]
    nine = (rows.kind == "nine") & (rows.gpu_model == key[1])
    its = (held_out.left_out == key[0]) & nine[held_out.row]
    found, tested = compare(data, held_out, its), rows.take(held_out.row[its])
    expected, measured = (np.concatenate(v) for v in (found.speeds, found.measured_speeds))
    own = np.concatenate([tested.job_a == key[0], tested.job_b == key[0]])
    return JobFigures(
        job=key[0],
        gpu_model=key[1],
        launch_bound=is_launch_bound(profile),
        sm_active_percent=float(profile.values["sm_active_percent"][-1]),
        bars=bars,
        own=error(expected[own], measured[own]),
        beside=error(expected[~own], measured[~own]),
        power=error(found.power_w, found.measured_power_w),
    )
