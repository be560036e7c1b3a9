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
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import WHOLE
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.profiles import ACTIVITY, COLUMNS, Floats, Profile, relative_capacity

# Readings that are features as they are.
_AT_SHARE = (*ACTIVITY, "relative_sm_clock", "job_cpu_percent")

# Readings of which a pair has the sum and the gap.
_PAIRED = (*_AT_SHARE, "pcie_tx_mib_per_s", "pcie_rx_mib_per_s", "relative_power")

FULL_BANDWIDTH_PERCENT = 93.0
"""`dram_active_percent` of a copy that waits for nothing but memory: 92 to 94 on H200 (triad,
transpose and reduction at 100 %, data/advisor_data/bundled)."""


MEASURED_ON = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""The GPU models whose bundled sets and pairs constants are fitted to."""

CORNER = 8.0
"""How sharply jobs slow down that have SMs of their own, where they want all of the memory."""


def crowded(sm: Floats, dram: Floats, corner: float | Floats = CORNER) -> Floats:
    """Part of its speed that each job keeps of what all want together; shape (ways,)."""
    wanted = np.maximum(sm.sum(axis=0), dram.sum(axis=0))
    return (1 + wanted**corner) ** (-1 / corner)


FIXED, EXPONENT = 0.35, 0.25
"""Of the form that `advisor.predict.power_limit` explains."""

# Of the highest: the lowest that a bundled window at the limit had is 0.68.
_LEAST_CLOCK = 0.5


def speed_left(
    limit_w: Floats | float, wanted_w: Floats | float, profiled_limit_w: float
) -> Floats:
    """Part of the speed that a limit leaves work which draws `wanted_w` without it."""
    fixed_w = FIXED * profiled_limit_w
    over_w = np.maximum(wanted_w, limit_w) - fixed_w
    left: Floats = (np.maximum(limit_w - fixed_w, 1.0) / np.maximum(over_w, 1.0)) ** EXPONENT
    return left


def without_limit_w(limit_w: float, power_w: Floats | float, clock: Floats | float) -> Floats:
    """What a job would draw without its limit, by its clock there, for each 1 of the highest."""
    kept = np.clip(clock, _LEAST_CLOCK, 1.0)
    wanted_w = limit_w * (FIXED + (1 - FIXED) / kept ** (1 / EXPONENT))
    return np.where((power_w >= NEAR_LIMIT * limit_w) & (clock < 1), wanted_w, power_w)


@dataclass(frozen=True, eq=False)
class Side:
    """One of the jobs at its shares, alone; what its neighbour does not change.

    Attributes:
        shares: Percent; shape (n,).
        readings: Each column at the shares, `relative_sm_clock`, which is 1 at the highest clock
            of the profile, and `relative_power`, which is 1 at `full_power_w`; shape (n,).
    """

    profile: Profile
    shares: Floats
    readings: Mapping[str, Floats]

    @functools.cached_property
    def capacity(self) -> Floats:
        """What it could do if there were always something to do, for each 1 of its whole rate."""
        return relative_capacity(self.profile, self.shares)

    @functools.cached_property
    def alone(self) -> Mapping[str, Floats]:
        """Features that a job has as `own` and as `other`, `relative_rate` among them; (n,) each.

        That is its rate for each one on the whole GPU.
        """
        profile, shares, readings = self.profile, self.shares, self.readings
        idle = profile.idle_power_w / _full_power_w(profile)
        return {
            **{name: readings[name] for name in _AT_SHARE},
            "log_pcie_tx": np.log1p(readings["pcie_tx_mib_per_s"]),
            "log_pcie_rx": np.log1p(readings["pcie_rx_mib_per_s"]),
            "relative_dynamic_power": readings["relative_power"] - idle,
            "relative_rate": readings["rate"] / profile.whole_gpu_rate,
            "sm_filled": readings["sm_active_percent"] / shares,
            **{
                f"whole_{name}": np.full_like(shares, profile.values[name][-1])
                for name in ("sm_active_percent", "dram_active_percent")
            },
        }

    @functools.cached_property
    def shape(self) -> Mapping[str, Floats]:
        """How the rate answers to the share: around it, over all shares, and in bandwidth; (n,)."""
        profile, shares, readings = self.profile, self.shares, self.readings
        low = np.maximum(shares - 10, profile.shares[0])
        high = np.minimum(shares + 10, WHOLE)
        rates = profile.values["rate"]
        step = np.log(
            np.interp(high, profile.shares, rates) / np.interp(low, profile.shares, rates)
        )
        whole = np.log(rates[-1] / rates[0]) / np.log(WHOLE / profile.shares[0])
        dram = max(float(profile.values["dram_active_percent"][-1]), 0.5)
        return {
            "own_local_sensitivity": step / np.log(high / low),
            "own_sensitivity": np.full_like(shares, whole),
            "own_bandwidth_saturation": readings["dram_active_percent"] / dram,
        }

    @functools.cached_property
    def paired(self) -> Floats:
        """Those of the readings that are `_PAIRED`; shape (readings, n)."""
        return np.array([self.readings[name] for name in _PAIRED])


def side(profile: Profile, shares: Sequence[float] | Floats) -> Side:
    """A job at its shares.

    Raises:
        InputError: a share lies outside the profile.
    """
    points = np.asarray(shares, dtype=np.float64)
    readings = profile.at(points)
    # A clock that no profile of the training data had is filled in as 0.
    highest_mhz = max(float(profile.values["sm_clock_mhz"].max()), 1.0)
    readings["relative_sm_clock"] = readings["sm_clock_mhz"] / highest_mhz
    readings["relative_power"] = readings["power_w"] / _full_power_w(profile)
    return Side(profile, points, readings)


def power_limit_w(sides: Sequence[Side]) -> float:
    """The lowest of the known limits; without one, no limit."""
    limits = [s.profile.power_limit_w for s in sides if s.profile.power_limit_w is not None]
    return min(limits, default=float("inf"))


def full_power_w(sides: Sequence[Side]) -> float:
    """What watts are parts of: the limit; where none is known, the most that a job drew alone."""
    limit = power_limit_w(sides)
    return limit if math.isfinite(limit) else max(_full_power_w(s.profile) for s in sides)


def _active_idle_power_w(sides: Sequence[Side]) -> float:
    """What the GPU draws before any job does work: the mean of the profiles.

    With jobs open its clocks are up, so it is more than the empty GPU draws; if unknown, it is that
    of the empty GPU.
    """
    idles_w = ((s.profile.active_idle_power_w, s.profile.idle_power_w) for s in sides)
    return sum(idle if math.isnan(active) else active for active, idle in idles_w) / len(sides)


def demanded_power_w(sides: Sequence[Side]) -> Floats:
    """What all jobs would draw together if nothing held them back; shape (n,)."""
    return _demanded_power_w(tuple(sides))


def physical_power_w(sides: Sequence[Side]) -> Floats:
    """Power without learning: all powers with one active idle power, clipped at the limit; (n,)."""
    return np.minimum(demanded_power_w(sides), power_limit_w(sides))


def _bandwidth_factor(sides: Sequence[Side]) -> Floats:
    """Part of the memory bandwidth that all want together which there is, at most 1; (n,)."""
    demand = _summed(sides, "dram_active_percent")
    return np.minimum(1.0, FULL_BANDWIDTH_PERCENT / np.maximum(demand, 1.0))


def _power_factor(sides: Sequence[Side]) -> Floats:
    """Part of the speed that the power limit leaves, at most 1; (n,).

    The root of the dynamic power that there is, a prior that stands for what else two jobs take
    from each other, too: with `speed_left` it is 9.4 points off for 8.8, and trees that
    correct it are as far off as before, 4.2.
    """
    idle = _active_idle_power_w(sides)
    # Not 1 W: speeds are to be the same where all watts of a card are larger by one factor.
    dynamic = np.maximum(demanded_power_w(sides) - idle, 1e-3 * full_power_w(sides))
    return np.sqrt(np.minimum(1.0, (power_limit_w(sides) - idle) / dynamic))


def prior_kept(sides: Sequence[Side]) -> Floats:
    """What a job keeps of its rate at the share, by supply of bandwidth and power alone; (n,)."""
    return _supply(tuple(sides))["prior_kept"]


def beside(sides: Sequence[Side], n: int) -> tuple[Side, ...]:
    """All sides but one: the neighbours of the job at that place."""
    return (*sides[:n], *sides[n + 1 :])


@functools.lru_cache(maxsize=16)
def _supply(sides: tuple[Side, ...]) -> dict[str, Floats]:
    """What the GPU has for all of them."""
    bandwidth, power = _bandwidth_factor(sides), _power_factor(sides)
    return {
        "bandwidth_factor": bandwidth,
        "power_factor": power,
        "prior_kept": np.fmin(bandwidth, power),
    }


def _summed(sides: Sequence[Side], name: str) -> Floats:
    """A reading of all sides together."""
    return np.add.reduce([s.readings[name] for s in sides])


@functools.lru_cache(maxsize=16)  # many features of one question are made from these two
def _demanded_power_w(sides: tuple[Side, ...]) -> Floats:
    return _summed(sides, "power_w") - (len(sides) - 1) * _active_idle_power_w(sides)


def _full_power_w(profile: Profile) -> float:
    return profile.power_limit_w or float(profile.values["power_w"].max())


Float32s: TypeAlias = npt.NDArray[np.float32]
"""What the trees see; they split on single precision in training and in serving."""

# What trees see and learn is a multiple of this. Processors differ in the last bit of a
# logarithm, and trees would branch elsewhere for it; no instrument tells so small a step of any
# feature.
_STEP = 2.0**-16


def speed_features(side_of_job: Side, others: Sequence[Side]) -> dict[str, Floats]:
    """What a model sees of `side_of_job` next to `others`; each shape (n,), in a fixed order."""
    sides = (side_of_job, *others)
    wanted = (
        *("dram_active_percent", "memory_busy_percent", "sm_active_percent"),
        *("tensor_active_percent", "pcie_rx_mib_per_s"),
    )
    sums = {f"sum_{name}": _summed(sides, name) for name in wanted}
    dram = np.maximum(sums["sum_dram_active_percent"], 1.0)
    return {
        **{f"own_{name}": values for name, values in side_of_job.alone.items()},
        **{
            f"other_{name}": np.maximum.reduce([s.alone[name] for s in others])
            for name in side_of_job.alone
        },
        "own_share_percent": side_of_job.shares,
        "shares_sum_percent": np.add.reduce([s.shares for s in sides]),
        **side_of_job.shape,
        **sums,
        "own_part_of_dram": side_of_job.readings["dram_active_percent"] / dram,
        "relative_demanded_power": demanded_power_w(sides) / full_power_w(sides),
        "other_resident_warps_percent": np.maximum.reduce(
            [
                s.readings["sm_active_percent"] * s.readings["sm_occupancy_percent"] / 100
                for s in others
            ]
        ),
        **_supply(sides),
    }


def power_features(sides: Sequence[Side]) -> dict[str, Floats]:
    """What a model sees of the power of jobs; each shape (n,), the same in any order of two."""
    shares = [s.shares for s in sides]
    features = {
        "relative_physical_power": physical_power_w(sides) / full_power_w(sides),
        "relative_demanded_power": demanded_power_w(sides) / full_power_w(sides),
        "shares_sum_percent": np.add.reduce(shares),
        "shares_gap_percent": np.ptp(shares, axis=0),
        "relative_rates": np.add.reduce([s.alone["relative_rate"] for s in sides]),
        "prior_kept": prior_kept(sides),
    }
    paired = [s.paired for s in sides]
    for name, total, gap in zip(
        _PAIRED, np.add.reduce(paired), np.ptp(paired, axis=0), strict=True
    ):
        features |= {f"sum_{name}": total, f"gap_{name}": gap}
    return features


@functools.cache
def feature_names_of(features: Callable[[Sequence[Side]], Mapping[str, Floats]]) -> tuple[str, ...]:
    """Names of the features that a function makes, in the order of the columns."""
    unit = np.ones(2)
    profile = Profile(
        job="",
        gpu_model="",
        rate_unit="",
        idle_power_w=0.0,
        shares=np.array([WHOLE / 2, WHOLE]),
        values=dict.fromkeys(COLUMNS, unit),
    )
    any_side = side(profile, profile.shares)
    return tuple(features((any_side, any_side)))


def matrix(features: Mapping[str, Floats]) -> Float32s:
    """Features as columns, `rounded`; shape (n, features), in the order of the names."""
    return np.ascontiguousarray(rounded(np.array(list(features.values()))).T, dtype=np.float32)


def rounded(values: Floats) -> Floats:
    """To multiples of `_STEP`: the same on every processor."""
    return np.rint(values / _STEP) * _STEP
