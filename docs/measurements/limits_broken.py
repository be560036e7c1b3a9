"""Tries on a real GPU how a job can leave its MPS limit, and who can see from outside that it did.

    python3 docs/measurements/limits_broken.py --gpu 0 --json limits_broken.json

Needs the NVIDIA driver with its MPS control program, and `nvidia-ml-py`; takes about 45 s. It
starts an MPS daemon of its own in a temporary folder and ends all that it started; no setting of
the card is changed. Beside each subject a good client computes at 30 %.

Per way: `attribute` is the number of SMs that the process reads (CU_DEVICE_ATTRIBUTE 16), `ran on`
how many SMs its kernel noted (%smid), `mps` what it reads of attribute 133. From outside: `client`
(get_client_list), `computes` (NVML's compute processes), `nvml mps` (NVML's MPS compute processes),
each with the time from the context to the first sight. Raw answers are in the JSON.
"""

import argparse
import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from limits_subject import PERCENTAGE, PIPE, SCRIPT, command_of

CONTROL = "nvidia-cuda-mps-control"
PER_CONTEXT = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"
SHARE = "30"
LOOK_S = 1.5
# way: what to do inside before the first CUDA call, or how the subject is started.
WAYS = {
    "good client": "nothing",
    "variable set to 100 inside": "set-100",
    "variable removed inside": "remove",
    "variable removed inside after cuInit": "remove-after-init",
    "pipe directory to nowhere inside": "nowhere",
    "short children without variables": "children",
    "env -i setsid": "escape",
    "per-context variable by a wrapper": "per-context",
    "removed inside, server at 30 %": "server",
    "set to 100 inside, server at 30 %": "server-100",
    "set to 100 inside, server at 70 %": "server-70",
}


