"""Shares of an AMD GPU through CU masks. Not yet run on AMD hardware."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from advisor.core.gpu import Gpu, Share
from advisor.errors import InputError, LimitNotProvenError, PartitionError
from advisor.runtime.backends.backend import Granted, check_environments
from advisor.runtime.backends.cu_mask import check_cus, cus_for_percent, mask_env, refuse_if_skipped
from advisor.runtime.backends.limit import look_hip
from advisor.runtime.host.processes import environment_of

XCDS = {304: 8, 256: 8, 228: 6}
"""XCDs of a device by its CUs: MI300X, MI350X and MI300A as one device; all others have one."""


def percent_for_cus(cus: int, cus_total: int) -> float:
    """The share for which exactly `cus` of `cus_total` CUs are masked in.

    Raises:
        InputError: no mask of that many can be made, or shares pass it over.
    """
    xcds = XCDS.get(cus_total, 1)
    percent = 100 * check_cus(cus, cus_total, xcds) / cus_total
    if (near := cus_for_percent(percent, cus_total, xcds)) != cus:
        raise InputError(f"{cus} of {cus_total} CUs fill no whole rows", fix=f"ask for {near}")
    return percent


@dataclass(frozen=True, slots=True)
class CuMaskBackend:
    """The lowest CUs of one AMD GPU, evenly over its XCDs."""

    gpu: Gpu
    mode: str = "cu_mask"
    max_clients: int = 1000

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that hold a process to its CUs: both masks, so that one can be read back."""
        return mask_env(range(self._cus(share)), self.gpu.index)

    def cap(self, percent: int) -> None:
        """Masks are in the job alone."""

    def given_percent(self) -> None:
        """Every process gets what it can take."""

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

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that every process of the job carries the masks, and that none skips them."""
        check_environments(share, self.environment(share), pids)
        for pid in pids():
            refuse_if_skipped(environment_of(pid))

    def sight(self) -> None:
        """Nobody is asked yet who computes on an AMD GPU."""

    def check_alive(self) -> None:
        """Masks live in the job itself; nothing else has to run."""

    def spoiled(self) -> bool:
        """Each process has a context of its own: a fault stays with it."""
        return False

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
