"""Why nothing keeps the limits of a recommendation, and what would help. Pure."""

import dataclasses
import math
from collections.abc import Sequence

from advisor.constraints import Limits, misses, misses_alone, most_power_w
from advisor.errors import NoSplitError
from advisor.profiles import Profile
from advisor.recommendation import Option, is_mirrored, nearest


def no_way(candidates: Sequence[Option], a: Profile, b: Profile, limits: Limits) -> NoSplitError:
    """The error of candidates that all break limits: what comes nearest, and what would help."""
    ceiling_w = limits.max_power_w
    if ceiling_w is not None and ceiling_w < a.idle_power_w:
        return NoSplitError(
            f"nothing runs within {ceiling_w:g} W",
            why=f"the {a.gpu_model} draws {a.idle_power_w:.4g} W without any job",
            fix=_enough(candidates, a, b, limits) or "allow more",
        )
    near = nearest(candidates, mirrored=is_mirrored(a, b))
    enough = _enough(candidates, a, b, limits)
    return NoSplitError(
        f"{a.job} and {b.job} cannot run on one {a.gpu_model} within these limits",
        why=f"nearest is {near.name}: {'; '.join(miss.text for miss in near.misses)}",
        fix=f"{enough or 'loosen that limit'}{_alone(a, b, limits)}",
    )


def _enough(candidates: Sequence[Option], a: Profile, b: Profile, limits: Limits) -> str | None:
    """The lowest ceiling of power at which something keeps all other limits; None: it is not it."""
    if limits.max_power_w is None:
        return None
    free = dataclasses.replace(limits, max_power_w=None)
    kept = [o for o in candidates if not misses(o.prediction, a, b, free)]
    if not kept:
        return None
    least = min(kept, key=lambda option: most_power_w(option.prediction, a, b))
    what = "one after the other" if least.prediction.way == "exclusive" else least.name
    # Rounded up, so that it is enough.
    return f"allow {math.ceil(most_power_w(least.prediction, a, b))} W, which {what} needs"


def _alone(a: Profile, b: Profile, limits: Limits) -> str:
    """Whether a GPU for each job would keep the limits."""
    alone = (*misses_alone(a, limits), *misses_alone(b, limits))
    if not alone:
        return ", or give each job a GPU of its own"
    return f"; a GPU for each is no help: {max(alone, key=lambda miss: miss.by).text}"
