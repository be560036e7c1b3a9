"""Why jobs are not to share a GPU, or nothing keeps the limits, and what would help. Pure."""

import dataclasses
import math
from collections.abc import Sequence

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.decide.constraints import Limits, is_served, misses, misses_alone, most_power_w
from advisor.decide.recommendation import Option, Request, is_mirrored, nearest
from advisor.errors import NoSplitError
from advisor.predict.profiles import Profile


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


def saves_nothing(choice: Option, a: Profile, b: Profile, request: Request) -> bool:
    """Whether sharing takes more energy for the same work than a GPU for each job.

    Jobs that can wait run one after the other then; one that answers requests cannot.
    """
    asked_for_energy = request.objective == DEFAULT_OBJECTIVE
    served = is_served(a) or is_served(b)
    return asked_for_energy and served and choice.prediction.result.energy_saved < 0


def no_gain(choice: Option, a: Profile, b: Profile) -> NoSplitError:
    """The error where the best way of sharing takes more energy than a GPU for each job."""
    more = f"{-100 * choice.prediction.result.energy_saved:.2g} % more energy"
    return NoSplitError(
        f"{a.job} and {b.job} are better off apart than on one {a.gpu_model}",
        why=f"{choice.name} takes {more} for the same work than a GPU for each",
        fix="give each job a GPU of its own, or ask for time: --objective throughput",
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
