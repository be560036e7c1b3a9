"""The power of an idle GPU, empty or with jobs open, for profiles that lack it.

It belongs to the GPU, not to the job.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping

from advisor.predict.profiles import IDLE, with_active_idle
from advisor_advice.site.known_profiles import ProfileSet


def with_idle_power(
    profile_set: ProfileSet, fill: Mapping[str, float]
) -> tuple[ProfileSet, tuple[str, ...]]:
    """The profiles with both idle powers each, and what is to be said of those without the first.

    `fill` is what the manifest of the model takes for columns that are missing.

    Returns:
        Where it was missing, the median of the other profiles, else the model's; unchanged where
        nobody knows.
    """
    profiles = profile_set.profiles
    lacking = tuple(dict.fromkeys(p.job for p in profiles if math.isnan(p.idle_power_w)))
    known = [p.idle_power_w for p in profiles if not math.isnan(p.idle_power_w)]
    assumed_w = statistics.median(known) if known else fill.get(IDLE)
    if lacking and assumed_w is not None:
        profiles = tuple(
            dataclasses.replace(p, idle_power_w=assumed_w) if p.job in lacking else p
            for p in profiles
        )
    profiles = tuple(with_active_idle(profile, fill) for profile in profiles)
    given = dataclasses.replace(profile_set, profiles=profiles)
    if not lacking or assumed_w is None:
        return given, ()
    source = "as in the other profiles" if known else "as in the profiles of the model"
    said = f"{IDLE} is missing in the profile of {', '.join(lacking)}: {assumed_w:.0f} W, {source}"
    return given, (said,)
