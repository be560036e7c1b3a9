"""Count the kernels of a unit of work of every job that comes with the project.

    python docs/measurements/own/kernels_per_unit.py rows.jsonl --part 1/4

Each job runs alone, beside kernels of 0.1 ms and beside kernels of 0.5 ms that fill the GPU
(short_kernels.py), and alone again, under MPS without limits. MPS gives two
processes that have work one kernel each in turn, so the kernels of a unit are the rate of the probe
over the rate of the job. MPS must run. A window that is in the file is not measured again.
"""

import argparse
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pynvml
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROBES = {"probe-0.1ms": ("0.1", "20"), "probe-0.5ms": ("0.5", "50")}
SETTLE_S, WINDOW_S, START_S = 0.8, 2.4, 120.0
GPM = {"busy": 1, "sm": 2, "occupancy": 3, "tensor": 5, "dram": 10}
INSTANT_POWER = 186


class Process:
    """A job behind its gate."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        files = folder / f"{name}.progress", folder / f"{name}.gate"
        for path, size in zip(files, (4096, 16), strict=True):
            path.write_bytes(bytes(size))
        self.progress, self.gate = (mmap.mmap(os.open(path, os.O_RDWR), 0) for path in files)
        self.log = folder / f"{name}.log"
        told = {"ADVISOR_PROGRESS_FILE": str(files[0]), "ADVISOR_GATE_FILE": str(files[1])}
        env = os.environ | told | {"OMP_NUM_THREADS": "1"}
        env["PYTHONPATH"] = f"{ROOT}:{env.get('PYTHONPATH', '')}"
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                command, cwd=ROOT / "profiling/workloads", env=env, stdout=log, stderr=log
            )

    def waits(self) -> bool:
        """Whether it has warmed up and stands before its gate."""
        return struct.unpack_from("<q", self.gate, 8)[0] == 1

    def want(self, wanted: int) -> None:
        """Hold (0), go (1) or quit (2)."""
        struct.pack_into("<q", self.gate, 0, wanted)

    def count(self) -> int:
        """Units of work so far."""
        return struct.unpack_from("<q", self.progress)[0]


def window(handle: Any, together: list[Process], samples: tuple[Any, Any]) -> dict[str, Any]:
    """Rates, power and counters of processes that run together."""
    for process in together:
        process.want(1)
    time.sleep(SETTLE_S)
    pynvml.nvmlGpmSampleGet(handle, samples[0])
    counts, begun = [process.count() for process in together], time.perf_counter()
    watts: list[float] = []
    while time.perf_counter() - begun < WINDOW_S:
        field = pynvml.nvmlDeviceGetFieldValues(handle, [INSTANT_POWER])[0]
        watts.append(field.value.uiVal / 1000)
        time.sleep(0.02)
    done = [process.count() - before for process, before in zip(together, counts, strict=True)]
    took_s = time.perf_counter() - begun
    pynvml.nvmlGpmSampleGet(handle, samples[1])
    for process in together:
        process.want(0)
    waited_s = time.perf_counter() + 3
    while time.perf_counter() < waited_s and not all(process.waits() for process in together):
        time.sleep(0.01)
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
    asked.sample1, asked.sample2 = samples
    for place, number in enumerate(GPM.values()):
        asked.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(asked)
    return {
        "jobs": [process.name for process in together],
        "rates_per_s": [n / took_s for n in done],
        "window_s": took_s,
        "power_w": sum(watts) / len(watts),
        "percent": {name: asked.metrics[n].value for n, name in enumerate(GPM)},
        "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "at_s": time.time(),
    }


def main() -> None:
    """Measure one part of the jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--part", default="1/1", help="which part of the jobs, of how many")
    parser.add_argument("--only", nargs="*", help="names of jobs")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    jobs = {}
    for path in sorted((ROOT / "jobs").glob("*.yaml")):
        job = yaml.safe_load(path.read_text())
        if job["progress"].get("gate") and job["command"].split()[0] == "python3":
            jobs[job["name"]] = [sys.executable, *job["command"].split()[1:]]
    names = given.only or sorted(jobs)[part - 1 :: parts]
    kept = given.rows.read_text().splitlines() if given.rows.exists() else []
    known = {tuple(json.loads(row)["jobs"]) for row in kept}
    names = [name for name in names if (name, "probe-0.5ms") not in known]
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    samples = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    card = {"gpu": pynvml.nvmlDeviceGetName(handle), "uuid": pynvml.nvmlDeviceGetUUID(handle)}
    folder = Path(tempfile.mkdtemp())
    commands = {
        probe: [sys.executable, str(HERE / "short_kernels.py"), "--ms", ms, "--block-us", us]
        for probe, (ms, us) in PROBES.items()
    } | {name: jobs[name] for name in names}
    processes = {name: Process(name, command, folder) for name, command in commands.items()}
    begun = time.monotonic()
    while time.monotonic() - begun < START_S and not all(
        process.waits() or process.child.poll() is not None for process in processes.values()
    ):
        time.sleep(0.1)
    print(f"started in {time.monotonic() - begun:.0f} s", flush=True)
    probes = [processes[probe] for probe in PROBES]
    for n, name in enumerate([*PROBES, *names], 1):
        process = processes[name]
        if not process.waits():
            print(f"{name} did not start: {process.log.read_text()[-600:]}", flush=True)
            continue
        beside = [] if name in PROBES else [[process, probe] for probe in probes]
        for together in ([process], *beside, [process]):
            row = window(handle, together, samples) | card
            with given.rows.open("a") as rows:
                rows.write(json.dumps(row) + "\n")
            print(n, len(names), row["jobs"], [round(r, 2) for r in row["rates_per_s"]], flush=True)
    for process in processes.values():
        process.want(2)
    time.sleep(1)
    for process in processes.values():
        process.child.kill()


if __name__ == "__main__":
    main()
