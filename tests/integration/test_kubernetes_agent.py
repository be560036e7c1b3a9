"""The agent of a Kubernetes node: real processes, fake driver libraries, MPS and API server."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from host import FAKES, UUID, FakeHost
from kube_agent import NODE, SETTLE_S
from kube_api import kube_api
from kube_objects import KubeApi, away
from kube_serving import placed
from prometheus_client.parser import text_string_to_metric_families
from serving import Served
from waiting import ending, eventually

from advisor.client import Client
from advisor.core.records import SoloPoint
from advisor_kubernetes.agent import progress_file
from advisor_kubernetes.cluster import NODES

# Several processes start one after the other, each in seconds where nobody else computes.
A, B = "11111111-aaaa-4aaa-8aaa-111111111111", "22222222-bbbb-4bbb-8bbb-222222222222"

PODS = "/api/v1/namespaces/team/pods"

MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

PIPE = f"mps/{UUID}/pipe"
# The daemon is in a fault, gives clients less, and NVML does not say who computes.
FAULTS = {
    f"{PIPE}/status": ("FAULT", "the MPS server is in a fault"),
    f"{PIPE}/default": ("50", "gives its clients 50 % at most"),
    "nvml/gpu0/every": ("error 15", ""),
}


@dataclass
class Node:
    """A node with an agent, and pods that are processes."""

    host: FakeHost
    api: KubeApi
    agent: subprocess.Popen[bytes]
    jobs: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def pipe(self) -> Path:
        return self.host.folder / PIPE

    def run_pod(self, uid: str, job: str, share: str, **variables: str) -> subprocess.Popen[bytes]:
        """Bind a pod; its container starts when its progress file is there."""
        pod = placed(uid, job, share, UUID)
        if MEMORY in variables:
            pod["metadata"]["annotations"]["advisor.dev/memory-limit"] = variables[MEMORY]
        self.api.create(PODS, pod)
        progress = progress_file(self.host.folder / "pods", uid)
        progress.parent.mkdir(parents=True, exist_ok=True)
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

    def end_pods(self) -> None:
        for job in self.jobs:
            job.kill()
            job.wait()

    def clear(self) -> None:
        """End all pods, and the faults that a test that failed has left."""
        for fault in (f"{PIPE}/refuse", *FAULTS):
            (self.host.folder / fault).unlink(missing_ok=True)
        self.end_pods()
        for path in [path for path in self.api.objects if "/namespaces/team/" in path]:
            self.api.delete(path)
        eventually(self.ready)
        eventually(lambda: self.metric("advisor_pod_share_percent") is None)

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

    def proven(self, job: str, value: float | None = 1) -> None:
        """Wait until the metric says that the limit of a job is proven, or is not."""
        eventually(lambda: self.metric("advisor_pod_limit_proven", job) == value)

    def gpu(self) -> dict[str, Any]:
        notes = self.api.get(f"{NODES}/{NODE}")["metadata"].get("annotations", {})
        [gpu] = json.loads(notes.get("advisor.dev/gpus", "[{}]"))
        return gpu

    def ready(self) -> bool:
        return bool(self.gpu().get("ready"))

    def refuses(self, why: str) -> None:
        """Wait until the GPU may not be used, and the annotation says why."""
        eventually(lambda: not self.ready() and why in self.gpu()["why"])


@contextmanager
def running(host: FakeHost, service: str, **variables: str) -> Generator[Node]:
    with kube_api() as api, (host.folder / "agent.log").open("wb") as log:
        api.create(NODES, {"metadata": {"name": NODE}})
        command = [sys.executable, str(FAKES / "kube_agent.py"), str(host.folder), api.url, service]
        agent = subprocess.Popen(command, env=host.environment(**variables), stdout=log, stderr=log)
        node = Node(host, api, agent)
        try:
            with ending(agent):
                eventually((host.folder / "port").exists)
                yield node
        finally:
            node.end_pods()
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
            assert not running_node.ready()
            pid_file = running_node.pipe / "nvidia-cuda-mps-control.pid"
            assert not pid_file.exists(), "the daemon ends with the agent"
            assert {f"{call.method} {call.path}" for call in running_node.api.calls} <= ALLOWED


@pytest.fixture(autouse=True)
def clean(node: Node) -> Iterator[None]:
    """A GPU that may be used, and no pod is left on the node of several tests."""
    eventually(node.ready)
    yield
    node.clear()


def solo(job: str, share: float, rate: float, power_w: float) -> SoloPoint:
    return SoloPoint(
        job=job, share_percent=share, rate=rate, power_w=power_w, idle_power_w=80.0,
        gpu_model="Fake H200", gpu_uuid=UUID, units_total=132, window_s=5.0,
        started_at="2026-01-01T00:00:00Z", run="test",
    )  # fmt: skip


@pytest.mark.slow
def test_two_pods_are_proven_metered_and_reported(node: Node, service: Served) -> None:
    """Their limits are read back, their joules are the GPU's, and the service learns of them."""
    with Client(service.url, service.token("test", "read")) as client:
        gpu = node.gpu()
        assert (gpu["uuid"], gpu["model"], gpu["sm_count"]) == (UUID, "Fake H200", 132)
        seen = node.api.get(f"{NODES}/{NODE}")
        assert seen["metadata"]["labels"] == {"advisor.dev/mps": "true"}
        assert seen["status"] == {"capacity": {"advisor.dev/share": "100"}}
        first = node.run_pod(A, "alpha", "30")
        node.run_pod(B, "beta", "70")
        for job, granted in (("alpha", 38), ("beta", 92)):
            node.proven(job)
            assert node.metric("advisor_pod_granted_sms", job) == granted
        eventually(lambda: (node.metric("advisor_pod_relative_speed", "beta") or 0) > 0)
        time.sleep(SETTLE_S + 2)  # what comes first is in no mean
        held = [node.metric("advisor_pod_held_gpus", job) for job in ("alpha", "beta")]
        assert held == [0.5, 0.5]
        assert (node.metric("advisor_pod_gpu_seconds_total", "beta") or 0) > 0.5
        parts = [
            node.metric("advisor_pod_energy_joules_total", job) or 0 for job in ("alpha", "beta")
        ]
        assert 0 < sum(parts) <= (node.metric("advisor_gpu_energy_joules_total") or 0) * (1 + 1e-9)
        assert parts[1] > parts[0]  # more SMs, more speed
        first.kill()
        node.api.set_phase(f"{PODS}/alpha-pod", "Succeeded")
        # Pods of other tests, of which some are flagged, have run together as well.
        [seen] = eventually(lambda: [seen for seen in client.observations() if not seen.flags])
    assert (seen.jobs, seen.state, seen.host) == (("alpha", "beta"), "finished", NODE)
    assert [(part.units, part.solo_rate) for part in seen.parts] == [(38, 400), (92, 400)]
    assert [part.ended_first for part in seen.parts] == [True, False]
    assert 0 < (seen.parts[0].rate or 0) < (seen.parts[1].rate or 0)
    assert None not in (seen.energy_j, seen.power_w, seen.work_per_joule)


