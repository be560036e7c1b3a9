"""How an agent of a node begins, or does not: in this process, without a driver."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_api import cluster_at, kube_api
from kube_objects import KubeApi
from kube_serving import gpus, make_node

from advisor.client import Client
from advisor.core.gpu import Gpu
from advisor.errors import BusyError, SourceError
from advisor.runtime.lock import gpu_lock
from advisor.settings import Settings, read_settings
from advisor_kubernetes import names
from advisor_kubernetes.agent import AgentOptions, NodeApi, run_agent
from advisor_kubernetes.cluster import NODES
from advisor_profiling.telemetry import nvml

GPU = Gpu(uuid="GPU-1", model="H", units_total=132)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_LOCK_DIR": str(tmp_path)})


@pytest.fixture
def api() -> Iterator[KubeApi]:
    """A node of which an agent before, or another one, has said something."""
    with kube_api() as server:
        make_node(server, "n", GPU.uuid)
        yield server


def run(api: KubeApi, settings: Settings) -> str:
    """Begin, and fail; what is said of the node then."""
    with Client("http://127.0.0.1:9") as service, pytest.raises((BusyError, SourceError)):
        run_agent(
            AgentOptions(node="n", host="127.0.0.1", port=0), settings,
            NodeApi(cluster_at(api.url), "n"), service, threading.Event(), print,
        )  # fmt: skip
    return api.get(f"{NODES}/n")["metadata"]["annotations"][names.GPUS]


def test_only_one_agent_owns_a_node(
    api: KubeApi, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would end the daemons of the first, and what that says is true."""
    monkeypatch.setattr(nvml, "list_gpus", lambda: [GPU])
    with gpu_lock(settings.lock_dir, GPU.uuid):
        assert run(api, settings) == gpus(GPU.uuid)


def test_a_node_whose_driver_is_gone_has_no_gpu(
    api: KubeApi, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent before has written would send pods there."""

    def fail() -> list[Gpu]:
        raise SourceError("nvmlInit failed: driver not loaded (NVML error 9)")

    monkeypatch.setattr(nvml, "list_gpus", fail)
    assert run(api, settings) == "[]"
