"""Which of several processes chooses: the one that holds a Lease."""

import time
from datetime import UTC, datetime

from advisor_kubernetes.cluster import Cluster, ClusterError
from advisor_kubernetes.objects import Object, part, word

HELD_S = 15
"""A holder that has not renewed for so long has lost it."""

RENEW_S = 5.0

_NAME = "advisor-chooser"


class Lease:
    """Holds, or waits for, the right to choose.

    How old a Lease is one's own clock says, by when it was last seen to change: clocks of hosts
    differ.
    """

    def __init__(self, cluster: Cluster, namespace: str, identity: str) -> None:
        self._cluster, self._identity = cluster, identity
        self._list = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._held_until = self._asked_at = 0.0
        self._seen: tuple[object, float] = (None, 0.0)

    @property
    def left_s(self) -> float:
        """How long this process may still choose; what it writes must end before."""
        return max(0.0, self._held_until - time.monotonic())

    @property
    def is_held(self) -> bool:
        """Whether this process may choose."""
        return self.left_s > 0

    def take(self) -> bool:
        """Renew or take the Lease when it is time to; whether this process may choose."""
        now = time.monotonic()
        if now - self._asked_at >= RENEW_S:
            self._asked_at = now
            try:
                self._take(now)
            except ClusterError as error:
                if not error.is_conflict:
                    raise
        return self.is_held

    def give_up(self) -> None:
        """Let the next one choose at once."""
        if self.is_held:
            self._held_until = 0.0
            self._write(self._get(), "")

    def _take(self, now: float) -> None:
        lease = self._get()
        spec = part(lease, "spec")
        stamp = (spec.get("holderIdentity"), spec.get("renewTime"))
        if stamp != self._seen[0]:
            self._seen = stamp, now
        holder = spec.get("holderIdentity")
        if holder in (None, "", self._identity) or now - self._seen[1] >= HELD_S:
            self._write(lease, self._identity)
            # From before the request: others count from after it.
            self._held_until = now + HELD_S

    def _get(self) -> Object:
        try:
            return self._cluster.get(f"{self._list}/{_NAME}")
        except ClusterError as error:
            if error.status != 404:
                raise
            return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}

    def _write(self, lease: Object, holder: str) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": HELD_S, "renewTime": moment}
        body = {**lease, "metadata": {**part(lease, "metadata"), "name": _NAME}, "spec": spec}
        if word(part(lease, "metadata"), "resourceVersion"):
            self._cluster.put(f"{self._list}/{_NAME}", body)
        else:
            self._cluster.post(self._list, body)
