"""Which jobs compute in bursts: for a while all of the GPU, and between that nothing.

Such as a training that waits for its input, or a notebook whose user thinks. Their means say that
they leave most of the GPU, and whoever needs it in a burst waits all the same.
"""

import math

from advisor.core.records import SoloPoint

BUSY_PERCENT = 60.0
"""Of the time at most; who computes for longer leaves gaps between kernels, not between bursts."""

WHOLE_GPU = 0.7
"""SM activity while it is busy, at least: 0.74 to 0.93 for notebooks and what waits for input, 0.15
to 0.60 for jobs of small kernels (data/advisor_data/bundled/set_references.jsonl)."""

NOISE = 0.095
"""Standard error of the mean power over 1 s, for each 1, where GPU busy was not read: 0.1 to 0.2 in
the median of those in bursts, below 0.09 of all others."""


def computes_in_bursts(point: SoloPoint) -> bool:
    """Whether a window on the whole GPU shows it; of a server never: its bursts are requests."""
    if point.offered_rate is not None:
        return False
    if point.gpu_busy_percent is not None and point.sm_active_percent is not None:
        is_whole = point.sm_active_percent >= WHOLE_GPU * point.gpu_busy_percent
        return is_whole and point.gpu_busy_percent < BUSY_PERCENT
    if not point.power_w or point.power_stderr_w is None:
        return False
    return point.power_stderr_w / point.power_w * math.sqrt(point.window_s) > NOISE
