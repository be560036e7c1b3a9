"""What checks of counts of units found on this host: `checks/*.json` in the advisor's home."""

import json
from pathlib import Path
from typing import Any, TypeAlias

from advisor.errors import StoreError
from advisor.safe_counts import CheckedCounts

ChecksStamp: TypeAlias = tuple[tuple[str, int, int], ...]
"""Name, time of change and size of each file of a check."""

FOLDER = "checks"


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
    for found in map(_read, _files(home)):
        if found.gpu_model == gpu_model and units_total in (None, found.units_total):
            return found
    return None


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
        raise _unreadable(home / FOLDER, error.strerror or str(error)) from error


def _files(home: Path) -> list[Path]:
    return sorted((home / FOLDER).glob("*.json"))


def _read(path: Path) -> CheckedCounts:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        return CheckedCounts(
            gpu_model=str(found["gpu_model"]),
            units_total=int(found["units_total"]),
            checked=frozenset(map(int, found["checked"])),
            wrong={int(units): tuple(map(str, names)) for units, names in found["wrong"].items()},
        )
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, "it is not what a check writes") from error


def _unreadable(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path} cannot be read",
        why=why,
        fix="check again: advisor check; or remove the file, and nothing is known of this GPU",
    )
