"""A launch that was asked for, and what is known of the GPU on which it is to run."""

from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.wire.requests import LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLaunch:
    """What was asked for, by whom, and where."""

    request: LaunchRequest
    gpu: str = "0"
    """Index or UUID, as the supervisor is to find it."""
    card: Gpu | None = None
    """That GPU; None: it was not seen."""
    profiles: Path | None = None
    """File of solo points; None: the stored and the bundled ones."""
    asked_by: str = ""

    @property
    def gpu_model(self) -> str | None:
        """None: the one that the profiles have in common."""
        return self.request.gpu_model or (self.card and self.card.model)

    @property
    def gpu_uuid(self) -> str | None:
        """The card, where it was seen."""
        return self.card and self.card.uuid

    @property
    def units_total(self) -> int | None:
        """SMs or CUs of the GPU, where they are known."""
        return self.card and self.card.units_total

    @property
    def memory_mib(self) -> float | None:
        """Of the card: what was asked for, and no more than it has."""
        both = (self.request.memory_mib, self.card and self.card.memory_mib)
        return min((value for value in both if value is not None), default=None)
