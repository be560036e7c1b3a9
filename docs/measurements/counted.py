"""Do rates and tails that advisor reads from others' jobs agree with what the jobs know themselves?

    .venv/bin/python docs/measurements/counted.py --python /path/to/venv/bin/python
    .venv/bin/python docs/measurements/counted.py --python .. --only loop page --seconds 30

Each job notes the moment and the duration of each step, or request, in a file of its own, and is
counted as in a profile: by `advisor.callbacks`, by a callback, or by `advisor.scrape` on its
Prometheus page. Both are compared over the same window. The interpreter needs torch, transformers,
accelerate, lightning, prometheus_client and ray[serve], for the jobs that are asked for; with a GPU
they use it. Nothing is installed.
"""

import argparse
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from advisor.progress import FILE_BYTES
from advisor.runtime.counting import percentile_ms, read_latencies

ROOT = Path(__file__).parents[2]
WARM_UP_S = 3.0

NOTE = """
import os, struct, sys, time
def note(took_s=0.0):
    with open(os.environ["NOTES"], "ab", buffering=0) as notes:
        notes.write(struct.pack("<dd", time.monotonic(), took_s))
def done(cuda):
    if cuda: torch.cuda.synchronize()
    note()
"""
MODEL = """
import torch
cuda = torch.cuda.is_available()
width = 2048 if cuda else 384
layers = [m for _ in range(4) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
torch.set_num_threads(1)
"""
LOOP = """
net = torch.nn.Sequential(*layers).to("cuda" if cuda else "cpu")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
x = torch.randn(64, width, device="cuda" if cuda else "cpu")
while True:
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
    done(cuda)
"""
TRAINER = """
import transformers
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(*layers)
    def forward(self, x):
        return {"loss": self.net(x).square().mean()}
class Own(transformers.TrainerCallback):
    def on_step_end(self, *_, **__):
        done(cuda)
arguments = transformers.TrainingArguments("/tmp", max_steps=10**6, per_device_train_batch_size=64,
    report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
    gradient_accumulation_steps=2)
data = [{"x": torch.randn(width)}] * 4096
callbacks = [Own()]
if "callback" in sys.argv:
    from advisor.callbacks import trainer_callback
    callbacks.append(trainer_callback())
transformers.Trainer(Net(), arguments, train_dataset=data, callbacks=callbacks).train()
"""
LIGHTNING = """
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(*layers)
    def training_step(self, batch, number):
        return self.net(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
class Own(pl.Callback):
    def on_train_batch_end(self, *_, **__):
        done(cuda)
callbacks = [Own()]
if "callback" in sys.argv:
    from advisor.callbacks import lightning_callback
    callbacks.append(lightning_callback())
loader = torch.utils.data.DataLoader(torch.randn(4096, width), batch_size=64)
pl.Trainer(max_epochs=10**6, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=callbacks).fit(Net(), loader)
"""
SERVES = """
import random
draw = random.Random(1)
def serve():
    begun = time.monotonic()
    time.sleep(draw.lognormvariate(-4.6, 0.5))
    return time.monotonic() - begun
"""
PAGE = (
    SERVES
    + """
from prometheus_client import Counter, Histogram, start_http_server
counter = Counter("own_requests", "Requests.")
# 12 % apart; those of most servers are wider.
took = Histogram("own_seconds", "Latencies.", buckets=[0.001 * 1.12**n for n in range(60)])
start_http_server(int(os.environ["PORT"]), "127.0.0.1")
while True:
    took_s = serve()
    counter.inc(); took.observe(took_s); note(took_s)
"""
)
ANSWERED = (
    SERVES
    + """
from advisor.progress import Progress
progress = Progress()
while True:
    took_s = serve()
    progress.answered([took_s]); note(took_s)
"""
)
RAY = """
import asyncio, http.client, random, threading
buckets = ",".join(f"{1.12**n:.3f}" for n in range(60))
os.environ["RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS"] = buckets
import ray
from ray import serve as ray_serve
in_replica = "replica" in sys.argv
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
    _metrics_export_port=int(os.environ["PORT"]), configure_logging=False)
@ray_serve.deployment(max_ongoing_requests=100)
class Own:
    def __init__(self):
        self.draw = random.Random(1)
    async def __call__(self, request):
        begun = time.monotonic()
        await asyncio.sleep(self.draw.lognormvariate(-2.3, 0.5))
        if in_replica: note(time.monotonic() - begun)
        return "done"
ray_serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["PORT"]) + 1})
ray_serve.run(Own.bind(), name="own")
def ask():
    to = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]) + 1)
    while True:
        begun = time.monotonic()
        to.request("GET", "/")
        to.getresponse().read()
        if not in_replica: note(time.monotonic() - begun)
for _ in range(8):
    threading.Thread(target=ask).start()
"""

