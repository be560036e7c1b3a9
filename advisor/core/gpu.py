"""GPUs, shares and splits; percent, compute units, and the variables that ask for them.

A split says which share of one GPU each of several jobs gets, or that they share it without limits.
Its text is what people write and read everywhere: `30/70`, `20/30/50`, `uncapped`, `time-sliced` or
`exclusive`. `:low` behind a share runs that job below normal priority: `100:low/100`.

NVIDIA's driver turns `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` into a number of SMs by rounding down to
an even count, and on Hopper gives no client fewer than eight. Read back on an H200 (132 SMs,
driver 580) for 10..100 %: 12 26 38 52 66 78 92 104 118 132. The driver takes 0, a negative
number, anything above 100 and anything that is not a number as NO LIMIT, without a message, so
those values are refused here.

A bit of a mask is not a physical CU. The kernel deals consecutive bits round-robin over the XCDs
(bit i belongs to XCD i mod `xcds`) and, inside each, over the shader engines; an XCD or shader
engine that is left without a CU can hang its queue (Linux, drivers/gpu/drm/amd/amdkfd/
kfd_mqd_manager.c, mqd_symmetrically_map_cu_mask). So counts are multiples of `xcds`.

`HSA_CU_MASK` fails open: a repeated id, a set without a usable CU or an error of syntax makes
ROCr ignore that set and all later ones, without a message; GPUs that it does not list are
unrestricted (ROCr, core/util/flag.cpp). `ROC_GLOBAL_CU_MASK` is one hexadecimal number for all
devices of the process (clr, rocclr/utils/flags.hpp). Both are given.

| device          | `cus_total` | `xcds` |
|-----------------|-------------|--------|
| MI300X, SPX     | 304         | 8      |
| MI300X, CPX     | 38          | 1      |
| MI250X, one die | 110         | 1      |
| MI210           | 104         | 1      |
"""

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from advisor.errors import InputError, LimitNotProvenError

Vendor = Literal["nvidia", "amd"]

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""The variable that gives a client of MPS its share of the SMs."""

PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
"""The variable that gives a client of MPS its priority (MPS manual, 4.2.8)."""

MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""The variable that bounds what a client of MPS can allocate (CUDA 11.5 and newer)."""

_BELOW_NORMAL = MappingProxyType({PRIORITY: "1"})

SM_QUANTUM = 2
"""SMs are granted in pairs (one texture processing cluster)."""

SM_FLOOR = 8
"""Fewest SMs that driver 580 grants on Hopper, whatever the percentage."""

WHOLE = 100.0
"""The share of the whole GPU, percent."""

MPS_CLIENTS = 48
"""Clients per GPU on Volta and newer before CUDA 13.1 (NVIDIA MPS documentation, limitations)."""

MEMORY_PART = 0.95
"""Part of the memory that jobs may fill; contexts, fragments and the MPS server take the rest."""

HOLDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "jax": (
            "XLA_PYTHON_CLIENT_PREALLOCATE",
            "XLA_PYTHON_CLIENT_MEM_FRACTION",
            "XLA_CLIENT_MEM_FRACTION",
        ),
        "tensorflow": ("TF_FORCE_GPU_ALLOW_GROWTH",),
        "vllm": ("--gpu-memory-utilization",),
        "sgl": ("--mem-fraction-static",),
    }
)
"""Frameworks that hold memory without need, by how their packages begin, and what bounds each:
variables, or an option of its command that takes a part of the card."""

