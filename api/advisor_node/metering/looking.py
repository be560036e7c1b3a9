"""What the agents of all schedulers do: look again and again, and know jobs by the service."""

import logging
import threading
from collections.abc import Callable, Iterator

from advisor.client import Client
from advisor.core.gpu import Gpu
from advisor.core.telemetry import TelemetrySource
from advisor.errors import SourceError
from advisor.settings import Settings
from advisor_node.metering.references import ReferenceCache
from advisor_profiling.testbed.live import open_source

LOG = logging.getLogger("advisor.node")

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
