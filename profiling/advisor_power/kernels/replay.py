"""The replay of measured kernels: the table that comes with the package, instead of a GPU."""

import re
from dataclasses import replace

from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.wire.power import KernelReport
from advisor_data.known import bundled_kernels

_SIZES = {"gemm": "mnk", "gemv": "mk", "all-gather": ("bytes",), "all-reduce": ("bytes",)}
"""Of an operation; others have m alone."""


_NAMED = 12  # how many of many measured kernels a message names


def operation_name(name: str, sizes: dict[str, int], dtype: str, *, rotate: bool) -> str:
    """An operation as profiling/workloads/kernel_operations.py names it in reports."""
    shape = " ".join(f"{size}={sizes[size]}" for size in _SIZES.get(name, "m"))
    return f"{name} {shape} {dtype}" + (" rotating" if rotate else "")


def bytes_of(text: str) -> int:
    """A size such as 65536, 64KiB, 512MiB or 1GiB, in bytes.

    Raises:
        InputError: it is none.
    """
    found = re.fullmatch(r"([1-9][0-9]*)(|KiB|MiB|GiB)", text)
    if found is None:
        raise InputError(f"{text} is no size", fix="write it as 64KiB, 512MiB or 1GiB")
    return int(found[1]) * {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[found[2]]


def recorded_kernel(
    operation: str, before: str, units: int | None = None, gpu_model: str | None = None
) -> KernelReport:
    """What was measured of a kernel; its source is replay.

    Args:
        operation: As reports name it.
        before: What ran before it, as reports name that.
        units: SMs; None: as many as there are.
        gpu_model: None: the first that there is.

    Raises:
        InputError: nothing is bundled, or not this kernel.
        StoreError: the installation is damaged.
    """
    table = bundled_kernels()
    if not table:
        raise InputError(
            "no measured kernel comes with this version of advisor",
            fix="measure it: advisor power kernel, on a GPU",
        )
    found = [
        one
        for one in table
        if (one.operation, one.before) == (operation, before)
        and units in (None, one.units)
        and gpu_model in (None, one.gpu_model)
    ]
    if not found:
        there = sorted({_words(one.operation, one.before, one.units) for one in table})
        more = f", and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
        of = f" on {gpu_model}" if gpu_model else ""
        raise InputError(
            f"{_words(operation, before, units)} is not among the measured kernels that come with "
            f"advisor{of}",
            why="a replay has only what was measured",
            fix=f"there is {listed(there[:_NAMED])}{more}",
        )
    return replace(max(found, key=lambda one: one.units or 0), source="replay")


def _words(operation: str, before: str, units: int | None) -> str:
    limit = f" at {units} SMs" if units else ""
    return f"{operation} after {before}{limit}"
