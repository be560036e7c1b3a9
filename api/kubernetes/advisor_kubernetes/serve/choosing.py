"""The chooser in threads of the process that answers the webhook."""

import logging
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from advisor.client import Client
from advisor.errors import AdvisorError
from advisor_api.http.gate import HttpMetrics
from advisor_kubernetes.chooser.chooser import Chooser, ChooserMetrics
from advisor_kubernetes.chooser.lease import Lease
from advisor_kubernetes.chooser.pairing import Policy
from advisor_kubernetes.cluster import Cluster
from advisor_node.advice import Advice

LOG = logging.getLogger("advisor.kubernetes")

_HANGS_S = 120.0
"""A round takes as long as its answers; one that takes this long does not come back."""

_PAUSE_S = 1.0

_ENDS_S = 5.0


class Choosing:
    """The chooser, the mirrors that feed it, and who it is; its Lease is in the namespace.

    Attributes:
        metrics: Of the whole process.
        username: The chooser's name as the API server sees it; None: not known yet.
    """

    def __init__(self, cluster: Cluster, service: Client, namespace: str, policy: Policy) -> None:
        self.metrics = HttpMetrics()
        self.username: str | None = None
        self._cluster = cluster
        identity = f"{socket.gethostname()}-{os.urandom(4).hex()}"
        lease = Lease(cluster, namespace, identity)
        self._chooser = Chooser(
            cluster, Advice(service), lease, policy, ChooserMetrics(self.metrics)
        )
        self._stopping = threading.Event()

    @property
    def lives(self) -> bool:
        """Whether the chooser still comes round, once it has begun."""
        return self.username is None or time.monotonic() - self._chooser.last_round_s < _HANGS_S

    @property
    def is_full(self) -> bool:
        """Whether no GPU is free that pods could share; also where another process chooses."""
        return self._chooser.is_full

    @property
    def ready(self) -> bool:
        """Whether the cluster was seen: rights and addresses are good."""
        return self.username is not None and self._chooser.synced

    @contextmanager
    def running(self) -> Generator[None]:
        """Choose until the end of the block."""
        runs = (*(mirror.run for mirror in self._chooser.mirrors), self._choose)
        # Daemons: a watch may wait for its next event for minutes.
        threads = [threading.Thread(target=r, args=(self._stopping,), daemon=True) for r in runs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            threads[-1].join(_ENDS_S)

    def _choose(self, stopping: threading.Event) -> None:
        # The webhook refuses what the chooser writes until it knows who that is.
        while self.username is None and not stopping.is_set():
            try:
                self.username = self._cluster.username()
            except AdvisorError as error:
                LOG.warning("%s", error)
                stopping.wait(_PAUSE_S)
        self._chooser.run(stopping)
