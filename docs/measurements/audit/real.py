"""An audit of a real Prometheus that holds a week of 200 GPUs, next to what is true of them.

    .venv/bin/python docs/measurements/audit/real.py --work build/audit

`promtool` writes the blocks (two hours each, a quarter of an hour of CPU); a second run takes those
that are there. With `--straight` the same series go to the audit without a server.
"""

import argparse
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path

import requests
from straight import Straight
from truth import held_minutes, measured_sets, minutes_of_pods, run_audit, table, truth
from week import MINUTE_S, Week, make_week
from written import Written

from advisor_audit.reading import Source
from advisor_audit.sources.prometheus import Prometheus

CHUNK = 120
"""Minutes of a block."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=200)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--straight", action="store_true", help="leave the server out")
    asked = parser.parse_args()
    week = make_week(asked.gpus, asked.days, asked.seed)
    asked.work.mkdir(parents=True, exist_ok=True)
    begin_s = _begin(asked.work / "begin", asked.days)
    if asked.straight:
        _all(week, asked.work, lambda lacking: Straight(Written(week, begin_s), lacking))
        return
    _fill(week, begin_s, asked.work)
    with _prometheus(asked.work) as url:
        _all(week, asked.work, lambda lacking: _served(week, url, begin_s, lacking))


def _served(week: Week, url: str, begin_s: float, lacking: Collection[str]) -> Prometheus:
    end_s = begin_s + week.minutes * MINUTE_S
    source = Prometheus(url, requests.Session(), begin_s=begin_s, end_s=end_s, step_s=MINUTE_S)
    source.metrics = {k: v for k, v in source.metrics.items() if k not in lacking}
    return source


def _all(week: Week, work: Path, source: Callable[[Collection[str]], Source]) -> None:
    lacking = ("sm_active_percent",)
    _one(week, source(()), work, "all counters, within a namespace", "namespace")
    _one(week, source(lacking), work, "the default counters, within a namespace", "namespace")
    _one(week, source(()), work, "all counters, everybody with everybody", "all")


def _one(week: Week, source: Source, work: Path, name: str, within: str) -> None:
    folder = work / f"pages-{time.time_ns()}"
    began_s = time.perf_counter()
    said = run_audit(source, folder, within)
    took_s = time.perf_counter() - began_s
    print("\n".join(table(name, said, truth(week, within))), "\n")
    print(held_minutes(week, minutes_of_pods(source, folder)))
    print(*measured_sets(week, said), sep="\n")
    most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    asked = source.asked
    print(
        f"{took_s:.0f} s, {asked.requests} requests, {asked.received_bytes / 1e6:.0f} MB, "
        f"{most_mib:.0f} MiB at most with the truth\n"
    )


def _begin(note: Path, days: int) -> float:
    if not note.exists():
        now_s = time.time() // 7200 * 7200
        note.write_text(f"{now_s - (days + 1) * 86400:.0f}")
    return float(note.read_text())


def _fill(week: Week, begin_s: float, work: Path) -> None:
    """Blocks that are not there yet."""
    written = Written(week, begin_s)
    for begin in range(0, week.minutes, CHUNK):
        done = work / f"done-{begin:06d}"
        if done.exists():
            continue
        text = work / "chunk.txt"
        with text.open("w") as file:
            for line in written.lines(begin, min(begin + CHUNK, week.minutes)):
                file.write(line + "\n")
            file.write("# EOF\n")
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", text, work / "data"]
        subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
        done.touch()


@contextmanager
def _prometheus(work: Path) -> Generator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (work / "prometheus.yml").write_text("global: {}\n")
    options = [
        f"--config.file={work}/prometheus.yml",
        f"--storage.tsdb.path={work}/data",
        "--storage.tsdb.retention.time=60d",
        f"--web.listen-address={address}",
    ]
    with (
        (work / "prometheus.log").open("wb") as log,
        subprocess.Popen(["prometheus", *options], stdout=log, stderr=log) as process,
    ):
        try:
            for _ in range(300):
                time.sleep(0.2)
                try:
                    if requests.get(f"http://{address}/-/ready", timeout=5).ok:
                        break
                except requests.ConnectionError:
                    continue
            yield f"http://{address}"
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
