"""What a small API server of Kubernetes holds: versions, watches, conflicts, admission.

Pods pass a webhook when they are made and changed, where one is given, as the real server has them
do. What the real one refuses of gated pods is refused here, too. `kube_api.py` serves it.
"""

import base64
import copy
import json
import queue
import ssl
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, cast

import jsonpatch

Object: TypeAlias = dict[str, Any]

CHOOSER = "system:serviceaccount:advisor:advisor"


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    query: Mapping[str, str]
    body: Any


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str = "") -> None:
        self.status, self.message = status, message
        super().__init__(message)


def away(_: Call) -> NoReturn:
    """Refuses everything, as a server that has failed."""
    raise RefusedError(503, "away")


@dataclass(frozen=True)
class Webhook:
    """Where admission asks, and whose certificate it trusts."""

    url: str
    ca: Path

    def ask(self, asked: Object) -> Object:
        """Its response to a review."""
        body = json.dumps(asked).encode()
        request = urllib.request.Request(
            f"{self.url}/mutate?timeout=10s", body, {"Content-Type": "application/json"}
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.loads(answer.read())["response"]


@dataclass
class KubeApi:
    """The server and what it holds.

    Attributes:
        objects: By path, such as `/api/v1/namespaces/default/pods/a`.
        calls: All requests, in the order in which they came.
        refuse: Looks at each request first; what it raises is the answer.
        webhook: Is asked about pods; None: nobody is.
    """

    url: str = ""
    objects: dict[str, Object] = field(default_factory=dict[str, Object])
    calls: list[Call] = field(default_factory=list[Call])
    refuse: Callable[[Call], None] = lambda call: None
    webhook: Webhook | None = None
    _version: int = 100
    _oldest: int = 0
    _watches: "list[tuple[str, queue.SimpleQueue[Object | None]]]" = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    _past: list[tuple[int, str, Object]] = field(default_factory=list[tuple[int, str, Object]])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def kubeconfig(self, folder: Path) -> Path:
        file = folder / "kubeconfig"
        text: Object = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        file.write_text(json.dumps(text))
        return file

    def create_pod(self, pod: Object) -> Object:
        return self.create("/api/v1/namespaces/default/pods", pod)

    def create(self, folder: str, item: Object) -> Object:
        """Make an object.

        Raises:
            RefusedError: by the webhook, or there is one of that name.
        """
        item = copy.deepcopy(item)
        metadata = item.setdefault("metadata", {})
        metadata.setdefault("name", metadata.get("generateName", "") + uuid.uuid4().hex[:5])
        if "/namespaces/" in folder:
            metadata["namespace"] = folder.split("/namespaces/")[1].split("/")[0]
        if folder.endswith("/pods") and self.webhook is not None:
            item = self._admitted(item, None, "somebody")
        with self._lock:
            if (path := f"{folder}/{metadata['name']}") in self.objects:
                raise RefusedError(409, "AlreadyExists")
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            made = item["metadata"]
            made["creationTimestamp"] = made.get("creationTimestamp") or now
            made.setdefault("uid", str(uuid.uuid4()))
            return self._store(path, item, "ADDED")

    def change(self, path: str, body: Any, who: str = CHOOSER) -> Object:
        """Patch an object, as the user `who`.

        Raises:
            RefusedError: it is not there, has changed, or must not be changed so.
        """
        with self._lock:
            old = self.get(path)
        wanted = merged(old, body) if isinstance(body, dict) else jsonpatch.apply_patch(old, body)
        if path.split("/")[-2] == "pods":
            if self.webhook is not None:
                wanted = self._admitted(wanted, old, who)
            check_pod(old, wanted)
        with self._lock:
            asked, now = wanted["metadata"]["resourceVersion"], self.get(path)["metadata"]
            if asked != now["resourceVersion"]:
                raise RefusedError(409, "the object has been modified")
            return self._store(path, wanted, "MODIFIED")

    def delete(self, path: str) -> None:
        with self._lock:
            gone = self.objects.pop(path)
            self._version += 1
            gone["metadata"]["resourceVersion"] = str(self._version)
            self._tell(path, {"type": "DELETED", "object": gone})

    def get(self, path: str) -> Object:
        """A copy of an object.

        Raises:
            RefusedError: it is not there.
        """
        with self._lock:
            if path not in self.objects:
                raise RefusedError(404, "NotFound")
            return copy.deepcopy(self.objects[path])

    def pod(self, name: str) -> Object:
        return self.get(f"/api/v1/namespaces/default/pods/{name}")

    def set_phase(self, path: str, phase: str) -> None:
        with self._lock:
            self._store(path, {**self.get(path), "status": {"phase": phase}}, "MODIFIED")

    def events(self) -> list[Object]:
        with self._lock:
            return [o for path, o in self.objects.items() if "/events/" in path]

    def forget_the_past(self) -> None:
        """Have watches from before now answered with 410, and end those that are open."""
        with self._lock:
            self._oldest = self._version
            self._past.clear()
        self.end_watches()

    @property
    def is_watched(self) -> bool:
        with self._lock:
            return bool(self._watches)

    def end_watches(self) -> None:
        """End all watches, as a server does that is restarted."""
        with self._lock:
            for _, events in self._watches:
                events.put(None)

    def list(self, path: str, query: Mapping[str, str]) -> Object:
        with self._lock:
            found = [copy.deepcopy(o) for p, o in self.objects.items() if _in(p, path)]
            items = [item for item in found if _selected(item, query)]
            return {"items": items, "metadata": {"resourceVersion": str(self._version)}}

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Object]:
        """Events of a list since a version."""
        if (since := int(query.get("resourceVersion") or 0)) < self._oldest:
            yield {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
            return
        events: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        with self._lock:
            past = [e for version, p, e in self._past if version > since and _in(p, path)]
            self._watches.append((path, events))
        ends = datetime.now(UTC).timestamp() + float(query.get("timeoutSeconds") or 60)
        try:
            for event in past:
                if _selected(event["object"], query):
                    yield event
            while (left := ends - datetime.now(UTC).timestamp()) > 0:
                try:
                    event = events.get(timeout=left)
                except queue.Empty:
                    return
                if event is None:
                    return
                if _selected(event["object"], query):
                    yield event
        finally:
            with self._lock:
                self._watches.remove((path, events))

    def _store(self, path: str, item: Object, kind: str) -> Object:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = item
        self._tell(path, {"type": kind, "object": copy.deepcopy(item)})
        return copy.deepcopy(item)

    def _tell(self, path: str, event: Object) -> None:
        self._past.append((self._version, path, event))
        for watched, events in self._watches:
            if _in(path, watched):
                events.put(event)

    def _admitted(self, new: Object, old: Object | None, who: str) -> Object:
        assert self.webhook is not None
        request = {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {"username": who},
            "object": new,
            "oldObject": old,
            "dryRun": False,
        }
        versions = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        try:
            answer = self.webhook.ask({**versions, "request": request})
        except OSError as error:
            raise RefusedError(500, f"failed calling webhook: {error}") from error
        if not answer["allowed"]:
            raise RefusedError(
                400, f"the webhook denied the request: {answer['status']['message']}"
            )
        return patched(new, answer)


def patched(item: Object, answer: Object) -> Object:
    """An object with the patch of a webhook's response."""
    if "patch" not in answer:
        return item
    return jsonpatch.apply_patch(item, json.loads(base64.b64decode(answer["patch"])))


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(cast("Object", old)) if isinstance(old, dict) else {}
    for key, value in cast("Object", patch).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def check_pod(old: Object, new: Object) -> None:
    """What may be changed in a pod (Kubernetes' ValidatePodUpdate, as far as it matters here)."""

    def gates(pod: Object) -> set[str]:
        found: list[Object] = pod["spec"].get("schedulingGates") or []
        return {gate["name"] for gate in found}

    if gates(new) - gates(old):
        raise RefusedError(422, "only deletion is allowed: spec.schedulingGates")
    before: Object = old["spec"].get("nodeSelector") or {}
    after: Object = new["spec"].get("nodeSelector") or {}
    if before != after and not gates(old):
        raise RefusedError(422, "spec.nodeSelector is immutable")
    if {key: after.get(key) for key in before} != before:
        raise RefusedError(422, "only additions are allowed: spec.nodeSelector")
    fixed = ("schedulingGates", "nodeSelector")
    specs = [cast("Object", pod["spec"]) for pod in (old, new)]
    rest = [{k: v for k, v in spec.items() if k not in fixed} for spec in specs]
    if rest[0] != rest[1]:
        raise RefusedError(422, "pod updates may not change other fields")


def _in(path: str, watched: str) -> bool:
    folder, _, _ = path.rpartition("/")
    if watched in ("/api/v1/pods", "/api/v1/resourcequotas"):
        return folder.endswith(watched.removeprefix("/api/v1"))
    return folder == watched


def _selected(item: Object, query: Mapping[str, str]) -> bool:
    """Of a label, and of a node's name: no others are asked for here."""
    field_, node = _wanted(query.get("fieldSelector", "spec.nodeName!=-"))
    assert field_ == "spec.nodeName"
    label, value = _wanted(query.get("labelSelector", "-!=-"))
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return value(labels.get(label, "")) and node(item.get("spec", {}).get("nodeName", ""))


def _wanted(selector: str) -> tuple[str, Callable[[str], bool]]:
    """A name, and whether a value of it is selected."""
    name, is_not, other = selector.partition("!=")
    if is_not:
        return name, lambda value: value != other
    name, _, one = selector.partition("=")
    return name, lambda value: value == one
