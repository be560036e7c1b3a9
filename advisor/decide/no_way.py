"""Why jobs are not to share a GPU, or nothing keeps the limits, and what would help. Pure."""

import dataclasses
import math
from collections.abc import Sequence

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.wording import counted
from advisor.decide.constraints import most_power_w, violations, violations_alone
from advisor.decide.limits import Limits, decisive_speed, floor, is_served
from advisor.decide.recommendation import RatedSplit, Request, nearest
from advisor.errors import NoSplitError
from advisor.predict.predictions import are_mirrored
from advisor.predict.profiles import Profile


def no_way(
    candidates: Sequence[RatedSplit], profiles: Sequence[Profile], limits: Limits
) -> NoSplitError:
    """The error of candidates that all break limits: what comes nearest, and what would help."""
    ceiling_w, gpu_model = limits.max_power_w, profiles[0].gpu_model
    enough = _enough(candidates, profiles, limits)
    if ceiling_w is not None and ceiling_w < profiles[0].idle_power_w:
        return NoSplitError(
            f"nothing runs within {ceiling_w:g} W",
            why=f"the {gpu_model} draws {profiles[0].idle_power_w:.4g} W without any job",
            fix=enough or "allow more",
        )
    near = nearest(candidates, mirrored=are_mirrored(profiles))
    return NoSplitError(
        f"{_names(profiles)} cannot run on one {gpu_model} within these limits",
        why=f"nearest is {near.name}: {'; '.join(dict.fromkeys(v.text for v in near.violations))}",
        fix=f"{enough or allowing(near, profiles, limits)}{_alone(profiles, limits)}",
    )


def allowing(option: RatedSplit, profiles: Sequence[Profile], limits: Limits) -> str:
    """The options with which it would keep the limits, where speeds are all that it misses."""
    speeds = [
        f"--min-speed {profile.job}={math.floor(100 * part.speed.low) / 100:g}"
        for profile, part in zip(profiles, option.prediction.parts, strict=True)
        # A server's demand is no limit that a lower number loosens.
        if not is_served(profile)
        and decisive_speed(part.speed, profile, limits) < floor(profile, limits)
    ]
    if len(speeds) < len(option.violations):
        return "loosen that limit"
    return f"allow it: {' '.join(dict.fromkeys(speeds))}"


def saves_nothing(choice: RatedSplit, profiles: Sequence[Profile], request: Request) -> bool:
    """Whether sharing takes more energy for the same work than a GPU for each job.

    Jobs that can wait run one after the other then; one that answers requests cannot.
    """
    if request.objective != DEFAULT_OBJECTIVE or not any(map(is_served, profiles)):
        return False
    return choice.prediction.result.energy_saved < 0


def no_gain(choice: RatedSplit, profiles: Sequence[Profile]) -> NoSplitError:
    """The error where the best way of sharing takes more energy than a GPU for each job."""
    more = f"{-100 * choice.prediction.result.energy_saved:.2g} % more energy"
    return NoSplitError(
        f"{_names(profiles)} are better off apart than on one {profiles[0].gpu_model}",
        why=f"{choice.name} takes {more} for the same work than a GPU for each",
        fix="give each job a GPU of its own, or ask for time: --objective throughput",
    )


def _enough(
    candidates: Sequence[RatedSplit], profiles: Sequence[Profile], limits: Limits
) -> str | None:
    """The lowest ceiling of power at which something keeps all other limits; None: it is not it."""
    if limits.max_power_w is None:
        return None
    free = dataclasses.replace(limits, max_power_w=None)
    kept = [o for o in candidates if not violations(o.prediction, profiles, free)]
    if not kept:
        return None
    least = min(kept, key=lambda option: most_power_w(option.prediction, profiles))
    what = "one after the other" if least.prediction.split.sharing == "exclusive" else least.name
    # Rounded up, so that it is enough.
    return f"allow {math.ceil(most_power_w(least.prediction, profiles))} W, which {what} needs"


def _alone(profiles: Sequence[Profile], limits: Limits) -> str:
    """Whether a GPU for each job would keep the limits."""
    alone = [violation for profile in profiles for violation in violations_alone(profile, limits)]
    if not alone:
        return ", or give each job a GPU of its own"
    return f"; a GPU for each does not help: {max(alone, key=lambda violation: violation.by).text}"


def _names(profiles: Sequence[Profile]) -> str:
    return counted(profile.job for profile in profiles)
