"""Is a queue of short jobs watched, counted and metered to its end, and how long is the GPU idle?

    .venv/bin/python docs/measurements/run_queue.py
    .venv/bin/python docs/measurements/run_queue.py --python /path/with/torch/bin/python
    .venv/bin/python docs/measurements/run_queue.py --alone --seconds 5 8 12

Runs jobs of these lengths through `advisor run`, each of which prints its steps and notes what it
did itself. They are profiled first, so that they share the GPU; with `--alone` each has it for
itself. With an NVIDIA driver they multiply matrices with torch; without one the host is the fake
one of the tests. `--source` runs another checkout. Nothing is kept.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("", "api", "data", "models", "profiling", "training", "tests/fakes")

JOB = """
import itertools, json, os, sys, time
folder, seconds = sys.argv[1], 1e9
if os.path.exists(f"{folder}/lengths"):
    for n, seconds in enumerate(json.load(open(f"{folder}/lengths"))):
        try:
            os.mkdir(f"{folder}/job{n}")
            break
        except FileExistsError:
            pass
note = {"began": time.time()}
try:
    import torch
    size = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    def step():
        for _ in range(50): size @ size
        torch.cuda.synchronize()
    draw = int
except ImportError:
    from answering_fake import compute, draw_mw as draw
    def step():
        draw(400_000)
        time.sleep(0.02)
    compute()
until = time.monotonic() + seconds
for note["steps"] in itertools.count(1):
    step()
    print("step", note["steps"], flush=True)
    if time.monotonic() > until:
        break
draw(80_000)
note["ended"] = time.time()
with open(f"{folder}/job{n}.json", "w") as file:
    json.dump(note, file)
"""

METER = """
import json, select, sys, time, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
read = lambda: (time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000)
found = [read()]
print("began", flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]:
    found.append(read())
print(json.dumps(found))
"""


def main() -> None:
    """Run the queue, and print what was told of it beside what is so."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[6, 9, 14, 15, 16, 24])
    parser.add_argument("--python", default=sys.executable, help="of the jobs, with torch")
    parser.add_argument("--alone", action="store_true", help="do not profile them first")
    parser.add_argument("--source", type=Path, default=ROOT, help="checkout that is run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rq") as name:
        folder = Path(name)
        environment = _environment(folder, options.source)
        _write_job(folder, options.python)
        advisor = [sys.executable, "-P", "-m", "advisor"]
        if not options.alone:
            words = ["profile", "job", "--shares", "50,100", "--window", "3"]
            subprocess.run([*advisor, *words], env=environment, check=True, capture_output=True)
        (folder / "lengths").write_text(json.dumps(options.seconds))
        words = ["run", f"job*{len(options.seconds)}", "--json"]
        with _metered(environment) as read:
            done = subprocess.run(
                [*advisor, *words], env=environment, capture_output=True, text=True, check=False
            )
        if done.returncode:
            sys.exit(done.stdout[-2000:] + done.stderr)
        for row in _rows(folder, json.loads(done.stdout.splitlines()[-1]), read):
            print(f"{row[0]:<44}{row[1]}")


def _environment(folder: Path, source: Path) -> dict[str, str]:
    """Of a host of its own: with the driver that is here, else with that of the tests."""
    path = os.pathsep.join(str(source / package) for package in PACKAGES)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    (folder / "jobs").mkdir()
    for name, place in (("HOME", "home"), ("RUNTIME_DIR", "run"), ("LOCK_DIR", "locks")):
        environment[f"ADVISOR_{name}"] = str(folder / place)
    environment["ADVISOR_JOBS"] = str(folder / "jobs")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        sys.path.append(str(ROOT / "tests/fakes"))
        import fake_nvml
        import host

        (folder / "lib").mkdir()
        (folder / "nvml/gpu0").mkdir(parents=True)
        host.build_cuda(folder / "lib")
        fake_nvml.build(folder / "lib")
        environment |= host.FakeHost(folder, folder / "lib").environment()
    return environment


def _write_job(folder: Path, python: str) -> None:
    (folder / "job.py").write_text(JOB)
    job = {
        "command": [python, str(folder / "job.py"), str(folder)],
        "workdir": str(folder),
        "progress": {"kind": "output", "pattern": r"step (\d+)"},
    }
    (folder / "jobs/job.yaml").write_text(json.dumps(job))


@contextmanager
def _metered(environment: dict[str, str]) -> Generator[list[list[float]]]:
    """Moments and joules of the card's counter over the block, known at its end."""
    read: list[list[float]] = []
    meter = subprocess.Popen(
        [sys.executable, "-c", METER],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert meter.stdout is not None
    meter.stdout.readline()
    try:
        yield read
    finally:
        read += json.loads(meter.communicate("end")[0])


def _rows(folder: Path, said: dict[str, Any], read: list[list[float]]) -> Iterator[tuple[str, str]]:
    notes = [json.loads(path.read_text()) for path in folder.glob("job*.json")]
    spans = sorted((note["began"], note["ended"]) for note in notes)
    ends_s = [end for _, end in spans]
    ends = [max(ends_s[: n + 1]) for n in range(len(spans))]
    gaps = [begin - end for end, (begin, _) in zip(ends, spans[1:], strict=False)]
    found = [
        json.loads(path.read_text()) for path in (folder / "home/launches").glob("*/status.json")
    ]
    seen = sorted(
        datetime.fromisoformat(job["ended_at"]).timestamp()
        for status in found
        for job in status["jobs"]
    )
    late = max(seen_s - end for seen_s, end in zip(seen, sorted(ends_s), strict=True))
    counted = sorted(job["steps"] for job in said["jobs"])
    wrote = sorted(note["steps"] for note in notes)
    unwatched = said.get("unwatched_s")
    yield "whole run", f"{ends[-1] - spans[0][0]:.1f} s from the first start to the last end"
    yield "unwatched", "not told" if unwatched is None else f"{unwatched:.1f} s"
    yield "longest from an end to the next start", f"{max(gaps, default=0.0):.1f} s"
    yield "nothing ran between first start and last end", f"{sum(max(0.0, g) for g in gaps):.1f} s"
    yield "end seen after at most", f"{late:.2f} s"
    for own, true in zip(counted, wrote, strict=True):
        yield "steps counted", f"{own:.0f} of {true}"
    begun, ended = (
        pick(datetime.fromisoformat(status[key]).timestamp() for status in found)
        for pick, key in ((min, "started_at"), (max, "ended_at"))
    )
    told = said["energy_j"] or 0.0
    for label, first_s, last_s in (
        ("from the first launch to the end of the last", begun, ended),
        ("over the whole command", read[0][0], read[-1][0]),
    ):
        inside = [joules for at_s, joules in read if first_s <= at_s <= last_s]
        whole = inside[-1] - inside[0]
        yield (
            "energy told",
            f"{told / whole:.1%} of {whole / 1000:.2f} kJ {label}",
        )


if __name__ == "__main__":
    main()
