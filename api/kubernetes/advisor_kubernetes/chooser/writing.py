"""What is written into pods, and read back from them after a crash.

All that a pod needs stands in one patch, the opened gate with it. The second pod of a pair can be
written from the first one's annotations alone, whatever happened in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from advisor_kubernetes import names
from advisor_kubernetes.chooser.offers import Start, may_meet
from advisor_kubernetes.chooser.pods import Pod
from advisor_kubernetes.objects import Object
from advisor_node.advice import is_share

T = TypeVar("T")

ALONE, WHOLE = "alone", "100"

_SHOWN = 500
"""Characters of a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a pod is given.

    Attributes:
        share: In percent of the SMs, as the driver reads it.
        split: All shares on the GPU, its own first; or `alone`.
        memory: Bounds of those that start together, MiB, its own first.
        gpu_uuid: None: its claim says which.
        node: None: its claim says which.
        hostname: Label of the node by which the pod is kept there.
        partners: Who is on the GPU as well; the second of two that start together is written from
            what the first has.
    """

    share: str
    split: str
    memory: str
    why: str
    gpu_uuid: str | None = None
    node: str | None = None
    hostname: str | None = None
    partners: tuple[Pod, ...] = ()
    second: Pod | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """As the pod has them."""
        partners = ", ".join(partner.key for partner in self.partners)
        written = {
            names.SHARE_PERCENT: self.share,
            names.SPLIT: self.split,
            names.GPU_UUID: self.gpu_uuid,
            names.NODE: self.node,
            names.PARTNER: partners or None,
            names.PARTNER_UID: self.second and self.second.uid,
            names.MEMORY_MIB: self.memory,
            names.MEMORY_LIMIT: f"0={self.memory.partition('/')[0]}M",
            names.WHY: self.why[:_SHOWN],
            names.KAI_PORTION: f"{float(self.share) / 100:.4g}",
        }
        return {key: text for key, text in written.items() if text is not None}


@dataclass(frozen=True, slots=True)
class Write:
    """One pod, and what it is given."""

    pod: Pod
    given: Given

    @property
    def body(self) -> Object:
        """A merge patch that fails where the pod has changed since it was read."""
        kept = [{"name": name} for name in self.pod.gates if name != names.GATE]
        spec: Object = {"schedulingGates": kept or None}
        if self.given.hostname is not None:
            spec["nodeSelector"] = {names.HOSTNAME: self.given.hostname}
        annotations = self.given.annotations
        metadata = {"resourceVersion": self.pod.version, "annotations": annotations}
        return {"metadata": metadata, "spec": spec}


def writes_of(start: Start) -> list[Write]:
    """The patches of a decision, in the order in which they are made."""
    node, there = start.place.node, [pod.share or WHOLE for pod in start.beside]
    return [
        Write(
            pod,
            Given(
                share=start.shares[n],
                split="/".join([*_own_first(start.shares, n), *there])
                if there or len(start.pods) > 1
                else ALONE,
                memory="/".join(map(str, _own_first(start.memory_mib, n))),
                why=start.why,
                gpu_uuid=node and start.place.key,
                node=node and node.name,
                hostname=node and node.labels[names.HOSTNAME],
                partners=(*start.beside, *start.pods[:n], *start.pods[n + 1 :]),
                second=start.pods[1 - n] if len(start.pods) > 1 else None,
            ),
        )
        for n, pod in enumerate(start.pods)
    ]


def _own_first(values: Sequence[T], own: int) -> list[T]:
    return [values[own], *values[:own], *values[own + 1 :]]


def unfinished(pods: Iterable[Pod], hostnames: Mapping[str, str]) -> Iterator[Write]:
    """The patches that are missing: of pods whose partner has got its share already.

    All pods that the webhook has changed are to be given, and labels of nodes by their names.
    """
    by_uid = {pod.uid: pod for pod in pods}
    for first in by_uid.values():
        second = by_uid.get(first.given.get(names.PARTNER_UID, ""))
        if second is None or not second.waits or first.over or not may_meet(first, second):
            continue
        a, _, b = first.given.get(names.SPLIT, "").partition("/")
        own, _, other = first.given.get(names.MEMORY_MIB, "").partition("/")
        if not (is_share(a) and is_share(b) and own.isdigit() and other.isdigit()):
            continue  # not of the chooser
        node = first.given.get(names.NODE)
        given = Given(
            share=b,
            split=f"{b}/{a}",
            memory=f"{other}/{own}",
            why=first.given.get(names.WHY, ""),
            gpu_uuid=first.given.get(names.GPU_UUID),
            node=node,
            hostname=node and hostnames.get(node, node),
            partners=(first,),
            second=first,
        )
        yield Write(second, given)
