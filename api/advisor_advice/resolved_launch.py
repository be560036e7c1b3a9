"""A launch that was asked for, and what is known of the GPU on which it is to run."""

from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.wire.launch_request import LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLaunch:
    """What was asked for, by whom, and where.

    Attributes:
        gpu: Index or UUID, as the supervisor is to find it.
        seen: That GPU; None: it was not seen.
        profiles: File of solo points; None: the stored and the bundled ones.
        asked_by: A user's name, or the name of a token.
    """

    asked: LaunchRequest
    gpu: str = "0"
    seen: Gpu | None = None
    profiles: Path | None = None
    asked_by: str = ""

    @property
    def gpu_model(self) -> str | None:
        """None: the one that the profiles have in common."""
        return self.asked.gpu_model or (self.seen and self.seen.model)

    @property
    def gpu_uuid(self) -> str | None:
        """The card, where it was seen."""
        return self.seen and self.seen.uuid

    @property
    def units_total(self) -> int | None:
        """SMs or CUs of the GPU, where they are known."""
        return self.seen and self.seen.units_total

    @property
    def memory_mib(self) -> float | None:
        """Of the card: what was asked for, and no more than it has."""
        both = (self.asked.memory_mib, self.seen and self.seen.memory_mib)
        return min((value for value in both if value is not None), default=None)
