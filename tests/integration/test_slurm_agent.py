"""What ran under a real Slurm comes back as an observation; GPU, MPS and driver are fakes."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from host import FAKES, UUID
from serving import Served, serving
from slurm_agent import SETTLE_S
from slurm_cluster import Cluster, slurm_cluster
from waiting import eventually

from advisor.client import Client
from advisor.core.records import Observation, SoloPoint
from advisor.progress import FILE_BYTES
from advisor_node.slurm.site import Named

pytestmark = pytest.mark.slurm

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
PAGE = Path(__file__).parents[2] / "docs/slurm.md"
BLOCKS = re.findall(r"(?:^    .+\n)+", PAGE.read_text(), re.MULTILINE)
COMMANDS = [line.partition("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]
NOT_HERE = {
    "apt-get install slurm-wlm munge python3-venv": "in the Makefile",
    "python3 -m venv /opt/advisor": "in tests/contract/test_wheel.py, as pip",
    "/opt/advisor/bin/pip install 'sm-advisor[serve,client]'": "in tests/contract/test_wheel.py",
    "api/slurm/setup.sh install": "in slurm_cluster.py",
    "api/slurm/setup.sh remove": "in test_slurm_setup.py",
    "advisor serve": "in serving.py, at a socket",
    "systemctl restart munge slurmctld slurmd": "by hand: the daemons are children of the test",
    "systemctl enable --now /etc/slurm/advisor/advisor-slurm-match.service": "likewise",
    "systemctl disable --now advisor-slurm-match": "likewise",
    "AccountingStorageTRES=gres/gpu,gres/mps": "in slurm_cluster.py: a line of slurm.conf",
    "PartitionName=... TRESBillingWeights=CPU=1.0,GRES/gpu=100.0,GRES/mps=1.0": "likewise",
    "sacctmgr modify user alice set GrpTRES=gres/gpu=4,gres/mps=400": "in test_slurm.py",
}
"""Commands of the page that no test runs as they stand there, and where they run."""

PAIR = {"bert-infer-b2": "resnet50-infer-b2", "resnet50-infer-b2": "bert-infer-b2"}
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
        file = self.cluster.mps / "agent.log"
        return file.read_text() if file.exists() else ""

    def script(self, program: str) -> str:
        names = {"libraries": self.libraries, "folder": self.cluster.folder, "uuid": UUID,
                 "python": sys.executable, "fakes": FAKES}  # fmt: skip
        return (START + program).format(**names)

    def submit(self, program: str, comment: str) -> str:
        """The number of a job that asks for a part of a GPU itself."""
        options = ("--gres=mps:30", f"--comment={comment}")
        return self.cluster.submit(self.script(program), *options)[0]

    def pair(self) -> dict[str, str]:
        """Two jobs that name each other, by name; once both work."""
        return self.both_work(
            {
                job: self.submit(WORK, f"advisor:job={job},with={partner}")
                for job, partner in PAIR.items()
            }
        )

    def pair_of_page(self) -> dict[str, str]:
        """The two jobs at the top of the page, submitted by its own lines."""
        lines = [line for line in COMMANDS if line.startswith("sbatch ")]
        numbers: dict[str, str] = {}
        for job, line in zip(PAIR, lines, strict=True):
            script = self.cluster.folder / line.split()[-1]
            script.write_text("#!/bin/bash\n" + self.script(WORK))
            done = self.cluster.run("bash", "-c", line)
            assert done.returncode == 0, done.stderr
            numbers[job] = done.stdout.split()[-1]
        return self.both_work(numbers)

    def both_work(self, numbers: dict[str, str]) -> dict[str, str]:
        """Wait until both count; they go on until the file `end` is there."""
        for job in PAIR:
            self.until(lambda job=job: self.steps(numbers[job]))
        return numbers

    def await_overlap(self, numbers: dict[str, str]) -> None:
        """Wait until the agent has seen both work, and longer than their first seconds."""
        words = ["work together", *(f"{number} ({job})" for job, number in numbers.items())]
        self.until(
            lambda: any(all(word in line for word in words) for line in self.log.splitlines())
        )
        time.sleep(SETTLE_S + 2)

    def steps(self, number: str) -> int:
        file = self.cluster.mps / "gpu0-0/jobs" / number / "progress"
        return int.from_bytes(file.read_bytes()[:8], "little") if file.exists() else 0

    def end(self, numbers: dict[str, str]) -> list[str]:
        file = self.cluster.folder / "end"
        file.touch()
        ended = [self.cluster.await_state(number, *ENDED) for number in numbers.values()]
        file.unlink()
        return [job["JobState"] for job in ended]

    def agents(self) -> list[int]:
        """Process numbers of the agents, as this host counts them."""
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(self.cluster.mps).encode() in (line := _read(path)) and b"python" in line
        ]

    def observed(self, numbers: dict[str, str]) -> Observation:
        """What the service has of these jobs, once it has it."""
        name = "slurm-" + "-".join(sorted(numbers.values()))
        with Client(f"unix:{self.socket}") as client:
            [seen] = self.until(lambda: [o for o in client.observations() if o.launch_id == name])
        return seen

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait, and show the logs where it was in vain."""
        return eventually(holds, lambda: self.log + self.cluster.logs())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def node(fake_libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
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
            cluster.point_at(f"unix:{node.socket}", gpu_model="NVIDIA H200")
            yield node


@pytest.fixture
def service(node: Node) -> Iterator[Served]:
    """While a test runs; without it nobody listens at the socket."""
    with serving(node.home, ["--socket", str(node.socket)]) as served:
        yield served


def solo(job: str, share: float) -> SoloPoint:
    return SoloPoint(
        job=job, share_percent=share, rate=4 * share, power_w=80 + 4 * share, idle_power_w=80.0,
        gpu_model="Fake H200", gpu_uuid=UUID, units_total=132, window_s=5.0,
        started_at="2026-01-01T00:00:00Z", run="test",
    )  # fmt: skip


def test_an_agent_that_is_killed_hurts_no_job(node: Node) -> None:
    numbers = node.pair()
    node.await_overlap(numbers)
    killed = node.agents()
    assert len(killed) == 1
    os.kill(killed[0], signal.SIGKILL)
    assert node.end(numbers) == ["COMPLETED", "COMPLETED"]
    node.until(lambda: node.agents() == [])


def test_a_later_pair_waits_for_the_service(node: Node, request: pytest.FixtureRequest) -> None:
    """The next Prolog starts an agent; what ends while the service is down arrives afterwards."""
    numbers = node.pair()
    node.await_overlap(numbers)
    before = len(node.log)
    assert node.end(numbers) == ["COMPLETED", "COMPLETED"]
    node.until(lambda: "the service did not take an observation" in node.log[before:])
    request.getfixturevalue("service")
    seen = node.observed(numbers)
    # Without advice both had what they asked for themselves.
    assert [part.share_percent for part in seen.parts] == [30, 30]


@pytest.mark.usefixtures("service")
def test_a_pair_is_observed(node: Node) -> None:
    with Client(f"unix:{node.socket}") as client:
        client.import_points([solo(job, share) for job in PAIR for share in (20, 100)])
    numbers = node.pair_of_page()
    progress = node.cluster.mps / "gpu0-0/jobs" / numbers["resnet50-infer-b2"] / "progress"
    assert progress.stat().st_size == FILE_BYTES
    node.await_overlap(numbers)
    assert node.end(numbers) == ["COMPLETED", "COMPLETED"]
    seen = node.observed(numbers)
    assert (seen.jobs, seen.gpu_model) == (tuple(PAIR), "Fake H200")
    told = [Named.read(node.cluster.job(number)["Comment"]) for number in numbers.values()]
    assert [part.share_percent for part in seen.parts] == [t and t.share().percent for t in told]
    assert all(t and t.memory_mib for t in told)
    assert all(part.units for part in seen.parts)
    assert [part.solo_rate for part in seen.parts] == [400, 400]
    assert all((part.rate or 0) > 0 for part in seen.parts)
    assert None not in (seen.power_w, seen.energy_j, seen.energy_saved, seen.work_per_joule)
    assert (seen.state, seen.flags, seen.driver) == ("finished", (), "580.00.00")


@pytest.mark.usefixtures("service")
def test_a_job_alone_on_a_gpu_is_kept_as_watched(node: Node) -> None:
    """Under the name in its comment, with its count and watts, while it still runs."""
    number = node.cluster.submit(
        node.script(WORK), "--gres=mps:100", "--comment=advisor:job=lonely"
    )[0]
    with Client(f"unix:{node.socket}") as client:
        [point] = node.until(
            lambda: (
                [row for row in client.jobs() if row.job == "lonely"]
                # On a busy machine the first seconds may pass without a reading.
                and [point for point in client.profile("lonely").points if point.power_w]
            )
        )
    assert node.end({"lonely": number}) == ["COMPLETED"]
    assert (point.flags, point.share_percent, point.rate_unit) == (("seen",), 100, "steps")
    assert point.rate > 0


def test_what_cannot_be_observed_is_said_once(node: Node) -> None:
    wait = "touch runs.$SLURM_JOB_ID; while [ ! -e end ]; do sleep 0.1; done"
    silent = node.submit(wait, "advisor:job=unprofiled")
    node.until((node.cluster.folder / f"runs.{silent}").exists)
    node.until(node.agents)
    time.sleep(3)  # it says nothing of a job that it sees
    assert node.end({"silent": silent}) == ["COMPLETED"]
    said = f"job {silent} (unprofiled): it reported no progress"
    node.until(lambda: said in node.log)
    assert node.log.count(said) == 1
    node.until(lambda: not list((node.cluster.mps / "gpu0-0/jobs").iterdir()))


@pytest.mark.usefixtures("service")
def test_the_other_commands_of_the_page_run(node: Node) -> None:
    numbers = node.pair()
    node.await_overlap(numbers)
    node.end(numbers)
    folder = str(node.cluster.mps)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ran: list[str] = []
    for block in BLOCKS:
        lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
        if lines[0].startswith("from "):
            commands = [[sys.executable, "-c", "\n".join(lines)]]
        else:
            left = [line for line in lines if line not in NOT_HERE and line.split()[0] != "sbatch"]
            commands = [["bash", "-c", line.replace("/run/advisor-mps", folder)] for line in left]
        for command in commands:
            environment = {"PATH": path, "ADVISOR_HOME": str(node.home / "home")}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            ran.append(done.stdout)
    assert any("work together" in text for text in ran)
    assert set(NOT_HERE) <= set(COMMANDS)
