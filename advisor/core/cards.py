"""Memory of cards: how much one has, and whether jobs fit into it together. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from advisor.core.gpu import MEMORY_PART
from advisor.errors import InputError

MEMORY_MIB: Mapping[str, int] = MappingProxyType(
    {
        "NVIDIA A100-SXM4-40GB": 40960,
        "NVIDIA A100-SXM4-80GB": 81920,
        "NVIDIA H100 80GB HBM3": 81559,
        "NVIDIA H200": 143771,
        "NVIDIA L40S": 46068,
    }
)
"""Total memory of GPU models under the names that their driver gives them, as it reports it, MiB.

H100 and H200 read with driver 580. A100 and L40S from
https://github.com/modal-labs/modal-client/pull/2797, which lists what `nvidia-smi` prints.
"""

LEAST_MIB, MOST_MIB = 1024.0, 1024.0 * 1024
"""No GPU that runs MPS has less or more memory than this; 141 was meant in GB."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(mib|gib|gb)?\s*", re.IGNORECASE)

_UNITS_MIB: Mapping[str, float] = MappingProxyType({"mib": 1.0, "gib": 1024.0, "gb": 1e9 / 2**20})


def card_memory_mib(gpu_model: str) -> int | None:
    """Memory of a card of that model; None: not known."""
    return MEMORY_MIB.get(gpu_model)


def parse_memory_mib(text: str) -> float:
    """Memory of a card: `143771` in MiB, `140GiB`, or `141GB` of 10^9 bytes.

    Raises:
        InputError: it is none of these, or no GPU has so much or so little.
    """
    found = _SIZE.fullmatch(text)
    if not found:
        raise InputError(
            f"{text!r} is no size of a memory", fix="write MiB, or a unit: 143771, 80GiB or 141GB"
        )
    memory_mib = float(found[1]) * _UNITS_MIB[(found[2] or "mib").lower()]
    check_card_memory(memory_mib)
    return memory_mib


def check_card_memory(memory_mib: float) -> None:
    """Refuse what cannot be the memory of a card, such as gigabytes that are given as MiB.

    Raises:
        InputError: it is below 1 GiB or above 1 TiB, or no number.
    """
    # "not between" is true of NaN as well.
    if not LEAST_MIB <= memory_mib <= MOST_MIB:
        raise InputError(
            f"no GPU has {memory_mib:g} MiB of memory",
            why="a number without a unit is in MiB",
            fix="give the memory of the card, such as 143771 MiB: --memory 143771 or 80GiB",
        )


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
