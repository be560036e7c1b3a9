"""What stands in for numbers that a profile lacks."""

import functools
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats, Profile

IDLE = "idle_power_w"
"""What a profile has of the GPU, and may lack like a column."""

ACTIVE_IDLE_ABOVE = "active_idle_above_w"
"""By how much active idle power is above idle power, for profiles that lack it; of a GPU model of
which that is known, its name is behind it: `active_idle_above_of`."""


def active_idle_above_of(gpu_model: str) -> str:
    """The name under which `fill` has it for a GPU model."""
    return f"{ACTIVE_IDLE_ABOVE} on {gpu_model}"


def with_active_idle(profile: Profile, fill: Mapping[str, float]) -> Profile:
    """The profile with an active idle power: what its GPU model draws above idle, else what all do.

    The same one where it has its own, or where nobody knows.
    """
    above_w = fill.get(active_idle_above_of(profile.gpu_model), fill.get(ACTIVE_IDLE_ABOVE))
    if above_w is None or not math.isnan(profile.active_idle_power_w):
        return profile
    return _above_idle(profile, above_w)


def filled(profile: Profile, fill: Mapping[str, float]) -> Profile:
    """The profile without gaps: it has what it lacks at some shares from its own nearest ones.

    `missing` still tells what was not measured at all; it gets what the column is usually like.

    Raises:
        InputError: `fill` lacks a column that is missing.
    """
    if math.isnan(profile.idle_power_w) and IDLE in fill:
        profile = replace(profile, idle_power_w=fill[IDLE])
    profile = with_active_idle(profile, fill)
    # All columns at once: most profiles are whole, and a prediction asks twice.
    if not np.isnan(np.array(list(profile.values.values()))).any():
        return profile
    if unknown := [name for name in profile.missing if name not in fill]:
        raise InputError(
            f"the profile of {profile.job} lacks {', '.join(unknown)}",
            why="nothing is known that could stand in for it",
            fix="measure it with counters that are available: advisor doctor",
        )
    usual = {name: np.full_like(profile.shares, fill[name]) for name in profile.missing}
    measured = {n: v for n, v in profile.values.items() if n not in usual}
    known = {n: _without_gaps(profile.shares, v) for n, v in measured.items()}
    return replace(profile, values={n: (usual | known)[n] for n in profile.values})


@functools.lru_cache(maxsize=1024)  # the same profile stays the same, so that its features do
def _above_idle(profile: Profile, above_w: float) -> Profile:
    return replace(profile, active_idle_power_w=profile.idle_power_w + above_w)


def _without_gaps(shares: Floats, values: Floats) -> Floats:
    """Values with the gaps between and beyond known ones filled from their neighbours."""
    known = ~np.isnan(values)
    return np.interp(shares, shares[known], values[known])
