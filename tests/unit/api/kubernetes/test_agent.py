"""The agent of a Kubernetes node without a GPU: pods, progress files, start, and its port."""

import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kube_api import cluster_at, kube_api
from kube_objects import KubeApi
from kube_serving import gpus, make_node, placed
from raw_server import ask
from reading import some

from advisor.client import Client
from advisor.core.gpu import Gpu
from advisor.errors import BusyError, InputError, SourceError
from advisor.files import gpu_lock
from advisor.progress import Progress as JobProgress
from advisor.settings import read_settings
from advisor_kubernetes import names
from advisor_kubernetes.agent import (
    MOST_CONNECTIONS,
    AgentOptions,
    GpuHours,
    MetricsServer,
    NodeApi,
    pod_in,
    progress_file,
    read_pod,
    run_agent,
)
from advisor_kubernetes.cluster import NODES
from advisor_node.room import ProgressReading
from advisor_profiling.telemetry import nvml

UID = "0f8b1a52-3c0e-4d57-9d3c-5b1e8a7f6c21"


# Pods


@pytest.mark.parametrize(
    ("phase", "state", "over"),
    [
        ("Running", "running", False),
        ("Succeeded", "finished", True),
        ("Failed", "failed", True),
        # Deleted while it runs: it has neither finished nor failed.
        ("Unknown", "running", False),
    ],
)
def test_a_pod_is_read_as_the_chooser_has_left_it(phase: str, state: str, over: bool) -> None:
    found = some(read_pod(placed(UID, "gemm", "38.5") | {"status": {"phase": phase}}))
    assert (found.share_text, found.share.percent) == ("38.5", 38.5)
    assert (found.namespace, found.name) == ("team", "gemm-pod")
    assert (found.state, found.over) == (state, over)


@pytest.mark.parametrize("name", ["job", "share-percent", "gpu-uuid"])
def test_a_pod_without_a_gpu_of_ours_is_left_alone(name: str) -> None:
    raw = placed(UID, "gemm", "30")
    del raw["metadata"]["annotations"][f"advisor.dev/{name}"]
    assert read_pod(raw) is None


@pytest.mark.parametrize(
    ("uid", "job", "share"),
    [
        (UID, "gemm", "0"),
        (UID, "gemm", "many"),
        (UID, "gemm", "nan"),
        (UID, "../x", "30"),
        ("../..", "gemm", "30"),
    ],
)
def test_annotations_that_nobody_can_have_chosen_are_refused(
    uid: str, job: str, share: str
) -> None:
    """0 is no limit at all for the driver, and the uid becomes a path."""
    with pytest.raises(InputError, match="were not written"):
        read_pod(placed(uid, job, share))


def test_the_pods_of_a_gpu_hold_all_of_it() -> None:
    limits = {"limits": {"advisor.dev/share": "25"}}
    small = some(
        read_pod(placed(UID, "gemm", "50", containers=[{"name": "m", "resources": limits}]))
    )
    half = some(read_pod(placed("another", "fft", "50")))
    assert (small.booked_percent, half.booked_percent) == (25, 50)
    hours = GpuHours()
    hours.look(100.0, [small])
    hours.look(160.0, [small, half])
    assert hours.held == {UID: 1 / 3, "another": 2 / 3}
    hours.look(190.0, [small, replace(half, state="finished")])
    assert (hours.held, hours.total_s) == ({UID: 1.0}, {UID: 70.0, "another": 20.0})
    hours.look(200.0, [small])
    assert hours.total_s == {UID: 80.0}


UNDERSCORED = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("line", "uid"),
    [
        (f"0::/kubepods/besteffort/pod{UID}/abc", UID),
        (f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-abc.scope", UID),
        (f"0::/../../kubepods-burstable-pod{UNDERSCORED}.slice/crio-abc.scope", UID),
        (f"11:devices:/kubepods/burstable/pod{UID}/abc\n10:memory:/kubepods/pod{UID}/abc", UID),
        *((line, None) for line in ("", "0::/", "0::/user.slice/user-0.slice", "0::/podman/abc")),
    ],
)
def test_the_pod_of_a_process_is_in_its_control_group(line: str, uid: str | None) -> None:
    assert pod_in(line) == uid


# Progress files


def test_a_job_makes_its_file_where_the_agent_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = progress_file(tmp_path, UID)
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(file))
    JobProgress().add(3, value=math.nan)
    JobProgress()  # another process of the job begins with what is there
    found = some(ProgressReading.read(file))
    assert (found.steps, found.reported.not_finite) == (3, 1)
    assert [path.name for path in file.parent.iterdir()] == ["progress"]


@pytest.mark.parametrize(
    "make", [Path.exists, partial(os.symlink, "/etc/passwd"), os.mkfifo, Path.mkdir]
)
def test_nothing_in_a_folder_of_a_pod_is_followed(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    place = progress_file(tmp_path, UID)
    place.parent.mkdir(parents=True)
    make(place)
    assert ProgressReading.read(place) is None


GPU = Gpu(uuid="GPU-1", model="H", units_total=132)


@pytest.fixture
def api() -> Iterator[KubeApi]:
    """A node of which an agent before, or another one, has said something."""
    with kube_api() as server:
        make_node(server, "n", GPU.uuid)
        yield server


def run(api: KubeApi, folder: Path, listed: Callable[[], list[Gpu]]) -> str:
    """Begin with the GPUs that the driver lists, and fail; what is said of the node then."""
    settings = read_settings({"ADVISOR_HOME": str(folder), "ADVISOR_LOCK_DIR": str(folder)})
    options, node = (
        AgentOptions(node="n", host="127.0.0.1", port=0),
        NodeApi(cluster_at(api.url), "n"),
    )
    with pytest.MonkeyPatch.context() as patch, Client("http://127.0.0.1:9") as service:
        patch.setattr(nvml, "list_gpus", listed)
        with pytest.raises((BusyError, SourceError)):
            run_agent(options, settings, node, service, threading.Event(), print)
    return api.get(f"{NODES}/n")["metadata"]["annotations"][names.GPUS]


def test_only_one_agent_owns_a_node(api: KubeApi, tmp_path: Path) -> None:
    """A second one would end the daemons of the first, and what that says is true."""
    with gpu_lock(tmp_path, GPU.uuid):
        assert run(api, tmp_path, lambda: [GPU]) == gpus(GPU.uuid)


def test_a_node_whose_driver_is_gone_has_no_gpu(api: KubeApi, tmp_path: Path) -> None:
    """What an agent before has written would send pods there."""

    def fail() -> list[Gpu]:
        raise SourceError("nvmlInit failed: driver not loaded (NVML error 9)")

    assert run(api, tmp_path, fail) == "[]"


def test_silent_connections_take_neither_threads_nor_places() -> None:
    """Any pod may open them; the kubelet would take an agent that does not answer for dead."""
    server, before = MetricsServer("127.0.0.1", 0), threading.active_count()
    try:
        with ExitStack() as open_ones:
            for _ in range(2 * MOST_CONNECTIONS):
                client = socket.create_connection(("127.0.0.1", server.server_port), timeout=20)
                open_ones.enter_context(client)
            assert ask(server.server_port, "GET", "/metrics").status == 200
            assert threading.active_count() < before + MOST_CONNECTIONS + 20
    finally:
        server.close()
