"""A real `advisor kubernetes serve` over TLS, beside a real `advisor serve`, in a small cluster."""

import contextlib
import copy
import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from certificates import Made, make_certificate
from kube_api import kube_api
from kube_objects import KubeApi, RefusedError
from kube_serving import KubeServed, kube_serving, make_node, pod_of, said
from serving import serving
from waiting import eventually

from advisor_kubernetes import names

FIXTURES = Path(__file__).parents[1] / "fixtures/kubernetes"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubeApi, KubeServed]]:
    """A cluster without nodes, its webhook, and the service with the bundled data."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "service").mkdir()
    with (
        serving(folder / "service") as service,
        kube_api() as api,
        kube_serving(folder, api, service.url) as served,
    ):
        eventually(lambda: served.ask("/readyz").status == 200)
        api.webhook = served.webhook
        yield api, served


@pytest.fixture
def api(cluster: tuple[KubeApi, KubeServed]) -> Iterator[KubeApi]:
    """The cluster, emptied at the end."""
    yield cluster[0]
    for path in [p for p in cluster[0].objects if p.split("/")[-2] in KEPT]:
        cluster[0].delete(path)


@pytest.fixture
def served(cluster: tuple[KubeApi, KubeServed]) -> KubeServed:
    return cluster[1]


KEPT = ("pods", "nodes", "resourcequotas")


def recorded(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_bytes())


def gates(api: KubeApi, name: str) -> list[Any]:
    return api.pod(name)["spec"].get("schedulingGates") or []


def notes(api: KubeApi, name: str) -> dict[str, str]:
    return api.pod(name)["metadata"]["annotations"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"{}", b"[" * 50_000])
def test_nonsense_is_refused_without_a_trace(served: KubeServed, body: bytes) -> None:
    reply = served.ask("/mutate", body)
    assert (reply.status, reply.json["error"]["code"]) == (422, "bad-input")
    assert "Traceback" not in served.log.read_text()


def test_requests_are_bounded(served: KubeServed) -> None:
    assert served.ask("/mutate", b" " * (4 * 1024 * 1024)).status == 413
    typed = {"Content-Type": "text/plain"}
    assert served.ask("/mutate", b"{}", **typed).status == 415
    assert served.ask("/elsewhere").status == 404
    assert served.ask("/mutate").status == 405
    assert served.ask("/healthz", Authorization="Bearer x", Host="other.svc:443").status == 200


def test_half_a_request_stops_nobody(served: KubeServed) -> None:
    """A client that goes silent in its body, or in the handshake, holds its own connection only."""
    port = urlsplit(served.url).port
    context = ssl.create_default_context(cafile=str(served.tls.certificate))
    with (
        socket.create_connection(("127.0.0.1", port)),
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as slow,
    ):
        head = "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        assert served.ask("/mutate", recorded("admission-create-gpu-pod")).status == 200


def status_for(served: KubeServed, body: bytes, shown: Made) -> int:
    """The status of the answer to a caller that shows a certificate."""
    context = ssl.create_default_context(cafile=str(served.tls.certificate))
    context.load_cert_chain(*shown)
    port = urlsplit(served.url).port
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    ) as connection:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        return connection.getresponse().status


@pytest.mark.slow
def test_only_the_api_server_is_answered_where_it_shows_a_certificate(
    api: KubeApi, tmp_path: Path
) -> None:
    """Another certificate, or none, is refused; probes and metrics need none."""
    ours, other = make_certificate(tmp_path, "api"), make_certificate(tmp_path, "other")
    options = ("--client-ca", str(ours.certificate), "--log-level", "warning")
    asked = json.dumps(recorded("admission-create-gpu-pod")).encode()
    with kube_serving(tmp_path, api, "http://127.0.0.1:9", *options) as served:
        assert served.ask("/mutate", asked).status == 403
        assert status_for(served, asked, ours) == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status_for(served, asked, other)
        assert served.ask("/healthz").status == 200


@pytest.mark.slow
def test_two_pods_go_from_admission_to_their_node(api: KubeApi, served: KubeServed) -> None:
    for name, job in (("a", "mobilenet-train-b2"), ("b", "triad")):
        api.create_pod(pod_of(name, job))
        assert gates(api, name) == [{"name": "advisor.dev/split"}]
    mine = {"metadata": {"annotations": {names.GPU_UUID: "GPU-9"}}}
    with pytest.raises(RefusedError, match="cannot be changed"):
        api.change("/api/v1/namespaces/default/pods/a", mine, who="me")
    make_node(api, "node-0")
    make_node(api, "node-1", "GPU-1")
    eventually(lambda: not gates(api, "a") and not gates(api, "b"), served.log.read_text)
    shares = sorted(float(notes(api, name)[names.SHARE_PERCENT]) for name in "ab")
    # What the bundled model says of this pair on an H200, tested elsewhere: some limited split.
    assert 0 < shares[0] < shares[1] <= 100
    assert notes(api, "a")[names.PARTNER] == "default/b"
    assert {notes(api, name)[names.GPU_UUID] for name in "ab"} == {"GPU-1"}
    eventually(lambda: any("% of the SMs of GPU-1" in text for text in said(api, "b")))
    for name in "ab":
        assert api.pod(name)["spec"]["nodeSelector"] == {names.HOSTNAME: "node-1.example"}


def test_pod_that_another_scheduler_places_is_advised(api: KubeApi, served: KubeServed) -> None:
    """By the real service while the API server waits; a job that nobody knows is as it was."""
    found = api.create_pod(
        pod_of("a", "triad", placed_by="hami", **{"with": "mobilenet-train-b2"}, user=1000)
    )
    share = float(found["metadata"]["annotations"][names.ADVISED_SHARE])
    assert 0 < share < 100
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpucores"] == f"{share:.0f}"
    assert not gates(api, "a")
    other = pod_of("b", "nobody", placed_by="hami", **{"with": "triad"}, user=1000)
    assert api.create_pod(other)["spec"] == other["spec"]


def test_quota_on_whole_gpus_is_not_passed_by(api: KubeApi, served: KubeServed) -> None:
    """A namespace that may have no GPU gets none by an annotation, and is told so."""
    api.create("/api/v1/namespaces/poor/resourcequotas", {
        "metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
    })  # fmt: skip
    make_node(api, "node-1", "GPU-1")
    pods = "/api/v1/namespaces/poor/pods"
    api.create(pods, pod_of("a", "triad", max_wait_s="0"))
    eventually(lambda: any("is for no GPU" in text for text in said(api, "a")))
    assert api.get(f"{pods}/a")["spec"]["schedulingGates"]


@pytest.mark.slow
def test_certificate_is_renewed_in_the_running_process(served: KubeServed, tmp_path: Path) -> None:
    """New connections see the new certificate; half a change leaves the old one in use."""
    before = [copy.copy(path.read_bytes()) for path in served.tls]
    new = make_certificate(tmp_path, "new")
    try:
        shutil.copy(new.certificate, served.tls.certificate)
        eventually(lambda: "the old one stays" in served.log.read_text())
        assert _shown(served) == before[0].decode()
        shutil.copy(new.key, served.tls.key)
        eventually(lambda: _shown(served) == new.certificate.read_text())
    finally:
        for path, text in zip(served.tls, before, strict=True):
            path.write_bytes(text)
        eventually(lambda: _shown(served) == before[0].decode())


def _shown(served: KubeServed) -> str:
    return ssl.get_server_certificate(("127.0.0.1", urlsplit(served.url).port or 0))
