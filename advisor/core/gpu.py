"""GPUs, shares, memory, and the arithmetic between percent and compute units.

NVIDIA's driver turns `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` into a number of SMs by rounding down to
an even count, and on Hopper gives no client fewer than eight. Read back on an H200 (132 SMs,
driver 580) for 10..100 %: 12 26 38 52 66 78 92 104 118 132. The driver takes 0, a negative
number, anything above 100 and anything that is not a number as NO LIMIT, without a message, so
those values are refused here.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from advisor.errors import InputError

Vendor = Literal["nvidia", "amd"]

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""The variable by which a process is given its share under MPS."""

MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""The variable by which what a process can allocate is bounded under MPS (CUDA 11.5 and newer)."""

SM_QUANTUM = 2
"""SMs are granted in pairs (one texture processing cluster)."""

SM_FLOOR = 8
"""Fewest SMs that driver 580 grants on Hopper, whatever the percentage."""


WHOLE = 100.0
"""The share of the whole GPU, percent."""

MPS_CLIENTS = 48
"""Clients per GPU on Volta and newer before CUDA 13.1 (NVIDIA MPS documentation, limitations)."""

MEMORY_PART = 0.95
"""Of the GPU's memory, what jobs may fill: contexts, fragments and the MPS server take the rest."""

MEMORY_MARGIN, LEAST_MARGIN_MIB = 0.1, 512
"""By how much a job may go beyond what it needed, whichever is more, where its memory is bounded:
caches of allocators differ from run to run, and libraries are loaded when they are used first."""

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

CARD_UNITS: Mapping[str, int] = MappingProxyType({"NVIDIA H100 80GB HBM3": 132, "NVIDIA H200": 132})
"""SMs of GPU models under the names that their driver gives them, as read with driver 580."""

MOST_UNITS = 1024
"""No GPU has more SMs or CUs than this."""

LEAST_MIB, MOST_MIB = 1024.0, 1024.0 * 1024
"""No GPU that runs MPS has less or more memory than this; 141 was meant in GB."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(mib|gib|gb)?\s*", re.IGNORECASE)

_UNITS_MIB: Mapping[str, float] = MappingProxyType({"mib": 1.0, "gib": 1024.0, "gb": 1e9 / 2**20})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver describes it.

    Attributes:
        units_total: SMs (NVIDIA) or CUs (AMD); None until it has been read.
        power_limit_w: Enforced.
        compute_mode: NVIDIA compute mode, such as "default" or "exclusive-process".
    """

    uuid: str
    model: str
    vendor: Vendor = "nvidia"
    index: int = 0
    units_total: int | None = None
    memory_mib: int | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    compute_mode: str | None = None
    mig: bool | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the compute units asked for one job.

    Attributes:
        percent: Percentage as handed to the driver, above 0 and at most 100.
        upper: Counted from the last CU down, as the second job of a pair has it, so that two masks
            do not overlap; MPS chooses the SMs itself.
        memory_mib: Most memory that a process may take under MPS; None: all that there is.
    """

    percent: float
    upper: bool = False
    memory_mib: int | None = None

    def __post_init__(self) -> None:
        try:
            is_possible = math.isfinite(self.percent) and 0 < self.percent <= 100
        except TypeError:  # text, as of a form
            is_possible = False
        if not is_possible:
            raise InputError(
                f"a share of {self.percent} % is not possible",
                why="the driver takes 0, negative numbers and numbers above 100 as no limit at all",
                fix="give a percentage above 0 and at most 100",
            )

    def __str__(self) -> str:
        return f"{self.percent:g}"


def units_for_percent(percent: float, units_total: int) -> int:
    """SMs that MPS grants for `percent` on a GPU of `units_total` SMs.

    Raises:
        InputError: `percent` is one that the driver would take as no limit.
    """
    Share(percent)
    # 1e-9 undoes the representation error of products such as 0.07 * 100.
    exact = math.floor(percent * units_total / 100 + 1e-9)
    return min(units_total, max(SM_FLOOR, exact - exact % SM_QUANTUM))


def percent_for_units(units: int, units_total: int) -> int:
    """Smallest whole percentage for which MPS grants exactly `units` of `units_total` SMs.

    Raises:
        InputError: the driver cannot grant that count; the message names the nearest two.
    """
    percent = math.ceil(100 * units / units_total)
    if 0 < units <= units_total and units_for_percent(percent, units_total) == units:
        return percent
    low = max(SM_FLOOR, min(units, units_total) // SM_QUANTUM * SM_QUANTUM)
    nearest = sorted({low, min(units_total, low + SM_QUANTUM)} if units > SM_FLOOR else {SM_FLOOR})
    raise InputError(
        f"{units} of {units_total} SMs cannot be granted",
        why=f"MPS grants even counts from {SM_FLOOR} to {units_total} SMs",
        fix=f"ask for {' or '.join(map(str, nearest))}",
    )


def check_card_units(units: int, gpu_model: str) -> None:
    """Refuse more compute units than a card of that model has, or none.

    Raises:
        InputError: there are not so many.
    """
    most = CARD_UNITS.get(gpu_model, MOST_UNITS)
    if not 1 <= units <= most:
        raise InputError(
            f"{units} SMs are asked for",
            why=f"{gpu_model} has 1 to {most}"
            if gpu_model in CARD_UNITS
            else f"no GPU has more than {most}",
            fix="ask for a number that it has, or leave it out",
        )


def parse_memory_mib(text: str) -> float:
    """Memory of a card: `143771` in MiB, `140GiB`, or `141GB` of 10^9 bytes.

    Raises:
        InputError: it is none of these, or no GPU has so much or so little.
    """
    found = _SIZE.fullmatch(text)
    if not found:
        raise InputError(
            f"{text!r} is not a memory size", fix="write MiB, or a unit: 143771, 80GiB or 141GB"
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

    def limit_mib(self, job: int, open_percent: float = 100.0) -> int | None:
        """At how much the memory of one of them is bounded; None: its need is not known.

        The others find what they need, with a margin. What nobody needs is open to all, or a part
        of it where others are still to come: while it
        starts a job may need much more than afterwards (recommender-serve-10 4,000 MiB while it
        serves, and more than 4,512 while it makes its tables), and a limit that is too small ends
        it.
        """
        own_mib, free_mib = self._kept_mib[job], 0
        if self.most_mib is not None:
            free_mib = int(self.most_mib) - sum(self._kept_mib)
        return own_mib + int(max(0, free_mib) * open_percent / 100) if own_mib else None

    def crowded_by(self, bounds_mib: Sequence[float | None]) -> int | None:
        """Which of those that run may take what the others need; None: none of them.

        `bounds_mib` is at how much the memory of each of them is bounded, the first of the jobs;
        None: at nothing.
        """
        if self.most_mib is not None:
            kept_mib = self._kept_mib
            for job, bound_mib in enumerate(bounds_mib):
                others_mib = sum(kept_mib) - kept_mib[job]
                if bound_mib is not None and bound_mib + others_mib > self.most_mib:
                    return job
        return None

    @property
    def _kept_mib(self) -> list[int]:
        """What each job needs, with a margin; nothing where that is not known."""
        return [
            0 if need is None else math.ceil(need + max(MEMORY_MARGIN * need, LEAST_MARGIN_MIB))
            for need in self.needs_mib
        ]

    @property
    def fits(self) -> bool | None:
        """Whether all fit; None where a need or the card is not known."""
        if self.most_mib is None or None in self.needs_mib:
            return None
        return not self.is_too_much
