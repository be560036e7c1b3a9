"""Who shares a GPU of a node: what a meter has to know of a pod or of a batch job."""

from typing import Protocol, TypeVar

from advisor.core.gpu import Share
from advisor.launch.records.status import State


class Tenant(Protocol):
    """A pod or a batch job that has part of a GPU, as it is at one moment."""

    @property
    def uid(self) -> str:
        """What its scheduler calls it; no other one on the node has the same."""
        ...

    @property
    def job(self) -> str:
        """Name of the profiled job that it runs."""
        ...

    @property
    def share(self) -> Share:
        """Its part of the SMs."""
        ...

    @property
    def over(self) -> bool:
        """Whether it will run no more."""
        ...

    @property
    def state(self) -> State:
        """How it ended: finished or failed; anything else counts as stopped."""
        ...


T = TypeVar("T", bound=Tenant)
"""Pods or batch jobs; those of one node are of one kind."""
