"""A process that asks for the instant power all the time, and writes each change down.

    python -m advisor_power.kernels.running.poller UUID FILE

A line is `p TIME WATTS`, `m TIME WATTS` for the power of the memory, or `t TIME NAMES` where what
holds the clock back has changed; time is of the host's monotonic clock. It is a process of its own
so that nothing delays it. It ends with its standard input.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from advisor.core.telemetry import POWER_GPU, POWER_MEMORY, TelemetrySource
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.telemetry.polling import POLL_S, is_over

LATE_S = 0.003
"""Where the look before was so long ago, nobody knows when a reading changed."""

_REASONS_EVERY = 50
"""Looks at power for each one at the memory's, at what holds the clock back, and at whether to
end."""


def main() -> None:
    """The command line."""
    uuid, path = sys.argv[1:]
    source = NvmlSource(uuid)
    try:
        with Path(path).open("a", buffering=1) as file:
            for line in changes(source):
                file.write(line + "\n")
    finally:
        source.close()


def changes(source: TelemetrySource) -> Iterator[str]:
    """A line for each change, until standard input ends."""
    last_w, last_memory_w, last_reasons, before_s = -1.0, -1.0, "", time.monotonic()
    while not is_over():
        if (reasons := ",".join(source.throttle_reasons() or ())) != last_reasons:
            last_reasons = reasons
            yield f"t {time.monotonic():.6f} {reasons}"
        memory_w = source.read([POWER_MEMORY])[POWER_MEMORY]
        if memory_w is not None and memory_w != last_memory_w:
            last_memory_w = memory_w
            yield f"m {time.monotonic():.6f} {memory_w:.3f}"
        for _ in range(_REASONS_EVERY):
            now_s = time.monotonic()
            watts = source.read([POWER_GPU])[POWER_GPU]
            if watts is not None and watts != last_w:
                # The first reading is no change: it may be old.
                if last_w >= 0 and now_s - before_s < LATE_S:
                    yield f"p {now_s:.6f} {watts:.3f}"
                last_w = watts
            before_s = now_s
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
