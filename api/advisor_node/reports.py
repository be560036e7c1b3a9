"""Hands observations to the service, again and again until it has them."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from advisor.client import ApiError, Client, ClientError
from advisor.core.gpu import Gpu
from advisor.core.records import Observation
from advisor.core.telemetry import TelemetrySource
from advisor.errors import SourceError
from advisor.settings import Settings
from advisor_node.meters import ReferenceCache
from advisor_profiling.testbed.live import open_source

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


LOOK_S = 2.0
"""Between two looks. Each asks the MPS daemon of each GPU a few questions, a process for each."""


def keep_looking(look: Callable[[], object], stop: threading.Event) -> Iterator[None]:
    """Look until `stop` is set; comes back after each look."""
    while not stop.wait(LOOK_S):
        try:
            look()
        except Exception:  # a fault of ours with one job must not blind us to all others
            LOG.exception("an internal error")
        yield


def references_of(service: Client) -> ReferenceCache:
    """What the service knows of jobs alone."""
    return ReferenceCache(lambda job, model: service.profile(job, gpu_model=model))


def power_source(gpu: Gpu, settings: Settings) -> TelemetrySource | None:
    """The telemetry of a GPU; None, and a line in the log, where there is none."""
    try:
        return open_source(gpu, None, settings)
    except SourceError as error:
        LOG.warning("no power of %s: %s", gpu.uuid, error)
        return None
