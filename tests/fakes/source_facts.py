"""What a source of telemetry gives, as JSON, opened as commands open it.

python source_facts.py nvml GPU-UUID     # in a process of its own: libraries are found at start
"""

import json
import sys
from contextlib import closing
from typing import Any

from advisor.core.gpu import Gpu
from advisor.core.telemetry import COUNTERS, UNITS, TelemetrySource
from advisor.settings import read_settings
from advisor_profiling.testbed import open_source


def facts(source: TelemetrySource) -> dict[str, Any]:
    """Two looks at all but counters, which need a window, and what else the interface has."""
    names = UNITS.keys() - COUNTERS.keys()
    first = source.read(names)
    source.start_window()
    return {
        "name": source.name,
        "uuid": source.gpu.uuid,
        "interval_s": source.interval_s,
        "channels": {channel.name: [channel.kind, channel.window_s] for channel in source.channels},
        "looks": [first, source.read(names)],
        "nothing": source.read(()),
        "throttle": source.throttle_reasons(),
        "memory_mib": source.processes_memory_mib(()),
        "dropped": sum(gate.dropped for gate in source.gates),
    }


if __name__ == "__main__":
    name, vendor, uuid = sys.argv[1:]
    gpu: Any = Gpu(uuid=uuid, model="NVIDIA H200", vendor=vendor)  # pyright: ignore[reportArgumentType]
    named: Any = name
    with closing(open_source(gpu, named, read_settings())) as opened:
        print(json.dumps(facts(opened)))
