"""Hands observations to the service, again and again until it has them."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from advisor.client import ApiError, ClientError
from advisor.core.records import Observation

LOG = logging.getLogger("advisor.node")

MOST_WAITING = 1000
"""Observations kept for a service that is down; then the oldest go."""

AGAIN_S = 30.0

Send = Callable[[Sequence[Observation]], object]
"""Brings observations into the service; raises a `ClientError`."""


class ObservationQueue:
    """Observations on their way to the service.

    Attributes:
        sent: How many it has taken.
        lost: How many it refused, or were too many to wait for it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting = deque[Observation]()
        self._tried_s: float | None = None
        self.sent = self.lost = 0

    @property
    def waiting(self) -> int:
        """How many the service does not have yet."""
        return len(self._waiting)

    def add(self, seen: Observation) -> None:
        """One more, to be sent at the next flush."""
        if len(self._waiting) == MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(seen)
        self._tried_s = None

    def flush(self) -> None:
        """Send what waits; after a failure not again for half a minute.

        One at a time, so that one that the service refuses does not hold up the others.
        """
        now_s = time.monotonic()
        if self._tried_s is not None and now_s - self._tried_s < AGAIN_S:
            return
        while self._waiting:
            self._tried_s = now_s
            try:
                self._send([self._waiting[0]])
                self.sent += 1
            except ClientError as error:
                LOG.warning("the service did not take an observation: %s", error)
                # Another would be refused again: it is no good. A token may yet be corrected.
                if not (isinstance(error, ApiError) and error.status in (400, 413, 422)):
                    return
                self.lost += 1
            self._waiting.popleft()
