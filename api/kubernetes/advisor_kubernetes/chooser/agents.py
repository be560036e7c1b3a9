"""Whether the agents of nodes still look at their GPUs."""

from collections.abc import Iterable

from advisor_kubernetes.chooser.places import Node

SILENT_S = 120.0
"""An agent renews what it says twice a minute; GPUs of one that did not for so long are left."""


class Agents:
    """When what each agent says was seen to change; clocks of nodes are not compared."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def heard(self, nodes: Iterable[Node], now_s: float) -> list[Node]:
        """The nodes whose agent said something lately, or on which nobody renews anything.

        Args:
            nodes: All nodes; of others nothing is kept.
            now_s: Of a clock that does not jump.
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
