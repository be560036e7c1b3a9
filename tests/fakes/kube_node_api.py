"""The part of Kubernetes' API that an agent speaks to: pods by list and watch, a node, events.

Real HTTP with resource versions, 410 for a version that is too old, and a record of every call. It
answers 403 to all that the agent's ClusterRole does not allow.
"""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class NodeApiServer:
    """What the server has, and what it was asked.

    Attributes:
        nodes: Metadata of nodes by name, as merged from patches.
        events: Bodies of events that were made.
        calls: Method and path of every request, with its selectors.
        refuse: Status that every request gets; None: it answers.
        gone: The next watch is told that its version is too old.
    """

    pods: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[str] = field(default_factory=list[str])
    refuse: int | None = None
    gone: bool = False
    url: str = ""
    changes: list[tuple[str, dict[str, Any]]] = field(
        default_factory=list[tuple[str, dict[str, Any]]]
    )
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, pod: dict[str, Any]) -> None:
        """Make a pod, or change it."""
        with self.changed:
            uid = pod["metadata"]["uid"]
            kind = "MODIFIED" if uid in self.pods else "ADDED"
            self.pods[uid] = pod
            self._note(kind, pod)

    def set_phase(self, uid: str, phase: str) -> None:
        """Change the phase of a pod."""
        self.put({**self.pods[uid], "status": {"phase": phase}})

    def delete(self, uid: str) -> None:
        """Take a pod away."""
        with self.changed:
            self._note("DELETED", self.pods.pop(uid))

    def _note(self, kind: str, pod: dict[str, Any]) -> None:
        self.changes.append((kind, pod))
        self.changed.notify_all()

    def gpus(self, node: str) -> list[dict[str, Any]]:
        """The GPUs in the annotation of a node."""
        notes = self.nodes.get(node, {}).get("annotations", {})
        return json.loads(notes.get("advisor.dev/gpus", "[]"))


def pod(uid: str, *, node: str, gpu: str, job: str, share: str, **more: Any) -> dict[str, Any]:
    """A pod that the chooser has decided on and the scheduler has bound."""
    return {
        "metadata": {
            "uid": uid,
            "name": f"{job}-pod",
            "namespace": "team",
            "labels": {"advisor.dev/managed": "true"},
            "annotations": {
                "advisor.dev/job": job,
                "advisor.dev/share-percent": share,
                "advisor.dev/gpu-uuid": gpu,
            },
        },
        "spec": {"nodeName": node, **more},
        "status": {"phase": "Running"},
    }


@contextmanager
def node_api() -> Generator[NodeApiServer]:
    """The server, until the end of the block."""
    state = NodeApiServer()

    class Handler(_Handler):
        server_state = state

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        with state.changed:
            state.refuse = 503
            state.changed.notify_all()
        http.shutdown()
        http.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_state: NodeApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        state, asked = self.server_state, self._asked()
        if self._refused():
            return
        if urlsplit(self.path).path != "/api/v1/pods":
            self._send(403, {"message": "forbidden"})
        elif asked.get("watch"):
            self._watch(int(asked["resourceVersion"]), asked)
        else:
            with state.changed:
                items = [pod for pod in state.pods.values() if _selected(pod, asked)]
                version = str(len(state.changes))
            self._send(200, {"items": items, "metadata": {"resourceVersion": version}})

    def do_PATCH(self) -> None:
        body = self._body()
        parts = urlsplit(self.path).path.split("/")
        if self._refused():
            return
        if parts[:4] != ["", "api", "v1", "nodes"] or len(parts) != 5:
            self._send(403, {"message": "forbidden"})
            return
        node = self.server_state.nodes.setdefault(parts[4], {"labels": {}, "annotations": {}})
        for kind in ("labels", "annotations"):
            node[kind] |= body["metadata"].get(kind, {})
        self._send(200, {"metadata": node})

    def do_POST(self) -> None:
        body = self._body()
        if self._refused():
            return
        if not urlsplit(self.path).path.endswith("/events"):
            self._send(403, {"message": "forbidden"})
            return
        self.server_state.events.append(body)
        self._send(201, body)

    def _asked(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _refused(self) -> bool:
        self.server_state.calls.append(f"{self.command} {self.path}")
        status = self.server_state.refuse
        if status is not None:
            self._send(status, {"message": "no"})
        return status is not None

    def _watch(self, seen: int, asked: dict[str, str]) -> None:
        state = self.server_state
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        # As the real one: a client that reads whole blocks would wait for ever otherwise.
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        if state.gone:
            state.gone = False
            self._line({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
            self.wfile.write(b"0\r\n\r\n")
            return
        while state.refuse is None:
            with state.changed:
                if len(state.changes) == seen:
                    state.changed.wait(1)
                new = state.changes[seen:]
            seen += len(new)
            for kind, pod in new:
                if _selected(pod, asked):
                    self._line({"type": kind, "object": pod})

    def _line(self, event: dict[str, Any]) -> None:
        text = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))

    def _send(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Say nothing."""


def _selected(pod: dict[str, Any], asked: dict[str, str]) -> bool:
    """Whether the selectors of the agent, the only ones it may use, hold."""
    name, _, node = asked["fieldSelector"].partition("=")
    label, _, value = asked["labelSelector"].partition("=")
    assert name == "spec.nodeName"
    return pod["spec"].get("nodeName") == node and pod["metadata"]["labels"].get(label) == value
