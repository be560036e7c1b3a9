"""At which numbers of SMs the libraries of a host compute right results.

Under a limited number of SMs some kernels leave parts of their result unwritten (docs/check.md).
`advisor check` finds the counts at which that happens and keeps what it found in one file for each
GPU model.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.formats.kept import RecordFolder
from advisor.formats.wire import read

CHECKS_FOLDER = "checks"
"""In the advisor's home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountCheck:
    """What was computed at which numbers of SMs, and where it was wrong.

    Attributes:
        libraries: Version by name: torch, cublas, cudnn.
        checked: Counts that were asked for, granted and computed at.
        wrong: Names of the operations that were wrong, by count; no count without any.
        operations: Names of all operations that were tried at every count.
        checked_at: Time of the last count, ISO 8601, UTC.
    """

    gpu_model: str
    gpu_uuid: str
    units_total: int
    driver: str
    libraries: Mapping[str, str]
    checked: tuple[int, ...]
    wrong: Mapping[int, tuple[str, ...]]
    operations: tuple[str, ...]
    checked_at: str
    seconds: float

    @property
    def safe(self) -> tuple[int, ...]:
        """Counts at which every operation was right, sorted."""
        return tuple(sorted(set(self.checked) - set(self.wrong)))

    @property
    def unsafe(self) -> tuple[int, ...]:
        """Counts at which an operation was wrong, sorted."""
        return tuple(sorted(self.wrong))

    def without(self, counts: Iterable[int]) -> "CountCheck":
        """The same, with these counts not checked."""
        gone = set(counts)
        return replace(
            self,
            checked=tuple(count for count in self.checked if count not in gone),
            wrong={count: names for count, names in self.wrong.items() if count not in gone},
        )

    def differs_from(self, driver: str, libraries: Mapping[str, str]) -> str:
        """What has changed since, in words; versions that are not known now have not."""
        now = {"driver": driver, **libraries}
        then = {"driver": self.driver, **self.libraries}
        changed = [name for name in then if now.get(name, then[name]) != then[name]]
        return ", ".join(f"{name} {then[name]} then, {now[name]} now" for name in changed)


def check_for(gpu_model: str, checks: Iterable[CountCheck]) -> CountCheck | None:
    """What is known of a GPU model: the first check, and from later ones the counts it lacks."""
    of_model = [check for check in checks if check.gpu_model == gpu_model]
    return functools.reduce(_filled, of_model) if of_model else None


def wrong_elsewhere(gpu_model: str, checks: Iterable[CountCheck]) -> dict[int, tuple[str, ...]]:
    """Operations that were wrong on other models of as many SMs, and that were not tried on this.

    A library takes its kernels by the number of SMs: with the same versions, two models of as many
    SMs were wrong in the same operations at the same counts, as far as both were checked. Of checks
    of this model the first decides that has a count; without any, nothing is known.

    Returns:
        Names with the model on which they were wrong, by count.
    """
    every = list(checks)
    own = [check for check in every if check.gpu_model == gpu_model]
    found: dict[int, tuple[str, ...]] = {}
    for other in (check for check in every if check.gpu_model != gpu_model):
        for count, names in other.wrong.items():
            decides = next((check for check in own if count in check.checked), None)
            if decides is None or _kernels(decides) != _kernels(other):
                continue
            untried = (name for name in names if name not in decides.operations)
            new = (f"{name} on {other.gpu_model}" for name in untried)
            found[count] = (*found.get(count, ()), *new)
    return {count: names for count, names in found.items() if names}


def parse_check(text: bytes) -> CountCheck:
    """The check that `keep_check` wrote.

    Raises:
        ValueError: it is no check; says where.
    """
    check = read(CountCheck, text)
    known = set(check.operations)
    for count in check.checked:
        if not 0 < count <= check.units_total:
            raise ValueError(f"checked: no {count} of {check.units_total} SMs")
    for count, names in check.wrong.items():
        if count not in check.checked:
            raise ValueError(f"wrong.{count}: {count} SMs were not checked")
        if not names or not set(names) <= known:
            raise ValueError(f"wrong.{count}: not one or more of the operations")
    return check


CHECKS = RecordFolder(CHECKS_FOLDER, "advisor check", parse_check)
"""Of this host, by GPU model."""


def keep_check(check: CountCheck, home: Path) -> Path:
    """Write the check of its GPU model, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    return CHECKS.keep(check, home, check.gpu_model)


def _kernels(check: CountCheck) -> tuple[int, Mapping[str, str]]:
    return check.units_total, check.libraries


def _filled(first: CountCheck, other: CountCheck) -> CountCheck:
    more = other.without(first.checked)
    return replace(
        first,
        checked=tuple(sorted({*first.checked, *more.checked})),
        wrong={**first.wrong, **more.wrong},
        operations=tuple(dict.fromkeys((*first.operations, *other.operations))),
    )
