"""What checks of counts of units found, as those who choose counts need it."""

from pathlib import Path
from typing import TypeAlias

from advisor.checks import CHECKS_FOLDER, check_for
from advisor.errors import StoreError
from advisor.safe_counts import CheckedCounts
from advisor_data.count_checks import known_checks

ChecksStamp: TypeAlias = tuple[tuple[str, int, int], ...]
"""Name, time of change and size of each file of a check."""


def checked_counts(
    home: Path, gpu_model: str, units_total: int | None = None
) -> CheckedCounts | None:
    """What the check of a GPU model found; None where there was none.

    Args:
        home: Where this host keeps what it knows.
        gpu_model: As its driver names it.
        units_total: SMs of the GPU, where they are known: a check of another number is none of it.

    Raises:
        StoreError: a file of a check cannot be read, so nobody knows which counts are unsafe.
    """
    found = check_for(gpu_model, known_checks(home))
    if found is None or units_total not in (None, found.units_total):
        return None
    return CheckedCounts(
        gpu_model=found.gpu_model,
        units_total=found.units_total,
        checked=frozenset(found.checked),
        wrong=found.wrong,
    )


def checks_stamp(home: Path) -> ChecksStamp:
    """What differs after a check by any process; costs no reading.

    Raises:
        StoreError: the folder cannot be looked at.
    """
    try:
        return tuple(
            (path.name, (found := path.stat()).st_mtime_ns, found.st_size) for path in _files(home)
        )
    except OSError as error:
        raise StoreError(
            f"{home / CHECKS_FOLDER} cannot be read", why=error.strerror or str(error)
        ) from error


def _files(home: Path) -> list[Path]:
    return sorted((home / CHECKS_FOLDER).glob("*.json"))
