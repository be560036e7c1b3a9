"""What is written into pods, and read back from them after a crash.

All that a pod needs stands in one patch, the opened gate with it. The second pod of a pair can be
written from the first one's annotations alone, whatever happened in between.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from advisor_kubernetes import names
from advisor_kubernetes.chooser.pairing import Pair, Single, may_meet
from advisor_kubernetes.chooser.pods import Pod
from advisor_kubernetes.objects import Object
from advisor_node.advice import is_share

ALONE, WHOLE = "alone", "100"

_SHOWN = 500
"""Characters of a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a pod is given.

    Attributes:
        share: In percent of the SMs, as the driver reads it.
        split: Both shares, its own first; or `alone`.
        gpu_uuid: None: its claim says which.
        node: None: its claim says which.
        hostname: Label of the node by which the pod is kept there.
        partner: None: nobody.
    """

    share: str
    split: str
    why: str
    gpu_uuid: str | None = None
    node: str | None = None
    hostname: str | None = None
    partner: Pod | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """As the pod has them."""
        partner = self.partner
        written = {
            names.SHARE_PERCENT: self.share,
            names.SPLIT: self.split,
            names.GPU_UUID: self.gpu_uuid,
            names.NODE: self.node,
            names.PARTNER: partner and partner.key,
            names.PARTNER_UID: partner and partner.uid,
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


def writes_of(decision: Pair | Single) -> list[Write]:
    """The patches of a decision, in the order in which they are made."""
    node = decision.place.node
    alone = Given(
        share=WHOLE,
        split=ALONE,
        why=decision.why,
        gpu_uuid=node and decision.place.key,
        node=node and node.name,
        hostname=node and node.labels[names.HOSTNAME],
    )
    if isinstance(decision, Single):
        return [Write(decision.pod, alone)]
    (first, second), (a, b) = decision.pods, decision.shares
    return [
        Write(first, replace(alone, share=a, split=f"{a}/{b}", partner=second)),
        Write(second, replace(alone, share=b, split=f"{b}/{a}", partner=first)),
    ]


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
        if not (is_share(a) and is_share(b)):
            continue  # not of the chooser
        node = first.given.get(names.NODE)
        given = Given(
            share=b,
            split=f"{b}/{a}",
            why=first.given.get(names.WHY, ""),
            gpu_uuid=first.given.get(names.GPU_UUID),
            node=node,
            hostname=node and hostnames.get(node, node),
            partner=first,
        )
        yield Write(second, given)
