"""A real `advisor kubernetes serve` in a process of its own."""

import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from certificates import Made, make_certificate
from kube_objects import KubeApi, Webhook

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class KubeServed:
    """The process; `tls` is its certificate."""

    url: str
    tls: Made
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def webhook(self) -> Webhook:
        return Webhook(self.url, self.tls.certificate)

    def ask(self, path: str, body: Any = None, **headers: str) -> Reply:
        """One request; a body is sent as JSON, bytes as they are."""
        context = ssl.create_default_context(cafile=str(self.tls.certificate))
        port = urlsplit(self.url).port
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | headers
        try:
            connection.request("GET" if text is None else "POST", path, text, sent)
            answer = connection.getresponse()
            return Reply(answer.status, answer.read().decode())
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """A number of `/metrics`."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics").text, re.MULTILINE)
        assert found, name
        return float(found[1])


@contextmanager
def kube_serving(
    folder: Path, api: KubeApi, service: str, *options: str, tls: Made | None = None
) -> Generator[KubeServed]:
    """Run the process until the end of the block.

    Args:
        folder: For its files.
        api: The cluster.
        service: Address of `advisor serve`.
        *options: More of the command line.
        tls: Its certificate; None: one is made.
    """
    tls = tls or make_certificate(folder)
    log = folder / "kubernetes-serve.log"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "KUBE"))}
    command = [sys.executable, "-m", "advisor_cli", "kubernetes", "serve", "--service", service]
    command += ["--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key)]
    command += ["--port", "0", "--host", "127.0.0.1", *options]
    environment = kept | {"KUBECONFIG": str(api.kubeconfig(folder))}
    with (
        log.open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process,
    ):
        try:
            yield KubeServed(_address(process, log), tls, log, process)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def eventually(holds: Callable[[], Any], what: str = "") -> Any:
    """The first true value."""
    ends = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends, what
        time.sleep(0.05)
    return found


def gpus(*uuids: str, model: str = "NVIDIA H200", ready: bool = True) -> str:
    """What the agent of a node writes."""
    rows = [{"uuid": u, "model": model, "sm_count": 132, "ready": ready, "why": ""} for u in uuids]
    return json.dumps(rows)


def make_node(api: KubeApi, name: str, *uuids: str, **more: Any) -> None:
    """A node with GPUs that is ready."""
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name, "advisor.dev/mps": "true"},
        "annotations": {"advisor.dev/gpus": gpus(*uuids, **more)},
    }
    conditions = [{"type": "Ready", "status": "True"}]
    api.create(
        "/api/v1/nodes", {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}
    )


def pod_of(name: str, job: str, *, user: int | None = 1000, **wishes: str) -> dict[str, Any]:
    """A pod as its author writes it."""
    keys = {"advisor.dev/job": job} | {
        f"advisor.dev/{key.replace('_', '-')}": text for key, text in wishes.items()
    }
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
    }
    security = {} if user is None else {"runAsUser": user}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": keys},
        "spec": {"containers": [container], "securityContext": security},
    }


def said(api: KubeApi, name: str) -> Sequence[str]:
    """Messages of the events of a pod."""
    return [e["message"] for e in api.events() if e["involvedObject"]["name"] == name]


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    ends = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < ends:
        if found := re.search(r"advisor answers the cluster on (\S+)\n", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"it did not start: {log.read_text()}")
