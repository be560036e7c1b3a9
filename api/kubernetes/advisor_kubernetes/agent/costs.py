"""How much of a GPU each pod holds, and for how long: what its owner pays for."""

from collections.abc import Collection, Mapping

from advisor_kubernetes.agent.pods import SharedPod


def held_gpus(pods: Collection[SharedPod]) -> Mapping[str, float]:
    """The part of a GPU that each pod on it holds, by uid.

    All parts together are the GPU, however little of it is booked: nobody else pays for the rest.
    """
    booked = sum(pod.booked_percent for pod in pods)
    return {pod.uid: pod.booked_percent / booked for pod in pods}


class GpuHours:
    """Adds up what the pods of one GPU hold.

    Attributes:
        held: The part of the GPU that each pod holds now, by uid.
        total_s: Seconds of a whole GPU that each has held so far.
    """

    def __init__(self) -> None:
        self.held: Mapping[str, float] = {}
        self.total_s: dict[str, float] = {}
        self._looked_s: float | None = None

    def look(self, now_s: float, pods: Collection[SharedPod]) -> None:
        """Count the time since the last look for those that were there then."""
        if self._looked_s is not None:
            for uid, part in self.held.items():
                self.total_s[uid] = self.total_s.get(uid, 0.0) + part * (now_s - self._looked_s)
        self._looked_s = now_s
        self.held = held_gpus([pod for pod in pods if not pod.over])
        there = {pod.uid for pod in pods}
        self.total_s = {uid: total_s for uid, total_s in self.total_s.items() if uid in there}
