"""What an engine adds to a shard: from the command's start to the first point, and to its end.

    .venv/bin/python docs/measurements/fanout_cost.py [--runs 5] [here slurm ray]

Starts a Slurm and a Ray cluster of its own on loopback (as the tests do: root, Debian's slurm-wlm
and munge, the extras slurm and ray), and measures one pair at one split with fake GPUs and jobs:
on this host, and as one shard of each engine. Printed are medians and ranges of the seconds from
the start of the command until the shard's command runs on the node, its first point is kept, and
the command has ended.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

import fake_nvml
import host as fake_host
from fanned_out import two_gpus
from ray_cluster import ray_cluster
from slurm_cluster import slurm_cluster

PLAN = ("--pairs", "one+one", "--splits", "50/50", "--window", "0.5")
PATIENCE_S = 300
Times = tuple[float, float, float]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("engines", nargs="*", default=["here", "slurm", "ray"])
    wanted = parser.parse_args()
    print("| where | runs on the node, s | first point, s | end, s |")
    print("|---|---|---|---|")
    for name in wanted.engines:
        with _host() as host, _ENGINES[name](host) as environment:
            options = () if name == "here" else ("--on", name, "--shards", "1")
            runs = [_run(host, f"{name}{n}", options, environment) for n in range(wanted.runs)]
        cells = " | ".join(
            f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"
            for times in zip(*runs, strict=True)
        )
        print(f"| {name} | {cells} |", flush=True)


def _run(
    host: fake_host.FakeHost, run: str, options: tuple[str, ...], environment: Mapping[str, str]
) -> Times:
    home = host.folder / "home"
    begun_s = time.monotonic()

    def after(holds: Callable[[], object], process: subprocess.Popen[str]) -> float:
        while not holds() and process.poll() is None:
            if time.monotonic() > begun_s + PATIENCE_S:
                process.kill()
            time.sleep(0.01)
        return time.monotonic() - begun_s

    # Here points go to files as well, so that both kinds are seen in the same way.
    points = f"home/fanout/{run}/*/points/pair-{run}.*" if options else f"points/pair-{run}.*"
    where = {**environment, "ADVISOR_DATABASE_URL": f"files:{host.folder}/points"}
    with host.start_advisor("colocate", *PLAN, "--run", run, *options, **where) as process:
        log = home / "fanout" / run / "shard-1-of-1/log"
        started_s = after(log.exists, process) if options else 0.0
        first_s = after(lambda: list(host.folder.glob(points)), process)
        _, errors = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        sys.exit(errors)
    return started_s, first_s, time.monotonic() - begun_s


@contextmanager
def _host() -> Generator[fake_host.FakeHost]:
    with tempfile.TemporaryDirectory(prefix="adv") as name:
        folder = Path(name)
        libraries = folder / "lib"
        libraries.mkdir()
        (folder / "nvml/gpu0").mkdir(parents=True)
        fake_host.build_cuda(libraries)
        fake_nvml.build(libraries)
        host = fake_host.FakeHost(folder, libraries)
        yield host


@contextmanager
def _here(host: fake_host.FakeHost) -> Generator[Mapping[str, str]]:
    yield two_gpus(host)


@contextmanager
def _slurm(host: fake_host.FakeHost) -> Generator[Mapping[str, str]]:
    with (
        tempfile.TemporaryDirectory(prefix="adv") as name,
        slurm_cluster(Path(name), gpus=2) as cluster,
    ):
        yield {**two_gpus(host), "SLURM_CONF": str(cluster.etc / "slurm.conf")}


@contextmanager
def _ray(host: fake_host.FakeHost) -> Generator[Mapping[str, str]]:
    with ray_cluster(host.environment(**two_gpus(host))) as cluster:
        yield cluster.environment


_ENGINES = {"here": _here, "slurm": _slurm, "ray": _ray}

if __name__ == "__main__":
    main()
