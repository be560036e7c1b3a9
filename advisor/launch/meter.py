"""Rates and energy, with the uncertainty of their timestamps.

A busy host stops a process between any two of its steps. Where the time of a counter is taken on
one side alone, what it grew by in such a stop has no time, and a short stretch shows more power
than the card draws: a stop of 0.5 s makes 514 W of 400 W in 1.75 s.
"""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, TelemetrySource
from advisor.errors import AdvisorError
from advisor.launch.spec import SILENT_S

# Timestamp uncertainty, s: a reading above the first is repeated, one above the second says
# nothing of a rate. NVML takes 4 ms for the energy counter; twice the second is 5 % of 2 s.
_SHARP_S, _RELIABLE_S = 0.01, 0.05

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
    def is_reliable(self) -> bool:
        """Whether what was read then says anything about a rate."""
        return self.slack_s <= _RELIABLE_S


def timed(read: Callable[[], T], clock: Callable[[], float]) -> tuple[T, Moment]:
    """What is read, and when that was: read again while that is not known well.

    It is read at most five times; then the one counts of which it is known best.
    """
    tries: list[tuple[T, Moment]] = []
    while not tries or (tries[-1][1].slack_s > _SHARP_S and len(tries) < _TRIES):
        before_s = clock()
        value = read()
        slack_s = (clock() - before_s) / 2
        tries.append((value, Moment(before_s + slack_s, slack_s)))
    return min(tries, key=lambda reading: reading[1].slack_s)


@dataclass(frozen=True, slots=True)
class Metered:
    """Energy since the first reading.

    Attributes:
        joules: Of the time that could be metered.
        seconds: How long that was.
        at_s: When it was read last.
        slack_s: The time of the joules is at most so much longer or shorter.
    """

    joules: float
    seconds: float
    at_s: float
    slack_s: float = 0.0

    def since(self, first: "Metered") -> "Metered":
        """What came after an earlier reading."""
        joules, seconds = self.joules - first.joules, self.seconds - first.seconds
        return Metered(joules, seconds, self.at_s, self.slack_s + first.slack_s)

    @property
    def of_rate(self) -> tuple[Moment, float]:
        """As a `RateMeter` takes it: of the time that was metered alone."""
        return Moment(self.seconds, self.slack_s), self.joules

    def whole_j(self, passed_s: float) -> float | None:
        """The energy of a time that was this long; None: it is of less of it, or of more.

        A hundredth less is as well as energy is read.
        """
        off_s = abs(self.seconds - passed_s) + self.slack_s
        return self.joules if off_s <= 0.01 * passed_s else None


Drawn: TypeAlias = tuple[float | None, float | None]
"""What a source said at one moment, None where it said nothing: its energy counter, J, and the
power, W, which is read only where there is no counter."""


class LaunchMeter:
    """Energy of a GPU from the moment on at which a launch took it.

    Attributes:
        joules: All until it was read last; None: not all of it was read.
        starts_s: How long sets have taken to start, so far.
        starts_j: Energy of that time; None: not all of it was read.
    """

    def __init__(self, source: TelemetrySource, clock_s: Callable[[], float]) -> None:
        self._meter, self._clock_s = CardMeter(source), clock_s
        self._begun = self._metered = Metered(0.0, 0.0, clock_s())
        self.joules: float | None = None
        self.starts_s: float = 0.0
        self.starts_j: float | None = 0.0
        self.read()
        self._begun = self._metered

    def look(self) -> None:
        """Read it, about once a second: without a counter the power is integrated."""
        if self._clock_s() - self._metered.at_s >= 1.0:
            self.read()

    def read(self) -> float | None:
        """Read it now; `joules`."""
        drawn, now = timed(self._meter.read, self._clock_s)
        self._metered = replace(self._meter.add(drawn, now) or self._begun, at_s=now.at_s)
        self.joules = self._between_j(self._begun)
        return self.joules

    def _between_j(self, first: Metered) -> float | None:
        """Since an earlier reading; None: not all of that time was read."""
        # How well a moment is known matters for a rate, not here.
        metered = replace(self._metered.since(first), slack_s=0.0)
        return metered.whole_j(self._metered.at_s - first.at_s)

    @contextmanager
    def starting(self) -> Generator[None]:
        """Count the block as the start of a set, however it ends."""
        self.read()
        first = self._metered
        try:
            yield
        finally:
            self.read()
            self.starts_s += self._metered.at_s - first.at_s
            grown_j = self._between_j(first)
            if self.starts_j is not None:
                self.starts_j = None if grown_j is None else self.starts_j + grown_j


class CardMeter:
    """Energy since the first reading: by the counter, else integrated from the power.

    A source that is silent leaves a gap that the counter bridges. Without a counter one of
    `SILENT_S` and more stays a gap: neither its energy nor its time is counted.
    """

    def __init__(self, source: TelemetrySource) -> None:
        self._source = source
        self._metered = self._counter_j = self._power_w = None

    def read(self) -> Drawn:
        """What the source says now, which is added up by `add`."""
        try:
            counter_j = self._source.read((ENERGY_GPU,))[ENERGY_GPU]
            # A counter that tells nothing now goes on, and will tell this time, too.
            if counter_j is not None or self._counter_j is not None:
                return counter_j, None
            return None, self._source.read((POWER_GPU,))[POWER_GPU]
        except AdvisorError:
            # Telemetry that fails is no reason to lose sight of the jobs.
            return None, None

    def add(self, drawn: Drawn, now: Moment) -> Metered | None:
        """All so far; None before anything could be read."""
        counter_j, power_w = drawn
        if counter_j is not None:
            then_j, self._counter_j = self._counter_j, counter_j
            # It starts again with the driver: what was drawn until then is not known.
            self._add(now, None if then_j is None or counter_j < then_j else counter_j - then_j)
        elif power_w is not None:
            then_w, self._power_w = self._power_w, power_w
            passed_s = now.at_s - self._metered.at_s if self._metered else 0.0
            self._add(
                now,
                None
                if then_w is None or passed_s >= SILENT_S
                else (then_w + power_w) / 2 * passed_s,
            )
        return self._metered

    def _add(self, now: Moment, grown_j: float | None) -> None:
        """What came since the last reading; None: that is not known."""
        metered = self._metered or Metered(0.0, 0.0, now.at_s)
        passed_s = 0.0 if grown_j is None else now.at_s - metered.at_s
        self._metered = Metered(
            metered.joules + (grown_j or 0.0), metered.seconds + passed_s, now.at_s, now.slack_s
        )


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

        A reading with an uncertain timestamp is ignored: the next one counts.
        """
        if self._moves:
            first = self._moves[0][0]
            # The moments may be unsure by this part of the observed time.
            if first.slack_s + now.slack_s > 0.03 * (now.at_s - first.at_s):
                return
        self._now_s = now.at_s
        if self._went_back(total) or (self._moves and total == self._moves[-1][1]):
            return
        self._moves.append((now, total))
        oldest_s = now.at_s - (self._window_s or 0.0)
        while len(self._moves) > 2 and self._moves[1][0].at_s <= oldest_s:
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
        return self._now_s - self._moves[0][0].at_s if self._moves else 0.0

    def rate(self) -> float | None:
        """Growth per second; None before the total has moved."""
        if len(self._moves) < 2:
            return None
        (began, first), (moved, last) = self._moves[0], self._moves[-1]
        moving_s, still_s = moved.at_s - began.at_s, self._now_s - moved.at_s
        # Still for longer than it had moved: it has stopped, it does not only report seldom.
        return (last - first) / (moving_s if still_s <= moving_s else moving_s + still_s)
