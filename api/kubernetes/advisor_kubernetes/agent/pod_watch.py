"""The pods of the node as they are now, kept by a watch in a thread of its own."""

import logging
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from advisor.errors import AdvisorError, InputError
from advisor_kubernetes.agent.node_api import NodeApi
from advisor_kubernetes.agent.pods import SharedPod, read_pod
from advisor_kubernetes.agent.progress_files import make_file
from advisor_kubernetes.cluster import ClusterError
from advisor_kubernetes.objects import Object, part, word

LOG = logging.getLogger("advisor.kubernetes.agent")

_AGAIN_S = 2.0


class PodWatch:
    """The managed pods of one node.

    Each gets its progress file as soon as the API server tells of it: the kubelet is about to
    start its containers then.

    Args:
        api: The API server.
        pods_folder: Where the folders of pods are.
    """

    def __init__(self, api: NodeApi, pods_folder: Path) -> None:
        self._api, self._folder = api, pods_folder
        self._lock = threading.Lock()
        self._pods: dict[str, SharedPod] = {}
        self._listed_s: float | None = None
        self._thread = threading.Thread(target=self._keep_watching, daemon=True)

    def start(self) -> None:
        """Begin to watch; the thread ends with the process."""
        self._thread.start()

    def check(self) -> None:
        """Check that the thread still watches.

        Raises:
            ClusterError: it has ended, so that nobody would notice new pods.
        """
        if not self._thread.is_alive():
            raise ClusterError("the watch of the node's pods has ended", why="see the log above")

    def pods(self) -> tuple[SharedPod, ...]:
        """Those that there are now."""
        with self._lock:
            return tuple(self._pods.values())

    @property
    def listed(self) -> bool:
        """Whether the API server has answered once."""
        return self._listed_s is not None

    def _keep_watching(self) -> None:
        while True:
            try:
                self.watch_once()
            except AdvisorError as error:
                # What is known stays: pods run on while the API server is away.
                LOG.warning("%s", error)
                time.sleep(_AGAIN_S)

    def watch_once(self) -> None:
        """List the pods and follow their changes until the watch ends.

        Raises:
            ClusterError: the API server does not answer.
        """
        listed, version = self._api.list_pods()
        pods = self._read(listed)
        with self._lock:
            self._pods = pods
        self._listed_s = time.monotonic()
        for kind, raw in self._api.watch_pods(version):
            found = self._read([raw])
            with self._lock:
                self._pods.pop(word(part(raw, "metadata"), "uid"), None)
                if kind != "DELETED":
                    self._pods |= found

    def _read(self, raws: Iterable[Object]) -> dict[str, SharedPod]:
        found: dict[str, SharedPod] = {}
        for raw in raws:
            try:
                if pod := read_pod(raw):
                    found[pod.uid] = pod
                    if not pod.over:
                        make_file(self._folder, pod.uid, pod.user)
            except (InputError, OSError) as error:
                LOG.warning("%s", error)
        return found
