"""Profiles to what the models see of jobs at a split.

Everything is an array over splits. The relative speed of a job is predicted from features seen
from that job: `speed_features(own, others)`, so that swapping two jobs swaps the answer exactly.
Power features do not change when jobs are swapped.

Names beginning with `own` are the job's readings alone at the share of the split, those with
`other` the largest of its neighbours', and those with `sum` of all jobs together. The nine features
of "Energy-efficient GPU SM allocation" (section 3.1, table 1) are among them; the others say how
much of what the GPU has the jobs want together.

What is learned on one GPU model is to hold on another one, so watts are in parts of the power
limit, clocks in parts of the highest one in the profile, and busy units, bandwidth and occupancy
in percent of what the GPU has. Traffic over PCIe is absolute: the link is the host's as much.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import WHOLE
from advisor.predict.profiles import COLUMNS, Floats, Profile
from advisor.predict.sides import (
    PAIRED,
    Side,
    added,
    demanded_power_w,
    full_power_w,
    largest,
    physical_power_w,
    prior_kept,
    side,
    summed,
    supply,
)

Float32s: TypeAlias = npt.NDArray[np.float32]
"""What the trees see; they split on single precision in training and in serving."""

STEP = 2.0**-16
"""What trees see and learn is a multiple of this. Processors differ in the last bit of a logarithm,
and trees would branch elsewhere for it; no instrument tells so small a step of any feature."""


def speed_features(own: Side, others: Sequence[Side]) -> dict[str, Floats]:
    """What a model sees of `own` next to `others`; each shape (n,), in a fixed order."""
    sides = (own, *others)
    return {
        **{f"own_{name}": values for name, values in own.alone.items()},
        **{f"other_{name}": largest(s.alone[name] for s in others) for name in own.alone},
        "own_share_percent": own.shares,
        "shares_sum_percent": added(s.shares for s in sides),
        **own.shape,
        **_together(own, others),
        **supply(sides),
    }


def power_features(sides: Sequence[Side]) -> dict[str, Floats]:
    """What a model sees of the power of jobs; each shape (n,), the same in any order of two."""
    shares = [s.shares for s in sides]
    found = {
        "relative_physical_power": physical_power_w(sides) / full_power_w(sides),
        "relative_demanded_power": demanded_power_w(sides) / full_power_w(sides),
        "shares_sum_percent": added(shares),
        "shares_gap_percent": _gap(shares),
        "relative_rates": added(s.alone["relative_rate"] for s in sides),
        "prior_kept": prior_kept(sides),
    }
    paired = [s.paired for s in sides]
    for name, total, gap in zip(PAIRED, added(paired), _gap(paired), strict=True):
        found[f"sum_{name}"] = total
        found[f"gap_{name}"] = gap
    return found


@functools.cache
def feature_names_of(features: Callable[[Sequence[Side]], Mapping[str, Floats]]) -> tuple[str, ...]:
    """Names of the features that a function makes, in the order of the columns."""
    ones = np.ones(2)
    profile = Profile(
        job="",
        gpu_model="",
        rate_unit="",
        idle_power_w=0.0,
        shares=np.array([WHOLE / 2, WHOLE]),
        values=dict.fromkeys(COLUMNS, ones),
    )
    any_side = side(profile, profile.shares)
    return tuple(features((any_side, any_side)))


def matrix(features: Mapping[str, Floats]) -> Float32s:
    """Features as columns, `rounded`; shape (n, features), in the order of the names."""
    columns = rounded(np.array(list(features.values())))
    return np.ascontiguousarray(columns.T, dtype=np.float32)


def rounded(values: Floats) -> Floats:
    """To multiples of `STEP`: the same on every processor."""
    return np.rint(values / STEP) * STEP


def _together(own: Side, others: Sequence[Side]) -> dict[str, Floats]:
    """What all want of the GPU."""
    sides = (own, *others)
    wanted = (
        *("dram_active_percent", "memory_busy_percent", "sm_active_percent"),
        *("tensor_active_percent", "pcie_rx_mib_per_s"),
    )
    sums = {f"sum_{name}": summed(sides, name) for name in wanted}
    dram = np.maximum(sums["sum_dram_active_percent"], 1.0)
    return {
        **sums,
        "own_part_of_dram": own.readings["dram_active_percent"] / dram,
        "relative_demanded_power": demanded_power_w(sides) / full_power_w(sides),
        "other_resident_warps_percent": largest(
            s.readings["sm_active_percent"] * s.readings["sm_occupancy_percent"] / 100
            for s in others
        ),
    }


def _gap(values: Sequence[Floats]) -> Floats:
    """Largest less smallest."""
    return largest(values) - functools.reduce(np.minimum, values)
