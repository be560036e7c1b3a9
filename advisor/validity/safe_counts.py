"""Counts of compute units at which the libraries of a host compute right results.

Under MPS with a limited number of SMs a library may leave parts of a result out, at some counts and
not at others. `advisor check` finds them out; what a job says of its own results goes before that.

Under a limited number of SMs some kernels leave parts of their result unwritten (docs/check.md).
`advisor check` finds the counts at which that happens and keeps what it found in one file for each
GPU model.
"""

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from advisor.core.gpu import (
    UNIT_NAMES,
    WHOLE,
    Split,
    Vendor,
    grantable,
    quantum,
    share_for_units,
    units_for_share,
)
from advisor.core.wording import in_ranges, listed
from advisor.errors import UnsafeCountError
from advisor.formats.wire import RecordFolder, read

# Units of each job.
_Counts: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCounts:
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
    libraries: Mapping[str, str] = field(hash=False)
    checked: tuple[int, ...]
    wrong: Mapping[int, tuple[str, ...]] = field(hash=False)
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

    def without(self, counts: Iterable[int]) -> "CheckedCounts":
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


@dataclass(frozen=True, kw_only=True)
class Safety:
    """What is known of the counts at which one job may run; by default nothing.

    Attributes:
        units_total: SMs or CUs of the GPU; None where they are not known, and nothing is avoided
            then.
        vendor: Of the GPU: it says which counts can be granted.
        host: What the check of this host found; None: there was none.
        right: Counts at which the job's own results were right; they go before the check.
        wrong: Counts at which its own results were wrong; they go before both.
    """

    units_total: int | None = None
    host: CheckedCounts | None = None
    right: frozenset[int] = field(default=frozenset())
    wrong: frozenset[int] = field(default=frozenset())
    vendor: Vendor = "nvidia"

    @functools.cached_property
    def unsafe(self) -> frozenset[int]:
        """Counts at which the job must not run."""
        by_host = frozenset(self.host.unsafe if self.host else ()) - self.right
        return frozenset[int]() if self.units_total is None else by_host | self.wrong

    @functools.cached_property
    def allowed(self) -> tuple[int, ...]:
        """All counts that can be granted and that are not unsafe, ascending."""
        counts = grantable(self.units_total, self.vendor) if self.units_total else ()
        return tuple(units for units in counts if units not in self.unsafe)

    def is_unchecked(self, units: int) -> bool:
        """Whether results at this count were not checked; it is allowed all the same."""
        checked = self.host.checked if self.host else ()
        return units not in {*self.right, *self.wrong, *checked}

    def nearest(self, units: int) -> int | None:
        """The allowed count nearest to this one, of two the smaller; None: there is none."""
        return min(self.allowed, key=lambda count: (abs(count - units), count), default=None)

    def around(self, units: int) -> tuple[int, ...]:
        """The next allowed counts below and above this one, as far as there are any."""
        below = [count for count in self.allowed if count <= units]
        return (*below[-1:], *[count for count in self.allowed if count > units][:1])


def safe_counts(
    wanted: _Counts, units_total: int, safeties: Sequence[Safety], *, mirrored: bool = False
) -> _Counts | None:
    """The allowed counts of jobs that are nearest to the wanted ones.

    Nearest by the sum of all distances; of equally near ones the larger sum, then the more even,
    then the one that gives more to the job that was to have more.

    Args:
        wanted: Counts of all jobs.
        units_total: SMs of the GPU; all counts together never exceed them.
        safeties: What is known of each job.
        mirrored: Of two mirror images that are left then, the one that gives the last job less,
            not the first. Set for one order of two jobs and not for the other, the answer does not
            depend on which job is called the first.

    Returns:
        None where no allowed counts fit on the GPU.
    """
    # Of a job whose number of SMs is not known nothing is avoided.
    every = grantable(units_total)
    allowed = tuple(every if s.units_total is None else s.allowed for s in safeties)
    return _nearest(wanted, units_total, allowed, mirrored)


