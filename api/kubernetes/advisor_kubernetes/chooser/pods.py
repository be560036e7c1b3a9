"""A pod as the chooser sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.client import JobRequest
from advisor.core.gpu import MOST_MIB
from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.admission import Wishes, booked_percent, container_of, read_wishes
from advisor_kubernetes.chooser.places import requested
from advisor_kubernetes.objects import Object, part, parts, word
from advisor_node.advice import is_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that the webhook has changed.

    Attributes:
        key: Namespace and name, as `advisor.dev/partner` has it.
        uid: Of this pod and no later one of the same name.
        version: Its resourceVersion.
        created_s: When it was made, seconds since 1970.
        started_s: When its node took it; None: not yet.
        user: Whom it runs as; equal texts are the same user for MPS.
        claim: The resource claim that brings its GPU; None: a GPU of a node is chosen.
        booked_percent: What it books of a GPU.
        gates: Names of its scheduling gates.
        requested: What it asks of its node.
        over: It has ended, or is about to be deleted before it began.
        given: Annotations that the chooser wrote.
        spec: As it came, for what it says of nodes.
        where: What it says of nodes, as a text; equal texts fit the same nodes.
    """

    key: str
    uid: str
    version: str
    asked: Wishes
    created_s: float
    started_s: float | None
    user: str
    claim: str | None
    booked_percent: int
    requested: Mapping[str, float]
    gates: tuple[str, ...]
    over: bool
    given: Mapping[str, str]
    spec: Object
    where: str

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """What it is called there."""
        return self.key.partition("/")[2]

    @property
    def kind(self) -> object:
        """What the choice of a partner and a GPU depends on; equal ones are alike in it."""
        needs = (self.where, self.booked_percent, tuple(self.requested.items()))
        return (self.namespace, self.user, self.claim, *needs, self.asked.partner, self.wanted)

    @property
    def wanted(self) -> JobRequest:
        """Its job, and what that must keep; its length to two digits, as each asks anew."""
        return self._wanted(self.asked.expected_s)

    def left(self, now_s: float) -> JobRequest:
        """The same of what it has still to do; of one that takes longer than told nobody knows.

        It counts as if it had been alone: so at least so much is left of it.
        """
        expected_s = self.asked.expected_s
        if expected_s and self.started_s is not None:
            expected_s = max(0.0, expected_s - (now_s - self.started_s))
        return self._wanted(expected_s)

    def _wanted(self, expected_s: float | None) -> JobRequest:
        asked = self.asked
        return JobRequest(
            job=asked.job,
            min_speed=asked.min_speed,
            max_p99_ms=asked.max_p99_ms,
            work_s=(expected_s and float(f"{expected_s:.2g}")) or None,
        )

    @property
    def path(self) -> str:
        """Of the pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def waits(self) -> bool:
        """Nothing is decided yet."""
        return names.GATE in self.gates and not self.over

    @property
    def share(self) -> str | None:
        """The share that it has, percent; None: none, or nothing that the chooser has written."""
        given = self.given.get(names.SHARE_PERCENT, "")
        return given if is_share(given) else None

    @property
    def bound_mib(self) -> int:
        """At how much its memory is bounded; what no card has where the chooser has not said it."""
        own = self.given.get(names.MEMORY_MIB, "").partition("/")[0]
        return int(own) if own.isdigit() else int(MOST_MIB)

    @property
    def holds(self) -> str | None:
        """The GPU or claim that it keeps from others; None: none."""
        if self.over or names.SHARE_PERCENT not in self.given:
            return None
        return self.given.get(names.GPU_UUID) or self.claim


def read_pod(item: Object) -> Pod:
    """A pod, of the API's JSON.

    Raises:
        InputError: it is not one that the webhook has changed.
    """
    metadata, spec = part(item, "metadata"), part(item, "spec")
    annotations: Mapping[str, str] = part(metadata, "annotations")
    asked = read_wishes(annotations)
    if asked is None:
        raise InputError("the pod asks for nothing", fix=f"set {names.JOB} when it is made")
    _, container = container_of(item, _sure(asked, item))
    namespace = word(metadata, "namespace")
    gates = tuple(word(gate, "name") for gate in parts(spec, "schedulingGates"))
    ended = part(item, "status").get("phase") in ("Succeeded", "Failed")
    return Pod(
        key=f"{namespace}/{word(metadata, 'name')}",
        uid=word(metadata, "uid"),
        version=word(metadata, "resourceVersion"),
        asked=asked,
        created_s=_moment(word(metadata, "creationTimestamp")),
        started_s=_moment(word(part(item, "status"), "startTime")) or None,
        user=_user(spec, container),
        claim=_claim(namespace, spec, container),
        booked_percent=booked_percent(container),
        requested=requested(spec),
        gates=gates,
        over=ended or ("deletionTimestamp" in metadata and names.GATE in gates),
        given={key: text for key, text in annotations.items() if key not in names.ASKED},
        spec=spec,
        where=str([spec.get(key) for key in ("nodeSelector", "affinity", "tolerations")]),
    )


def _sure(asked: Wishes, item: Object) -> Wishes:
    """With the container that the webhook chose: it asks for no GPU any more."""
    if asked.container is not None:
        return asked
    limited = [
        word(container, "name")
        for container in parts(item, "spec", "containers")
        if any(names.SHARE_PERCENT in str(v.get("valueFrom")) for v in parts(container, "env"))
    ]
    if len(limited) != 1:
        raise InputError("no container is limited", fix="make the pod again, with the webhook")
    return replace(asked, container=limited[0])


def _user(spec: Object, container: Object) -> str:
    """MPS serves one user at a time; where the pod does not say whom, its image does."""
    for context in (part(container, "securityContext"), part(spec, "securityContext")):
        if (user := context.get("runAsUser")) is not None:
            return f"uid {user}"
    return f"the user of image {word(container, 'image')}"


def _claim(namespace: str, spec: Object, container: Object) -> str | None:
    used = {word(claim, "name") for claim in parts(container, "resources", "claims")}
    for claim in parts(spec, "resourceClaims"):
        if word(claim, "name") in used and word(claim, "resourceClaimName"):
            return f"claim {namespace}/{claim['resourceClaimName']}"
    return None


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
