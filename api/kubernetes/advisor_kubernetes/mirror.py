"""A copy of pods or nodes, kept up to date by a watch."""

import logging
import threading
from collections.abc import Callable

from advisor.errors import AdvisorError
from advisor_kubernetes.cluster import Cluster, ClusterError, list_of
from advisor_kubernetes.objects import Object, part, word

LOG = logging.getLogger("advisor.kubernetes")

_WATCH_S = 240
_PAUSE_S = 1.0
_TOO_OLD = 410


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
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._version = ""
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
        known = self._objects.get(_uid(item))
        # Versions are numbers of the store, though the API calls them opaque. A late event
        # would make a GPU look free that we have just given away.
        if known is None or _age(item) >= _age(known):
            self._objects[_uid(item)] = self._kept(item)

    def run(self, stopping: threading.Event) -> None:
        """List and watch until the end; nothing that goes wrong ends it."""
        while not stopping.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
            except AdvisorError as error:
                expired = isinstance(error, ClusterError) and error.status == _TOO_OLD
                if not expired:
                    LOG.warning("%s", error)
                    stopping.wait(_PAUSE_S)
                # What was missed meanwhile stands in a new list.
                self._version = ""
            except Exception:  # a fault of ours must not leave an old copy for ever
                LOG.exception("an internal error")
                stopping.wait(_PAUSE_S)
                self._version = ""

    def _list(self) -> None:
        items, version = list_of(self._cluster, self._path, **self._query)
        with self._lock:
            known = self._objects
            kept = {uid: item for uid, item in known.items() if _age(item) > _number(version)}
            for item in items:
                newer = known.get(_uid(item), item)
                kept[_uid(item)] = newer if _age(newer) > _age(item) else self._kept(item)
            self._objects, self._version = kept, version
        self.synced.set()
        self._changed()

    def _watch(self) -> None:
        for event in self._cluster.watch(self._path, self._version, _WATCH_S, **self._query):
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
