"""How an agent of a node begins, or does not: in this process, without a driver."""

import json
import threading
from pathlib import Path

import pytest
from kube_node_api import NodeApiServer, node_api
from kubernetes.client import ApiClient, Configuration
from typer.testing import CliRunner

from advisor.client import Client
from advisor.core.gpu import Gpu
from advisor.errors import BusyError, InputError, SourceError
from advisor.runtime.host.lock import gpu_lock
from advisor.settings import Settings, read_settings
from advisor_cli import app as command_line
from advisor_kubernetes.agent.agent import AgentOptions, run_agent
from advisor_kubernetes.agent.node_api import NodeApi
from advisor_kubernetes.cluster import Cluster
from advisor_profiling.telemetry import nvml

GPU = Gpu(uuid="GPU-1", model="H", units_total=132)
SAID = [{"uuid": "GPU-1", "ready": True}]
"""What an agent before, or another one, has written."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_LOCK_DIR": str(tmp_path)})


def run(api: NodeApiServer, settings: Settings) -> None:
    """Begin, on a node of which something was said before."""
    notes = {"advisor.dev/gpus": json.dumps(SAID)}
    api.nodes["n"] = {"labels": {}, "annotations": notes}
    configuration = Configuration(host=api.url)
    with Client("http://127.0.0.1:9") as service:
        run_agent(
            AgentOptions(node="n", host="127.0.0.1", port=0), settings,
            NodeApi(Cluster(ApiClient(configuration)), "n"), service, threading.Event(), print,
        )  # fmt: skip


def test_only_one_agent_owns_a_node(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would end the daemons of the first, and what that says is true."""
    monkeypatch.setattr(nvml, "list_gpus", lambda: [GPU])
    with node_api() as api:
        with gpu_lock(settings.lock_dir, GPU.uuid), pytest.raises(BusyError):
            run(api, settings)
        assert api.gpus("n") == SAID


def test_a_node_whose_driver_is_gone_has_no_gpu(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent before has written would send pods there."""

    def fail() -> list[Gpu]:
        raise SourceError("nvmlInit failed: driver not loaded (NVML error 9)")

    monkeypatch.setattr(nvml, "list_gpus", fail)
    with node_api() as api:
        with pytest.raises(SourceError):
            run(api, settings)
        assert api.gpus("n") == []


def test_without_a_cluster_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started by hand on a host that Kubernetes does not know."""

    def connect() -> Cluster:
        raise InputError("there is no cluster to connect to")

    monkeypatch.setattr("advisor_kubernetes.cluster.connect", connect)
    done = CliRunner().invoke(command_line.app, ["kubernetes", "agent", "--node", "n"])
    assert isinstance(done.exception, InputError)
    assert "there is no cluster" in str(done.exception)
