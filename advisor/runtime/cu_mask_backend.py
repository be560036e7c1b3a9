"""Shares of an AMD GPU through CU masks. Not yet run on AMD hardware."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from advisor.errors import LimitNotProvenError, PartitionError
from advisor.gpu import Gpu, Share
from advisor.runtime.backend import Granted
from advisor.runtime.cu_mask import cus_for_percent, mask_env, refuse_if_skipped
from advisor.runtime.limit import look_hip
from advisor.runtime.processes import environment_of

XCDS = {304: 8, 256: 8, 228: 6}
"""XCDs of a device by its CUs: MI300X, MI350X and MI300A as one device; all others have one."""


@dataclass(frozen=True, slots=True)
class CuMaskBackend:
    """The lowest CUs of one AMD GPU, evenly over its XCDs."""

    gpu: Gpu
    mode: str = "cu_mask"
    max_clients: int = 1000

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that hold a process to its CUs: both masks, so that one can be read back."""
        return mask_env(range(self._cus(share)), self.gpu.index)

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read the number of CUs back from inside `environment`."""
        refuse_if_skipped(environment)
        seen, expected = look_hip(environment), self._cus(share)
        if seen != expected:
            raise LimitNotProvenError(
                f"{share} % is {expected} CUs, but a process saw {seen}",
                why="the runtime ignores a mask that it cannot read, without a message",
                fix="check ROC_GLOBAL_CU_MASK and the ROCm version",
            )
        return Granted(seen, mps=False)

    def check_clients(self, share: Share, pids: Collection[int]) -> None:
        """Check that every process of the job carries the masks."""
        wanted = self.environment(share).items()
        found = {pid: environment_of(pid) for pid in pids}
        # A process that has just ended shows no variables at all.
        wrong = [pid for pid, env in found.items() if env and not wanted <= env.items()]
        if wrong or not any(found.values()):
            raise LimitNotProvenError(
                f"processes {sorted(wrong or pids)} of the job do not carry its CU mask",
                why="a script inside the job changes the variables",
                fix="remove HSA_CU_MASK and ROC_GLOBAL_CU_MASK from the job's scripts",
            )

    def check_alive(self) -> None:
        """Masks live in the job itself; nothing else has to run."""

    def release(self, pids: Collection[int]) -> None:
        """Every process has its own queues; a signal hurts no neighbour."""

    def close(self) -> None:
        """Nothing was started."""

    def _cus(self, share: Share) -> int:
        total = self.gpu.units_total
        if total is None:
            raise PartitionError(
                f"the number of CUs of {self.gpu.model} is not known", fix="run `advisor doctor`"
            )
        return cus_for_percent(share.percent, total, XCDS.get(total, 1))
