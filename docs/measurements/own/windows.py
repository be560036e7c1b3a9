"""Windows of jobs that run together on this GPU under MPS: rates, p99, power and counters."""

import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WORKLOADS = ROOT / "profiling/workloads"
SETTLE_S, WINDOW_S, SET_WINDOW_S, START_S = 0.7, 2.2, 4.0, 150.0
GPM = {"busy": 1, "sm": 2, "occupancy": 3, "tensor": 5, "dram": 10}
INSTANT_POWER = 186
LATENCIES_AT, LATENCY_BUCKETS, LATENCY_LEAST_S, LATENCY_STEP = 512, 320, 1e-5, 1.05
"""The histogram in a progress file: advisor/progress.py."""

BELOW_NORMAL = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
WITHOUT_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/var/empty"}


def job_commands() -> dict[str, tuple[list[str], Path]]:
    """Command and folder of each job, also of those in public/, that waits at a gate."""
    commands = {}
    for path in sorted([*(ROOT / "jobs").glob("*.yaml"), *(HERE / "public").glob("*.yaml")]):
        job = yaml.safe_load(path.read_text())
        first, *words = job["command"].split()
        workdir = (path.parent / job["workdir"]).resolve()
        if job["progress"].get("gate") and first == "python3" and workdir.is_dir():
            commands[job["name"]] = [sys.executable, *words], workdir
    return commands


class Process:
    """A job behind its gate.

    In its name `!1` puts it below normal, `@50` limits it, and `~` keeps it off MPS.
    """

    def __init__(
        self, name: str, command: list[str], folder: Path, workdir: Path = WORKLOADS
    ) -> None:
        self.name = name
        files = folder / f"{name}.progress", folder / f"{name}.gate"
        for path, size in zip(files, (4096, 16), strict=True):
            path.write_bytes(bytes(size))
        self.progress, self.gate = (mmap.mmap(os.open(path, os.O_RDWR), 0) for path in files)
        self.log = folder / f"{name}.log"
        told = {"ADVISOR_PROGRESS_FILE": str(files[0]), "ADVISOR_GATE_FILE": str(files[1])}
        env = os.environ | told | {"OMP_NUM_THREADS": "1"}
        env |= BELOW_NORMAL if "!1" in name else {}
        env |= WITHOUT_MPS if "~" in name else {}
        if limit := name.partition("@")[2].partition("!")[0]:
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = limit
        env["PYTHONPATH"] = f"{ROOT}:{env.get('PYTHONPATH', '')}"
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(command, cwd=workdir, env=env, stdout=log, stderr=log)

    def waits(self) -> bool:
        """Whether it has warmed up and stands before its gate."""
        return struct.unpack_from("<q", self.gate, 8)[0] == 1

    def want(self, wanted: int) -> None:
        """Hold (0), go (1) or quit (2)."""
        struct.pack_into("<q", self.gate, 0, wanted)

    def count(self) -> int:
        """Units of work so far."""
        return struct.unpack_from("<q", self.progress)[0]

    def latencies(self) -> tuple[int, ...]:
        """How many requests took about as long as each bucket says, so far."""
        return struct.unpack_from(f"<{LATENCY_BUCKETS}q", self.progress, LATENCIES_AT)


