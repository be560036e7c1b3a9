"""Choices by workload and by what the jobs use of the GPU, as figures 3 and 4 of the paper."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from advisor.predict.profiles import is_launch_bound
from advisor_training.dataset.data import Data
from advisor_training.dataset.pairs import MeasuredPair
from advisor_training.dataset.solo import Classes
from advisor_training.evaluation.choices import Choice
from advisor_training.evaluation.errors import Error, compare, error
from advisor_training.learn.held_out import HeldOut

CLASS_NAMES = {
    "HH": "high compute and high memory",
    "HL": "high compute and low memory",
    "LH": "low compute and high memory",
    "LL": "low compute and low memory",
}
"""Classes in the order in which a group names them."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Mean fractions of the oracle over some pairs, and of 50/50 in the same pairs.

    Attributes:
        gain_percent: Of the first mean over the second, as the paper labels its bars; None over 0.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """Pairs of two classes of jobs.

    Attributes:
        classes: Compute, then memory, high or low, of each job; the heavier one first.
    """

    classes: tuple[str, str]
    bars: Mapping[str, Bar]


def by_job(
    data: Data, held_out: HeldOut, choices: Mapping[str, Sequence[Choice]]
) -> tuple[JobFigures, ...]:
    """One entry for each job that was left out, the one with the busiest SMs first."""
    jobs = [_job(data, held_out, key, found) for key, found in bars_by_job(data, choices).items()]
    return tuple(sorted(jobs, key=lambda job: (-job.sm_active_percent, job.job)))


def bars_by_job(
    data: Data, choices: Mapping[str, Sequence[Choice]]
) -> dict[tuple[str, str], dict[str, Bar]]:
    """Bars by (job that was left out, GPU model) and by objective."""
    return _bars(choices, lambda c: (c.left_out, data.measurements[c.number].gpu_model))


def by_group(data: Data, choices: Mapping[str, Sequence[Choice]]) -> tuple[GroupFigures, ...]:
    """One entry for each two classes that stand next to each other, the heaviest first."""
    group_of_pair = {
        (*pair.jobs, pair.gpu_model): group_of(pair, data.classes) for pair in data.pairs
    }
    bars = _bars(choices, lambda c: group_of_pair[*c.jobs, data.measurements[c.number].gpu_model])
    known = {classes: found for classes, found in bars.items() if classes is not None}
    return tuple(
        GroupFigures(classes=classes, bars=known[classes])
        for classes in sorted(known, key=lambda c: [*map(_rank, c)])
    )


def group_of(pair: MeasuredPair, classes: Classes) -> tuple[str, str] | None:
    """Classes of a pair's jobs, the heavier first; None where one is not known."""
    found = [classes.get((pair.gpu_model, job)) for job in pair.jobs]
    known = sorted((code for code in found if code), key=_rank)
    return (known[0], known[1]) if len(known) == 2 else None


def _rank(code: str) -> int:
    return [*CLASS_NAMES].index(code)


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


def _bars(
    choices: Mapping[str, Sequence[Choice]], key: Callable[[Choice], _Key]
) -> dict[_Key, dict[str, Bar]]:
    groups: dict[_Key, dict[str, list[Choice]]] = {}
    for objective, found in choices.items():
        for choice in found:
            groups.setdefault(key(choice), {}).setdefault(objective, []).append(choice)
    return {k: {o: bar_of(its) for o, its in group.items()} for k, group in groups.items()}


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
