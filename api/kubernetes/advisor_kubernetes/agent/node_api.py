"""Kubernetes' API as the agent of a node uses it: three calls, and nothing else.

RBAC of the chart allows exactly these: list and watch pods, patch nodes, create events.
"""

import importlib
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from advisor.errors import InputError, SourceError
from advisor.formats.moments import to_exact_text
from advisor_kubernetes.agent.pods import MANAGED, PREFIX, Raw, SharedPod

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

GPUS = f"{PREFIX}gpus"
CHECKED_AT = f"{PREFIX}gpus-checked-at"
"""When the annotation with the GPUs was last true; nobody renews it for an agent that is gone."""

HAS_MPS = f"{PREFIX}mps"

WATCH_S = 120
"""A watch ends after this time, and the pods are listed again: what it missed is found then."""

_CONNECT_S, _ANSWER_S = 5, 10
_MERGE = "application/merge-patch+json"


class NodeApi:
    """The API server, for one node.

    Args:
        client: Of the official Python client, with address and credentials.
        node: Name of the node.

    Every method raises a `SourceError` where the server refuses or does not answer.
    """

    def __init__(self, client: "ApiClient", node: str) -> None:
        from kubernetes.client import CoreV1Api

        self._core: Any = CoreV1Api(client)
        self._node = node
        self._selectors = {
            "field_selector": f"spec.nodeName={node}",
            "label_selector": f"{MANAGED}=true",
        }

    def list_pods(self) -> tuple[list[Raw], str]:
        """The managed pods of the node, and the version of that list to watch from."""
        with _translated("list the pods of the node"):
            answer = self._core.list_pod_for_all_namespaces(
                **self._selectors,
                # From the server's cache: a thousand nodes may start at once.
                resource_version="0",
                _preload_content=False,
                _request_timeout=(_CONNECT_S, _ANSWER_S),
            )
            found = json.loads(answer.data)
            return found["items"], found["metadata"]["resourceVersion"]

    def watch_pods(self, version: str) -> Generator[tuple[str, Raw]]:
        """Changes of the pods since a version, as (type, pod); ends by itself after a while.

        Types are ADDED, MODIFIED and DELETED. An error that the server sends, such as 410 for a
        version that is too old, ends it as well: list again.
        """
        with _translated("watch the pods of the node"):
            answer = self._core.list_pod_for_all_namespaces(
                **self._selectors,
                resource_version=version,
                watch=True,
                timeout_seconds=WATCH_S,
                _preload_content=False,
                _request_timeout=(_CONNECT_S, WATCH_S + _ANSWER_S),
            )
            try:
                for event in map(json.loads, _lines(answer)):
                    if event["type"] == "ERROR":
                        return
                    if event["type"] != "BOOKMARK":
                        yield event["type"], event["object"]
            finally:
                answer.close()
                answer.release_conn()

    def publish_gpus(self, gpus: list[Mapping[str, object]]) -> None:
        """Write the state of the node's GPUs where the chooser reads it."""
        notes = {GPUS: json.dumps(gpus), CHECKED_AT: to_exact_text(datetime.now(UTC))}
        body = {"metadata": {"labels": {HAS_MPS: "true"}, "annotations": notes}}
        with _translated("patch the node"):
            self._core.patch_node(
                self._node,
                body,
                _content_type=_MERGE,
                _preload_content=False,
                _request_timeout=(_CONNECT_S, _ANSWER_S),
            )

    def warn(self, pod: SharedPod, reason: str, message: str) -> None:
        """A warning event of a pod, which `kubectl describe pod` shows."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with _translated("create an event"):
            self._core.create_namespaced_event(
                pod.namespace,
                {
                    "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
                    "involvedObject": {
                        "apiVersion": "v1", "kind": "Pod", "name": pod.name,
                        "namespace": pod.namespace, "uid": pod.uid,
                    },
                    "type": "Warning",
                    "reason": reason,
                    "message": message[:1024],
                    "source": {"component": "advisor-agent", "host": self._node},
                    "firstTimestamp": at,
                    "lastTimestamp": at,
                    "count": 1,
                },
                _preload_content=False,
                _request_timeout=(_CONNECT_S, _ANSWER_S),
            )  # fmt: skip


def connect(node: str) -> NodeApi:
    """The API server of the cluster that this runs in, else that of the kubeconfig.

    Raises:
        InputError: the client library is not installed, or there is neither.
    """
    try:
        library: Any = importlib.import_module("kubernetes")
        client, config = library.client, library.config
    except (ImportError, AttributeError) as error:
        raise InputError(
            "the agent needs the Python client of Kubernetes, which is not installed",
            fix="pip install 'sm-advisor[kubernetes]'",
        ) from error
    settings = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            config.load_kube_config(client_configuration=settings)
    except config.ConfigException as error:
        raise InputError(
            "there is no way to reach Kubernetes",
            why=str(error),
            fix="run it in a pod with a service account, or set KUBECONFIG",
        ) from error
    return NodeApi(client.ApiClient(settings), node)


def _lines(answer: Any) -> Iterator[bytes]:
    """Whole lines of an answer that goes on."""
    rest = b""
    for piece in answer.stream(decode_content=False):
        *whole, rest = (rest + piece).split(b"\n")
        yield from filter(None, whole)


@contextmanager
def _translated(doing: str) -> Generator[None]:
    """The client's errors, and those of the library that it uses, as ours."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        refused: Any = error
        raise SourceError(
            f"Kubernetes did not let the agent {doing}: {refused.status} {refused.reason}",
            fix="look at the ClusterRole of the agent: kubectl describe clusterrole",
        ) from error
    except (HTTPError, OSError, ValueError, KeyError) as error:
        raise SourceError(
            f"the agent could not {doing}", why=f"{type(error).__name__}: {error}"
        ) from error
