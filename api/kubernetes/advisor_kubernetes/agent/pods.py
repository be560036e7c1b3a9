"""Pods that share a GPU of this node: what their annotations and state say."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.launch.records.status import State
from advisor.wire.requests import NAME
from advisor_kubernetes import names
from advisor_kubernetes.objects import Object, part, parts, word
from advisor_node.metering.meters import Tenant

_STATES: dict[str, State] = {"Succeeded": "finished", "Failed": "failed"}
_LIMIT = re.compile(r"0=([1-9][0-9]{0,9})M")
_UID = re.compile(r"[0-9A-Za-z-]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPod(Tenant):
    """A pod that has part of a GPU; `booked_percent` is what it books of it."""

    namespace: str
    name: str
    gpu_uuid: str
    booked_percent: int = names.BOOKED_PERCENT


def read_pod(raw: Object) -> SharedPod | None:
    """The pod; None where it has no GPU of ours: without a share, or without a GPU by UUID.

    Raises:
        InputError: its annotations cannot be what the chooser has written.
    """
    meta = part(raw, "metadata")
    notes = part(meta, "annotations")
    if not all(notes.get(name) for name in (names.JOB, names.SHARE_PERCENT, names.GPU_UUID)):
        return None
    limits = [part(one, "resources", "limits") for one in parts(raw, "spec", "containers")]
    booked = sum(int(limit.get(names.SHARE_RESOURCE, 0)) for limit in limits)
    pod = SharedPod(
        uid=word(meta, "uid"),
        namespace=word(meta, "namespace"),
        name=word(meta, "name"),
        job=notes[names.JOB],
        share_text=notes[names.SHARE_PERCENT],
        gpu_uuid=notes[names.GPU_UUID],
        state=_STATES.get(word(part(raw, "status"), "phase"), "running"),
        booked_percent=booked or names.BOOKED_PERCENT,
        memory_mib=_memory_mib(notes.get(names.MEMORY_LIMIT)),
    )
    _check(pod)
    return pod


def _memory_mib(limit: str | None) -> int | None:
    if limit is None:
        return None  # of an earlier version
    if not (found := _LIMIT.fullmatch(limit)):
        raise InputError(
            f"the annotation {names.MEMORY_LIMIT} is {limit!a}",
            why="the driver would take it as no limit, or refuse the process",
            fix="delete the pod and let its owner make another one",
        )
    return int(found[1])


def _check(pod: SharedPod) -> None:
    # The uid becomes the name of a folder on the host.
    good = _UID.fullmatch(pod.uid) and re.fullmatch(NAME, pod.job)
    try:
        shares = good and pod.share
    except (InputError, ValueError):
        shares = None
    if not shares:
        raise InputError(
            f"the pod {pod.namespace}/{pod.name} has the job {pod.job!r} "
            f"and the share {pod.share_text!r}",
            why="the annotations were not written by the partner chooser, or were changed since",
            fix="delete the pod and let its owner make another one",
        )


_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
"""A pod's control group: `pod<uid>` by cgroupfs, `...-pod<uid with _>.slice` by systemd; pods of a
file on the node have a hash without dashes."""


def pod_of(pid: int) -> str | None:
    """The uid of the pod that a process runs in; None: in no pod, or there is no such process.

    Unlike a variable of its environment, a process cannot change it.
    """
    try:
        return pod_in(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return None


def pod_in(text: str) -> str | None:
    """The uid in the lines of a `/proc/PID/cgroup` (man 7 cgroups), version 1 or 2."""
    found = _POD.search(text)
    return found[1].replace("_", "-") if found else None


def progress_file(folder: Path, uid: str) -> Path:
    """Where the progress file of a pod is, in the kubelet's folder of all pods (docs/job-file.md).

    The last part is the pod's own to write, and the kubelet's all before it.
    """
    volume = f"volumes/kubernetes.io~empty-dir/{names.PROGRESS_VOLUME}"
    return folder / uid / volume / names.PROGRESS_FILE


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
