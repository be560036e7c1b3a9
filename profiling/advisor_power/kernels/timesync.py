"""The GPU's clock in the host's: ping-pongs, of which the shortest bound the offset.

A ping-pong asks the GPU for its time and takes the host's before and after. The GPU looked at its
clock somewhere in between, so the midpoint is off by half the round trip at most (Cristian,
"Probabilistic clock synchronization", 1989). Clocks drift apart, so a line is laid through the
shortest round trips.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import SourceError

_SHORTEST = 0.2
"""The part of the ping-pongs that is used: others met an interrupt or a busy core."""

_LEAST_SPAN_S = 0.05
"""Over less time a slope says more about the noise than about the clocks."""


@dataclass(frozen=True, slots=True)
class PingPong:
    """Host's clock before, GPU's clock, host's clock after, s."""

    before_s: float
    gpu_s: float
    after_s: float

    @property
    def round_trip_s(self) -> float:
        """How long the answer took."""
        return self.after_s - self.before_s


@dataclass(frozen=True, slots=True)
class ClockFit:
    """Host time of a GPU time: `host_s = offset_s + (1 + drift) * gpu_s`."""

    offset_s: float
    drift: float
    error_s: float
    """Half of the longest round trip that was used, plus how far it is off the line."""

    def host_s(self, gpu_s: float) -> float:
        """The host's clock when the GPU's stood at `gpu_s`."""
        return self.offset_s + gpu_s * (1 + self.drift)


def fit_clock(ping_pongs: Sequence[PingPong]) -> ClockFit:
    """Offset and drift of the GPU's clock against the host's.

    Raises:
        SourceError: there are no ping-pongs, or time ran backwards in all of them.
    """
    usable = sorted((p for p in ping_pongs if p.round_trip_s >= 0), key=lambda p: p.round_trip_s)
    if not usable:
        raise SourceError(
            f"the clocks of host and GPU cannot be compared: {len(ping_pongs)} tries",
            why="the GPU did not answer, or the host's clock went back in all of them",
            fix="look at `nvidia-smi` and run it again",
        )
    best = _shortest_of_each_end(usable)
    gpu = np.array([p.gpu_s for p in best])
    offsets = np.array([(p.before_s + p.after_s) / 2 for p in best]) - gpu
    drift = _slope(gpu, offsets)
    left = offsets - drift * gpu
    offset = float(np.mean(left))
    error = max(p.round_trip_s for p in best) / 2 + float(np.max(np.abs(left - offset)))
    return ClockFit(offset, drift, error)


def _shortest_of_each_end(by_round_trip: Sequence[PingPong]) -> list[PingPong]:
    """The shortest of the earlier and of the later half, so that a line has two ends."""
    middle = (min(p.gpu_s for p in by_round_trip) + max(p.gpu_s for p in by_round_trip)) / 2
    early = [p for p in by_round_trip if p.gpu_s <= middle]
    late = [p for p in by_round_trip if p.gpu_s > middle]
    return [p for half in (early, late) for p in half[: max(1, int(_SHORTEST * len(half)))]]


def _slope(gpu: np.ndarray, offsets: np.ndarray) -> float:
    if np.ptp(gpu) < _LEAST_SPAN_S:
        return 0.0
    centred = gpu - gpu.mean()
    return float(centred @ (offsets - offsets.mean()) / (centred @ centred))
