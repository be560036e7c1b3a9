"""The agent of a Kubernetes node: real processes, fake driver libraries, MPS and API server."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from host import FAKES, UUID, FakeHost
from kube_agent import NODE, SETTLE_S
from kube_node_api import NodeApiServer, node_api, pod
from prometheus_client.parser import text_string_to_metric_families
from serving import Served, serving

from advisor.client import Client
from advisor.core.observations import Observation
from advisor.core.records import SoloPoint

# Several processes start one after the other, each in seconds where nobody else computes.
pytestmark = pytest.mark.timeout(300)

A, B = "11111111-aaaa-4aaa-8aaa-111111111111", "22222222-bbbb-4bbb-8bbb-222222222222"

# Files beside the daemon's pipe: it does not start, it is in a fault, it gives clients less.
FAULTS = ("refuse", "status", "default")


@dataclass
class Node:
    """A node with an agent, and pods that are processes."""

    host: FakeHost
    api: NodeApiServer
    agent: subprocess.Popen[bytes]
    jobs: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def pipe(self) -> Path:
        return self.host.folder / "mps" / UUID / "pipe"

    @property
    def every_query(self) -> Path:
        """Holds the error that every query of NVML ends with, while it is there."""
        return self.host.folder / "nvml" / "gpu0" / "every"

    def run_pod(self, uid: str, job: str, share: str, **variables: str) -> subprocess.Popen[bytes]:
        """Bind a pod; its container starts when its progress file is there."""
        self.api.put(pod(uid, node=NODE, gpu=UUID, job=job, share=share))
        progress = self.host.folder / "pods" / uid / "progress"
        until(progress.exists)
        given = {
            "ADVISOR_POD_UID": uid,
            "ADVISOR_GPU": UUID,
            "ADVISOR_PROGRESS_FILE": str(progress),
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": share,
            "CUDA_VISIBLE_DEVICES": UUID,
        }
        # A file in the place of the container's log.
        with (self.host.folder / f"{job}.log").open("wb") as log:
            started = subprocess.Popen(
                [sys.executable, str(FAKES / "fake_job.py")],
                env=self.host.environment(**(given | variables)),
                stdout=log,
                stderr=log,
            )
        self.jobs.append(started)
        return started

    def clear(self) -> None:
        """End all pods, and the faults that a test that failed has left."""
        for fault in (*(self.pipe / name for name in FAULTS), self.every_query):
            fault.unlink(missing_ok=True)
        for job in self.jobs:
            job.kill()
            job.wait()
        for uid in list(self.api.pods):
            self.api.delete(uid)
        self.api.events.clear()
        until(self.ready)
        until(lambda: self.metric("advisor_pod_share_percent") is None)

    def get(self, path: str) -> httpx.Response:
        port = (self.host.folder / "port").read_text()
        return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=10)

    def metric(self, name: str, job: str | None = None) -> float | None:
        """The value of a metric, of the pod that runs a job."""
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and job in (None, sample.labels.get("job")):
                    return sample.value
        return None

    def ready(self) -> bool:
        """Whether the annotation of the node says that its GPU may be used."""
        return [gpu["ready"] for gpu in self.api.gpus(NODE)] == [True]

    def why(self) -> str:
        return self.api.gpus(NODE)[0]["why"]


@contextmanager
def running(host: FakeHost, service: str, **variables: str) -> Generator[Node]:
    with node_api() as api:
        command = [sys.executable, str(FAKES / "kube_agent.py"), str(host.folder), api.url, service]
        with (host.folder / "agent.log").open("wb") as log:
            agent = subprocess.Popen(
                command, env=host.environment(**variables), stdout=log, stderr=log
            )
        node = Node(host, api, agent)
        try:
            until((host.folder / "port").exists)
            yield node
        finally:
            for job in node.jobs:
                job.kill()
                job.wait()
            agent.terminate()
            agent.wait(30)
            host.control("quit", node.pipe)


@pytest.fixture(scope="module")
def node(fake_libraries: Path, service: Served) -> Iterator[Node]:
    """An agent for all tests, each of which leaves it as it was; it ends in good order."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        (Path(folder) / "nvml" / "gpu0").mkdir(parents=True)
        host = FakeHost(Path(folder), fake_libraries)
        token = service.token("agent", "read", "write")
        with Client(service.url, token) as client:
            for job in ("alpha", "beta"):
                client.import_points([solo(job, 50, 200, 280), solo(job, 100, 400, 480)])
        with running(host, service.url, ADVISOR_TOKEN=token) as running_node:
            yield running_node
            running_node.agent.terminate()
            assert running_node.agent.wait(60) == 0
            assert running_node.api.gpus(NODE)[0]["ready"] is False
            assert "no MPS daemon answers" in str(daemon_says(host, running_node))
            assert {call.split("?")[0] for call in running_node.api.calls} <= ALLOWED


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """No pod is left on the node of several tests."""
    yield
    if "node" in request.fixturenames:
        request.getfixturevalue("node").clear()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("serve")) as served:
        yield served


