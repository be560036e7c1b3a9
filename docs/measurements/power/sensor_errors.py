"""How wrong are common ways of reading the power of a kernel of 30 microseconds to 30 ms?

    sensor_errors.py --trace FILE                 from a recording of sensor_campaign.py
    sensor_errors.py --record FILE --idle-w W --kernel-w W    SIMULATED, from a sensor record

Run with .venv/bin/python. The ways are those of `advisor_power.sensor.reading_errors`. The
simulation supposes that the sensor does what its record says, and that a kernel draws its power
from its first moment; it shows what follows from the sensor alone. Its figures are no measurement.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from advisor.validity.sensor_record import parse_record
from advisor.wire.power_readings import ReadingError
from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.reading_errors import (
    KERNELS_S,
    WAYS,
    measured,
    simulated,
)
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
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--trace", type=Path)
    given.add_argument("--record", type=Path)
    parser.add_argument("--idle-w", type=float)
    parser.add_argument("--kernel-w", type=float)
    options = parser.parse_args()
    if options.trace:
        trace = read_trace(options.trace)
        print(table(measured(trace, record_of(trace, "replay"))))
        return
    if not options.idle_w or not options.kernel_w:
        parser.error("--record needs --idle-w and --kernel-w")
    record = parse_record(options.record.read_bytes())
    print(f"SIMULATED with the sensor record of {record.gpu_model}: no reading of a card")
    print(table(simulated(record, options.idle_w, options.kernel_w)))


if __name__ == "__main__":
    main()
