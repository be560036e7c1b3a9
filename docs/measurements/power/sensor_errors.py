"""How wrong are common ways of reading the power of a kernel of 30 microseconds to 30 ms?

    .venv/bin/python docs/measurements/power/sensor_errors.py --trace FILE

from a recording of sensor_campaign.py. The ways are those of `advisor_power.sensor.analysis`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from advisor.wire.power import ReadingError
from advisor_power.sensor.analysis import KERNELS_S, WAYS, measured, record_of
from advisor_power.sensor.trace import read_trace


def table(errors: Sequence[ReadingError]) -> str:
    """A line for each length of kernel: median and 95th percentile of the error, %."""
    if not errors:
        return "nothing to tell: no channel was accepted, or no runs of short kernels were recorded"
    cells = {(e.kernel_s, e.way): f"{100 * e.median:.1f} ({100 * e.p95:.1f})" for e in errors}
    ways = [way for way in WAYS if any(error.way == way for error in errors)]
    lines = ["| kernel | " + " | ".join(f"{way}, %" for way in ways) + " |"]
    lines.append("| --- |" + " --- |" * len(ways))
    for kernel_s in KERNELS_S:
        row = [cells.get((kernel_s, way), "") for way in ways]
        lines.append(f"| {1e6 * kernel_s:g} µs | " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    trace = read_trace(parser.parse_args().trace)
    print(table(measured(trace, record_of(trace, "replay"))))


if __name__ == "__main__":
    main()
