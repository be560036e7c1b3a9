"""How fast a total grows: steps of a job, joules of a GPU."""

from collections import deque

from advisor.launch.monitor.timed import Moment

_NEARLY = 0.03
"""Of the time from the first reading on: nobody need know better when it was read last."""


class RateMeter:
    """Growth per second, between the first and the last reading at which the total had moved.

    A job may report once in a minute, so a stretch of fixed length would hold one report or none.

    Args:
        window_s: Readings that are older are forgotten, but for two; None: since the first one.
    """

    def __init__(self, window_s: float | None = None) -> None:
        self._window_s = window_s
        self._moves: deque[tuple[Moment, float]] = deque()
        self._now_s = 0.0
        self._is_back = False

    def add(self, now: Moment, total: float) -> None:
        """Take note of a reading; a total that went back, and stays so, starts again.

        One of which nobody knows well enough when it was is none: the next one will tell.
        """
        if self._moves and self._is_loose(now):
            return
        self._now_s = now.at_s
        if self._went_back(total):
            return
        if self._moves and total == self._moves[-1][1]:
            return
        self._moves.append((now, total))
        oldest_s = float("inf") if self._window_s is None else now.at_s - self._window_s
        while len(self._moves) > 2 and self._moves[1][0].at_s <= oldest_s:
            del self._moves[1 if self._window_s is None else 0]

    def _is_loose(self, now: Moment) -> bool:
        first = self._moves[0][0]
        return first.slack_s + now.slack_s > _NEARLY * (now.at_s - first.at_s)

    def _went_back(self, total: float) -> bool:
        """Whether a reading is to be ignored: a count may be read while it is half written."""
        was_back, self._is_back = self._is_back, bool(self._moves) and total < self._moves[-1][1]
        if self._is_back and was_back:
            self._moves.clear()
            self._is_back = False
        return self._is_back

    @property
    def span_s(self) -> float:
        """Time from the first to the last reading, s."""
        return self._now_s - self._moves[0][0].at_s if self._moves else 0.0

    def rate(self) -> float | None:
        """Growth per second; None before the total has moved."""
        if len(self._moves) < 2:
            return None
        (began, first), (moved, last) = self._moves[0], self._moves[-1]
        moving_s, still_s = moved.at_s - began.at_s, self._now_s - moved.at_s
        # Still for longer than it had moved: it has stopped, it does not only report seldom.
        return (last - first) / (moving_s if still_s <= moving_s else moving_s + still_s)