def are_ready(processes: Collection[Process], seconds: float) -> bool:
    """Whether all stand before their gates, when each does or has ended or the time is over."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not all(
        process.waits() or process.child.poll() is not None for process in processes
    ):
        time.sleep(0.05)
    return all(process.waits() for process in processes)


def end(processes: Collection[Process]) -> None:
    """Let all quit first: a client of MPS that is killed at work can take the others with it."""
    for process in processes:
        process.want(2)
    until_s = time.monotonic() + 5
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.child.wait(max(0.0, until_s - time.monotonic()))
        process.child.kill()


def per_s(
    together: Collection[Process],
    seconds: float = WINDOW_S,
    settle_s: float = SETTLE_S,
    look: Callable[[], Iterable[float]] = list,
) -> list[float]:
    """How much more a look at both ends of a window reads, then the units of each job, a second."""
    looks = list[list[float]]()
    for process in together:
        process.want(1)
    for wait_s in (settle_s, seconds):
        time.sleep(wait_s)
        read = [*look()]
        looks.append([time.perf_counter(), *read, *(process.count() for process in together)])
    for process in together:
        process.want(0)
    are_ready(together, 4)
    took_s, *grown = (b - a for a, b in zip(*looks, strict=True))
    return [each / took_s for each in grown]


def p99_ms(before: tuple[int, ...], after: tuple[int, ...]) -> float | None:
    """The 99th percentile of the requests between two looks; None without requests."""
    counts = [b - a for a, b in zip(before, after, strict=True)]
    below = 0
    for n, count in enumerate(counts):
        below += count
        if below and below >= 0.99 * sum(counts):
            return round(1000 * LATENCY_LEAST_S * LATENCY_STEP**n, 3)
    return None


def percent_between(samples: tuple[Any, Any]) -> dict[str, float]:
    """Counters between two samples of a GPU, by the names of `GPM`."""
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
    asked.sample1, asked.sample2 = samples
    for place, number in enumerate(GPM.values()):
        asked.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(asked)
    return {name: asked.metrics[n].value for n, name in enumerate(GPM)}


def measure(handle: Any, together: list[Process], samples: tuple[Any, Any]) -> dict[str, Any]:
    """One window."""
    for process in together:
        process.want(1)
    time.sleep(SETTLE_S)
    pynvml.nvmlGpmSampleGet(handle, samples[0])
    before = [(process.count(), process.latencies()) for process in together]
    begun = time.perf_counter()
    watts: list[float] = []
    while time.perf_counter() - begun < SET_WINDOW_S:
        field = pynvml.nvmlDeviceGetFieldValues(handle, [INSTANT_POWER])[0]
        watts.append(field.value.uiVal / 1000)
        time.sleep(0.02)
    after = [(process.count(), process.latencies()) for process in together]
    took_s = time.perf_counter() - begun
    pynvml.nvmlGpmSampleGet(handle, samples[1])
    for process in together:
        process.want(0)
    are_ready(together, 3)
    return {
        "jobs": [process.name for process in together],
        "rates_per_s": [(b[0] - a[0]) / took_s for a, b in zip(before, after, strict=True)],
        "p99_ms": [p99_ms(a[1], b[1]) for a, b in zip(before, after, strict=True)],
        "window_s": took_s,
        "power_w": sum(watts) / len(watts),
        "percent": percent_between(samples),
        "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "at_s": time.time(),
    }


def campaign(
    rows: Path,
    commands: dict[str, tuple[list[str], Path]],
    sets: Iterable[tuple[str, ...]],
    seconds: float,
) -> None:
    """Start every command once, measure each set that the file has not, append what was measured.

    A process that stands before its gate takes no time of the GPU. No window starts after
    `seconds`. The GPU is that whose UUID is in CUDA_VISIBLE_DEVICES, or the first.
    """
    begun = time.monotonic()
    known = {tuple(json.loads(row)["jobs"]) for row in rows.open()} if rows.exists() else set()
    todo = [together for together in sets if together not in known]
    pynvml.nvmlInit()
    uuid = os.environ.get("CUDA_VISIBLE_DEVICES")
    by_uuid, by_index = pynvml.nvmlDeviceGetHandleByUUID, pynvml.nvmlDeviceGetHandleByIndex
    handle = by_uuid(uuid) if uuid else by_index(0)
    samples = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    card = {"gpu": pynvml.nvmlDeviceGetName(handle), "uuid": pynvml.nvmlDeviceGetUUID(handle)}
    folder, needed = Path(tempfile.mkdtemp()), {name for together in todo for name in together}
    processes = {
        name: Process(name, command, folder, workdir)
        for name, (command, workdir) in sorted(commands.items())
        if name in needed
    }
    are_ready(processes.values(), START_S)
    print(f"started in {time.monotonic() - begun:.0f} s", flush=True)
    for n, together in enumerate(todo, 1):
        if time.monotonic() - begun > seconds:
            print(f"time is up; {len(todo) - n + 1} windows are left", flush=True)
            break
        jobs = [processes[name] for name in together]
        if not all(process.waits() for process in jobs):
            print(f"{together} not ready: {[p.log.read_text()[-300:] for p in jobs]}", flush=True)
            continue
        row = measure(handle, jobs, samples) | card
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        rates = [round(rate, 2) for rate in row["rates_per_s"]]
        print(n, len(todo), *together, rates, row["p99_ms"], round(row["power_w"]), flush=True)
    end(processes.values())
