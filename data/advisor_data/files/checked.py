"""What checks of counts of units found, as those who choose counts need it."""

from importlib import resources
from pathlib import Path
from typing import TypeAlias

from advisor.errors import StoreError
from advisor.validity.safe_counts import (
    CHECKS,
    CHECKS_FOLDER,
    CheckedCounts,
    CountCheck,
    check_for,
    parse_check,
    wrong_elsewhere,
)

ChecksStamp: TypeAlias = tuple[tuple[str, int, int], ...]
"""Name, time of change and size of each file of a check."""


def checked_counts(
    home: Path, gpu_model: str, units_total: int | None = None
) -> CheckedCounts | None:
    """What the check of a GPU model found; None where there was none.

    Counts at which other models of as many SMs were wrong count as wrong here too, in operations
    that were not tried here (`advisor.validity.safe_counts.wrong_elsewhere`). Where the SMs of
    the GPU are known, a check of another number is none of it.

    Raises:
        StoreError: a file of a check cannot be read, so nobody knows which counts are unsafe.
    """
    known = known_checks(home)
    found = check_for(gpu_model, known)
    if found is None or units_total not in (None, found.units_total):
        return None
    return CheckedCounts(
        gpu_model=found.gpu_model,
        units_total=found.units_total,
        checked=frozenset(found.checked),
        wrong={**wrong_elsewhere(gpu_model, known), **found.wrong},
    )


def checks_stamp(home: Path) -> ChecksStamp:
    """What differs after a check by any process; costs no reading.

    Raises:
        StoreError: the folder cannot be looked at.
    """
    with StoreError.instead_of(OSError, f"{home / CHECKS_FOLDER} cannot be read"):
        files = sorted((home / CHECKS_FOLDER).glob("*.json"))
        return tuple(
            (path.name, (found := path.stat()).st_mtime_ns, found.st_size) for path in files
        )


def known_checks(home: Path) -> list[CountCheck]:
    """The checks that were made on this host, then those that come with the package.

    Raises:
        StoreError: a stored file cannot be read.
    """
    return [*CHECKS.read(home), *bundled_checks()]


def bundled_checks() -> list[CountCheck]:
    """Checks made on real GPUs that come with the package."""
    folder = resources.files("advisor_data") / "bundled" / "checks"
    if not folder.is_dir():
        return []
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=str)
    return [parse_check(file.read_bytes()) for file in files]
