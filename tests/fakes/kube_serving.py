"""A real `advisor kubernetes serve` in a process of its own."""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from certificates import Made, make_certificate
from kube_objects import KubeApi, Object, Webhook, patched
from raw_server import Answer, ask
from waiting import announced, ending

from advisor_kubernetes import names
from advisor_kubernetes.admission import review
from advisor_kubernetes.cluster import NODES


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

    def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; a body is sent as JSON, bytes as they are."""
        context = ssl.create_default_context(cafile=str(self.tls.certificate))
        text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | headers
        method = "GET" if text is None else "POST"
        return ask(urlsplit(self.url).port, method, path, text, sent, context)

    def metric(self, name: str) -> float:
        """A number of `/metrics`."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics").text, re.MULTILINE)
        assert found, name
        return float(found[1])


@contextmanager
def kube_serving(folder: Path, api: KubeApi, service: str, *options: str) -> Generator[KubeServed]:
    """Run the process until the end of the block, with more options of the command line."""
    tls = make_certificate(folder)
    log = folder / "kubernetes-serve.log"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "KUBE"))}
    command = [sys.executable, "-m", "advisor_cli", "kubernetes", "serve", "--service", service]
    command += ["--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key)]
    command += ["--port", "0", "--host", "127.0.0.1", *options]
    environment = kept | {"KUBECONFIG": str(api.kubeconfig(folder))}
    with (
        log.open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process,
        ending(process),
    ):
        address = announced(process, log, r"advisor answers the cluster on (\S+)\n")
        yield KubeServed(address, tls, log, process)


def gpus(*uuids: str, model: str = "NVIDIA H200", ready: bool = True) -> str:
    """What the agent of a node writes."""
    rows = [{"uuid": u, "model": model, "sm_count": 132, "ready": ready, "why": ""} for u in uuids]
    return json.dumps(rows)


def node_of(name: str, *uuids: str, model: str = "NVIDIA H200", **spec: Any) -> Object:
    """A node with GPUs that is ready."""
    return {
        "metadata": {
            "name": name,
            "labels": {names.HOSTNAME: f"{name}.example"},
            "annotations": {names.GPUS: gpus(*uuids, model=model)},
        },
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def make_node(api: KubeApi, name: str, *uuids: str) -> None:
    """Add such a node to a cluster."""
    api.create(NODES, node_of(name, *uuids))


def pod_of(
    name: str,
    job: str,
    *,
    user: int | None = 1000,
    namespace: str = "default",
    image: str = "registry.example/train:1",
    books: str | None = None,
    **wishes: str,
) -> Object:
    """A pod as its author writes it; it asks for a GPU, or books a part of one."""
    keys = {names.JOB: job} | {
        f"{names.PREFIX}{key.replace('_', '-')}": text for key, text in wishes.items()
    }
    gpu = {"nvidia.com/gpu": "1"}
    resources = {"limits": {names.SHARE_RESOURCE: books}} if books else {"limits": gpu}
    if not books:
        resources["requests"] = {**gpu}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": keys},
        "spec": {
            "containers": [{"name": "main", "image": image, "resources": resources}],
            "securityContext": {} if user is None else {"runAsUser": user},
        },
    }


def claimed(pod: Object) -> Object:
    """The pod, with a claim that it shares in place of a GPU."""
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return pod


def created(pod: Object) -> Object:
    """The request to review a new pod."""
    request = {"uid": "1", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def admitted(pod: Object) -> Object:
    """A pod as the webhook leaves it."""
    return patched(pod, review(created(pod), None)["response"])


def placed(uid: str, job: str, share: str, gpu: str = "GPU-1", **spec: Any) -> Object:
    """A pod of node-1 that the chooser has decided on and the scheduler has bound."""
    notes = {names.JOB: job, names.SHARE_PERCENT: share, names.GPU_UUID: gpu}
    labels = {names.MANAGED: "true"}
    return {
        "metadata": {
            "uid": uid, "name": f"{job}-pod", "namespace": "team", "labels": labels,
            "annotations": notes,
        },
        "spec": {"nodeName": "node-1", **spec},
        "status": {"phase": "Running"},
    }  # fmt: skip


def said(api: KubeApi, name: str) -> Sequence[str]:
    """Messages of the events of a pod."""
    return [e["message"] for e in api.events() if e["involvedObject"]["name"] == name]
