"""Kernels of a job, and what they are known from: a probe, or a launch beside a job that fills.

Imported where the base install measures, so without NumPy. A job that computes in bursts waits for
its input or for its user: its means say that it leaves most of the GPU, and a job that needs it in
such a burst waits all the same.
"""

import math
from dataclasses import dataclass
from typing import Literal

from advisor.core.records import SoloPoint

NOISE = 0.095
"""Standard error of the mean power over 1 s, for each 1, where GPU busy was not read: 0.1 to 0.2 in
the median of those in bursts, below 0.09 of all others."""


def computes_in_bursts(point: SoloPoint) -> bool:
    """Whether a window on the whole GPU shows it; of a server never: its bursts are requests."""
    if point.offered_rate is not None:
        return False
    if point.gpu_busy_percent is not None and point.sm_active_percent is not None:
        # SMs are active in 0.74 to 0.93 of the busy time of notebooks and what waits for input, in
        # 0.15 to 0.60 of jobs of small kernels (data/advisor_data/bundled/set_references.jsonl).
        is_whole = point.sm_active_percent >= 0.7 * point.gpu_busy_percent
        # A job that computes for longer leaves gaps between kernels, not between bursts.
        return is_whole and point.gpu_busy_percent < 60
    if not point.power_w or point.power_stderr_w is None:
        return False
    return point.power_stderr_w / point.power_w * math.sqrt(point.window_s) > NOISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """GPU kernels of a job: MPS without limits deals whole kernels to processes in turn.

    Attributes:
        per_unit: Kernels of one unit of progress; may be below 1.
        hold_s: Time for which one kernel keeps kernels of other processes off the GPU, s.
        source: How they are known: counted beside a probe of short kernels, by CUPTI as the job
            file declares, fitted to windows that the job shared, guessed from its profile, or in
            one of these ways on another GPU model.
    """

    per_unit: float
    hold_s: float
    source: Literal["probe", "counted", "fitted", "guessed", "elsewhere"]


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean and its standard error; `stderr` is None below two independent readings."""

    mean: float
    stderr: float | None

    @property
    def relative(self) -> float | None:
        """Standard error over mean; None where either is missing or the mean is 0."""
        return None if self.stderr is None or self.mean == 0 else abs(self.stderr / self.mean)


# Loss of speed beside a probe from which a job waited for it with each kernel, and for one that
# keeps the GPU busy so much of the time. A job with gaps hides part of what it waits in them.
_IN_STEP_LOSS, _FILLING_LOSS, _FILLING_PERCENT = 0.1, 0.02, 90.0


def kernels_beside(
    job: MeanEstimate,
    beside: MeanEstimate,
    probe: MeanEstimate,
    probe_beside: MeanEstimate,
    *,
    busy_percent: float | None = None,
    pauses: bool | None = False,
) -> dict[str, float]:
    """Kernels of a job, by rates of it and of a probe, alone and together; columns of a solo point.

    MPS without limits deals whole kernels in turn to processes that have work, so kernels of a unit
    are the rate of the probe over that of the job. A job that pauses after its work for each unit
    (a notebook) has n where its unit takes n kernels of the probe longer. A job with gaps that is
    hardly slower hid what it waited in them: its n lies between both values, anywhere.

    Args:
        job: Units/s alone.
        beside: The same beside the probe.
        probe: Kernels/s alone.
        probe_beside: The same beside the job.
        busy_percent: GPU busy while the job is alone; None: not read.
        pauses: Whether the job pauses; None: not known of a job that computes in bursts.
    """
    most = probe_beside.mean / beside.mean
    least = max(0.0, (1 / beside.mean - 1 / job.mean) * probe.mean)
    n, stderr = (most + least) / 2, abs(most - least) / math.sqrt(12)
    loss = _FILLING_LOSS if (busy_percent or 0.0) >= _FILLING_PERCENT else _IN_STEP_LOSS
    if pauses and least:
        n, stderr = (
            least,
            probe.mean
            * math.hypot((beside.relative or 0) / beside.mean, (job.relative or 0) / job.mean),
        )
    elif pauses is False and beside.mean <= (1 - loss) * job.mean:
        n, stderr = most, most * math.hypot(beside.relative or 0, probe_beside.relative or 0)
    longer_s = max(0.0, 1 / probe_beside.mean - 1 / probe.mean)
    return {
        "kernels_per_unit": n,
        "kernels_per_unit_stderr": stderr,
        # All kernels of a unit hold the probe off for most x longer_s, however many they are.
        "kernel_hold_s": longer_s * most / n,
        "kernel_hold_stderr_s": most
        / n
        * math.hypot(
            (probe_beside.relative or 0) / probe_beside.mean,
            (probe.relative or 0) / probe.mean,
            longer_s * stderr / n,
        ),
    }
