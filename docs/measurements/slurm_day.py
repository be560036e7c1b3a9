"""A day of made-up jobs of three users through a real Slurm with its books, compressed.

    .venv/bin/python docs/measurements/slurm_day.py [--jobs 500] [--day-s 240] [--gpus 32]

Starts a Slurm with slurmdbd and MariaDB on loopback (as the tests do), with files in place of GPUs,
and submits jobs at random moments of the day: once with the plugin and `advisor slurm
match`, once as whole-GPU jobs. A job works for its time alone, divided by SPEED while it has a
part of a GPU. Of five kinds of jobs a table says who shares, at which split; one fits nobody.

What a job held is told by node and job: from the start of the Prolog to the end of the script, by
the count that the Prolog found. What was billed is told by `sacct`: gres/mps times Elapsed. GPUs
held are the time in which a GPU had a job.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

from pair_service import pair_service
from scripted_http import scripted_http
from slurm_cluster import USERS, Cluster, slurm_cluster
from waiting import eventually

SHARES = {
    ("a", "b"): (50, 26), ("a", "c"): (50, 40), ("b", "d"): (30, 60), ("c", "c"): (40, 40),
    ("d", "a"): (60, 40),
}  # fmt: skip
SPEED = 0.66
SCRIPT = """#!/bin/bash
job=${{ADVISOR_PROGRESS_FILE%/*}}
began=$(cat {out}/began.$SLURM_JOB_ID)
counted=$([ -n "$job" ] && sed -n 's/.*counted=\\([0-9]*\\).*/\\1/p' $job/comment)
[ "${{counted:-100}}" = 100 ] && sleep {alone} || sleep {shared}
echo $SLURM_JOB_ID $SLURM_JOB_GPUS ${{counted:-100}} $began $(date +%s.%N) >>{out}/$SLURM_JOB_ID
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--day-s", type=float, default=240.0)
    parser.add_argument("--gpus", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    print("| | wait p50 s | wait p95 s | all done s | GPUs held, s | billed, GPU s | held, GPU s |")
    print("|---|---|---|---|---|---|---|")
    for named in (True, False):
        print(_day(wanted, named=named), flush=True)


def _day(wanted: argparse.Namespace, *, named: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="adv") as name, scripted_http() as server:
        folder = Path(name)
        folder.chmod(0o755)
        out = folder / "out"
        out.mkdir()
        out.chmod(0o777)
        server.will(pair_service(SHARES, SPEED))
        with slurm_cluster(folder, wanted.gpus, books=True, users="several") as cluster:
            cluster.point_at(server.url, wait_s="8")
            prolog = cluster.etc / "advisor/prolog.sh"
            stamp = f"#!/bin/sh\ndate +%s.%N >{out}/began.$SLURM_JOB_ID\n"
            prolog.write_text(prolog.read_text().replace("#!/bin/sh\n", stamp, 1))
            _submit(cluster, wanted, named=named)
            eventually(lambda: not cluster.run("squeue", "-h").stdout, within_s=900)
            time.sleep(3)
            return _row(cluster, out, wanted, named=named)


def _submit(cluster: Cluster, wanted: argparse.Namespace, *, named: bool) -> None:
    draw = random.Random(wanted.seed)
    # Two thirds of a day's jobs come in its middle third.
    moments = sorted(draw.triangular(0, wanted.day_s, wanted.day_s / 2) for _ in range(wanted.jobs))
    began = time.monotonic()
    for moment in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        alone = min(60.0, 8 + draw.expovariate(1 / 8))
        script = SCRIPT.format(alone=alone, shared=alone / SPEED, out=cluster.folder / "out")
        job = draw.choice("aabbccdde")
        comment = f"--comment=advisor:job={job}" if named else "--comment=plain"
        words = ("--gres=gpu:1", comment, "--chdir=/", "--output=/dev/null")
        done = cluster.run("sbatch", *words, user=draw.choice(USERS), script=script)
        assert done.returncode == 0, done.stderr


def _row(cluster: Cluster, out: Path, wanted: argparse.Namespace, *, named: bool) -> str:
    told = [file.read_text().split() for file in out.glob("[0-9]*")]
    fields = "JobIDRaw,AllocTRES,ElapsedRaw,Submit,Start,End"
    text = cluster.run("sacct", "-anXP", "-S", "now-1hour", "-o", fields).stdout
    books = [line.split("|") for line in text.splitlines()]
    assert len(told) == len(books) == wanted.jobs, (len(told), len(books))
    waits = sorted(_seconds(start) - _seconds(submit) for _, _, _, submit, start, _ in books)
    ends = max(_seconds(row[5]) for row in books) - min(_seconds(row[3]) for row in books)
    billed = sum(_share(tres) * float(elapsed) for _, tres, elapsed, *_ in books)
    held = sum(int(count) / 100 * (float(end) - float(began)) for _, _, count, began, end in told)
    gpus: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _, gpu, _, began, end in told:
        gpus[gpu].append((float(began), float(end)))
    used = sum(map(_union_s, gpus.values()))
    p95 = statistics.quantiles(waits, n=20)[18]
    shared = sum(int(count) < 100 for _, _, count, *_ in told)
    what = f"with the plugin, {shared} of {wanted.jobs} shared" if named else "whole GPUs"
    return (
        f"| {what} | {statistics.median(waits):.0f} | {p95:.0f} | {ends:.0f} | {used:,.0f} "
        f"| {billed:,.0f} | {held:,.0f} ({100 * (billed / held - 1):+.2f} %) |"
    )


def _share(tres: str) -> float:
    """What the books have of a GPU."""
    counts = dict(word.split("=", 1) for word in tres.split(",") if "=" in word)
    return float(counts.get("gres/mps", 0)) / 100 + float(counts.get("gres/gpu", 0))


def _seconds(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _union_s(spans: Iterable[tuple[float, float]]) -> float:
    total, until = 0.0, 0.0
    for began, end in sorted(spans):
        total += max(0.0, end - max(began, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    main()
