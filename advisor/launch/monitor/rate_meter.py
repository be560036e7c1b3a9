"""How fast a total grows: steps of a job, joules of a GPU."""

from collections import deque


class RateMeter:
    """Growth per second, between the first and the last reading at which the total had moved.

    A job may report once in a minute, so a stretch of fixed length would hold one report or none.

    Args:
        window_s: Readings that are older are forgotten, but for two; None: since the first one.
    """

    def __init__(self, window_s: float | None = None) -> None:
        self._window_s = window_s
        self._moves: deque[tuple[float, float]] = deque()
        self._now_s = 0.0
        self._is_back = False

    def add(self, now_s: float, total: float) -> None:
        """Take note of a reading; a total that went back, and stays so, starts again."""
        self._now_s = now_s
        if self._went_back(total):
            return
        if self._moves and total == self._moves[-1][1]:
            return
        self._moves.append((now_s, total))
        oldest_s = float("inf") if self._window_s is None else now_s - self._window_s
        while len(self._moves) > 2 and self._moves[1][0] <= oldest_s:
            del self._moves[1 if self._window_s is None else 0]

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
        return self._now_s - self._moves[0][0] if self._moves else 0.0

    def rate(self) -> float | None:
        """Growth per second; None before the total has moved."""
        if len(self._moves) < 2:
            return None
        (first_s, first), (last_s, last) = self._moves[0], self._moves[-1]
        moving_s, still_s = last_s - first_s, self._now_s - last_s
        # Still for longer than it had moved: it has stopped, it does not only report seldom.
        return (last - first) / (moving_s if still_s <= moving_s else moving_s + still_s)
