"""What is known of the SM counts at which libraries compute right results."""

from importlib import resources
from pathlib import Path

from advisor.validity.checks import CHECKS, CountCheck, parse_check


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
