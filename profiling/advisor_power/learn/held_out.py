"""What methods expect of points whose group took no part in fitting.

Power of a point is expected as it would be for somebody who knows its data alone: at the rate and
the clock that other points of the same card, type, shape and SMs had. Where power limit or heat
held the clock back, how much power was left is taken as measured, and the speed is expected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.wire.power import InputPoint
from advisor_power.learn.model import FittedPower, Points, PowerLearner
from advisor_power.model.pace import Known, held_to, known_of

OnGroup = Callable[[str, int, int], None]
"""Called after each group with its name, how many are done, and of how many."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutInputs:
    """Points in the order of their groups, and what was expected of each."""

    points: tuple[InputPoint, ...]
    as_run_w: Floats
    """At the rate and the clock that were measured."""
    power_w: Floats
    """At those that its data let expect, at most the power limit."""
    flop_per_s: Floats
    """Expected."""


def expected(fitted: FittedPower, known: Known, points: Points) -> HeldOutInputs:
    """What is expected of points by their data alone.

    Raises:
        InputError: their card or type was not learned.
    """
    free = [_as_expected(p, known) for p in points]
    limits_w = np.array([p.power_w if p.held_back else known.limit_w(p.gpu_model) for p in points])
    run = held_to(fitted, free, limits_w)
    rates = np.array([p.flop_per_s for p in run])
    return HeldOutInputs(tuple(points), fitted(points), fitted(run), rates)


def group_left_out(
    points: Points, learners: Mapping[str, PowerLearner], progress: OnGroup | None = None
) -> dict[str, HeldOutInputs]:
    """Each method, with each group of points left out in its turn.

    Raises:
        InputError: all points are of one group, or too few of a type are in the others.
    """
    groups = sorted({p.group for p in points})
    if len(groups) < 2:
        raise InputError("all points are of one group", fix="measure other sweeps, too")
    found: dict[str, list[HeldOutInputs]] = {name: [] for name in learners}
    for done, group in enumerate(groups, 1):
        tested = [p for p in points if p.group == group]
        learned = [p for p in points if p.group != group]
        known = known_of(learned)
        for name, learner in learners.items():
            found[name].append(expected(learner(learned), known, tested))
        if progress is not None:
            progress(group, done, len(groups))
    return {name: _joined(parts) for name, parts in found.items()}


def _as_expected(point: InputPoint, known: Known) -> InputPoint:
    product, _ = known.product(
        point.dtype, point.shape, point.features, units=point.units, gpu_model=point.gpu_model
    )
    return replace(
        point,
        idle_w=product.idle_w,
        flop_per_s=product.flop_per_s,
        clock_mhz=product.clock_mhz,
    )


def _joined(parts: Sequence[HeldOutInputs]) -> HeldOutInputs:
    return HeldOutInputs(
        tuple(p for part in parts for p in part.points),
        np.concatenate([part.as_run_w for part in parts]),
        np.concatenate([part.power_w for part in parts]),
        np.concatenate([part.flop_per_s for part in parts]),
    )
