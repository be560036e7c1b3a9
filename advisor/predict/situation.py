"""What jobs are beside each other: how sure a prediction can be hangs on it. Pure.

Few kinds that a profile tells, whatever is predicted: a width that hung on the prediction would
change where the prediction hardly does.
"""

from collections.abc import Collection
from typing import Literal, TypeAlias

from advisor.core.flags import CPU_BOUND
from advisor.core.gpu import WHOLE
from advisor.predict.profiles import Profile

JobKind: TypeAlias = Literal["server", "launch-bound", "filling"]

LOW_SHARE_PERCENT = 35.0
"""Below, a job of `BY_SHARE` is harder to predict: how its rate falls there differs most."""

LEAST_ACTIVE_PERCENT = 50.0
"""A job whose SMs are active less alone on the whole GPU is launch-bound."""

BY_SHARE = ("launch-bound", "filling beside filling")
"""Situations of a job in which it matters how large its share is."""


def is_launch_bound(profile: Profile) -> bool:
    """Whether the job keeps the GPU waiting alone on all of it.

    The kind `launch` of docs/colocate.md: flagged `cpu-bound`, or SMs active under half the time.
    """
    active = float(profile.values["sm_active_percent"][-1])
    return CPU_BOUND in profile.flags or active < LEAST_ACTIVE_PERCENT


def kind_of(profile: Profile) -> JobKind:
    """What a job is: one with a fixed demand, one that waits for its CPU core, or neither."""
    if profile.serving is not None and profile.serving.offered_rate is not None:
        return "server"
    return "launch-bound" if is_launch_bound(profile) else "filling"


def of_job(own: str, others: Collection[str], share_percent: float, place: str) -> str:
    """The situation of a job beside others, at a share of a place such as "split"."""
    if share_percent == WHOLE:  # a server without limits takes what it needs, as one that fills
        others = ["filling" if kind == "server" else kind for kind in others]
    situation = own if own != "filling" else f"filling beside {_hardest(others)}"
    if situation in BY_SHARE and share_percent < LOW_SHARE_PERCENT:
        return f"{place}, {situation}, below {LOW_SHARE_PERCENT:g} %"
    return f"{place}, {situation}"


def of_pair(kinds: Collection[str], place: str) -> str:
    """The situation of jobs together."""
    for kind in ("server", "launch-bound"):
        if kind in kinds:
            return f"{place}, with a {kind}"
    return f"{place}, both fill"


def _hardest(kinds: Collection[str]) -> str:
    """Of the neighbours the one that takes most."""
    return next(kind for kind in ("filling", "server", "launch-bound") if kind in kinds)
