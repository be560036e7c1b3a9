"""What ran under a real Slurm comes back as an observation; GPU, MPS and driver are fakes."""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from host import FAKES, UUID
from serving import serving
from slurm_cluster import Cluster, slurm_cluster

from advisor.client import Client
from advisor.core.observations import Observation
from advisor.core.records import SoloPoint
from advisor.progress import FILE_BYTES

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
PAIR = {"gemm": "bert-infer-b2", "bert-infer-b2": "gemm"}
# The real MPS daemon starts its server for its first client by itself.
START = """
export LD_LIBRARY_PATH={libraries} FAKE_NVML_DIR={folder}/nvml ADVISOR_GPU={uuid}
pipe=$CUDA_MPS_PIPE_DIRECTORY
[ -e $pipe/server ] || echo start_server -uid 0 | nvidia-cuda-mps-control
"""
# Works until the file `end` is there.
WORK = """
{python} {fakes}/fake_job.py & job=$!
while [ ! -e end ]; do kill -0 $job || exit 3; sleep 0.1; done
kill $job; exit 0
"""


@dataclass(frozen=True)
class Node:
    """A Slurm with the agent, and the socket at which a service listens from time to time."""

    cluster: Cluster
    socket: Path
    libraries: Path
    home: Path

    @property
    def log(self) -> str:
        """What the agent says."""
        file = self.cluster.mps / "agent.log"
        return file.read_text() if file.exists() else ""

    def submit(self, program: str, comment: str) -> str:
        """The number of a job."""
        folder = self.cluster.folder
        names = {"libraries": self.libraries, "folder": folder, "uuid": UUID,
                 "python": sys.executable, "fakes": FAKES}  # fmt: skip
        script = (START + program).format(**names)
        return self.cluster.submit(
            script, "--gres=mps:30", f"--chdir={folder}", f"--comment={comment}"
        )[0]

    def pair(self) -> dict[str, str]:
        """Two jobs that work until the file `end` is there, by name; once both are seen to work."""
        (self.cluster.folder / "end").unlink(missing_ok=True)
        numbers = {
            job: self.submit(WORK, f"advisor:job={job},with={partner}")
            for job, partner in PAIR.items()
        }
        for job in PAIR:
            until(lambda job=job: self.steps(numbers[job]), self)
        return numbers

    def steps(self, number: str) -> int:
        """How far a job is."""
        file = self.cluster.mps / "gpu0-0/jobs" / number / "progress"
        return int.from_bytes(file.read_bytes()[:8], "little") if file.exists() else 0

    def end(self, numbers: dict[str, str]) -> list[str]:
        """Let the jobs end by themselves; their states."""
        (self.cluster.folder / "end").touch()
        return [self.cluster.await_state(number, *ENDED)["JobState"] for number in numbers.values()]

    def agents(self) -> list[int]:
        """Process numbers of the agents, as this host counts them."""
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(self.cluster.mps).encode() in (line := _read(path)) and b"python" in line
        ]

    def observations(self) -> list[Observation]:
        """What the service has, the oldest first."""
        with Client(f"unix:{self.socket}") as client:
            return sorted(client.observations(), key=lambda seen: seen.started_at)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def until(holds: Callable[[], object], node: Node) -> None:
    """Wait, with an end that only a machine that stands still reaches."""
    deadline = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < deadline, node.log + node.cluster.log("slurmd")
        time.sleep(0.1)


@pytest.fixture(scope="module")
def node(
    fake_libraries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="adv") as name:
        folder = Path(name)
        (folder / "nvml/gpu0").mkdir(parents=True)
        program = folder / "advisor"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKES}/slurm_agent.py "$@"\n')
        program.chmod(0o755)
        with slurm_cluster(folder, advisor=str(program)) as cluster:
            with (cluster.etc / "advisor/agent.env").open("a") as file:
                file.write(f"LD_LIBRARY_PATH={fake_libraries}\nFAKE_NVML_DIR={folder}/nvml\n")
            home = tmp_path_factory.mktemp("serve")
            node = Node(cluster, folder / "api.sock", fake_libraries, home)
            cluster.point_at(f"unix:{node.socket}")
            yield node


def solo(job: str, share: float) -> SoloPoint:
    return SoloPoint(
        job=job, share_percent=share, rate=4 * share, power_w=80 + 4 * share, idle_power_w=80.0,
        gpu_model="Fake H200", gpu_uuid=UUID, units_total=132, window_s=5.0,
        started_at="2026-01-01T00:00:00Z", run="test",
    )  # fmt: skip


def test_a_pair_is_observed(node: Node) -> None:
    """With shares, rates and power of both, as a launch would have reported them."""
    with serving(node.home, ["--socket", str(node.socket)]):
        numbers = node.pair()
        files = node.cluster.mps / "gpu0-0/jobs" / numbers["gemm"]
        assert (files / "progress").stat().st_size == FILE_BYTES
        time.sleep(8)
        print(node.log, node.agents())
        assert node.end(numbers) == ["COMPLETED", "COMPLETED"]
        until(lambda: len(node.observations()) == 1, node)
        [seen] = node.observations()
    print(seen)
    print(node.log)
    assert 0