HOOK = ("-m", "advisor.callbacks", "job.py")
PLAIN = ("job.py", "callback")
JOBS = {
    "loop": (MODEL + LOOP, HOOK, None),
    "trainer-hook": (MODEL + TRAINER, HOOK, None),
    "trainer-callback": (MODEL + TRAINER, PLAIN, None),
    "lightning-hook": (MODEL + LIGHTNING, HOOK, None),
    "lightning-callback": (MODEL + LIGHTNING, PLAIN, None),
    "progress": (ANSWERED, PLAIN, None),
    "page": (PAGE, PLAIN, ("own_requests_total", "own_seconds")),
    "ray-serve": (
        RAY,
        PLAIN,
        ("ray_serve_num_http_requests_total", "ray_serve_http_request_latency_ms"),
    ),
    "ray-serve-replica": (
        RAY,
        ("job.py", "replica"),
        (
            "ray_serve_deployment_request_counter_total",
            "ray_serve_deployment_processing_latency_ms",
        ),
    ),
}


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    heads = f"{'own /s':>9} {'read /s':>9} {'differ':>8} {'own p99':>9} {'read p99':>9}"
    print(f"{'job':20} {heads} differ")
    for name in asked.only:
        with tempfile.TemporaryDirectory() as folder:
            print(
                f"{name:20} {_compared(name, asked.python, asked.seconds, Path(folder))}",
                flush=True,
            )


def _compared(name: str, python: str, seconds: float, folder: Path) -> str:
    code, words, page = JOBS[name]
    (folder / "job.py").write_text(NOTE + code)
    (folder / "progress").write_bytes(bytes(FILE_BYTES))
    (folder / "notes").touch()
    port = _free_port()
    command = [python, *words]
    if page is not None:
        counted = f"--url=http://127.0.0.1:{port}/metrics", f"--counter={page[0]}"
        scrape = "-m", "advisor.scrape", *counted, f"--histogram={page[1]}", "--"
        command = [python, *scrape, *command]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ADVISOR_PROGRESS_FILE": str(folder / "progress"),
        "NOTES": str(folder / "notes"),
        "PORT": str(port),
    }
    with (folder / "log").open("wb") as log:
        job = subprocess.Popen(
            command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        # A page is read now and then (Ray renews its own each ten seconds), so the window begins
        # and ends where the count has just moved, as many readings show it in a profile.
        return _over_window(job, folder, seconds, at_changes=page is not None)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def _over_window(
    job: "subprocess.Popen[bytes]", folder: Path, seconds: float, *, at_changes: bool
) -> str:
    end = time.monotonic() + 120
    while _count(folder) == 0:
        if job.poll() is not None or time.monotonic() > end:
            return f"was not counted: {(folder / 'log').read_text(errors='replace')[-300:]}"
        time.sleep(0.05)
    time.sleep(WARM_UP_S)
    first_s, first, before = _look(folder, at_changes)
    time.sleep(seconds)
    last_s, last, after = _look(folder, at_changes)
    notes = [*struct.iter_unpack("<dd", (folder / "notes").read_bytes())]
    own = [took_s for at_s, took_s in notes if first_s < at_s <= last_s]
    rates = len(own) / (last_s - first_s), (last - first) / (last_s - first_s)
    line = f"{rates[0]:9.2f} {rates[1]:9.2f} {100 * (rates[1] / rates[0] - 1):+7.2f}%"
    read_ms = percentile_ms(before, after, 99)
    if read_ms is None:
        return line
    own_ms = 1000 * sorted(own)[int(0.99 * len(own))]
    return f"{line} {own_ms:6.2f} ms {read_ms:6.2f} ms {100 * (read_ms / own_ms - 1):+6.2f}%"


def _look(folder: Path, at_change: bool) -> tuple[float, int, tuple[int, ...]]:
    """Moment, count and latencies; where the count moves seldom, just after it has moved."""
    known = _count(folder)
    while at_change and _count(folder) == known:
        time.sleep(0.01)
    return time.monotonic(), _count(folder), read_latencies(folder / "progress")


def _count(folder: Path) -> int:
    return int.from_bytes((folder / "progress").read_bytes()[:8], "little")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


main()
