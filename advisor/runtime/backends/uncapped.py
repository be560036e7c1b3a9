"""No limit and no MPS: the whole GPU, time-sliced with whatever else is there."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from advisor.core.gpu import Gpu, Share
from advisor.errors import InputError, LimitNotProvenError
from advisor.runtime.backends.backend import (
    ComputingPids,
    Granted,
    Server,
    Sight,
    check_environments,
)
from advisor.runtime.backends.limit import look
from advisor.runtime.backends.mps import PIPE_DIRECTORY


@dataclass(frozen=True, slots=True)
class UncappedBackend(Server):
    """The GPU as it is; the only share is 100 %.

    Attributes:
        max_clients: Contexts that start take turns on the GPU: of eight all were ready after 16 to
            129 s, of 18 not all after 170 s (docs/measurements/sets.md).
        computing: Lists the processes with a context on the GPU.
    """

    gpu: Gpu
    mode: str = "uncapped"
    max_clients: int = 8
    computing: ComputingPids = tuple

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that keep a process away from any MPS daemon."""
        if share.percent != 100:
            raise InputError(
                f"{share} % was asked for without a limit",
                fix="use --mode mps for shares below 100 %",
            )
        return {PIPE_DIRECTORY: "/nonexistent", "CUDA_VISIBLE_DEVICES": self.gpu.uuid}

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Check that the process sees the whole GPU, without MPS."""
        seen = next((gpu for gpu in look(environment) if gpu.uuid == self.gpu.uuid), None)
        if seen is None or seen.mps or seen.units != (self.gpu.units_total or seen.units):
            raise LimitNotProvenError(
                f"a process that should have all of {self.gpu.uuid} saw {seen}",
                fix="stop the MPS daemon of this GPU",
            )
        return Granted(seen.units, mps=False)

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that every process stays on this GPU and away from MPS."""
        check_environments(share, self.environment(share), pids)

    def sight(self) -> Sight:
        """Who computes."""
        return Sight(frozenset(self.computing()), None)