ALLOWED = {
    "GET /api/v1/pods",
    f"PATCH /api/v1/nodes/{NODE}",
    f"PATCH /api/v1/nodes/{NODE}/status",
    "POST /api/v1/namespaces/team/events",
}


def test_a_pod_alone_on_a_gpu_is_kept_as_watched(node: Node, service: Served) -> None:
    """Under the name of its annotation, while it still runs."""
    node.run_pod(A, "lonely", "100")
    with Client(service.url, service.token("alone", "read")) as client:
        eventually(lambda: any(row.job == "lonely" for row in client.jobs()))
        [point] = client.profile("lonely").points
    assert (point.flags, point.share_percent, point.host) == (("seen",), 100, NODE)
    assert point.rate > 0
    assert point.power_w


def test_a_pod_that_lifts_its_limit_is_found(node: Node) -> None:
    node.run_pod(A, "alpha", "30", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90")
    node.run_pod(B, "beta", "70", CUDA_MPS_PIPE_DIRECTORY=str(node.host.folder / "elsewhere"))
    eventually(lambda: len(node.api.events()) == 2)
    said = {event["involvedObject"]["uid"]: event["message"] for event in node.api.events()}
    assert "do not carry the variables of its share of 30 %" in said[A]
    assert "compute on the whole GPU, without MPS" in said[B]
    assert {event["reason"] for event in node.api.events()} == {"LimitNotProven"}
    for job in ("alpha", "beta"):
        node.proven(job, 0)


@pytest.mark.slow
def test_memory_is_bounded_and_who_comes_to_it_is_told(node: Node) -> None:
    """The bound is read back from the driver; each context of the fake takes 100 MiB."""
    node.run_pod(A, "alpha", "30", **{MEMORY: "0=104M"})
    node.run_pod(B, "beta", "70", **{MEMORY: "0=9000M"})
    for job, most_mib in (("alpha", 104), ("beta", 9000)):
        node.proven(job)
        assert node.metric("advisor_pod_memory_limit_mib", job) == most_mib
        assert node.metric("advisor_pod_memory_mib", job) == 100
    [event] = eventually(lambda: node.api.events())
    assert (event["reason"], event["involvedObject"]["uid"]) == ("MemoryLimitMet", A)
    assert "100 MiB, and its memory is bounded at 104 MiB" in event["message"]


def test_a_daemon_that_is_lost_is_started_again_and_pods_are_told(node: Node) -> None:
    """Until it is well the GPU is not ready; what its clients do is not proven any more."""
    node.run_pod(A, "alpha", "30")
    node.proven("alpha")
    losses = node.metric("advisor_gpu_daemon_losses_total") or 0
    (node.pipe / "refuse").touch()
    os.kill(int((node.pipe / "nvidia-cuda-mps-control.pid").read_text()), signal.SIGKILL)
    # First that it is gone, then why it does not start again.
    node.refuses("permission denied")
    node.proven("alpha", 0)
    # The event is sent after the metric has changed.
    [event] = eventually(lambda: [e for e in node.api.events() if e["reason"] == "MpsDaemonLost"])
    assert event["involvedObject"]["uid"] == A
    (node.pipe / "refuse").unlink()
    eventually(node.ready)
    assert node.metric("advisor_gpu_daemon_losses_total") == losses + 1
    assert node.metric("advisor_pod_limit_proven", "alpha") == 0


def test_a_gpu_is_not_ready_while_it_is_not_well(node: Node) -> None:
    for file, (text, why) in FAULTS.items():
        (node.host.folder / file).write_text(text)
        node.refuses(why)
        assert node.get("/healthz").status_code == 200
        (node.host.folder / file).unlink()
        eventually(node.ready)


def test_a_gpu_on_which_others_compute_is_not_ready(node: Node) -> None:
    """Such as a pod to which a device plugin gave it: both would run on all SMs."""
    node.run_pod(A, "alpha", "30", ADVISOR_POD_UID=B)
    node.refuses("compute on it")
    assert node.metric("advisor_pod_limit_proven", "alpha") is None
    node.end_pods()
    eventually(node.ready)


@pytest.mark.slow
def test_it_looks_on_while_kubernetes_is_away(node: Node) -> None:
    """Pods run on, and so do their meters; what was missed is found afterwards."""
    eventually(lambda: node.get("/readyz").status_code == 200)
    node.run_pod(A, "alpha", "30")
    node.proven("alpha")
    node.api.refuse, answers = away, node.api.refuse
    node.api.end_watches()
    (node.pipe / "default").write_text("50")
    eventually(lambda: node.metric("advisor_gpu_ready") == 0)
    assert node.metric("advisor_pod_limit_proven", "alpha") == 1
    assert node.get("/healthz").status_code == 200
    assert node.ready(), "the annotation cannot have been changed"
    node.api.delete(f"{PODS}/alpha-pod")
    node.api.refuse = answers
    eventually(lambda: not node.ready())
    node.proven("alpha", None)
    assert node.get("/elsewhere").status_code == 404
