"""The first minutes of four kinds of new reader, without a GPU: what they type, wait for and see.

    .venv/bin/python docs/measurements/first_minutes.py > first-minutes.txt

Each has a clone of this checkout, an empty home and a new virtual environment; packages come from
the index that pip knows. What needs a GPU meets the fake one of tests/fakes: its answers show that
commands work, and no figure of them is a measurement. Takes ten minutes; a word of a
reader's heading limits it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/fakes")]

import fake_nvml  # noqa: E402
from host import FakeHost, build_cuda  # noqa: E402

JOB = """import atexit, ctypes, os, time
from pathlib import Path

cuda = ctypes.CDLL("libcuda.so.1")  # a client of MPS, as whoever computes is
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
power = Path(os.environ["FAKE_NVML_DIR"], "gpu0/power_mw")
power.write_text("300000")
atexit.register(power.write_text, "80000")
share = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
for step in range(1, 10**9):
    time.sleep(1 / (20 + share))
    print("step", step, flush=True)
"""
SERVED = "http://127.0.0.1:8765"
OWN = "python3 -m venv mine && . mine/bin/activate && pip install -q"
ASKED = """-H 'Content-Type: application/json' \\
      -d '{"jobs": [{"job": "bert-serve-30"}, {"job": "triad"}]}' | cut -c1-100"""
READERS: dict[str, tuple[tuple[str, int], ...]] = {
    "An ML engineer with one GPU": (
        (f"{OWN} '.[advise]'", 1),
        ("advisor recommend bert-serve-30 triad", 12),
        ("advisor doctor", 8),
        ("advisor profile --name train --shares 50,100 -- python -u train.py", 14),
        ("advisor profile --name infer --shares 50,100 -- python -u infer.py", -3),
        ("advisor recommend train infer", 12),
        ("advisor launch train infer --split 50/50 --duration 10", -6),
    ),
    "A researcher": (
        (f"{OWN} '.[train]'", 1),
        ("python -c 'import advisor; print(advisor.load_dataset(\"pairs\").shape)'", 2),
        ("advisor evaluate --quick", 12),
        ("advisor power sensor --gpu replay", 6),
        ("head -4 CITATION.cff", 4),
    ),
    "An operator with Slurm": (
        ("make run", 8),
        (". .venv/bin/activate && advisor jobs --bundled", 5),
        ("printf 'bert-serve-30:60\\nresnet50-train-b2:80\\ntriad:20\\n' > tonight.txt", 0),
        ("advisor place --jobs tonight.txt --gpus 40", 12),
        ("SLURM_FOLDER=$HOME/slurm GPU_FILES=/dev/nvidia0 api/slurm/setup.sh install", 8),
        ("grep -v '^#' $HOME/slurm/gres.conf", 4),
        ("pip install -q '.[serve,client]' && advisor slurm match --help", 6),
    ),
    "A platform engineer with Kubernetes": (
        (f"{OWN} '.[kubernetes]'", 1),
        ("(advisor serve > serve.log 2>&1 & echo $! > pid)", 1),
        (f"until curl -s {SERVED}/readyz; do sleep 0.2; done", 1),
        (f"curl -sS {SERVED}/v1/recommendations {ASKED}", 2),
        (f"curl -sS {SERVED}/metrics | grep -c '^advisor_'; kill $(cat pid)", 2),
        ("api/kubernetes/make-certificates.sh advisor advisor > secret.yaml; cat secret.yaml", 4),
        ("advisor kubernetes serve --help", 4),
    ),
}
"""What each types, and how many lines of the answer are shown; below 0: of its end."""


def main(wanted: list[str]) -> None:
    """Print a part of the page for each reader."""
    for reader, steps in READERS.items():
        if wanted and not any(word in reader for word in wanted):
            continue
        print(f"## {reader}\n")
        with tempfile.TemporaryDirectory(prefix="adv") as folder:
            for shown in _told(Path(folder), steps):
                print(shown, flush=True)


def _told(folder: Path, steps: tuple[tuple[str, int], ...]) -> Iterator[str]:
    """Each command with its seconds, and the first lines of what it says."""
    environment = _host(folder)
    clone, begun = folder / "advisor", time.monotonic()
    subprocess.run(
        ["git", "-c", "advice.detachedHead=false", "clone", "-q", ROOT, clone], check=True
    )
    for name in ("train.py", "infer.py"):
        (clone / name).write_text(JOB)
    entered = ""
    for command, lines in steps:
        start = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"{entered}{command}"],
            cwd=clone,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seconds = time.monotonic() - start
        if "activate" in command:
            entered = f". {'mine' if 'mine' in command else '.venv'}/bin/activate && "
        ended = f", exit code {done.returncode}" if done.returncode else ""
        yield f"    $ {command}    # {seconds:.1f} s{ended}"
        said = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
        kept = said[:lines] if lines >= 0 else said[lines:]
        yield "".join(f"    {line[:110]}\n" for line in kept)
    yield f"All: {time.monotonic() - begun:.0f} s.\n"


def _host(folder: Path) -> dict[str, str]:
    """Variables of an empty home on a host with a fake H200."""
    libraries = folder / "lib"
    libraries.mkdir()
    (folder / "nvml/gpu0").mkdir(parents=True)
    build_cuda(libraries)
    fake_nvml.build(libraries)
    (folder / "nvml/gpu0/name").write_text("NVIDIA H200")
    host = FakeHost(folder, libraries)
    home = {"HOME": str(folder), "COLUMNS": "100"}
    environment = {**host.environment(), **home}
    path = environment["PATH"].split(os.pathsep)
    outside = [name for name in path if not name.startswith(str(Path(sys.prefix)))]
    del environment["ADVISOR_JOBS"]
    return {**environment, "PATH": os.pathsep.join(outside)}


if __name__ == "__main__":
    main(sys.argv[1:])
