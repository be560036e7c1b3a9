"""Splits in percent at safe counts of units, and the sentences that say what was avoided. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from advisor.core.gpu import SM_QUANTUM, percent_for_units, units_for_percent
from advisor.core.wording import in_ranges, listed
from advisor.errors import UnsafeCountError
from advisor.validity.safe_counts import Safety, safe_split

_NAMED = 3
"""Operations that are named of those that were wrong."""

Shares: TypeAlias = tuple[float, float]
"""Of the first and of the second job, percent."""

LIBRARIES = "results of this host's libraries are wrong (advisor check)"

ANYWAY = "or ask for it all the same: --allow-unsafe, over HTTP allow_unsafe"


def safe_shares(
    wanted: Sequence[Shares], a: Safety, b: Safety, *, mirrored: bool = False
) -> tuple[Shares | None, ...]:
    """For each split the nearest one at safe counts of both jobs: itself where both are safe.

    A share whose count stays as it is keeps its percentage.

    Args:
        wanted: Splits in percent.
        a: What is known of the first job.
        b: What is known of the second job.
        mirrored: See `advisor.validity.safe_counts.safe_split`.

    Returns:
        None where there is no safe split at all.
    """
    total = a.units_total or b.units_total
    if total is None or not (a.unsafe or b.unsafe):
        return tuple(wanted)
    return tuple(_safe_shares(split, total, a, b, mirrored=mirrored) for split in wanted)


def safe_solo_shares(wanted: Sequence[float], safety: Safety) -> tuple[float, ...]:
    """For each share of a job alone the nearest safe one, each count once, ascending.

    The whole GPU stays: rates are relative to it. A share whose count stays keeps its percentage.
    """
    total = safety.units_total
    if total is None or not safety.unsafe:
        return tuple(wanted)
    kept = {units_for_percent(share, total): share for share in wanted}
    counts = {safety.nearest(units) for units in kept} | (kept.keys() & {total})
    known = sorted(units for units in counts if units is not None)
    return tuple(kept.get(units, float(percent_for_units(units, total))) for units in known)


def unsafe_texts(*asked: tuple[float, Safety]) -> tuple[str, ...]:
    """Why shares, each of a job of which so much is known, are not safe; empty where they are."""
    shares: dict[str, dict[float, int]] = {}
    for share, safety in asked:
        if units := _unsafe_units(share, safety):
            shares.setdefault(_cause(units, safety), {})[share] = units
    total = next((safety.units_total for _, safety in asked if safety.units_total), None)
    return tuple(
        f"{listed(f'{share:g} % is {units}' for share, units in unsafe.items())} of {total} SMs, "
        f"at which {cause}"
        for cause, unsafe in shares.items()
    )


def check_shares(shares: Shares, a: Safety, b: Safety, *, mirrored: bool = False) -> None:
    """Refuse a split that was asked for and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest safe split.
    """
    asked = (shares[0], a), (shares[1], b)
    if not (found := unsafe_texts(*asked)):
        return
    (near,) = safe_shares([shares], a, b, mirrored=mirrored)
    total = a.units_total or b.units_total or 0
    raise UnsafeCountError(
        "; ".join(found),
        why=_wrong_text(*asked),
        fix=f"take {_split_text(near, total)}, the nearest safe split, {ANYWAY}" if near else "",
    )


def check_share(share_percent: float, safety: Safety) -> None:
    """Refuse a share of one job alone that was asked for and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest two safe counts.
    """
    if not (found := unsafe_texts((share_percent, safety))):
        return
    near = listed(safety.around(_unsafe_units(share_percent, safety)))
    raise UnsafeCountError(
        "; ".join(found),
        why=_wrong_text((share_percent, safety)),
        fix=f"the nearest safe counts are {near} SMs (--units), {ANYWAY}" if near else "",
    )


def avoided_texts(
    wanted: Iterable[Shares], jobs: tuple[str, str], a: Safety, b: Safety
) -> Iterator[str]:
    """Which counts of the wanted splits are not used, and why."""
    total = a.units_total or b.units_total
    if total is None:
        return
    sides = zip(*wanted, strict=True)
    units = [sorted({units_for_percent(p, total) for p in side}) for side in sides]
    own: dict[str, list[int]] = {}
    by_host: set[int] = set()
    for job, counts, safety in zip(jobs, units, (a, b), strict=True):
        unsafe = [count for count in counts if count in safety.unsafe]
        own[job] = [count for count in unsafe if count in safety.wrong]
        by_host |= set(unsafe) - safety.wrong
    if by_host:
        counts = in_ranges(sorted(by_host), SM_QUANTUM)
        yield f"not used: {counts} of {total} SMs, at which {LIBRARIES}"
    for job, counts in own.items():
        if counts:
            what = f"not used for {job}: {in_ranges(counts, SM_QUANTUM)} of {total} SMs"
            yield f"{what}, at which its own results were wrong"


def unchecked_texts(shares: Shares, jobs: tuple[str, str], a: Safety, b: Safety) -> Iterator[str]:
    """Which counts of a split nobody has looked at, on a host where others were checked."""
    for job, share, safety in zip(jobs, shares, (a, b), strict=True):
        if safety.host is None or safety.units_total is None:
            continue
        if safety.is_unchecked(units := units_for_percent(share, safety.units_total)):
            yield f"at {units} SMs, which {job} gets, no result was checked: advisor check"


def moved_text(wanted: Sequence[float], safety: Safety) -> str:
    """Which shares of a job alone are moved to the nearest safe count, and why; empty: none is."""
    total = safety.units_total
    used = safe_solo_shares(wanted, safety)
    if total is None or not (moved := [share for share in wanted if share not in used]):
        return ""
    counts = [units_for_percent(share, total) for share in moved]
    causes = " or ".join(dict.fromkeys(_cause(units, safety) for units in counts))
    instead = listed(units_for_percent(share, total) for share in used if share not in wanted)
    verb = "is" if len(moved) == 1 else "are"
    return (
        f"{listed(f'{share:g}' for share in moved)} % {verb} {listed(counts)} of {total} SMs, "
        f"at which {causes}; measured at {instead} SMs instead"
    )


def _safe_shares(
    wanted: Shares, total: int, a: Safety, b: Safety, *, mirrored: bool
) -> Shares | None:
    units = units_for_percent(wanted[0], total), units_for_percent(wanted[1], total)
    found = safe_split(units, total, a, b, mirrored=mirrored)
    if found is None:
        return None
    shares = (
        share if count == asked else float(percent_for_units(count, total))
        for share, count, asked in zip(wanted, found, units, strict=True)
    )
    return next(shares), next(shares)


def _cause(units: int, safety: Safety) -> str:
    return "the job's own results were wrong" if units in safety.wrong else LIBRARIES


def _unsafe_units(share_percent: float, safety: Safety) -> int:
    """The count of a share, if it is unsafe; else 0."""
    if safety.units_total is None:
        return 0
    units = units_for_percent(share_percent, safety.units_total)
    return units if units in safety.unsafe else 0


def _wrong_text(*asked: tuple[float, Safety]) -> str:
    """The operations that were wrong at unsafe shares; empty where only a job's results were."""
    names: dict[str, None] = {}
    for share, safety in asked:
        if safety.host and (units := _unsafe_units(share, safety)):
            names |= dict.fromkeys(safety.host.wrong.get(units, ()))
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"wrong were {listed([*list(names)[:_NAMED], *more])}" if names else ""


def _split_text(shares: Shares, total: int) -> str:
    counts = "+".join(str(units_for_percent(share, total)) for share in shares)
    return f"{shares[0]:g}/{shares[1]:g} ({counts} SMs)"
