"""Prints how MPS clients leave after `terminate_client`, and whether a neighbour minds a signal.

    python docs/measurements/leaving.py

Needs a GPU without other jobs, and PyTorch. A neighbour computes all the time; beside it a client
that is busy, one that pauses and one that sleeps are terminated, then signalled as soon as the list
of clients no longer has them, twice at once, and twice after half a second. Prints seconds since
`terminate_client`, and the neighbour's steps of each second.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from advisor.runtime.mps import Control, start_server

JOB = """
import sys, time, torch
a = torch.randn(2048, 2048, device="cuda")
torch.cuda.synchronize()
print("up", flush=True)
kind, n, since = sys.argv[1], 0, time.time()
while True:
    if kind == "sleeping":
        time.sleep(1)
        continue
    a = (a @ a).clamp(-1, 1)
    torch.cuda.synchronize()
    n += 1
    if kind == "pausing":
        time.sleep(0.5)
    if kind == "neighbour" and time.time() - since > 1:
        print(n, flush=True)
        n, since = 0, time.time()
"""

LONGEST_S = 12


def main() -> None:
    """Start MPS and the neighbour, and end one client after another."""
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    uuid = subprocess.check_output(query, text=True).split()[0]
    with tempfile.TemporaryDirectory() as folder:
        pipe, log = Path(folder, "pipe"), Path(folder, "log")
        pipe.mkdir()
        log.mkdir()
        control = Control(pipe, dict(os.environ))
        control.start_daemon(uuid, log)
        time.sleep(1)
        start_server(control)
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_VISIBLE_DEVICES": uuid}
        with Path(folder, "steps").open("w+") as steps:
            neighbour = started("neighbour", env, steps)
            time.sleep(4)
            for wait_s in (None, 0.0, 0.0, 0.5, 0.5):
                for kind in ("busy", "pausing", "sleeping"):
                    print(kind, leaving(control, started(kind, env), wait_s), flush=True)
            steps.seek(0)
            print("neighbour", neighbour.poll(), steps.read().split()[1:])
            neighbour.kill()
        control.ask("quit -t 5")


def started(
    kind: str, env: dict[str, str], steps: IO[str] | int = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """A client of MPS that has its context."""
    job = subprocess.Popen(["python3", "-c", JOB, kind], env=env, stdout=steps, text=True)
    if job.stdout:
        job.stdout.readline()
        time.sleep(1)
    return job


def leaving(
    control: Control, job: "subprocess.Popen[str]", wait_s: float | None
) -> dict[str, object]:
    """When a client was off the list, and when it had ended."""
    (server,) = control.servers()
    since = time.monotonic()
    answer = control.ask(f"terminate_client {server} {job.pid}")
    found: dict[str, object] = {"signal after, s": wait_s, "answer": answer}
    while (now_s := time.monotonic() - since) < LONGEST_S and len(found) < 4:
        if wait_s is not None and now_s >= wait_s:
            with contextlib.suppress(ProcessLookupError):
                job.terminate()
        if job.poll() is not None:
            found.setdefault("ended", round(now_s, 2))
        if job.pid not in control.clients(server):
            found.setdefault("off the list", round(now_s, 2))
        time.sleep(0.02)
    job.kill()
    job.wait()
    return found | {"server": control.status(server).strip()}


if __name__ == "__main__":
    main()
