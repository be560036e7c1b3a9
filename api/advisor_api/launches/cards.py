"""The GPUs of the service's own host, and what they draw while no launch reads their power."""

import time
from collections.abc import Collection
from contextlib import suppress

from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU, TelemetrySource
from advisor.errors import AdvisorError
from advisor.settings import Settings
from advisor_profiling.testbed import list_gpus, open_source


class HostCards:
    """What a driver names on this host; nothing where none answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gpus: list[Gpu] = []
        self._listed_s: float | None = None
        self._sources: dict[str, TelemetrySource] = {}

    def look(self, held: Collection[str]) -> list[tuple[Gpu, float | None]]:
        """Each GPU with its power, W; of those that are held others read it."""
        # Once a minute the driver is asked which GPUs there are.
        if self._listed_s is None or time.monotonic() - self._listed_s > 60.0:
            self._listed_s, self._gpus = time.monotonic(), []
            with suppress(AdvisorError):
                self._gpus = list_gpus()
        return [(gpu, None if gpu.uuid in held else self._power_w(gpu)) for gpu in self._gpus]

    def close(self) -> None:
        """Let go of the driver."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def _power_w(self, gpu: Gpu) -> float | None:
        try:
            if gpu.uuid not in self._sources:
                self._sources[gpu.uuid] = open_source(gpu, None, self._settings)
            return self._sources[gpu.uuid].read((POWER_GPU,))[POWER_GPU]
        except AdvisorError:
            # A driver that was loaded again is opened again.
            if source := self._sources.pop(gpu.uuid, None):
                with suppress(AdvisorError):
                    source.close()
            return None
