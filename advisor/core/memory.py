"""Whether jobs fit together into the memory of one GPU, as far as that is known. Pure."""

from dataclasses import dataclass

from advisor.core.gpu import MEMORY_PART


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory that jobs need and may fill, MiB.

    Attributes:
        needs_mib: Of each job; None where it is not known.
        card_mib: Memory of the card; None: not known.
    """

    needs_mib: tuple[float | None, ...]
    card_mib: float | None

    @property
    def needed_mib(self) -> float:
        """Of all jobs of which it is known."""
        return sum(need or 0 for need in self.needs_mib)

    @property
    def most_mib(self) -> float | None:
        """What jobs may fill of the card, all together."""
        return None if self.card_mib is None else MEMORY_PART * self.card_mib

    @property
    def is_too_much(self) -> bool:
        """Whether what is known does not fit; jobs of unknown need are taken to need nothing."""
        return self.most_mib is not None and self.needed_mib > self.most_mib

    @property
    def fits(self) -> bool | None:
        """Whether all fit; None where a need or the card is not known."""
        if self.most_mib is None or None in self.needs_mib:
            return None
        return not self.is_too_much
