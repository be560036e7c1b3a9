"""Times `advisor recommend` from cold processes, with nothing stored and with a SQLite store.

    .venv/bin/python docs/measurements/cold_start.py

Beside it, in the same run and in turns: a Python that does nothing, and `advisor --help`. Seconds.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 15
PAIR = ("mobilenet-train-b2", "triad")


def main() -> None:
    """Run everything in turns, so that all of it meets the same other work on the host."""
    with tempfile.TemporaryDirectory() as folder:
        stored, nothing = Path(folder) / "stored", Path(folder) / "nothing"
        solo = Path(folder) / "solo.parquet"
        _store(stored, solo)
        advisor = [sys.executable, "-m", "advisor_cli"]
        cases = {
            "python -c pass": ([sys.executable, "-c", "pass"], nothing),
            "advisor --help": ([*advisor, "--help"], nothing),
            "advisor recommend, bundled profiles": ([*advisor, "recommend", *PAIR], nothing),
            "advisor recommend, SQLite": ([*advisor, "recommend", *PAIR], stored),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(RUNS):
            for name, (command, home) in cases.items():
                times[name].append(_seconds(command, home))
    print("| command | smallest | median | largest |")
    print("| --- | --- | --- | --- |")
    for name, found in times.items():
        cells = (f"{value:.2f}" for value in (min(found), statistics.median(found), max(found)))
        print(f"| {name} | {' | '.join(cells)} |")


def _store(home: Path, solo: Path) -> None:
    """A store that has the bundled profiles."""
    from advisor_data.bundled import bundled_solo_points
    from advisor_data.files import write_points

    write_points(solo, bundled_solo_points())
    _seconds([sys.executable, "-m", "advisor_cli", "data", "import", str(solo)], home)


def _seconds(command: list[str], home: Path) -> float:
    begun = time.perf_counter()
    env = {**os.environ, "ADVISOR_HOME": str(home)}
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
