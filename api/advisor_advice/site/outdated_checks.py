"""Whether driver and libraries are still those with which safe counts were found."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from advisor.core.records import Observation
from advisor.validity.safe_counts import check_for
from advisor_data.known import known_checks


def outdated_check(home: Path, gpu_model: str, versions: Mapping[str, str]) -> str:
    """What has changed since `advisor check`, and what to do; empty where nothing has.

    Versions are those in use now: `driver`, and libraries by name, as far as they are known.

    Raises:
        StoreError: a stored check cannot be read.
    """
    known = check_for(gpu_model, known_checks(home)) if versions else None
    libraries = {name: version for name, version in versions.items() if name != "driver"}
    changed = known and known.differs_from(versions.get("driver", known.driver), libraries)
    if not changed:
        return ""
    return (
        f"safe counts of the {gpu_model} were found with other software ({changed}): advisor check"
    )


def outdated_checks(observations: Iterable[Observation], home: Path) -> dict[str, str]:
    """The same by GPU model, for what the newest launch on each wrote down.

    Raises:
        StoreError: a stored check cannot be read.
    """
    newest: dict[str, Observation] = {}
    for seen in observations:
        if software_of(seen):
            there = newest.setdefault(seen.gpu_model, seen)
            newest[seen.gpu_model] = max(there, seen, key=lambda one: one.started_at)
    found = {
        model: outdated_check(home, model, versions_of(software_of(seen)))
        for model, seen in newest.items()
    }
    return {model: text for model, text in found.items() if text}


def software_of(seen: Observation) -> tuple[str, ...]:
    """Versions that were in use, such as `driver 580.159.04`, as far as the launch wrote them."""
    texts = [part.libraries for part in seen.parts if part.libraries]
    libraries = {name.strip() for text in texts for name in text.split(",")}
    return (*((f"driver {seen.driver}",) if seen.driver else ()), *sorted(libraries))


def versions_of(software: Iterable[str]) -> dict[str, str]:
    """Version by name, of texts such as `driver 580.159.04`."""
    return {
        name: version for text in software for name, _, version in [text.partition(" ")] if version
    }