GROWTH: Mapping[str, str] = MappingProxyType(
    {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
)
"""JAX and TensorFlow then take memory as they need it. Every job gets these variables unless its
file or the shell sets them; other programs do not read them."""


def read_bound(memory_bound: str | None) -> tuple[dict[str, str], str]:
    """Of what bounded the memory of a job, as points have it, variables and a word on options.

    The word is empty where its command has no such options, and needs none.
    """
    words = (memory_bound or "").split()
    options = " ".join(word for word in words if "=" not in word)
    said = (
        f"may hold memory that it does not need: give its command {options} PART, such as 0.4, and "
        "profile it again"
        if options.rpartition(" ")[2].startswith("--")
        else f"was profiled with {options} in its command, which its memory depends on"
    )
    return dict(word.split("=", 1) for word in words if "=" in word), options and said


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

LEAST_MIB, MOST_MIB = 1024.0, 1024.0 * 1024
"""No GPU that runs MPS has less or more memory than this; 141 was meant in GB."""

ALL_GPUS = -1
"""Stands for the number of a GPU where a job holds all GPUs of the set."""

MOST_GPUS = 2
"""Most GPUs of one job that others share."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(mib|gib|gb)?\s*", re.IGNORECASE)

_UNITS_MIB: Mapping[str, float] = MappingProxyType({"mib": 1.0, "gib": 1024.0, "gb": 1e9 / 2**20})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver describes it.

    Attributes:
        units_total: SMs (NVIDIA) or CUs (AMD); None until it has been read.
        power_limit_w: Enforced.
        compute_mode: NVIDIA compute mode, such as "default" or "exclusive-process".
        beside: UUIDs of the other GPUs of its host, where they are known.
        others: GPUs that are used with it, where a job holds several.
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
    beside: tuple[str, ...] = ()
    others: tuple["Gpu", ...] = ()

    @property
    def each(self) -> tuple["Gpu", ...]:
        """It, and those that are used with it."""
        return self, *self.others


def visible(gpus: Iterable[Gpu]) -> str:
    """What `CUDA_VISIBLE_DEVICES` is to a process that may use these."""
    return ",".join(gpu.uuid for gpu in gpus)


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the compute units asked for one job.

    Attributes:
        percent: Percentage as handed to the driver, above 0 and at most 100.
        upper: Counted from the last CU down, as the second job of a pair has it, so that two masks
            do not overlap; MPS chooses the SMs itself.
        memory_mib: Most memory that a process may take under MPS; None: all that there is.
        below_normal: Kernels of other clients of MPS go before its own.
        gpu: Number of its GPU among `Gpu.each`; `ALL_GPUS`: as much of each.
    """

    percent: float
    upper: bool = False
    memory_mib: int | None = None
    below_normal: bool = False
    gpu: int = ALL_GPUS

    def __post_init__(self) -> None:
        _check_percent(self.percent)

    def of(self, gpu: Gpu) -> tuple[Gpu, ...]:
        """Those of the GPUs that it is a share of."""
        return gpu.each if self.gpu == ALL_GPUS else (gpu.each[self.gpu],)

    def most_of(self, clients: int, units_total: int | None, units: int | None) -> str:
        """What all clients of MPS of one job may take together, if each has this share."""
        most = f" ({min(units_total, clients * units)} units)" if units_total and units else ""
        return (
            f"has {clients} clients of MPS, and its {self} % are of each: together they may take "
            f"{min(WHOLE, clients * self.percent):g} %{most} of the GPU"
        )

    def __str__(self) -> str:
        return f"{self.percent:g}"

    def environment(self, units_total: int | None, vendor: Vendor, gpus: int = 1) -> dict[str, str]:
        """Variables that hold a process to its share of so many GPUs; others say which it sees.

        NVIDIA's driver counts by itself and needs no number of units.

        Raises:
            InputError: an AMD GPU of which the CUs are not known, or cannot be shared by two jobs.
        """
        if vendor == "nvidia":
            # By number: a client sees no other GPU than those that it is to have.
            each = ",".join(f"{number}={self.memory_mib}M" for number in range(gpus))
            bound = {} if self.memory_mib is None else {MEMORY_LIMIT: each}
            return {PERCENTAGE: str(self), **bound, **(_BELOW_NORMAL if self.below_normal else {})}
        if units_total is None:
            raise InputError(
                "the number of CUs of the GPU is not known",
                why="a CU mask names each CU that a job gets",
                fix="run `advisor doctor`, or measure the jobs there: advisor profile",
            )
        cus = units_for_share(self.percent, units_total, vendor)
        return mask_env(range(units_total - cus, units_total) if self.upper else range(cus))


def _check_percent(percent: float) -> None:
    """Refuse a percentage that the driver would take as no limit.

    Raises:
        InputError: it is one.
    """
    try:
        is_possible = 0 < percent <= WHOLE
    except TypeError:  # text, as of a form
        is_possible = False
    if not is_possible:
        raise InputError(
            f"a share of {percent} % is not possible",
            why="the driver takes 0, negative numbers and numbers above 100 as no limit at all",
            fix="give a percentage above 0 and at most 100",
        )


def units_for_percent(percent: float, units_total: int) -> int:
    """SMs that MPS grants for `percent` on a GPU of `units_total` SMs.

    Raises:
        InputError: `percent` is one that the driver would take as no limit.
    """
    _check_percent(percent)
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
    most = CARD_UNITS.get(gpu_model, 1024)  # no GPU has more SMs or CUs
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
    match = _SIZE.fullmatch(text)
    if not match:
        raise InputError(
            f"{text!r} is not a memory size", fix="write MiB, or a unit: 143771, 80GiB or 141GB"
        )
    memory_mib = float(match[1]) * _UNITS_MIB[(match[2] or "mib").lower()]
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

    def held_ahead(self, commands: Iterable[Sequence[str]] = ()) -> str:
        """How jobs may hold less, where one may hold memory that it does not need; else empty.

        Args:
            commands: Of the jobs, if known; if they name no framework, the text names all.
        """
        # JAX takes 75 % of a card as it starts, vLLM 90 %, TensorFlow and SGLang nearly all (their
        # documentation of what `HOLDERS` names).
        held_mib = 0.7 * (self.card_mib or math.inf)
        if max((need or 0 for need in self.needs_mib), default=0) < held_mib:
            return ""
        files = [word.rpartition("/")[2].lower() for command in commands for word in command]
        named = [how for name, how in HOLDERS.items() if any(name in file for file in files)]
        part = f" {int(100 * MEMORY_PART / len(self.needs_mib)) / 100:g}"
        settings = (
            f"{holder}{f'={GROWTH[holder]}' if holder in GROWTH else part}"
            for holder, *_ in named or HOLDERS.values()
        )
        return (
            "JAX, TensorFlow, vLLM and SGLang reserve most of the GPU, needed or not: profile a "
            f"job that uses one again with {', '.join(settings)}; profiles set the variables"
        )

    def limit_mib(self, job: int, open_percent: float = 100.0) -> int | None:
        """At how much the memory of one of them is bounded; None: its need is not known.

        Each other job keeps its need plus a margin; the remainder is available to this job, or a
        part of it where others are still to come. While it starts a job may need much more than
        afterwards (recommender-serve-10 4,000 MiB while it serves, and more than 4,512 while it
        makes its tables), and a limit that is too small ends it.
        """
        kept_mib, free_mib = self._kept_mib[job], int(self.most_mib or 0) - sum(self._kept_mib)
        return kept_mib + int(max(0, free_mib) * open_percent / 100) if kept_mib else None

    def crowded_by(self, bounds_mib: Sequence[float | None]) -> int | None:
        """Which of those that run may take what the others need; None: none of them.

        `bounds_mib` is at how much the memory of each of them is bounded, the first of the jobs;
        None: at nothing.
        """
        kept_mib, most_mib = self._kept_mib, math.inf if self.most_mib is None else self.most_mib
        bounded = ((job, mib) for job, mib in enumerate(bounds_mib) if mib is not None)
        return next((n for n, mib in bounded if mib + sum(kept_mib) - kept_mib[n] > most_mib), None)

    @property
    def _kept_mib(self) -> list[int]:
        """What each job needs, with a margin; nothing where that is not known.

        Caches of allocators differ from run to run, and libraries are loaded when they are used
        first: a tenth of it or 512 MiB, whichever is more.
        """
        return [
            0 if need is None else math.ceil(need + max(0.1 * need, 512)) for need in self.needs_mib
        ]

    @property
    def fits(self) -> bool | None:
        """Whether all fit; None where a need or the card is not known."""
        return None if self.most_mib is None or None in self.needs_mib else not self.is_too_much


LIMIT_COMMANDS: dict[Vendor, str] = {
    "nvidia": "nvidia-smi -pl",
    "amd": "rocm-smi --setpoweroverdrive",
}
"""Set a power limit, in watts after it, as administrator."""

UNIT_NAMES: dict[Vendor, str] = {"nvidia": "SMs", "amd": "CUs"}

# Words of which AMD SMI's market names have one, such as "AMD Instinct MI300X".
_AMD = re.compile(r"\b(amd|instinct|radeon|mi[0-9]{2,3}[a-z]?)\b", re.IGNORECASE)


# Words of accelerators whose units neither MPS nor a CU mask limits.
_NEITHER = re.compile(
    r"\b(intel|arc|gaudi|habana|ponte vecchio|data center gpu (max|flex)|apple|qualcomm|adreno|mali"
    r"|moore threads|mtt|ascend|huawei|biren|cambricon|metax|iluvatar|tpu|graphcore)\b",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=256)
def vendor_of(gpu_model: str) -> Vendor:
    """The vendor of a GPU model, by the name that its driver gives it.

    NVML names NVIDIA's of some years without their maker ("A100-SXM4-40GB"), so they are what a
    name without any maker means.

    Raises:
        InputError: neither NVIDIA nor AMD.
    """
    if _NEITHER.search(gpu_model):
        raise InputError(
            f"{gpu_model} is a GPU of neither NVIDIA nor AMD",
            why="neither MPS nor a CU mask limits its units, so no share of it could be held",
            fix="choose profiles of a GPU that can be shared: --gpu-model, or `gpu_model` in a "
            "request",
        )
    return "amd" if _AMD.search(gpu_model) else "nvidia"


def named_model(wanted: str, models: Iterable[str]) -> str:
    """The GPU model of that name, or the one whose name it is a part of; itself where none is.

    Raises:
        InputError: it is a part of the names of several.
    """
    there = {*models}
    near = there & {wanted} or {m for m in there if wanted.casefold() in m.casefold()}
    if len(near) > 1:
        raise InputError(
            f"{wanted} is a part of several names: {', '.join(sorted(near))}",
            fix="choose one of them: --gpu-model, or `gpu_model` in a request",
        )
    return next(iter(near), wanted)


def quantum(units_total: int, vendor: Vendor) -> int:
    """Units between two counts that can be granted: a pair of SMs, or one CU on each XCD."""
    return _XCDS.get(units_total, 1) if vendor == "amd" else SM_QUANTUM


@functools.lru_cache(maxsize=64)
def grantable(units_total: int, vendor: Vendor = "nvidia") -> tuple[int, ...]:
    """Counts that can be granted on a GPU of this many units, ascending; its last one is all."""
    step = quantum(units_total, vendor)
    least = step if vendor == "amd" else SM_FLOOR
    return tuple(sorted({*range(least, units_total + 1, step), units_total} - {0}))


@functools.lru_cache(maxsize=4096)  # a question asks for the same few shares again and again
def units_for_share(percent: float, units_total: int, vendor: Vendor) -> int:
    """Units that a share is granted.

    Raises:
        InputError: no such share, or a GPU that two jobs cannot share.
    """
    return (
        cus_for_percent(percent, units_total, _XCDS.get(units_total, 1))
        if vendor == "amd"
        else units_for_percent(percent, units_total)
    )


@functools.lru_cache(maxsize=4096)
def share_for_units(units: int, units_total: int, vendor: Vendor) -> float:
    """The percentage for which exactly `units` of `units_total` are granted.

    Raises:
        InputError: that count cannot be granted.
    """
    if vendor == "nvidia":
        return float(percent_for_units(units, units_total))
    xcds = _XCDS.get(units_total, 1)
    percent = 100 * check_cus(units, units_total, xcds) / units_total
    if (near := cus_for_percent(percent, units_total, xcds)) != units:
        raise InputError(f"{units} of {units_total} CUs fill no whole rows", fix=f"ask for {near}")
    return percent


# XCDs of a device by its CUs: MI300X, MI350X and MI300A as one device; all others have one.
_XCDS = {304: 8, 256: 8, 228: 6}


def cus_for_percent(percent: float, cus_total: int, xcds: int) -> int:
    """CUs for a share: the nearest count that touches every XCD alike.

    With several XCDs a count that fills whole rows of shader engines (32 on MI300X) is taken
    where it is less than one CU per XCD away. Above 50 % the answer is what the other share
    leaves, so the two shares of a split always add up to the GPU.

    Raises:
        InputError: no such share, or a GPU whose XCDs are not alike.
    """
    Share(percent)
    _check_gpu(cus_total, xcds)
    if percent == 100:
        return cus_total
    if percent > 50:
        return cus_total - cus_for_percent(100 - percent, cus_total, xcds)
    exact = percent * cus_total / 100
    # ROCr shows four shader engines on an MI300 XCD: a multiple of 4 per XCD loads them alike.
    whole_rows = _nearest(exact, xcds * 4)
    # A count that came from a percentage of three decimals does not slip into the next row.
    is_near = xcds > 1 and whole_rows and abs(whole_rows - exact) < xcds - 0.01
    return whole_rows if is_near else max(xcds, _nearest(exact, xcds))


def check_cus(cus: int, cus_total: int, xcds: int) -> int:
    """`cus`, where a mask of that many can be made.

    Raises:
        InputError: it cannot; the message names the nearest counts.
    """
    _check_gpu(cus_total, xcds)
    if xcds <= cus <= cus_total and cus % xcds == 0:
        return cus
    low = min(max(cus // xcds * xcds, xcds), cus_total)
    raise InputError(
        f"{cus} of {cus_total} CUs cannot be granted",
        why=f"each of {xcds} XCDs needs the same number of CUs, one or more",
        fix=f"ask for {' or '.join(map(str, sorted({low, min(low + xcds, cus_total)})))}",
    )


def mask_env(cus: range) -> dict[str, str]:
    """Variables that hold a process to `cus`, bits of the mask, of the one GPU that it sees.

    The first is as "0:0-31", the second a number whose bit 0 is CU 0. `HSA_CU_MASK` counts the
    visible GPUs, and one that it does not list is unrestricted: anyone who starts the process also
    shows it that GPU alone (`ROCR_VISIBLE_DEVICES`).

    Raises:
        InputError: an id is negative, or there is none.
    """
    if not cus or cus[0] < 0:
        raise InputError(
            f"{len(cus)} CU ids, lowest {min(cus, default=None)}",
            why="an empty mask and a negative id both mean no limit to ROCr",
        )
    ids = f"{cus[0]}-{cus[-1]}" if len(cus) > 1 else f"{cus[0]}"
    return {
        "HSA_CU_MASK": f"0:{ids}",
        "ROC_GLOBAL_CU_MASK": hex(sum(1 << cu for cu in cus)),
    }


def refuse_if_skipped(env: Mapping[str, str]) -> None:
    """Make sure that ROCr will apply the mask.

    Raises:
        LimitNotProvenError: `HSA_CU_MASK_SKIP_INIT` tells it to make queues without the mask
            (ROCr, core/runtime/amd_aql_queue.cpp).
    """
    value = env.get("HSA_CU_MASK_SKIP_INIT", "")
    if value not in {"", "0"}:
        raise LimitNotProvenError(
            f"HSA_CU_MASK_SKIP_INIT is {value!r}",
            why="with it ROCr ignores HSA_CU_MASK and the job gets the whole GPU",
            fix="unset HSA_CU_MASK_SKIP_INIT",
        )


def _check_gpu(cus_total: int, xcds: int) -> None:
    if xcds < 1 or cus_total < 2 * xcds or cus_total % xcds:
        raise InputError(f"{cus_total} CUs on {xcds} XCDs cannot be shared by two jobs")


def _nearest(value: float, step: int) -> int:
    return math.floor(value / step + 0.5) * step


Sharing = Literal["limited", "uncapped", "time-sliced", "exclusive"]
"""How jobs use one GPU. limited: side by side, each under its share; uncapped: side by side under
MPS without limits; time-sliced: without MPS, by the driver; exclusive: one job after the
other, each alone on the whole GPU."""

SHARINGS: tuple[Sharing, ...] = get_args(Sharing)
"""In a tie the first one is taken: under limits no job can take another's units."""

ADVISED_JOBS = 2
"""Jobs of a pair: models learn from pairs."""

MOST_JOBS = 7
"""Most jobs of a set on one GPU. Each process needs a core or two; hosts have about 16 a card."""

ISOLATING: tuple[Sharing, ...] = ("time-sliced", "exclusive")
"""Where a fault of one job leaves the others running; clients of one MPS server all end with it."""

_WORDS: tuple[Sharing, ...] = SHARINGS[1:]
_LOW = ":low"
_SHARE = rf"\d{{1,3}}(?:\.\d{{1,3}})?(?:{_LOW})?(?:@[0-9])?"
_SHARES = re.compile(rf"{_SHARE}(?: ?/ ?{_SHARE})+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """A share for each job, in their order; of one alone until another job joins it.

    Attributes:
        shares: Percent of the GPU's units, one for each job; 100 each where there are no limits.
        sharing: How the jobs use the GPU.
        below_normal: Places of the jobs that run below normal priority under MPS, ascending.
        gpus: Beside a job of several GPUs, the GPU of each other job, from 0, and `ALL_GPUS` of
            that job itself; empty: all jobs share one GPU.

    Raises:
        InputError: no share, or one that the driver would take as no limit.
    """

    shares: tuple[float, ...]
    sharing: Sharing = "limited"
    below_normal: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.shares:
            raise InputError("a split of no shares is not possible", fix="write it as 30/70")
        for share in self.shares:
            _check_percent(share)

    def __str__(self) -> str:
        if not (self.is_limited or self.below_normal or self.gpus):
            return self.sharing
        at = ["" if gpu == ALL_GPUS else f"@{gpu}" for gpu in self.gpus] or [""] * len(self.shares)
        return "/".join(
            f"{share:g}{_LOW if low else ''}{on}"
            for (share, low), on in zip(self.seats, at, strict=True)
        )

    @property
    def is_limited(self) -> bool:
        """Whether each job has a limit."""
        return self.sharing == "limited"

    @property
    def seats(self) -> tuple[tuple[float, bool], ...]:
        """Of each job its share, and whether it runs below normal priority."""
        return tuple((share, n in self.below_normal) for n, share in enumerate(self.shares))

    @property
    def each_gpu(self) -> tuple[tuple[int, ...], ...]:
        """Places of the jobs on each GPU that it names; all on one where it names none."""
        return tuple(
            tuple(n for n, gpu in enumerate(self.gpus) if gpu in (number, ALL_GPUS))
            for number in range(max(self.gpus, default=ALL_GPUS) + 1)
        ) or (tuple(range(len(self.shares))),)

    @property
    def gap_percent(self) -> float:
        """Largest less smallest share: 0 where all jobs get the same."""
        return max(self.shares) - min(self.shares)

    def ordered(self, order: Sequence[int]) -> "Split":
        """The same with the jobs in another order: which of the present ones stands where."""
        return Split(
            tuple(self.shares[n] for n in order),
            self.sharing,
            tuple(n for n, seat in enumerate(order) if seat in self.below_normal),
            tuple(self.gpus[n] for n in order if self.gpus),
        )

    def joined_by(self, share_percent: float, is_low: bool = False) -> "Split":
        """With one more job, the last, at normal priority or below it."""
        low = (*self.below_normal, *((len(self.shares),) * is_low))
        return replace(self, shares=(*self.shares, share_percent), below_normal=low)

    @property
    def each_share(self) -> tuple[Share, ...]:
        """The share of each job; CU masks of the first and the last limited one begin at two ends.

        So those of two jobs that get 100 % or less together have no CU in common.
        """
        limited = [n for n, percent in enumerate(self.shares) if percent < WHOLE]
        return tuple(
            Share(
                percent,
                upper=n in limited[1:] and n == limited[-1],
                below_normal=low,
                gpu=self.gpus[n] if self.gpus else ALL_GPUS,
            )
            for n, (percent, low) in enumerate(self.seats)
        )

    def environments(self, units_total: int | None, vendor: Vendor) -> tuple[dict[str, str], ...]:
        """Variables that hold each job to its share and priority; none of a job that has neither.

        Raises:
            InputError: an AMD GPU of which the CUs are not known, or cannot be shared so.
        """
        self.check_masks(vendor)
        every = ",".join(map(str, range(MOST_GPUS)))
        visible = [every if gpu == ALL_GPUS else str(gpu) for gpu in self.gpus]
        return tuple(
            (
                share.environment(units_total, vendor)
                if share.percent < WHOLE
                else dict(_BELOW_NORMAL if share.below_normal else {})
            )
            | ({"CUDA_VISIBLE_DEVICES": visible[job]} if visible else {})
            for job, share in enumerate(self.each_share)
        )

    def check_masks(self, vendor: Vendor) -> None:
        """Refuse on AMD priorities, and limits for three jobs or more: CU masks would overlap.

        Raises:
            InputError: there are such.
        """
        if vendor == "amd" and (self.below_normal or not self.can_be_masked):
            why, fix = (
                ("priority is one of clients of MPS, which is NVIDIA's", "leave :low out")
                if self.below_normal
                else (
                    "CU masks begin at one of two ends of the GPU, so those of three jobs overlap",
                    "limit two jobs, or let all share the GPU uncapped",
                )
            )
            raise InputError(f"{self} is not possible on an AMD GPU", why=why, fix=fix)

    @property
    def can_be_masked(self) -> bool:
        """Whether CU masks hold its limits; jobs without one have no mask."""
        return sum(share < WHOLE for share in self.shares) <= 2  # masks begin at one of two ends

    @classmethod
    def parse(cls, text: str, jobs: int = 2, *, gpus: int = 1) -> "Split":
        """The split that a text stands for.

        How many jobs share only words need to be told; percentages say it themselves. Of several
        GPUs `@1` behind a share is the number of the job's.

        Raises:
            InputError: it stands for none, or for a priority that is none; the message says how to
            write one.
        """
        if text in _WORDS:
            return without_limits(text, jobs)
        if not _SHARES.fullmatch(text):
            near = difflib.get_close_matches(text, _WORDS, n=1)
            raise InputError(
                f"{text!r} is not a split",
                why=f"the nearest is {near[0]}" if near else "",
                fix=f"write percentages such as 30/70 or 100{_LOW}/50, or "
                f"{', '.join(_WORDS[:-1])} or {_WORDS[-1]}",
            )
        seats, _, numbers = zip(
            *(seat.strip().partition("@") for seat in text.split("/")), strict=True
        )
        on = tuple(int(number) if number else ALL_GPUS for number in numbers)
        shares = tuple(float(seat.removesuffix(_LOW)) for seat in seats)
        low = tuple(n for n, seat in enumerate(seats) if seat.endswith(_LOW))
        if any(not 0 < share <= WHOLE for share in shares):
            raise InputError(
                f"the split {text!r} is not possible",
                why="the driver takes 0 and percentages above 100 as no limit at all",
                fix="give shares above 0 and at most 100 %",
            )
        if any(numbers) and not (gpus > 1 and max(on) < gpus):
            raise InputError(
                f"{text!r} names GPU {max(on)} of {gpus}",
                fix="leave out what is behind @: it is the GPU of a neighbour of a job that holds "
                "several, from 0",
            )
        if len(low) == len(shares):
            raise InputError(
                "all jobs below normal priority wait for each other as all at normal priority do",
                fix=f"leave one without {_LOW}, such as 100{_LOW}/100",
            )
        sharing: Sharing = "uncapped" if all(share == WHOLE for share in shares) else "limited"
        return Split(shares, sharing, low, on if any(numbers) else ())

    @classmethod
    def of_units(cls, units: Iterable[int], units_total: int, vendor: Vendor) -> "Split":
        """Exact counts of units as a split in percent.

        Raises:
            InputError: the GPU cannot grant one of them.
        """
        return cls(tuple(share_for_units(count, units_total, vendor) for count in units))


def without_limits(sharing: Sharing, jobs: int = 2) -> Split:
    """So many jobs sharing without limits: `uncapped`, `time-sliced` or `exclusive`."""
    return Split((WHOLE,) * jobs, sharing)


UNCAPPED, TIME_SLICED = without_limits("uncapped"), without_limits("time-sliced")

EQUAL = Split((50.0, 50.0))

NINE: tuple[Split, ...] = tuple(Split((float(p), WHOLE - p)) for p in range(10, 100, 10))
"""10/90, 20/80 .. 90/10."""


def fine_splits(units_total: int, vendor: Vendor) -> tuple[Split, ...]:
    """Every split of a GPU between two jobs in steps of its quantum, by the share of the first."""
    step, least = quantum(units_total, vendor), grantable(units_total, vendor)[0]
    together = units_total - units_total % step
    return tuple(
        Split.of_units((units, together - units), units_total, vendor)
        for units in range(least, together - least + 1, step)
    )


def best_within_tie(
    candidates: Iterable[T],
    value: Callable[[T], float],
    tie: float,
    rank: Callable[[T, float], Any],
) -> T:
    """The first candidate by rank among those within `tie` of the best value.

    The tie is the relative distance from the largest value that counts as equal to it, 0 up to
    below 1; rank orders those that are equal, the smallest first.

    Raises:
        InputError: no candidate, or a tie out of range.
    """
    if not 0 <= tie < 1:
        raise InputError(f"a tie of {tie} is not possible", fix="give 0 up to below 1")
    valued = [(value(candidate), candidate) for candidate in candidates]
    if not valued:
        raise InputError("there is no split to choose from")
    least = max(value for value, _ in valued) * (1 - tie)
    return min(
        (item for item in valued if item[0] >= least), key=lambda item: rank(item[1], item[0])
    )[1]
