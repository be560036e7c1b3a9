"""The API of Kubernetes, by the official client: addresses, certificates and tokens are its part.

Objects come as plain JSON: its models would refuse fields of servers that are newer than it. Only
what is needed is read; what is wrong is an error, since anyone who reaches the server may send
anything.
"""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration

from advisor.errors import AdvisorError, InputError

Object: TypeAlias = dict[str, Any]

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?"
)

_SUFFIXES: Mapping[str, float] = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3,
    **{letter: 1000.0**n for n, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": 1024.0**n for n, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip

# Characters of an event's message; the API takes 1024.
_LONGEST = 1000


def read_object(text: bytes) -> Object:
    """The JSON object in a text.

    Raises:
        InputError: it is something else.
    """
    try:
        content: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("the body is not JSON", why=type(error).__name__) from error
    return _object(content, "the body")


def part(parent: Mapping[str, Any], *keys: str) -> Object:
    """The object under a path of keys; an empty one where it is missing.

    Raises:
        InputError: there is something else.
    """
    child: object = parent
    for key in keys:
        if (child := _object(child, key).get(key)) is None:
            return {}
    return _object(child, keys[-1] if keys else "the whole")


def parts(parent: Mapping[str, Any], *keys: str) -> list[Object]:
    """The objects in the list under a path of keys; none where it is missing.

    Raises:
        InputError: there is something else.
    """
    items: object = part(parent, *keys[:-1]).get(keys[-1])
    if items is None:
        return []
    if not isinstance(items, list):
        raise _wrong(keys[-1], "a list")
    return [_object(item, keys[-1]) for item in cast("list[object]", items)]


def word(parent: Mapping[str, Any], key: str) -> str:
    """The text under a key; an empty one where it is missing.

    Raises:
        InputError: there is something else.
    """
    if not isinstance(value := parent.get(key), str | None):
        raise _wrong(key, "a text")
    return value or ""


def quantity(value: object) -> float:
    """A number as Kubernetes writes it: `2`, `500m`, `16Gi`, `1e3`.

    Raises:
        InputError: it is none.
    """
    if not (match := _QUANTITY.fullmatch(str(value))):
        raise _wrong(str(value)[:20], "a quantity")
    return float(match[1]) * _SUFFIXES[match[2] or ""]


def event_of(
    pod: Mapping[str, str], source: Mapping[str, str], kind: str, reason: str, message: str
) -> Object:
    """An event of a pod or node, which `kubectl describe pod` shows.

    Args:
        pod: Its `namespace`, `name` and `uid`; of something else that has no namespace `kind`.
        source: The `component` that says it, and its `host`.
        kind: Normal or Warning.
        reason: In one word.
        message: Cut where the API takes no more.
    """
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    unique = f"{pod['name'][:200]}.{os.urandom(8).hex()}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": unique, "namespace": pod.get("namespace", "default")},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **pod},
        "type": kind,
        "reason": reason,
        "message": message[:_LONGEST],
        "source": {**source},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def _object(value: object, name: str) -> Object:
    if not isinstance(value, dict):
        raise _wrong(name, "an object")
    return cast("Object", value)


def _wrong(name: str, kind: str) -> InputError:
    return InputError(f"{name!a} is not {kind}", fix="send what Kubernetes sends")


# It has no types.
_CONFIG: Any = config

# For one answer; a watch says itself how long it lasts.
_TIMEOUT_S = 10.0

PODS, NODES, QUOTAS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/resourcequotas"


class ClusterError(AdvisorError, code="cluster"):
    """The API server refused, failed, or did not answer.

    Attributes:
        status: HTTP status; None: there was no answer.
    """

    def __init__(self, what: str, *, why: str = "", status: int | None = None) -> None:
        self.status = status
        super().__init__(what, why=why, fix="see whether the API server answers: kubectl get nodes")

    @property
    def is_conflict(self) -> bool:
        """The object was changed meanwhile, or is gone: look again."""
        return self.status in (404, 409)


def connect() -> "Cluster":
    """The cluster that `KUBECONFIG` or `~/.kube/config` names, else the one we run in.

    Raises:
        InputError: there is neither.
    """
    with InputError.instead_of(
        (_CONFIG.ConfigException, OSError),
        "there is no cluster to connect to",
        fix="run in a pod with a service account, or set KUBECONFIG",
    ):
        configuration: Any = Configuration()
        # As often as urllib3 does by itself, but nothing is sent on to where an answer points.
        configuration.retries = urllib3.Retry(3, redirect=False)
        try:
            _CONFIG.load_incluster_config(configuration)
        except _CONFIG.ConfigException:
            _CONFIG.load_kube_config(client_configuration=configuration)
    return Cluster(ApiClient(configuration))