class Host:
    """One GPU with a daemon of our own."""

    def __init__(self, folder: Path, index: int) -> None:
        # Not at the top: the subjects run without it, too.
        self.nvml: Any = importlib.import_module("pynvml")
        self.folder = folder
        self.nvml.nvmlInit()
        self.device = self.nvml.nvmlDeviceGetHandleByIndex(index)
        self.uuid, self.name = (
            word.decode() if isinstance(word, bytes) else word
            for word in (
                self.nvml.nvmlDeviceGetUUID(self.device),
                self.nvml.nvmlDeviceGetName(self.device),
            )
        )
        self.pipe, self.log = folder / "pipe", folder / "log"
        self.started: list[subprocess.Popen[bytes]] = []
        self.libcuda = find_libcuda()

    def ask(self, command: str) -> str:
        """One command to the daemon; its whole reply."""
        done = subprocess.run(
            [CONTROL], env={**os.environ, PIPE: str(self.pipe)}, input=command + "\n",
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        return (done.stdout + done.stderr).strip()

    def open(self) -> int:
        """Start the daemon and its server; the server's process number."""
        for directory in (self.pipe, self.log):
            directory.mkdir()
        variables = {PIPE: str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        env = {**os.environ, **variables, "CUDA_VISIBLE_DEVICES": self.uuid}
        subprocess.run([CONTROL, "-d"], env=env, check=True, timeout=20)
        self.ask(f"start_server -uid {os.getuid()}")
        for _ in range(100):
            if servers := self.ask("get_server_list").split():
                return int(servers[0])
            time.sleep(0.1)
        sys.exit("no MPS server started")

    def start(self, way: str, report: Path, seconds: float) -> subprocess.Popen[bytes]:
        """Start a subject as a launcher would: variables by exec, a session of its own."""
        env = {**os.environ, PIPE: str(self.pipe), PERCENTAGE: SHARE}
        env["CUDA_VISIBLE_DEVICES"] = self.uuid
        command = command_of(way, self.libcuda, report, seconds)
        if way == "escape":
            # The real program needs the driver's folder on some hosts, so that alone is kept.
            path = os.environ.get("LD_LIBRARY_PATH", "")
            bare = ["env", "-i", f"LD_LIBRARY_PATH={path}", f"CUDA_VISIBLE_DEVICES={self.uuid}"]
            command = [*bare, "setsid", "-f", *command_of("nothing", self.libcuda, report, seconds)]
        if way == "per-context":
            env[PER_CONTEXT] = "1"
        process = subprocess.Popen(command, env=env, start_new_session=True)
        self.started.append(process)
        return process

    def listed(self, kind: str) -> dict[int, int | None]:
        """Process numbers and bytes that NVML lists."""
        ask = getattr(self.nvml, f"nvmlDeviceGet{kind}RunningProcesses")
        try:
            return {p.pid: p.usedGpuMemory for p in ask(self.device)}
        except self.nvml.NVMLError as error:
            # What one driver lacks must not end the rest.
            print(f"{kind}: {error}", flush=True)
            return {}

    def used(self) -> list[list[int]]:
        """SM use per process, where NVML says it: [pid, sm %]."""
        try:
            samples = self.nvml.nvmlDeviceGetProcessUtilization(self.device, 0)
            return [[s.pid, s.smUtil] for s in samples]
        except self.nvml.NVMLError as error:
            print(f"process utilization: {error}", flush=True)
            return []

    def logged(self) -> str:
        """All that daemon and server wrote so far."""
        return "".join(p.read_text(errors="replace") for p in sorted(self.log.glob("*.log")))

    def close(self) -> None:
        """Clients off first, then signals, then the daemon."""
        for server in self.ask("get_server_list").split():
            for client in self.ask(f"get_client_list {server}").split():
                self.ask(f"terminate_client {server} {client}")
        for process in self.started:
            process.kill()
            process.wait()
        self.ask("quit -t 5")


def find_libcuda() -> str:
    """Path of the driver's library, so that a process with an empty environment finds it, too."""
    ctypes.CDLL("libcuda.so.1")
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(line.split()[-1] for line in lines if "libcuda.so" in line)


def watch(host: Host, server: int, report: Path) -> dict[str, Any]:
    """Look from outside while a subject computes; the times are from its context on."""
    deadline, first = time.monotonic() + 10, dict[str, float]()
    clients, computes, mps = set[int](), set[int](), set[int]()
    seen: dict[str, Any] = {}
    costs: dict[str, list[float]] = {"nvml": [], "control": []}
    look_until = deadline
    while time.monotonic() < min(deadline, look_until):
        begun = time.monotonic()
        computes |= set(host.listed("Compute"))
        mps |= set(host.listed("MPSCompute"))
        asked = time.monotonic()
        clients |= set(map(int, host.ask(f"get_client_list {server}").split()))
        costs["nvml"].append(1000 * (asked - begun))
        costs["control"].append(1000 * (time.monotonic() - asked))
        if report.exists():
            if not seen:
                look_until = time.monotonic() + LOOK_S
            seen = json.loads(report.read_text())
            found = {"client": clients, "computes": computes, "nvml_mps": mps}
            for name, pids in found.items():
                if seen["pid"] in pids:
                    first.setdefault(name, time.time() - float(str(seen["context_at"])))
        time.sleep(0.05)
    return {
        **seen,
        "first_seen_s": {k: round(v, 2) for k, v in first.items()},
        "clients": sorted(clients),
        "compute_processes": host.listed("Compute") | dict.fromkeys(computes),
        "mps_compute_processes": sorted(mps),
        "look_ms": {k: round(sorted(v)[len(v) // 2], 1) for k, v in costs.items() if v},
    }


def extras(host: Host, server: int) -> dict[str, Any]:
    """Whatever else might tell a client's share."""
    commands = ("ps", f"get_device_client_list {server}", "get_device_client_list",
                f"get_active_thread_percentage {server}", f"device_query {server}",
                f"get_server_status {server}")  # fmt: skip
    smi = subprocess.run(
        ["nvidia-smi", f"--id={host.uuid}"], capture_output=True, text=True, check=False
    ).stdout if shutil.which("nvidia-smi") else ""  # fmt: skip
    return {
        **{command: host.ask(command) for command in commands},
        "nvidia-smi": [line for line in smi.splitlines() if "MiB" in line or "C " in line],
        "process_utilization": host.used(),
        "compute_processes": host.listed("Compute"),
        "mps_compute_processes": host.listed("MPSCompute"),
    }


def try_way(host: Host, server: int, name: str, way: str) -> dict[str, Any]:
    """One way, beside the good client."""
    report, before = host.folder / f"{way}.json", len(host.logged())
    server_share = {"server": SHARE, "server-100": SHARE, "server-70": "70"}.get(way)
    if server_share:
        host.ask(f"set_active_thread_percentage {server} {server_share}")
    begun = time.monotonic()
    process = host.start(way, report, 8.0)
    row = {"way": name, "started": process.pid, **watch(host, server, report)}
    if way in ("nothing", "nowhere", "server"):
        row["extras"] = extras(host, server)
    row["seconds"] = round(time.monotonic() - begun, 1)
    end(host, server, process, int(str(row.get("pid", process.pid))))
    if server_share:
        row["server_said"] = host.ask(f"get_active_thread_percentage {server}")
        host.ask(f"set_active_thread_percentage {server} 100")
    row["log"] = host.logged()[before:]
    return row


def end(host: Host, server: int, process: subprocess.Popen[bytes], pid: int) -> None:
    """End a subject in the safe order."""
    for one in {process.pid, pid} & set(map(int, host.ask(f"get_client_list {server}").split())):
        host.ask(f"terminate_client {server} {one}")
    process.kill()
    process.wait()
    # Only what was just seen to compute for us, and still runs the script of subjects.
    try:
        if SCRIPT.name in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
    time.sleep(0.3)


def show(rows: list[dict[str, Any]]) -> None:
    """A table for people."""
    head = ("way", "attribute", "ran on", "mps", "client", "computes", "nvml mps", "told apart")
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        times: dict[str, float] = row.get("first_seen_s", {})
        sights = [times.get(key, "no") for key in ("client", "computes", "nvml_mps")]
        apart = "yes" if "computes" in times and "client" not in times else "no"
        cells = [
            row["way"],
            row.get("attribute"),
            row.get("ran_on"),
            row.get("mps"),
            *sights,
            apart,
        ]
        print("| " + " | ".join(map(str, cells)) + " |")
    print("\n`told apart`: NVML lists it as computing, and the server does not as a client.")
    print("The forged proof is no matter of the driver: the probe ran the job's code.")


def main() -> None:
    """Try all ways."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="limits"))
    host = Host(folder, options.gpu)
    print(f"{host.name}, driver {host.nvml.nvmlSystemGetDriverVersion()}", flush=True)
    rows: list[dict[str, Any]] = []
    try:
        server = host.open()
        neighbour = host.start("nothing", folder / "neighbour.json", 120)
        for name, way in WAYS.items():
            try:
                rows.append(try_way(host, server, name, way))
            except Exception as error:  # noqa: BLE001 - the other ways still count
                rows.append({"way": name, "error": repr(error)})
                print(f"{name}: {error!r}", flush=True)
        print(f"neighbour {neighbour.pid} ended meanwhile: {neighbour.poll()}")
    finally:
        host.close()
        logs = host.logged()
        shutil.rmtree(folder, ignore_errors=True)
    show(rows)
    if options.json:
        options.json.write_text(
            json.dumps({"gpu": host.name, "rows": rows, "logs": logs}, indent=1)
        )


if __name__ == "__main__":
    main()
