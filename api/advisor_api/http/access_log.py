"""One line per request on standard error; a tenth of what the logging module costs."""

import sys
import time

_LONGEST_PATH = 200

_TOO_OFTEN = 429
"""Whoever asks without end would fill the log; /metrics counts all of them."""


class AccessLog:
    """Writes lines like those of the other logs.

    Args:
        enabled: Whether requests are logged at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._second, self._text = 0, ""
        self._refused_at = 0

    def note(
        self, method: str, path: bytes, status: int, duration_s: float, who: str, request_id: str
    ) -> None:
        """Log a request; of those that come too often, one in a second.

        Args:
            method: Its HTTP method.
            path: As it came, without the query, which may hold anything; decoded, it could hold
                the end of a line.
            status: The HTTP status of the answer.
            duration_s: How long it took, s.
            who: The caller's name, never the token.
            request_id: As the answer has it.
        """
        if not self._enabled:
            return
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        if status == _TOO_OFTEN:
            if self._refused_at == second:
                return
            self._refused_at = second
        text = path[:_LONGEST_PATH].decode("ascii", "backslashreplace")
        sys.stderr.write(
            f"{self._text}.{int(1000 * (now - second)):03d}Z INFO {method} {text} {status} "
            f"{1000 * duration_s:.1f} ms {who} {request_id}\n"
        )
