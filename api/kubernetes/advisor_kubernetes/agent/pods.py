"""Pods that share a GPU of this node, as their annotations and their state say it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from advisor.core.gpu import Share
from advisor.errors import InputError
from advisor.wire.bounds import NAME

PREFIX = "advisor.dev/"
MANAGED = f"{PREFIX}managed"
"""Label of every pod that the webhook has prepared."""

_JOB, _SHARE, _GPU = f"{PREFIX}job", f"{PREFIX}share-percent", f"{PREFIX}gpu-uuid"
_OVER = ("Succeeded", "Failed")
_UID = re.compile(r"[0-9A-Za-z-]{1,63}")

Raw: TypeAlias = Mapping[str, Any]
"""An object of Kubernetes' API, as its JSON has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPod:
    """A pod that has part of a GPU.

    Attributes:
        job: Name of the profiled job that it runs.
        share_text: The percentage exactly as its containers have it in their environment.
        gpu_uuid: The GPU that it was given.
        phase: Pending, Running, Succeeded, Failed or Unknown.
        user: Numeric user of the pod where its specification says one; None: the image's.
    """

    uid: str
    namespace: str
    name: str
    job: str
    share_text: str
    gpu_uuid: str
    phase: str
    user: int | None = None

    @property
    def share(self) -> Share:
        """Its part of the SMs."""
        return Share(float(self.share_text))

    @property
    def over(self) -> bool:
        """Whether it will run no more."""
        return self.phase in _OVER


def read_pod(raw: Raw) -> SharedPod | None:
    """The pod; None where it has no GPU of ours: without a share, or without a GPU by UUID.

    Raises:
        InputError: its annotations cannot be what the chooser has written.
    """
    meta: Raw = raw["metadata"]
    notes = _part(meta, "annotations")
    if not all(notes.get(name) for name in (_JOB, _SHARE, _GPU)):
        return None
    pod = SharedPod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        job=notes[_JOB],
        share_text=notes[_SHARE],
        gpu_uuid=notes[_GPU],
        phase=_part(raw, "status").get("phase", "Unknown"),
        user=_part(_part(raw, "spec"), "securityContext").get("runAsUser"),
    )
    _check(pod)
    return pod


def _part(raw: Raw, name: str) -> Raw:
    """A part of an object; empty where it is left out, or null."""
    return raw.get(name) or {}


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
