"""One GPU of a Slurm node: real processes as jobs, a made-up sight of who uses the GPU."""

import os
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from advisor.client import ProfilePoints, UnreachableError
from advisor.core.gpu import PERCENTAGE, Gpu
from advisor.core.records import SETTLE_S, Observation
from advisor.core.telemetry import Readings, TelemetrySource
from advisor.errors import PartitionError, SourceError
from advisor.runtime.backend import MpsBackend, SeenGpu, Sight
from advisor.runtime.processes import wait_until
from advisor_node import room
from advisor_node.room import ReferenceCache, Room
from advisor_node.slurm import agent
from advisor_node.slurm.agent import GpuFolder, SlurmJob, UserDaemon, tenancy

GPU = Gpu(uuid="GPU-1", model="H", units_total=132)


def unreachable(_job: str, _model: str) -> ProfilePoints:
    raise UnreachableError("down")


@dataclass
class Node:
    """A GPU, the processes on it, and the moment.

    Attributes:
        sight_s: How long each of the next answers of the daemon takes.
        power_w: That its energy counter grows by; None: nothing reads it.
    """

    folder: GpuFolder
    room: Room[SlurmJob]
    clients: set[int] = field(default_factory=set[int])
    outside: set[int] = field(default_factory=set[int])
    jobs: list[SlurmJob] = field(default_factory=list[SlurmJob])
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    now_s: float = 0.0
    sight_s: list[float] = field(default_factory=list[float])
    power_w: float | None = None

    def read(self, names: Collection[str]) -> Readings:
        if self.power_w is None:
            raise SourceError("nothing answers")
        return dict.fromkeys(names, self.power_w * self.now_s)

    def processes_memory_mib(self, _pids: Collection[int]) -> float | None:
        return None

    def close(self) -> None:
        pass

    def process(self, **variables: str) -> int:
        """A process that lives as long as the test."""
        self.processes.append(subprocess.Popen(["sleep", "100"], env=variables))
        pid = self.processes[-1].pid
        # For a moment after its start a process shows no variables.
        assert wait_until(
            lambda: bool(not variables or Path(f"/proc/{pid}/environ").read_bytes()), 10
        )
        return pid

    def run(self, number: str, name: str, share: str = "50", **variables: str) -> int:
        """A job with one process under its share; its process number."""
        folder = self.folder.path / "jobs" / number
        folder.mkdir(parents=True)
        self.jobs.append(SlurmJob(uid=number, job=name, share_text=share, folder=folder))
        limit = {
            "SLURM_JOB_ID": number,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder.pipe_dir),
            PERCENTAGE: share,
            "CUDA_VISIBLE_DEVICES": "0",
        }
        pid = self.process(**(limit | variables))
        self.clients.add(pid)
        return pid

    def look(self, seconds: int, step: int = 10) -> list[Observation]:
        """Look once a second, while each job makes `step` steps."""
        seen: list[Observation] = []
        for _ in range(seconds):
            self.now_s += 1
            for job in self.jobs:
                count = 1 + int(self.now_s * step)
                job.progress_file.write_bytes(count.to_bytes(8, "little"))
            seen += self.room.look(self.jobs)
        return seen

    def end(self, number: str, status: str) -> None:
        (self.folder.path / "ended").mkdir(exist_ok=True)
        (self.folder.path / "ended" / number).write_text(status)
        self.jobs = [job for job in self.jobs if job.uid != number]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    folder = GpuFolder(path=tmp_path / "gpu0-0", index=0, user=os.geteuid())
    monkeypatch.setattr(agent.socket, "gethostname", lambda: "n1")
    daemon = UserDaemon(GPU, folder, {}, tuple)
    references = ReferenceCache(unreachable)
    made = Node(folder, cast("Room[SlurmJob]", None))
    made.room = Room(
        daemon, cast("TelemetrySource", made), tenancy(daemon, folder), references,
        lambda: made.now_s,
    )  # fmt: skip

    def sight(_: MpsBackend) -> Sight:
        made.now_s += made.sight_s.pop(0) if made.sight_s else 0.0
        return Sight(frozenset(made.clients | made.outside), frozenset(made.clients))

    def granted(_environment: object, _user: int | None) -> list[SeenGpu]:
        return [SeenGpu(GPU.uuid, 66, mps=True)]

    monkeypatch.setattr(MpsBackend, "sight", sight)
    monkeypatch.setattr(room, "look", granted)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.fixture
def pair(node: Node) -> Node:
    """The same with two jobs."""
    node.run("1", "gemm")
    node.run("2", "bert")
    return node


def test_a_pair_is_observed_when_one_has_ended(pair: Node) -> None:
    assert pair.look(20) == []
    pair.end("1", "0")
    [seen] = pair.look(1)
    assert (seen.launch_id, seen.jobs, seen.host) == ("slurm-1-2", ("bert", "gemm"), "n1")
    assert [part.rate for part in seen.parts] == pytest.approx([10, 10])
    assert [part.ended_first for part in seen.parts] == [False, True]
    assert (seen.state, seen.flags, seen.power_w) == ("finished", (), None)
    assert seen.settled_s == pytest.approx(19 - SETTLE_S)
    pair.end("2", "0")
    assert pair.look(1) == []
    assert not pair.room.meters


def test_daemon_that_answers_late_makes_no_power(pair: Node) -> None:
    """Between the clock and the counter it may take seconds, and so may a proof."""
    pair.power_w = 300.0
    pair.look(4)
    pair.sight_s = [0.0] * 5 + [4.0]
    pair.look(6)
    pair.end("1", "0")
    [seen] = pair.look(1)
    assert seen.power_w == pytest.approx(300)
    assert [part.rate for part in seen.parts] == pytest.approx([10, 10], rel=0.05)
    assert seen.energy_j == pytest.approx(300 * seen.overlap_s)


def test_a_percentage_that_was_changed_is_found(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.run("1", "gemm", **{PERCENTAGE: "90"})
    node.run("2", "bert")
    node.look(10)
    node.end("1", "0")
    [seen] = node.look(1)
    assert seen.flags == ("limit-broken",)
    [said] = caplog.messages
    assert "do not carry the variables of its share of 50 %" in said


def test_somebody_else_on_the_gpu_is_found(pair: Node, caplog: pytest.LogCaptureFixture) -> None:
    passing = pair.process()
    pair.outside.add(passing)
    pair.look(1)
    pair.outside.clear()
    pair.look(10)
    assert not [message for message in caplog.messages if "which are of no job" in message]
    pair.clients.add(pair.process(SLURM_JOB_ID="3"))
    pair.look(5)
    pair.end("1", "0")
    [seen] = pair.look(1)
    assert seen.flags == ("limit-broken",)
    assert len([message for message in caplog.messages if "which are of no job" in message]) == 1


def test_a_daemon_that_is_gone_stops_nothing(
    pair: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def sight(_: MpsBackend) -> Sight:
        raise PartitionError("no MPS daemon answers")

    monkeypatch.setattr(MpsBackend, "sight", sight)
    assert pair.look(3) == []
    [said] = caplog.messages
    assert "no MPS daemon answers" in said
    pair.end("1", "0")
    pair.end("2", "0")
    assert pair.look(1) == []
    assert not pair.room.meters
