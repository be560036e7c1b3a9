"""Shares of an AMD GPU through CU masks. Not yet run on AMD hardware."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from advisor.core.cu_mask import refuse_if_skipped
from advisor.core.gpu import Gpu, Share
from advisor.core.units import share_environment, units_for_share
from advisor.errors import LimitNotProvenError, PartitionError
from advisor.runtime.backends.backend import Granted, Server, check_environments
from advisor.runtime.backends.limit import look_hip
from advisor.runtime.host.processes import environment_of


@dataclass(frozen=True, slots=True)
class CuMaskBackend(Server):
    """CUs of one AMD GPU from one end, evenly over its XCDs."""

    gpu: Gpu
    mode: str = "cu_mask"
    max_clients: int = 1000

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that hold a process to its CUs: both masks, so that one can be read back."""
        # By itself, so that no GPU that the process sees is left without a mask.
        visible = {"ROCR_VISIBLE_DEVICES": str(self.gpu.index)}
        return visible | share_environment(share, self._total, "amd")

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read the number of CUs back from inside `environment`."""
        refuse_if_skipped(environment)
        seen, expected = look_hip(environment), units_for_share(share.percent, self._total, "amd")
        if seen != expected:
            raise LimitNotProvenError(
                f"{share} % is {expected} CUs, but a process saw {seen}",
                why="the runtime ignores a mask that it cannot read, without a message",
                fix="check ROC_GLOBAL_CU_MASK and the ROCm version",
            )
        return Granted(seen, mps=False)

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that every process of the job carries the masks, and that none skips them."""
        check_environments(share, self.environment(share), pids)
        for pid in pids():
            refuse_if_skipped(environment_of(pid))

    def sight(self) -> None:
        """Nobody is asked yet who computes on an AMD GPU."""

    @property
    def _total(self) -> int:
        if self.gpu.units_total is None:
            raise PartitionError(
                f"the number of CUs of {self.gpu.model} is not known", fix="run `advisor doctor`"
            )
        return self.gpu.units_total