def until(holds: Callable[[], object]) -> None:
    """Wait, with an end that only a machine that stands still reaches."""
    deadline = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def solo(job: str, share: float, rate: float, power_w: float) -> SoloPoint:
    return SoloPoint(
        job=job, share_percent=share, rate=rate, power_w=power_w, idle_power_w=80.0,
        gpu_model="Fake H200", gpu_uuid=UUID, units_total=132, window_s=5.0,
        started_at="2026-01-01T00:00:00Z", run="test",
    )  # fmt: skip


def test_two_pods_are_proven_metered_and_reported(node: Node, service: Served) -> None:
    """Their limits are read back, their joules are the GPU's, and the service learns of them."""
    with Client(service.url, service.token("test", "read")) as client:
        until(node.ready)
        [gpu] = node.api.gpus(NODE)
        assert (gpu["uuid"], gpu["model"], gpu["sm_count"]) == (UUID, "Fake H200", 132)
        assert node.api.nodes[NODE]["labels"] == {"advisor.dev/mps": "true"}
        first = node.run_pod(A, "alpha", "30")
        node.run_pod(B, "beta", "70")
        for job, granted in (("alpha", 38), ("beta", 92)):
            until(lambda job=job: node.metric("advisor_pod_limit_proven", job) == 1)
            assert node.metric("advisor_pod_granted_sms", job) == granted
        until(lambda: (node.metric("advisor_pod_relative_speed", "beta") or 0) > 0)
        began = time.monotonic()
        until(lambda: time.monotonic() - began > SETTLE_S + 2)
        parts = [
            node.metric("advisor_pod_energy_joules_total", job) or 0 for job in ("alpha", "beta")
        ]
        whole = node.metric("advisor_gpu_energy_joules_total") or 0
        assert 0 < sum(parts) <= whole * (1 + 1e-9)
        assert parts[1] > parts[0]  # more SMs, more speed
        first.kill()
        node.api.set_phase(A, "Succeeded")
        # Pods of other tests, of which some are flagged, have run together as well.
        until(lambda: [seen for seen in client.observations() if not seen.flags])
        [seen] = [seen for seen in client.observations() if not seen.flags]
    check_observation(seen)


ALLOWED = {
    "GET /api/v1/pods",
    f"PATCH /api/v1/nodes/{NODE}",
    "POST /api/v1/namespaces/team/events",
}


def check_observation(seen: Observation) -> None:
    """What a launch would have reported of the same two jobs."""
    assert seen.jobs == ("alpha", "beta")
    assert [part.units for part in seen.parts] == [38, 92]
    assert [part.solo_rate for part in seen.parts] == [400, 400]
    rates = [part.rate or 0 for part in seen.parts]
    assert 0 < rates[0] < rates[1]
    assert (seen.state, seen.host, seen.flags) == ("finished", NODE, ())
    assert [part.ended_first for part in seen.parts] == [True, False]
    assert seen.overlap_s > SETTLE_S
    assert seen.energy_j is not None
    assert seen.energy_j > 0
    assert seen.power_w is not None
    assert seen.work_per_joule is not None


