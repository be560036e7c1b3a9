r"""Training libraries through `profile`, `launch` and `run`, held against their true counts.

    .venv/bin/python docs/measurements/real_logs.py --python ENVIRONMENT/bin/python \
        --timm-script train.py [PROGRAM...]

ENVIRONMENT has tqdm, keras with jax, lightning, transformers with datasets and accelerate, timm
and ultralytics; `train.py` is that of timm's repository. The jobs are beside this file in
`real_logs/`: three epochs of 2, 5 and 20 s each, on the CPU, as clients of the fake GPU of
tests/fakes. `launch` and `run` run two copies. All of it takes 40 minutes.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).with_suffix("")
sys.path[:0] = [str(ROOT / "tests/fakes")]

import fake_nvml  # noqa: E402
import new_database  # noqa: E402
from host import FakeHost, build_cuda  # noqa: E402

PROGRAMS = ("tqdm", "keras", "lightning", "trainer", "timm", "ultralytics")
EPOCHS_S = (2.0, 5.0, 20.0)
LONGEST_WINDOW_S = 8.0
LIMIT_S = 300.0
TOP = ("program", "epoch s", "found", "rate/true", "launch", "total/true", "run", "total/true")


@dataclass(frozen=True, slots=True)
class Trial:
    """A program with one length of epoch, on a fake host of its own."""

    host: FakeHost
    program: str
    command: tuple[str, ...]

    @property
    def truth(self) -> Path:
        return self.host.folder / "truth"

    def advisor(self, *words: str, command: Sequence[str] = ()) -> tuple[list[dict[str, Any]], str]:
        """The JSON lines that a command prints, and its error; the true counts begin anew."""
        for path in self.truth.glob("*.jsonl"):
            path.unlink()
        with subprocess.Popen(
            [sys.executable, "-m", "advisor", *words, "--json", *command],
            env=self.host.environment(
                KERAS_BACKEND="jax", OMP_NUM_THREADS="1", YOLO_CONFIG_DIR=str(self.host.folder)
            ),
            cwd=self.host.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # ends the jobs too
                out, err = process.communicate()
        return parsed(out), " ".join(err.rpartition("advisor: ")[2].split())[:160]

    def counts(self) -> list[list[dict[str, float]]]:
        """What each process of the job wrote that finished a step, oldest first."""
        paths = sorted(self.truth.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        read = ([json.loads(line) for line in path.read_text().splitlines()] for path in paths)
        return [lines for lines in read if lines]


def parsed(out: str) -> list[dict[str, Any]]:
    """One JSON object over several lines, or one a line."""
    try:
        return [json.loads(out)]
    except ValueError:
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def profiled(trial: Trial, window_s: float) -> tuple[str | None, str]:
    """The pattern that was found, and the profiled rate over the true one, or the error."""
    options = ("--mode", "uncapped", "--shares", "100", "--window", str(window_s))
    words = ("profile", "--name", trial.program, *options)
    answers, err = trial.advisor(*words, command=("--", *trial.command))
    job_file = trial.host.folder / "jobs" / f"{trial.program}.yaml"
    if not job_file.exists():
        return None, err
    job_lines = job_file.read_text().splitlines()
    found = next((line.strip() for line in job_lines if "pattern" in line), "counter")
    if not (answers and answers[-1].get("points")):
        failures: list[dict[str, Any]] = answers[-1].get("failures", []) if answers else []
        return found, ", ".join([*(failure["error"] for failure in failures), err])
    lines, point = trial.counts()[-1], answers[-1]["points"][0]
    begin_s = datetime.fromisoformat(point["started_at"]).timestamp()
    window = (begin_s, begin_s + point["window_s"])
    times, steps = ([line[key] for line in lines] for key in ("time_s", "steps"))
    true = float(np.diff(np.interp(window, times, steps))[0])
    rate = ratio(point["rate"] * point["window_s"], true, lines[0]["batch"])
    return found, f"{rate} in {point['window_s']:.1f} s"


def together(trial: Trial, *words: str) -> tuple[str, str]:
    """How two copies ended, and their counted total over the true one."""
    answers, err = trial.advisor(words[0], f"{trial.program}*2", *words[1:])
    last = [lines[-1] for lines in trial.counts()]
    whole = sum(line["steps"] == line["total"] for line in last)
    ended = f"{whole} of {len(last)} by itself"
    jobs: list[dict[str, Any]] = answers[-1].get("jobs", []) if answers else []
    said = [str(job.get("outcome") or job.get("state")) for job in jobs]
    said += sorted({job["error"][:120] for job in jobs if job.get("error")})
    if not last or not jobs:
        return f"{ended}: {', '.join([*said, err])}", "-"
    counted = sum(job["steps"] or 0.0 for job in jobs)
    return f"{ended}: {', '.join(said)}", ratio(
        counted, sum(line["steps"] for line in last), last[0]["batch"]
    )


def ratio(counted: float, steps: float, batch: float) -> str:
    """Counted over true, in steps or in samples, whichever is nearer to 1."""
    found = {"steps": counted / steps, "samples": counted / steps / batch}
    unit = min(found, key=lambda unit: abs(found[unit] - 1))
    return f"{found[unit]:.3f} {unit}"


def tried(folder: Path, program: str, epoch_s: float, options: argparse.Namespace) -> Sequence[str]:
    """A row of the table."""
    library = folder / "lib"
    library.mkdir()
    build_cuda(library)
    fake_nvml.build(library)
    for name in ("nvml/gpu0", "jobs", "truth"):
        (folder / name).mkdir(parents=True)
    new_database.make_home(folder / "home")
    command = [options.python, str(JOBS / f"{program}_job.py"), "--epoch-s", f"{epoch_s:g}"]
    command += ["--truth", str(folder / "truth")]
    if program == "timm":
        command += ["--script", str(options.timm_script.absolute())]
    trial = Trial(FakeHost(folder, library), program, tuple(command))
    found, rate = profiled(trial, min(LONGEST_WINDOW_S, 1.5 * epoch_s))
    if found is None:
        return (program, f"{epoch_s:g}", "-", rate, *"----")
    launch = together(trial, "launch", "--split", "50/50")
    run = together(trial, "run", "--gpus", "0")
    return (program, f"{epoch_s:g}", found, rate, *launch, *run)


def main() -> None:
    """Print a row for each program and length of epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=PROGRAMS, metavar="PROGRAM")
    parser.add_argument("--python", required=True, help="interpreter that has the libraries")
    parser.add_argument("--timm-script", type=Path, help="train.py of timm")
    options = parser.parse_args()
    print(f"| {' | '.join(TOP)} |\n|{'---|' * len(TOP)}")
    for program in options.programs:
        for epoch_s in EPOCHS_S:
            with tempfile.TemporaryDirectory(prefix="rl") as name:
                row = tried(Path(name), program, epoch_s, options)
            cells = [" ".join(cell.split())[:200].replace("|", r"\|") for cell in row]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