# The same few splits are asked for with every pair of jobs.
@functools.lru_cache(maxsize=4096)
def _nearest(
    wanted: _Counts, units_total: int, allowed: tuple[_Counts, ...], mirrored: bool
) -> _Counts | None:
    def apart(counts: _Counts) -> int:
        return sum(map(abs, map(operator.sub, counts, wanted)))

    def order(counts: _Counts) -> tuple[int, int, int, _Counts]:
        gap = max(counts) - min(counts)
        return -sum(counts), gap, _turned(counts, wanted), counts[::-1] if mirrored else counts

    near = _near(wanted, units_total, allowed)
    fitting = [c for c in itertools.product(*near) if sum(c) <= units_total]
    nearest = min(map(apart, fitting), default=0)
    return min((c for c in fitting if apart(c) == nearest), key=order, default=None)


def _near(wanted: _Counts, units_total: int, allowed: tuple[_Counts, ...]) -> tuple[_Counts, ...]:
    """Of each job the allowed counts that can be among the nearest: pairs of all are thousands.

    Where the wanted counts fit, so do the allowed ones next below them; a count that is farther off
    than these are together is not among the nearest.
    """
    jobs = tuple(zip(allowed, wanted, strict=True))
    below = [[count for count in counts if count <= units] for counts, units in jobs]
    if sum(wanted) > units_total or not all(below):
        return allowed
    most = sum(wanted) - sum(map(max, below))
    return tuple(tuple(n for n in counts if abs(n - units) <= most) for counts, units in jobs)


def _turned(counts: _Counts, wanted: _Counts) -> int:
    """Index pairs whose order of shares was inverted by rounding to safe counts."""
    pairs = itertools.combinations(zip(counts, wanted, strict=True), 2)
    return sum(
        (count - other) * (wanted - other_wanted) < 0
        for (count, wanted), (other, other_wanted) in pairs
    )


def check_for(gpu_model: str, checks: Iterable[CheckedCounts]) -> CheckedCounts | None:
    """What is known of a GPU model: the first check, and from later ones the counts it lacks."""
    of_model = [check for check in checks if check.gpu_model == gpu_model]
    return functools.reduce(_filled, of_model) if of_model else None


def wrong_elsewhere(gpu_model: str, checks: Iterable[CheckedCounts]) -> dict[int, tuple[str, ...]]:
    """Operations that were wrong on other models of as many SMs, and that were not tried on this.

    A library takes its kernels by the number of SMs: with the same versions, two models of as many
    SMs were wrong in the same operations at the same counts, as far as both were checked. Of checks
    of this model the first decides that has a count; without any, nothing is known.

    Returns:
        Names with the model on which they were wrong, by count.
    """
    every = list(checks)
    model_checks = [check for check in every if check.gpu_model == gpu_model]
    wrong: dict[int, tuple[str, ...]] = {}
    for other in (check for check in every if check.gpu_model != gpu_model):
        for count, names in other.wrong.items():
            decides = next((check for check in model_checks if count in check.checked), None)
            alike = decides and (decides.units_total, decides.libraries)
            if decides is None or alike != (other.units_total, other.libraries):
                continue
            new = (f"{n} on {other.gpu_model}" for n in names if n not in decides.operations)
            wrong[count] = (*wrong.get(count, ()), *new)
    return {count: names for count, names in wrong.items() if names}


def _parse_check(text: bytes) -> CheckedCounts:
    """The check that `keep_check` wrote.

    Raises:
        ValueError: it is no check; says where.
    """
    check = read(CheckedCounts, text)
    operations = set(check.operations)
    for count in check.checked:
        if not 0 < count <= check.units_total:
            raise ValueError(f"checked: no {count} of {check.units_total} SMs")
    for count, names in check.wrong.items():
        if count not in check.checked:
            raise ValueError(f"wrong.{count}: {count} SMs were not checked")
        if not names or not set(names) <= operations:
            raise ValueError(f"wrong.{count}: not one or more of the operations")
    return check


CHECKS = RecordFolder("checks", "advisor check", _parse_check)
"""Of this host, by GPU model."""


