"""What was read, and when: the clock is read before it and after it.

A busy host stops a process between any two of its steps. Where the time of a counter is taken on
one side alone, what it grew by in such a stop has no time, and a short stretch shows more power
than the card draws: a stop of 0.5 s makes 514 W of 400 W in 1.75 s.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_SHARP_S, _KNOWN_S = 0.01, 0.05
"""What is known to the first is not read again; a reading of the energy counter, which takes NVML
4 ms, is known to 2. The second at both ends is 5 % of 2 s."""

_TRIES = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a clock.

    Attributes:
        at_s: The middle of the time in which it was.
        slack_s: It was at most so much earlier or later.
    """

    at_s: float
    slack_s: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether what was read then says anything about a rate."""
        return self.slack_s <= _KNOWN_S


def timed(read: Callable[[], T], clock: Callable[[], float]) -> tuple[T, Moment]:
    """What is read, and when that was: read again while that is not known well.

    It is read at most five times; then the one counts of which it is known best.
    """
    tries = [_once(read, clock)]
    while tries[-1][1].slack_s > _SHARP_S and len(tries) < _TRIES:
        tries.append(_once(read, clock))
    return min(tries, key=lambda one: one[1].slack_s)


def _once(read: Callable[[], T], clock: Callable[[], float]) -> tuple[T, Moment]:
    before_s = clock()
    found = read()
    slack_s = (clock() - before_s) / 2
    return found, Moment(before_s + slack_s, slack_s)