def daemon_says(host: FakeHost, node: Node) -> str:
    done = subprocess.run(
        ["nvidia-cuda-mps-control"], env=host.environment(CUDA_MPS_PIPE_DIRECTORY=str(node.pipe)),
        input="get_server_list\n", capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return "no MPS daemon answers" if "Cannot find MPS" in done.stderr else done.stdout


def test_a_pod_that_lifts_its_limit_is_found(node: Node) -> None:
    """By the variables that its process was started with, and by computing outside of MPS."""
    until(node.ready)
    node.run_pod(A, "alpha", "30", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90")
    node.run_pod(B, "beta", "70", CUDA_MPS_PIPE_DIRECTORY=str(node.host.folder / "elsewhere"))
    until(lambda: len(node.api.events) == 2)
    said = {event["involvedObject"]["uid"]: event["message"] for event in node.api.events}
    assert "do not carry the variables of its share of 30 %" in said[A]
    assert "compute on the whole GPU, without MPS" in said[B]
    assert {event["reason"] for event in node.api.events} == {"LimitNotProven"}
    for job in ("alpha", "beta"):
        until(lambda job=job: node.metric("advisor_pod_limit_proven", job) == 0)


def test_a_daemon_that_is_lost_is_started_again_and_pods_are_told(node: Node) -> None:
    """Until it is well the GPU is not ready; what its clients do is not proven any more."""
    until(node.ready)
    node.run_pod(A, "alpha", "30")
    until(lambda: node.metric("advisor_pod_limit_proven", "alpha") == 1)
    losses = node.metric("advisor_gpu_daemon_losses_total") or 0
    (node.pipe / "refuse").touch()
    os.kill(int((node.pipe / "nvidia-cuda-mps-control.pid").read_text()), signal.SIGKILL)
    # First that it is gone, then why it does not start again.
    until(lambda: not node.ready() and "permission denied" in node.why())
    until(lambda: node.metric("advisor_pod_limit_proven", "alpha") == 0)
    # The event is sent after the metric has changed.
    until(lambda: any(event["reason"] == "MpsDaemonLost" for event in node.api.events))
    [event] = [event for event in node.api.events if event["reason"] == "MpsDaemonLost"]
    assert event["involvedObject"]["uid"] == A
    (node.pipe / "refuse").unlink()
    until(node.ready)
    assert node.metric("advisor_gpu_daemon_losses_total") == losses + 1
    assert node.metric("advisor_pod_limit_proven", "alpha") == 0


def test_a_gpu_is_not_ready_while_its_daemon_is_not_well(node: Node) -> None:
    """A fault, a percentage below 100, a driver that does not say who computes."""
    until(node.ready)
    for file, text, why in (
        ("status", "FAULT", "the MPS server is in a fault"),
        ("default", "50", "gives its clients 50 % at most"),
    ):
        (node.pipe / file).write_text(text)
        until(lambda why=why: not node.ready() and why in node.why())
        (node.pipe / file).unlink()
        until(node.ready)


def test_a_gpu_that_nobody_can_see_is_not_ready(node: Node) -> None:
    """NVML fails for a while; the daemon is well."""
    until(node.ready)
    node.every_query.write_text("error 15")
    until(lambda: not node.ready())
    assert node.get("/healthz").status_code == 200
    node.every_query.unlink()
    until(node.ready)


def test_a_gpu_on_which_others_compute_is_not_ready(node: Node) -> None:
    """Such as a pod to which a device plugin gave it: both would run on all SMs."""
    until(node.ready)
    node.run_pod(A, "alpha", "30", ADVISOR_POD_UID=B)
    until(lambda: not node.ready() and "compute on it" in node.why())
    assert node.metric("advisor_pod_limit_proven", "alpha") is None
    node.jobs[-1].kill()
    node.jobs[-1].wait()
    until(node.ready)


def test_it_looks_on_while_kubernetes_is_away(node: Node) -> None:
    """Pods run on, and so do their meters; what was missed is found afterwards."""
    until(node.ready)
    until(lambda: node.get("/readyz").status_code == 200)
    node.run_pod(A, "alpha", "30")
    until(lambda: node.metric("advisor_pod_limit_proven", "alpha") == 1)
    node.api.refuse = 503
    (node.pipe / "default").write_text("50")
    until(lambda: node.metric("advisor_gpu_ready") == 0)
    assert node.metric("advisor_pod_limit_proven", "alpha") == 1
    assert node.get("/healthz").status_code == 200
    assert node.ready(), "the annotation cannot have been changed"
    node.api.gone, node.api.refuse = True, None
    until(lambda: not node.ready())
    node.api.delete(A)
    (node.pipe / "default").unlink()
    until(lambda: node.metric("advisor_pod_limit_proven", "alpha") is None)
    assert node.get("/elsewhere").status_code == 404
