"""What the Slurm plugin adds to a submission, beside a service that is slow.

    .venv/bin/python docs/measurements/slurm_flood.py [--jobs 300] [--at-once 40] [--after 0.4]

Starts a Slurm of its own on loopback (as the tests do: root, and Debian's slurm-wlm and munge), a
service that takes `--after` seconds for each answer, and `advisor slurm match`. Jobs are submitted
by `--at-once` clients at a time: without a plugin, and with it by jobs that name nobody and by jobs
that name themselves, in turns. Printed are milliseconds of `sbatch` from start to end, how many
failed, and how many jobs were in the queue for each that was submitted.
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

from pair_service import pair_service
from scripted_http import scripted_http
from slurm_cluster import Cluster, kill, slurm_cluster, start
from waiting import eventually

KINDS = ("no plugin", "plugin, names nobody", "plugin, names itself")
SHARES = {("a", "b"): (50, 26), ("a", "c"): (50, 40), ("b", "c"): (30, 60)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=40)
    parser.add_argument("--after", type=float, default=0.4)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="adv")))
        folder.chmod(0o755)
        cluster = stack.enter_context(slurm_cluster(folder))
        server = stack.enter_context(scripted_http())
        server.will(pair_service(SHARES, after_s=wanted.after))
        cluster.point_at(server.url, wait_s="3600")
        print(
            "| submissions | p50 ms | p99 ms | longest ms | jobs a second | failed | in the queue |"
        )
        print("|---|---|---|---|---|---|---|")
        for number in range(wanted.rounds):
            for kind in KINDS:
                row = _row(cluster, kind, number, wanted.jobs, wanted.at_once)
                print(row, flush=True)


def _row(cluster: Cluster, kind: str, number: int, jobs: int, at_once: int) -> str:
    _set_plugin(cluster, on=kind != KINDS[0])
    mark = f"round{number}.{KINDS.index(kind)}."
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(lambda n: _submit(cluster, f"{mark}{n}", kind), range(jobs)))
    took = time.monotonic() - began
    # A controller that is started again has jobs of the round before.
    said = cluster.run("squeue", "-h", "-o", "%j").stdout.split()
    names = [name for name in said if name.startswith(mark)]
    cluster.run("scancel", "--user=root")
    eventually(lambda: not cluster.run("squeue", "-h").stdout)
    times = [ms for ms, _ in done]
    cuts = statistics.quantiles(times, n=100)
    once = f"{len(set(names))} of {jobs}" + (", doubled" if len(names) > len(set(names)) else "")
    return (
        f"| {kind}, {number + 1} | {cuts[49]:.0f} | {cuts[98]:.0f} | {max(times):.0f} "
        f"| {jobs / took:.0f} | {sum(not good for _, good in done)} | {once} |"
    )


def _set_plugin(cluster: Cluster, *, on: bool) -> None:
    conf = cluster.etc / "slurm.conf"
    line = "JobSubmitPlugins=lua"
    text = re.sub(f"^#*{line}", line if on else f"#{line}", conf.read_text(), flags=re.MULTILINE)
    if text != conf.read_text():
        conf.write_text(text)
        kill(cluster, "slurmctld")
        start(cluster, "slurmctld")


def _submit(cluster: Cluster, name: str, kind: str) -> tuple[float, bool]:
    named = kind == KINDS[2]
    comment = f"--comment=advisor:job={'abc'[ord(name[-1]) % 3]}" if named else "--comment=mine"
    # One that may begin at once would add the cost of its start.
    when = () if named else ("--begin=now+1hour",)
    options = ("--gres=gpu:1", "--output=/dev/null", f"--job-name={name}", comment, *when)
    began = time.monotonic()
    done = cluster.run("sbatch", *options, "--wrap=sleep 60")
    return (time.monotonic() - began) * 1e3, done.returncode == 0


if __name__ == "__main__":
    main()
