"""A process that writes what a card's sensors read into a file, until its input is closed.

    python -m advisor_power.sensor.polled UUID FILE power|state|bursts

`power` polls all power fields every 0.3 ms. `state` polls what takes longer, and would make gaps
between the former: the energy counter (4 ms a call), throttle reasons and the processes on the
card. `bursts` is for runs of milliseconds: it writes each change of the instant power at once, and
now and then looks at the memory and at what holds the clock back. Each is a process of its own, so
that nothing delays it. It writes `ready` once it polls. Lines are those of `trace`.
"""

import math
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, POWER_MEMORY, TelemetrySource
from advisor.errors import SourceError
from advisor_power.sensor.trace import AVERAGE, ENERGY, INSTANT, MEMORY, append
from advisor_profiling.telemetry import nvml
from advisor_profiling.telemetry.nvml import NvmlSource, call, nvml_session, reading
from advisor_profiling.testbed import strangers

# Asking for power takes some tens of microseconds; readings change every tens of milliseconds.
_POLL_S = 0.0003

_END_S = 10.0


def is_over() -> bool:
    """In such a process: whether the one that started it is gone or has closed its input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Close its input and wait; one that does not end is killed."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# Number and scope of each power channel.
_FIELDS = {
    INSTANT: (nvml.INSTANT, nvml.GPU),
    AVERAGE: (nvml.AVERAGE, nvml.GPU),
    MEMORY: (nvml.AVERAGE, nvml.MEMORY),
}

# Given the time, s: the new lines.
_Poll = Callable[[float], list[list[Any]]]

LATE_S = 0.003
"""Where the look before was so long before the reading, nobody knows when that changed."""

_FLUSH_S = 0.25


class ChangedReadings:
    """Which readings are other than the one before, as lines; at most `most_lines` of them."""

    # A recording of four minutes has about 15,000; a channel that flickers must not fill the disk.
    def __init__(self, most_lines: float = 200_000) -> None:
        self._last: dict[str, float] = {}
        self._left = most_lines

    def lines(
        self, channel: str, time_s: float, value: float | None, stamp_us: int | None = None
    ) -> list[list[Any]]:
        """One line, or none; the last of all says that there are no more."""
        if value is None or self._last.get(channel) == value or self._left < 0:
            return []
        self._last[channel] = value
        self._left -= 1
        if self._left < 0:
            return [["full", round(time_s, 6)]]
        return [["reading", channel, round(time_s, 6), value, stamp_us]]


def main() -> None:
    """The command line."""
    uuid, file, role = sys.argv[1:]
    with nvml_session():
        polls = {
            "bursts": lambda: (burst_poll(NvmlSource(uuid)), _POLL_S, 0.0),
            "power": lambda: (_power(uuid), _POLL_S, _FLUSH_S),
            "state": lambda: (_state(uuid), 0.001, _FLUSH_S),
        }
        poll, interval_s, flush_s = polls[role]()
        print("ready", flush=True)
        try:
            record(poll, interval_s, Path(file), is_over, flush_s)
        except SourceError as error:
            sys.exit(str(error))
        except KeyboardInterrupt:
            pass


def record(
    poll: _Poll,
    interval_s: float,
    file: Path,
    over: Callable[[], bool],
    flush_s: float = _FLUSH_S,
) -> None:
    """Append what `poll` finds until it is over; what was found before an error is kept."""
    lines: list[list[Any]] = []
    flushed_s = time.monotonic()
    try:
        while not over():
            lines += poll(now_s := time.monotonic())
            if now_s - flushed_s >= flush_s and lines:
                append(file, *lines)
                lines, flushed_s = [], now_s
            time.sleep(interval_s)
    finally:
        append(file, *lines)


def burst_poll(source: TelemetrySource, clock: Callable[[], float] = time.monotonic) -> _Poll:
    """Changes of the instant power whose moment is known, of the memory, and of the reasons."""
    changes, polls, before_s, reasons = ChangedReadings(math.inf), 0, -math.inf, ""
    begun = False

    def poll(now_s: float) -> list[list[Any]]:
        nonlocal polls, before_s, reasons, begun
        power_w = source.read([POWER_GPU])[POWER_GPU]
        lines = changes.lines(INSTANT, now_s, power_w)
        # The first reading is no change: it may be old.
        if not begun or clock() - before_s >= LATE_S:
            lines = []
        begun, before_s = begun or power_w is not None, now_s
        # The memory, and what holds the clock back, are looked at now and then.
        if polls % 50 == 0:
            lines += changes.lines(MEMORY, clock(), source.read([POWER_MEMORY])[POWER_MEMORY])
            now = source.throttle_reasons() or ()
            if (named := ",".join(now)) != reasons:
                reasons = named
                lines.append(["look", round(clock(), 6), list(now), []])
        polls += 1
        return lines

    return poll


def _power(uuid: str) -> _Poll:
    device, changes = call("nvmlDeviceGetHandleByUUID", uuid), ChangedReadings()
    fields = list(_FIELDS.values())

    def poll(time_s: float) -> list[list[Any]]:
        answers: list[Any] = reading("nvmlDeviceGetFieldValues", device, fields) or []
        lines: list[list[Any]] = []
        for name, answer in zip(_FIELDS, answers, strict=bool(answers)):
            power_mw = nvml.milliwatts(*_FIELDS[name], answer)
            power_w = power_mw / 1000 if power_mw else None  # no running GPU draws 0
            lines += changes.lines(name, time_s, power_w, answer.timestamp or None)
        return lines

    return poll


def _state(uuid: str) -> _Poll:
    source, changes, next_s = NvmlSource(uuid), ChangedReadings(), 0.0

    def poll(_: float) -> list[list[Any]]:
        nonlocal next_s
        energy_j = source.read((ENERGY_GPU,))[ENERGY_GPU]
        now_s = time.monotonic()
        lines = changes.lines(ENERGY, now_s, energy_j or None)
        if now_s >= next_s:
            next_s = now_s + 1.0
            reasons = source.throttle_reasons() or ()
            lines.append(["look", round(now_s, 6), list(reasons), strangers(source.gpu)])
        return lines

    return poll


if __name__ == "__main__":
    main()
