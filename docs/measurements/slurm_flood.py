"""What the Slurm plugin adds to a submission: `sbatch` with and without a question to the service.

    .venv/bin/python docs/measurements/slurm_flood.py [--jobs 500] [--at-once 4]

Starts a Slurm of its own on loopback (as the tests do: root, and Debian's slurm-wlm, munge and
curl), and `advisor serve` with the bundled profiles. Held jobs are submitted by `--at-once`
clients: without the word `advisor` in their comment, with it, with it while nobody listens, and
with it while the service takes connections and never answers. Printed are milliseconds of `sbatch`
from start to end, p50, p99 and the longest, jobs a second, and how many were rewritten.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

from serving import serving
from slurm_cluster import Cluster, slurm_cluster

PAIRS = ("bert-infer-b2,with=gemm", "gemm,with=bert-infer-b2", "triad", "bert-train,with=vit-infer")
SETTINGS = {"timeout_s": "0.5", "pause_s": "10"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=4)
    wanted = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flood")))
        (folder / "serve").mkdir()
        cluster = stack.enter_context(slurm_cluster(folder))
        service = stack.enter_context(serving(folder / "serve"))
        addresses = {
            "plugin not asked": None,
            "advised": service.url,
            "nobody listens": _closed(),
            "never answers": stack.enter_context(_silent()),
        }
        print("| submissions | p50 ms | p99 ms | longest ms | jobs a second | rewritten |")
        print("|---|---|---|---|---|---|")
        for name, address in addresses.items():
            print(_row(cluster, name, address, wanted.jobs, wanted.at_once), flush=True)


def _row(cluster: Cluster, name: str, address: str | None, jobs: int, at_once: int) -> str:
    if address:
        # The first question of all loads profiles and model.
        cluster.point_at(address, **{**SETTINGS, "timeout_s": "10" if name == "advised" else "0.5"})
    if name == "advised":
        for number in range(len(PAIRS)):
            _submit(cluster, number, asked=True)
        cluster.point_at(address or "", **SETTINGS)
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(lambda n: _submit(cluster, n, asked=address is not None), range(jobs)))
    took = time.monotonic() - began
    times = [ms for ms, _ in done]
    cuts = statistics.quantiles(times, n=100)
    rewritten = sum(" of a GPU: " in said for _, said in done)
    cluster.run("scancel", "--user=root")
    return (
        f"| {name} | {cuts[49]:.1f} | {cuts[98]:.1f} | {max(times):.1f} "
        f"| {jobs / took:.0f} | {rewritten} of {jobs} |"
    )


def _submit(cluster: Cluster, number: int, *, asked: bool) -> tuple[float, str]:
    comment = f"--comment=advisor:job={PAIRS[number % len(PAIRS)]}" if asked else "--comment=mine"
    options = ("--gres=gpu:1", "--hold", "--output=/dev/null", comment)
    began = time.monotonic()
    done = cluster.run("sbatch", *options, "--wrap=true")
    assert done.returncode == 0, done.stderr
    return (time.monotonic() - began) * 1e3, done.stderr


def _closed() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def _silent() -> Generator[str]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4096)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


if __name__ == "__main__":
    main()
