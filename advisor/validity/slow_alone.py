"""Jobs that were slow when they were alone: what they are compared with then is too low. Pure.

Sharing a GPU, or having fewer of its SMs, speeds nothing up. A job that was faster so was slowed
down by its host when it had the GPU to itself, and speeds relative to that count work nobody did.
"""

from collections.abc import Iterable

from advisor.core.flags import DOUBTFUL
from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint

LARGEST_SLOWDOWN = 0.12
"""How much slower than in its fastest run a job alone may be without being called disturbed.

Launch-bound jobs measure a core of the CPU, and other tenants of the host slow that down unseen:
docs/measurements has the same job alone at 35 % to 100 % of its rate while the reported CPU steal
was 0. Two undisturbed runs of such a job differ by up to 11.7 % (docs/measurements, "Does a profile
repeat?").
"""

FASTEST = 1 / (1 - LARGEST_SLOWDOWN)
"""Relative speed above which a job did not run faster than alone: it was slow when it was alone."""


def is_slow_alone(point: SoloPoint, sweep: Iterable[SoloPoint]) -> bool:
    """Whether a job had less than its usual rate on the whole GPU: a smaller share was faster.

    Points of the sweep that failed a cross-check say nothing.
    """
    if point.share_percent != WHOLE or not point.rate:
        return False
    trusted = (other.rate for other in sweep if DOUBTFUL.isdisjoint(other.flags))
    return max(trusted, default=0.0) > FASTEST * point.rate
