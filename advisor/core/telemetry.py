"""Telemetry of one GPU: what a source can give, as named channels with units.

Measuring and launching read the same sources by the same names; a new sensor is one more channel.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias

from advisor.core.gpu import Gpu
from advisor.core.records import NO_POWER, Counters

POWER_GPU, POWER_MEMORY, POWER_LIMIT = "power.gpu", "power.memory", "power.limit"
ENERGY_GPU, TEMPERATURE_GPU = "energy.gpu", "temperature.gpu"
CLOCK_SM, CLOCK_MEMORY, MEMORY_USED = "clock.sm", "clock.memory", "memory.used"
POWER_SPREAD: Final = "power.spread"
"""Largest less smallest power of the GPUs of a job that holds several."""

POWER_CAPS: Final = frozenset({"sw-power-cap", "power-cap"})
"""Throttle reasons, of NVML and AMD SMI, by which the power limit holds the clock back: with heavy
work that is the normal state. All others are heat or a fault of the supply."""

NEAR_LIMIT: Final = 0.97
"""From this part of the power limit on a card counts as held back by it: at the limit H200 cards
read 680 to 703 of 700 W (data/advisor_data/bundled)."""

OVER_LIMIT: Final = 1.015
"""No card draws more than this part of its power limit over a window: of 2,191 bundled points of
pairs the most is 1.014."""

COLUMN_UNITS = {"_percent": "%", "_mib_per_s": "MiB/s", "_w": "W", "_mib": "MiB", "_mhz": "MHz"}
"""How columns end, and their units."""


def _counter(column: str) -> tuple[str, str]:
    end = next(end for end in COLUMN_UNITS if column.endswith(end))
    return f"counter.{column.removesuffix(end)}", COLUMN_UNITS[end]


COUNTERS: Mapping[str, str] = MappingProxyType(
    {_counter(field.name)[0]: field.name for field in fields(Counters)}
)
"""Channels of hardware counters, such as `counter.sm_active`, and the column of each."""

UNITS: Mapping[str, str] = MappingProxyType(
    {
        POWER_GPU: "W",
        POWER_MEMORY: "W",
        POWER_LIMIT: "W",
        POWER_SPREAD: "W",
        ENERGY_GPU: "J",
        CLOCK_SM: "MHz",
        CLOCK_MEMORY: "MHz",
        TEMPERATURE_GPU: "°C",
        MEMORY_USED: "MiB",
        **dict(_counter(field.name) for field in fields(Counters)),
    }
)
"""Every channel by name, and its unit."""

Readings: TypeAlias = Mapping[str, float | None]
"""Values by channel; None where a reading is not available."""


def most_of(limit_w: float | None, memory_mib: float | None) -> Mapping[str, float]:
    """The most that a reading of a card can be, by its unit; what is above is no reading.

    Drivers give such: power of 3.7 MW, memory of 2^32 - 1 MiB, 4e9 % of activity. Of a card whose
    limit or memory is not known, or cannot be, those of the largest one count.
    """
    largest_w = 1400.0  # B300 and MI355X, by their data sheets; so are 288 GiB
    return {
        "W": 1.5 * (limit_w if limit_w and 0 < limit_w <= 1.5 * largest_w else largest_w),
        "MiB": memory_mib or 288 * 1024.0,
        "%": 110.0,
        "MHz": 20_000.0,  # GDDR7 runs at 14,001
        "MiB/s": 2.0**22,  # NVLink 5 moves 0.9 TB/s each way
        "°C": 200.0,
        "J": 1e15,
    }


_SCOPES = {
    "GH200": (
        frozenset({ENERGY_GPU}),
        "the energy counter is of the module with its CPU: power is the instant field's, of the "
        "GPU alone, and is not cross-checked",
    ),
    "MI250": (
        frozenset({POWER_GPU, ENERGY_GPU}),
        f"{NO_POWER}; the first die shows the watts of both, the second none",
    ),
}


def power_scope(model: str) -> tuple[frozenset[str], str]:
    """Channels that are of more than a GPU of this model, so are not given, and words for it."""
    return next((of for word, of in _SCOPES.items() if word in model), (frozenset[str](), ""))


_LOG = logging.getLogger("advisor.telemetry")


class ReadingGate:
    """Lets through what a GPU can read. All else is not read now, counted and logged.

    An energy counter cannot rise by more than the card can draw meanwhile. One that falls or jumps
    has begun again where the next reading goes on from there; else that reading was none.

    Attributes:
        dropped: How many readings so far.
        left_out: The same in words, with an example; empty: none.

    Args:
        gpu: That is read.
        limit_w: Reads its power limit, which may be raised while it is watched.
        clock: Seconds.
    """

    def __init__(
        self,
        gpu: Gpu,
        limit_w: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gpu, self._limit_w, self._clock = gpu, limit_w, clock
        self._most = most_of(gpu.power_limit_w, gpu.memory_mib)
        self._withheld = power_scope(gpu.model)[0]
        self._kept: tuple[float, float] | None = None
        self._doubted: tuple[float, float] | None = None
        self._zero_j, self.dropped, self.left_out = 0.0, 0, ""

    def offered(self, readings: Readings) -> Collection[str]:
        """What the GPU has, by a first reading: a value, be it an impossible one."""
        return [n for n, value in readings.items() if value is not None and n not in self._withheld]

    def sift(self, readings: Readings) -> Readings:
        """The readings, with None for those that are none of this GPU."""
        return {name: self._sifted(name, value) for name, value in readings.items()}

    def _sifted(self, name: str, value: float | None) -> float | None:
        if value is None or name in self._withheld:
            return None
        if not 0 <= value <= self._most[UNITS[name]]:
            self._most = most_of(self._limit_w(), self._gpu.memory_mib)
            if not 0 <= value <= self._most[UNITS[name]]:
                return self._drop(name, value)
        return self._total_j((self._clock(), value)) if name == ENERGY_GPU else value

    def _total_j(self, now: tuple[float, float]) -> float | None:
        doubted, self._doubted = self._doubted, None
        if self._kept is None or self._goes_on(self._kept, now):
            self._kept = now
        elif doubted and self._goes_on(doubted, now):
            # The sum sees a total that begins again, and no rise.
            self._zero_j = doubted[1] if now[1] > self._kept[1] else 0.0
            self._kept, doubted = now, None
        else:
            self._doubted = now
        if doubted:
            self._drop(ENERGY_GPU, doubted[1])
        return None if self._doubted else now[1] - self._zero_j

    def _goes_on(self, before: tuple[float, float], now: tuple[float, float]) -> bool:
        # An energy counter may show 5 s later what was drawn.
        return 0 <= now[1] - before[1] <= self._most["W"] * (now[0] - before[0] + 5.0)

    def _drop(self, name: str, value: float) -> None:
        self.dropped += 1
        most = "" if name == ENERGY_GPU else f" (at most {self._most[UNITS[name]]:,.0f})"
        said = f"impossible reading{'s' * (self.dropped > 1)} left out, such as {name} of"
        self.left_out = f"{self.dropped:,} {said} {value:,.0f} {UNITS[name]}{most}"
        # Said again whenever there are ten times as many.
        if str(self.dropped).rstrip("0") == "1":
            _LOG.warning("%s: %s", self._gpu.uuid, self.left_out)


@dataclass(frozen=True, slots=True)
class Channel:
    """One quantity that a source can give.

    Attributes:
        name: One of `UNITS`.
        kind: What a reading is: of the moment, a mean over a window, or a total that only grows.
        window_s: Over how long a mean is at most; None: since `TelemetrySource.start_window`.
    """

    name: str
    kind: Literal["instant", "mean", "total"] = "instant"
    window_s: float | None = None

    @property
    def unit(self) -> str:
        """Of the readings."""
        return UNITS[self.name]


class TelemetrySource(Protocol):
    """Telemetry of one GPU, live or replayed.

    Attributes:
        name: Short name that points carry in `source`, such as "nvml".
        interval_s: How often a new power reading can appear; reading faster repeats values.
        gpu: The GPU that is watched.
    """

    name: str
    interval_s: float
    gpu: Gpu

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What it can give on this GPU."""
        ...

    @property
    def gates(self) -> Sequence[ReadingGate]:
        """Those that its readings pass; a replay has none."""
        ...

    def read(self, names: Collection[str]) -> Readings:
        """A value for each name, in as few calls as the source needs.

        None for channels that this GPU does not have, and for readings that fail alone.

        Raises:
            SourceError: the GPU or the source is gone, or counters were not collected.
        """
        ...

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """Active reasons that make a window not comparable (power cap, thermal, hardware slowdown).

        None when they cannot be read.
        """
        ...

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """GPU memory of the processes together, MiB; None where it is not known."""
        ...

    def start_window(self) -> None:
        """Begin the window of the means without a window of their own."""

    def close(self) -> None:
        """Free what the source holds; it answers nothing afterwards."""


def channels_of(names: Iterable[str]) -> tuple[Channel, ...]:
    """Channels of the usual kind: totals of energy, means of counters, all others of the moment."""
    return tuple(
        Channel(name, "total" if name == ENERGY_GPU else "mean" if name in COUNTERS else "instant")
        for name in names
    )


def counters_of(readings: Readings) -> Counters:
    """The columns of points from readings of `COUNTERS`."""
    return Counters(**{column: readings.get(name) for name, column in COUNTERS.items()})