class Cluster:
    """An API server, by a client that is configured."""

    def __init__(self, api: ApiClient) -> None:
        self._api: Any = api

    def get(self, path: str, **query: str) -> Object:
        """What is at a path."""
        return self._ask("GET", path, query)

    def post(self, path: str, body: Object) -> Object:
        """Make an object."""
        return self._ask("POST", path, {}, body)

    def put(self, path: str, body: Object) -> Object:
        """Replace an object."""
        return self._ask("PUT", path, {}, body)

    def patch(self, path: str, body: Object, within_s: float = _TIMEOUT_S) -> Object:
        """Merge into an object (RFC 7386); a resourceVersion in it must still be the newest.

        It is given up after so many seconds, or `_TIMEOUT_S` where that is less.

        Raises:
            ClusterError: refused; 409 where it is not the newest.
        """
        return self._ask(
            "PATCH", path, {}, body, min(within_s, _TIMEOUT_S), "application/merge-patch+json"
        )

    def watch(self, path: str, version: str, duration_s: int, **query: str) -> Iterator[Object]:
        """Events of a list after a version of it, as they come.

        Raises:
            ClusterError: the stream failed; 410: that version is too old, list again.
        """
        query = {**query, "watch": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(duration_s), "allowWatchBookmarks": "true"}
        response = self._send("GET", path, query, None, (_TIMEOUT_S, duration_s + 5.0))
        try:
            for line in response:
                event: Object = json.loads(line)
                if event.get("type") == "ERROR":
                    code = part(event, "object").get("code")
                    raise ClusterError(f"the watch of {path} ended: {code}", status=code)
                yield event
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ClusterError(f"the watch of {path} broke", why=str(error)) from error
        finally:
            response.release_conn()

    def username(self) -> str:
        """Who we are, as the API server sees it.

        Raises:
            ClusterError: it does not say.
        """
        body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        review = self.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        return word(part(review, "status", "userInfo"), "username")

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any = None,
        timeout_s: float = _TIMEOUT_S,
        kind: str = "application/json",
    ) -> Object:
        response = self._send(method, path, query, body, timeout_s, kind)
        try:
            return json.loads(response.read())
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ClusterError(f"no whole answer from {path}", why=str(error)) from error
        finally:
            response.release_conn()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        timeout_s: float | tuple[float, float],
        kind: str = "application/json",
    ) -> urllib3.BaseHTTPResponse:
        """`timeout_s` is for all of it, or for the connection and for each part of the answer."""
        headers = {"Accept": "application/json", "Content-Type": kind}
        request = self._api.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response: urllib3.BaseHTTPResponse = self._api.call_api(
                *request, _request_timeout=timeout_s
            ).response
            if response.status < 300:
                return response
            text = response.read()
            response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(f"no answer to {method} {path}", why=str(error)) from error
        raise ClusterError(
            f"{method} {path}: {response.status}", why=_said(text), status=response.status
        )


def list_of(cluster: Cluster, path: str, **query: str) -> tuple[list[Object], str]:
    """All objects of a list in pages, and its version to watch from.

    Raises:
        ClusterError: refused, or no answer.
    """
    items: list[Object] = []
    page = cluster.get(path, limit="500", **query)
    while more := word(part(page, "metadata"), "continue"):
        items += parts(page, "items")
        page = cluster.get(path, limit="500", **{**query, "continue": more})
    return [*items, *parts(page, "items")], word(part(page, "metadata"), "resourceVersion")


def _said(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""


LOG = logging.getLogger("advisor.kubernetes")

_PAUSE_S = 1.0


class ObjectMirror:
    """The objects of one list, by uid.

    Args:
        cluster: The API server.
        path: Of the list.
        changed: Called after each change.
        kept: What is kept of an object; with its uid and version.
        **query: Which of them.

    Attributes:
        synced: Set when all were listed once.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        changed: Callable[[], None],
        kept: Callable[[Object], Object] = lambda item: item,
        **query: str,
    ) -> None:
        self._cluster, self._path, self._query, self._kept = cluster, path, query, kept
        self._changed, self._lock = changed, threading.Lock()
        self._objects, self._version = dict[str, Object](), ""
        self.synced = threading.Event()

    def objects(self) -> list[Object]:
        """All of them, now; they are not to be changed."""
        with self._lock:
            return list(self._objects.values())

    def put(self, item: Object) -> None:
        """Take in the answer to a write, unless the object is newer here, or gone."""
        with self._lock:
            if _uid(item) in self._objects:
                self._take(item)

    def _take(self, item: Object) -> None:
        earlier = self._objects.get(_uid(item))
        # Versions are numbers of the store, though the API calls them opaque. A late event
        # would make a GPU look free that we have just given away.
        if earlier is None or _age(item) >= _age(earlier):
            self._objects[_uid(item)] = self._kept(item)

    def run(self, stopping: threading.Event) -> None:
        """List and watch until the end; nothing that goes wrong ends it."""
        while not stopping.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
            except AdvisorError as error:
                # 410: that version is too old.
                if not (isinstance(error, ClusterError) and error.status == 410):
                    LOG.warning("%s", error)
                    stopping.wait(_PAUSE_S)
                # What was missed meanwhile stands in a new list.
                self._version = ""
            except Exception:  # a fault of ours must not leave an old copy forever
                LOG.exception("an internal error")
                stopping.wait(_PAUSE_S)
                self._version = ""

    def _list(self) -> None:
        items, version = list_of(self._cluster, self._path, **self._query)
        with self._lock:
            before = self._objects
            kept = {uid: item for uid, item in before.items() if _age(item) > _number(version)}
            for item in items:
                newer = before.get(_uid(item), item)
                kept[_uid(item)] = newer if _age(newer) > _age(item) else self._kept(item)
            self._objects, self._version = kept, version
        self.synced.set()
        self._changed()

    def _watch(self) -> None:
        for event in self._cluster.watch(self._path, self._version, 240, **self._query):
            item = part(event, "object")
            with self._lock:
                if event.get("type") == "DELETED":
                    self._objects.pop(_uid(item), None)
                elif event.get("type") != "BOOKMARK":
                    self._take(item)
            self._version = word(part(item, "metadata"), "resourceVersion")
            self._changed()


def _uid(item: Object) -> str:
    return word(part(item, "metadata"), "uid")


def _age(item: Object) -> int:
    return _number(word(part(item, "metadata"), "resourceVersion"))


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
