"""Analyses kept runs of a kernel once more, by the record of the card's sensors as it is today.

    .venv/bin/python docs/measurements/power/kernel_again.py [RUNS.jsonl.gz]

RUNS are the runs that `advisor power kernel` keeps in `kernels/` of its home, packed; the 8192
product on an H200 of 2026-11-23 if not given.
"""

import gzip
import json
import sys
from pathlib import Path

from advisor.formats.wire import read_tolerant
from advisor.validity.sensor_record import record_for
from advisor_data.files.power_records import bundled_sensors
from advisor_power.kernels.analyse import analyse
from advisor_power.kernels.trace import TraceBlock

FIRST_MS = 50.0

RUNS = Path(__file__).with_name("gemm-8192-h200.jsonl.gz")


def main() -> None:
    """Print the curve, the steady power and what the counter says."""
    head, *lines = gzip.decompress(
        Path(sys.argv[1] if sys.argv[1:] else RUNS).read_bytes()
    ).splitlines()
    found, card = json.loads(head)["found"], json.loads(head)["conditions"]
    record = record_for(card["gpu_uuid"], card["gpu_model"], card["driver"], bundled_sensors())
    channel = record and record.channel("instant")
    assert record
    assert channel
    blocks = [read_tolerant(TraceBlock, line) for line in lines]
    power = analyse(
        blocks,
        record,
        channel,
        execution_ms=1000 * found["execution_s"],
        ssp_execution=found["ssp_execution"],
        resolution_ms=5.0,
    )
    for point in power.curve:
        bounds = f"[{point.low_w:.0f} {point.high_w:.0f}]"
        print(f"{point.begin_ms:6.1f} to {point.end_ms:6.1f} ms  {point.power_w:6.0f} W {bounds}")
    first = [point.power_w for point in power.curve if point.end_ms <= FIRST_MS]
    print(f"first {FIRST_MS:g} ms: {sum(first) / len(first):.0f} W")
    read_w = [r.power_w for block in blocks for run in block.runs for r in run.readings]
    print(f"largest single reading: {max(read_w):.0f} W")
    print("steady:", power.ssp_power_w)
    print(power.difference or power.no_difference)


main()
