"""How long ago something was heard or seen, by our own clock: those of hosts differ."""

import math
from collections.abc import Iterable
from dataclasses import replace

from advisor_kubernetes.chooser.places import Node
from advisor_kubernetes.chooser.pods import Pod

SILENT_S = 120.0
"""An agent renews what it says twice a minute; GPUs of one that did not for so long are left."""


class Agents:
    """When what each agent says was seen to change; clocks of nodes are not compared."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def heard(self, nodes: Iterable[Node], now_s: float) -> list[Node]:
        """The nodes whose agent said something lately, or on which nobody renews anything.

        All nodes are to be given, since of others nothing is kept, and a clock that does not jump.
        """
        known = list(nodes)
        last = {node.name: self._seen.get(node.name, ("", now_s)) for node in known}
        self._seen = {
            node.name: last[node.name]
            if last[node.name][0] == node.checked_at
            else (node.checked_at, now_s)
            for node in known
        }
        return [
            node
            for node in known
            if not node.checked_at or now_s - self._seen[node.name][1] <= SILENT_S
        ]


class Ages:
    """How long pods wait: at least since they were first seen, by a clock that does not jump."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def aged(self, pods: Iterable[Pod], now_s: float, clock_s: float) -> list[Pod]:
        """The pods; where the API server's clock is ahead of `now_s`, as old as they were seen."""
        known = list(pods)
        self._seen = {pod.uid: self._seen.get(pod.uid, clock_s) for pod in known if pod.waits}
        seen_s = {uid: now_s - (clock_s - since_s) for uid, since_s in self._seen.items()}
        return [
            replace(pod, created_s=seen_s[pod.uid])
            if pod.created_s > seen_s.get(pod.uid, math.inf)
            else pod
            for pod in known
        ]
