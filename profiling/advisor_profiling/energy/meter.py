"""`advisor.energy`: joules and watts of the GPUs while a piece of Python runs."""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from typing import Self

from advisor.checked import checked
from advisor.core.gpu import Gpu
from advisor.core.interval import Interval
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError, InputError
from advisor.settings import Settings, read_settings
from advisor.validity.sensor_record import SensorRecord, record_for
from advisor_data.files.power_records import known_sensors
from advisor_profiling.energy.answer import Energy, GpuEnergy
from advisor_profiling.energy.watched import WatchedGpu, look_until
from advisor_profiling.testbed.live import find_gpu, list_gpus, open_source
from advisor_profiling.window.clock import Clock, LiveClock


class EnergyMeter(ContextDecorator):
    """Measures the code in its block, or each call of what it decorates; see `energy`."""

    def __init__(
        self,
        open_all: Callable[[], Sequence[tuple[TelemetrySource, SensorRecord | None]]],
        told: Callable[[Energy], object] | None,
        clock: Clock,
    ) -> None:
        self._open_all, self._told, self._clock = open_all, told, clock
        self._measured: Energy | None = None
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        if self._running is not None:
            raise InputError(
                "this energy meter measures already",
                fix="make one for each block: with advisor.energy() as e",
            )
        self._measured = None
        self._running = _Running(self._open_all(), self._clock)
        return self

    def __exit__(self, *_raised: object) -> None:
        running, self._running = self._running, None
        assert running is not None  # entered
        self._measured = running.end()
        if self._told is not None:
            self._told(self._measured)

    @property
    def measured(self) -> Energy:
        """What the last block took.

        Raises:
            InputError: none has ended.
        """
        if self._measured is None:
            raise InputError("the code that is measured has not ended", fix="ask after the block")
        return self._measured

    @property
    def energy_j(self) -> Interval:
        """Of all GPUs, with bounds."""
        return self.measured.energy_j

    @property
    def power_w(self) -> Interval:
        """Mean of all GPUs together, with bounds."""
        return self.measured.power_w

    @property
    def duration_s(self) -> float:
        """Of the code, without the wait for the last readings."""
        return self.measured.duration_s

    @property
    def gpus(self) -> tuple[GpuEnergy, ...]:
        """Each by itself."""
        return self.measured.gpus

    def __str__(self) -> str:
        return str(self.measured)


class _Running:
    """A thread that looks at all counters from the beginning until they tell of the end."""

    def __init__(
        self, opened: Sequence[tuple[TelemetrySource, SensorRecord | None]], clock: Clock
    ) -> None:
        self._clock, self._failed = clock, list[AdvisorError]()
        self._watched = [WatchedGpu(source, record) for source, record in opened]
        self._until_s = math.inf
        self._thread = threading.Thread(target=self._watch, name="advisor-energy", daemon=True)
        try:
            self._look()
        except AdvisorError:
            self._close()
            raise
        self._begun_s = clock.now_s()
        self._thread.start()

    def end(self) -> Energy:
        """What was taken since the beginning.

        Raises:
            SourceError: a GPU was lost meanwhile.
        """
        ended_s = self._clock.now_s()
        self._until_s = ended_s + max(watched.late.needed_s for watched in self._watched)
        self._thread.join()
        self._close()
        if self._failed:
            raise self._failed[0]
        gpus = tuple(watched.told(self._begun_s, ended_s) for watched in self._watched)
        return Energy(duration_s=ended_s - self._begun_s, gpus=gpus)

    def _watch(self) -> None:
        try:
            look_until(self._look, self._clock, lambda: self._until_s)
        except AdvisorError as error:
            self._failed.append(error)

    def _look(self) -> None:
        for watched in self._watched:
            watched.look(self._clock.now_s)

    def _close(self) -> None:
        for watched in self._watched:
            watched.source.close()


@checked
def energy(*gpus: int | str, told: Callable[[Energy], object] | None = None) -> EnergyMeter:
    """Measure the energy of GPUs while code runs: `with advisor.energy() as e`.

    After the block `e.energy_j`, `e.power_w`, `e.duration_s` and each of `e.gpus` are known; it
    ends as soon as the readings tell of its end. As a decorator, `@advisor.energy(told=print)`, it
    measures each call. It is the energy of the cards: of all who use them.

    Args:
        gpus: Indices or UUIDs; none: those of `CUDA_VISIBLE_DEVICES`, else all of this host.
        told: Called with what was measured, at the end of each block or call.

    Raises:
        InputError: there is no such GPU.
        SourceError: no driver answers.
        StoreError: what was found of the sensors cannot be read.
    """
    return EnergyMeter(lambda: _opened([str(gpu) for gpu in gpus]), told, LiveClock())


def _opened(names: Sequence[str]) -> list[tuple[TelemetrySource, SensorRecord | None]]:
    settings = read_settings()
    records = known_sensors(settings.home)
    found = [(gpu, _record(gpu, records)) for gpu in _gpus(names, settings)]
    return [(open_source(gpu, None, settings), record) for gpu, record in found]


def _gpus(names: Sequence[str], settings: Settings) -> list[Gpu]:
    visible = settings.environment.get("CUDA_VISIBLE_DEVICES", "")
    names = names or [name for name in visible.split(",") if name.strip()]
    return [find_gpu(name.strip()) for name in names] if names else list_gpus()


def _record(gpu: Gpu, records: Sequence[SensorRecord]) -> SensorRecord | None:
    return record_for(gpu.uuid, gpu.model, gpu.driver or "", records)
