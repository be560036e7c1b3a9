"""From two programs of one's own to a launch at the advice, with the clock.

    python docs/measurements/own/first_launch.py OUT.txt --python python3

In an empty folder and an empty home: train.py, which knows nothing of advisor, is profiled as it
is; server.py counts its requests in three lines and has a job file of four. Then the commands that
README names, one after another, as a person would type them; what each printed and how long it
took goes to OUT.txt.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def commands(python: str, seconds: float) -> list[list[str]]:
    """What is typed after `advisor`."""
    return [
        ["profile", "--name", "train", "--", python, "train.py"],
        ["profile", "server"],
        ["recommend", "train", "server"],
        ["launch", "train", "server", "--duration", f"{seconds:g}"],
        ["recommend", "train", "server"],
    ]


def main() -> None:
    """Run them in order; stop at the first that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the launch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), options.python)
        text, begun_s = "", time.monotonic()
        for command in commands(options.python, options.seconds):
            status, printed, took_s = run(command, Path(folder))
            text += f"$ advisor {' '.join(command)}\n{printed}\n"
            text += f"[exit {status} after {took_s:.0f} s]\n\n"
            options.out.write_text(text)
            if status:
                break
        options.out.write_text(f"{text}{time.monotonic() - begun_s:.0f} s in all\n")
    print(options.out.read_text())


def prepare(folder: Path, python: str) -> None:
    """The programs, and the job file of the server."""
    for name in ("train.py", "server.py"):
        shutil.copy(HERE / name, folder)
    (folder / "jobs").mkdir()
    job = (HERE / "server.yaml").read_text().replace("python3", python)
    (folder / "jobs/server.yaml").write_text(f"{job}workdir: ..\n")


def run(command: list[str], folder: Path) -> tuple[int, str, float]:
    """Exit status, what was printed, and seconds."""
    begun_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "advisor_cli", *command],
        cwd=folder,
        env={**os.environ, "ADVISOR_HOME": str(folder / "home"), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, time.monotonic() - begun_s


if __name__ == "__main__":
    main()
