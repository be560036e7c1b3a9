"""The optional parts of this installation: which are whole, and what the others lack."""

import re
from collections.abc import Mapping
from importlib import metadata

DISTRIBUTION = "sm-advisor"

_REQUIREMENT = re.compile(r"([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]")


def lacking() -> Mapping[str, tuple[str, ...]]:
    """Distributions that each extra lacks, by extra, as the installation's metadata lists them.

    Returns:
        Nothing where advisor itself was not installed.
    """
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    needs: dict[str, list[str]] = {}
    for found in filter(None, map(_REQUIREMENT.match, lines)):
        needs.setdefault(found[2], []).append(found[1])
    return {extra: tuple(n for n in names if not _is_here(n)) for extra, names in needs.items()}


def _is_here(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
