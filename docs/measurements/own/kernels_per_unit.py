"""Count the kernels of a unit of work of every job that comes with the project.

    python docs/measurements/own/kernels_per_unit.py rows.jsonl --part 1/4

Each job runs alone, beside kernels of 0.1 ms and beside kernels of 0.5 ms that fill the GPU
(short_kernels.py), under MPS without limits. MPS gives two processes that have work one kernel each
in turn, so the kernels of a unit are the rate of the probe over the rate of the job. MPS must run.
"""

import argparse
import sys
from pathlib import Path

from windows import HERE, campaign, job_commands

PROBES = {"probe-0.1ms": ("0.1", "20"), "probe-0.5ms": ("0.5", "50")}


def main() -> None:
    """Measure one part of the jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--part", default="1/1", help="which part of the jobs, of how many")
    parser.add_argument("--only", nargs="*", help="names of jobs")
    parser.add_argument("--seconds", type=float, default=550, help="no window starts after this")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    commands = job_commands()
    names = given.only or sorted(commands)[part - 1 :: parts]
    for probe, (ms, us) in PROBES.items():
        short = str(HERE / "short_kernels.py")
        commands[probe] = [sys.executable, short, "--ms", ms, "--block-us", us]
    sets = [(probe,) for probe in PROBES]
    for name in names:
        sets += [(name,), *((name, probe) for probe in PROBES)]
    campaign(given.rows, commands, sets, given.seconds)


if __name__ == "__main__":
    main()