def keep_check(check: CheckedCounts, home: Path) -> Path:
    """Write the check of its GPU model, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    return CHECKS.keep(check, home, check.gpu_model)


def _filled(first: CheckedCounts, other: CheckedCounts) -> CheckedCounts:
    more = other.without(first.checked)
    return replace(
        first,
        checked=tuple(sorted({*first.checked, *more.checked})),
        wrong={**first.wrong, **more.wrong},
        operations=tuple(dict.fromkeys((*first.operations, *other.operations))),
    )


# Operations that are named of those that were wrong.
_NAMED = 3

_LIBRARIES = "GPU libraries compute wrong results (advisor check)"

_ANYWAY = "or ask for it all the same: --allow-unsafe, over HTTP allow_unsafe"


def safe_splits(
    wanted: Sequence[Split], safeties: Sequence[Safety], *, mirrored: bool = False
) -> tuple[Split | None, ...]:
    """For each split the nearest one at safe counts of all jobs: itself where all are safe.

    None where there is no safe split at all. A share whose count stays as it is keeps its
    percentage. For `mirrored` see `safe_counts`.
    """
    if _with_units(safeties).units_total is None or not any(s.unsafe for s in safeties):
        return tuple(wanted)
    return tuple(_safe_split(split, safeties, mirrored=mirrored) for split in wanted)


def safe_solo_shares(wanted: Sequence[float], safety: Safety) -> tuple[float, ...]:
    """For each share of a job alone the nearest safe one, each count once, ascending.

    The whole GPU stays: rates are relative to it. A share whose count stays keeps its percentage.
    """
    total = safety.units_total
    if total is None or not safety.unsafe:
        return tuple(wanted)
    kept = {units_for_share(share, total, safety.vendor): share for share in wanted}
    counts = {safety.nearest(units) for units in kept} | (kept.keys() & {total})
    return tuple(
        kept[units] if units in kept else share_for_units(units, total, safety.vendor)
        for units in sorted(units for units in counts if units is not None)
    )


def unsafe_texts(*limits: tuple[float, Safety]) -> tuple[str, ...]:
    """Reasons why these shares are unsafe, one sentence each; empty if safe."""
    shares: dict[str, dict[float, int]] = {}
    for share, safety in limits:
        if units := _unsafe_units(share, safety):
            shares.setdefault(_cause(units, safety), {})[share] = units
    of_gpu = next((_of_gpu(safety) for _, safety in limits if safety.units_total), "")
    return tuple(
        f"{listed(f'{share:g} % is {units}' for share, units in unsafe.items())} {of_gpu}, "
        f"at which {cause}"
        for cause, unsafe in shares.items()
    )


def check_split(split: Split, safeties: Sequence[Safety], *, mirrored: bool = False) -> None:
    """Refuse a split that was asked for and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest safe split.
    """
    limits = list(zip(split.shares, safeties, strict=True))
    if not (texts := unsafe_texts(*limits)):
        return
    (near,) = safe_splits([split], safeties, mirrored=mirrored)
    safety, shares = _with_units(safeties), near.shares if near else ()
    total, vendor = safety.units_total or 0, safety.vendor
    counts = "+".join(str(units_for_share(share, total, vendor)) for share in shares)
    fix = f"take {near} ({counts} {UNIT_NAMES[vendor]}), the nearest safe split, {_ANYWAY}"
    raise UnsafeCountError("; ".join(texts), why=_wrong_text(*limits), fix=fix if near else "")


def check_share(share_percent: float, safety: Safety, option: str = "--units") -> None:
    """Refuse a share of one job that was asked for by an option, and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest two safe counts.
    """
    if not (texts := unsafe_texts((share_percent, safety))):
        return
    around = safety.around(_unsafe_units(share_percent, safety))
    near, total = f"{listed(around)} {UNIT_NAMES[safety.vendor]}", safety.units_total or 0
    shares = (f"{share_for_units(count, total, safety.vendor):g} %" for count in around)
    option = option if option == "--units" else f"{listed(shares)} in {option}"
    raise UnsafeCountError(
        "; ".join(texts),
        why=_wrong_text((share_percent, safety)),
        fix=f"the nearest safe counts are {near} ({option}), {_ANYWAY}" if around else "",
    )


def avoided_texts(
    wanted: Iterable[Split], jobs: Sequence[str], safeties: Sequence[Safety]
) -> Iterator[str]:
    """Which counts of the wanted splits are not used, and why."""
    sized = _with_units(safeties)
    if sized.units_total is None:
        return
    total, vendor = sized.units_total, sized.vendor
    of_gpu, step = _of_gpu(sized), quantum(total, vendor)
    units = [
        sorted({units_for_share(share, total, vendor) for share in of_job})
        for of_job in zip(*(split.shares for split in wanted), strict=True)
    ]
    unsafe_by_job: dict[str, list[int]] = {}
    by_host: set[int] = set()
    for job, counts, safety in zip(jobs, units, safeties, strict=True):
        unsafe = [count for count in counts if count in safety.unsafe]
        unsafe_by_job[job] = [count for count in unsafe if count in safety.wrong]
        by_host |= set(unsafe) - safety.wrong
    if by_host:
        yield f"not used: {in_ranges(sorted(by_host), step)} {of_gpu}, at which {_LIBRARIES}"
    for job, counts in unsafe_by_job.items():
        if counts:
            yield (
                f"not used for {job}: {in_ranges(counts, step)} {of_gpu}, at which its own results "
                "were wrong"
            )


def unchecked_texts(split: Split, jobs: Sequence[str], safeties: Sequence[Safety]) -> Iterator[str]:
    """Unchecked counts of a split, on a host where others were checked."""
    for job, share, safety in zip(jobs, split.shares, safeties, strict=True):
        if share == WHOLE or safety.host is None or safety.units_total is None:
            continue
        units = units_for_share(share, safety.units_total, safety.vendor)
        if safety.is_unchecked(units):
            yield (
                f"at {units} {UNIT_NAMES[safety.vendor]}, which {job} gets, no result was checked: "
                "advisor check"
            )


def moved_text(wanted: Sequence[float], safety: Safety) -> str:
    """Which shares of a job alone are moved to the nearest safe count, and why; empty: none is."""
    total = safety.units_total
    used = safe_solo_shares(wanted, safety)
    if total is None or not (moved := [share for share in wanted if share not in used]):
        return ""
    counts = [units_for_share(share, total, safety.vendor) for share in moved]
    causes = " or ".join(dict.fromkeys(_cause(units, safety) for units in counts))
    instead = listed(
        units_for_share(share, total, safety.vendor) for share in used if share not in wanted
    )
    verb = "is" if len(moved) == 1 else "are"
    return (
        f"{listed(f'{share:g}' for share in moved)} % {verb} {listed(counts)} {_of_gpu(safety)}, "
        f"at which {causes}; measured at {instead} {UNIT_NAMES[safety.vendor]} instead"
    )


def _safe_split(split: Split, safeties: Sequence[Safety], *, mirrored: bool) -> Split | None:
    safety = _with_units(safeties)
    total, vendor = safety.units_total or 0, safety.vendor
    requested = tuple(units_for_share(share, total, vendor) for share in split.shares)
    counts = safe_counts(requested, total, safeties, mirrored=mirrored)
    if counts is None or counts == requested:
        return split if counts else None
    return Split(
        tuple(
            share if count == before else share_for_units(count, total, vendor)
            for share, count, before in zip(split.shares, counts, requested, strict=True)
        )
    )


def _with_units(safeties: Sequence[Safety]) -> Safety:
    """The first one of which the number of units is known; else any."""
    return next((s for s in safeties if s.units_total), safeties[-1])


def _cause(units: int, safety: Safety) -> str:
    return "the job's own results were wrong" if units in safety.wrong else _LIBRARIES


def _unsafe_units(share_percent: float, safety: Safety) -> int:
    """The count of a share, if it is unsafe; else 0."""
    total = safety.units_total
    units = units_for_share(share_percent, total, safety.vendor) if total else 0
    return units if units in safety.unsafe else 0


def _wrong_text(*limits: tuple[float, Safety]) -> str:
    """The operations that were wrong at unsafe shares; empty where only a job's results were."""
    names = dict.fromkeys(
        name
        for share, safety in limits
        if safety.host and (units := _unsafe_units(share, safety))
        for name in safety.host.wrong.get(units, ())
    )
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"wrong were {listed([*list(names)[:_NAMED], *more])}" if names else ""


def _of_gpu(safety: Safety) -> str:
    return f"of {safety.units_total} {UNIT_NAMES[safety.vendor]}"
