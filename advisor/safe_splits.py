"""Splits in percent at safe counts of units, and the sentences that say what was avoided. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from advisor.errors import UnsafeCountError
from advisor.gpu import percent_for_units, units_for_percent
from advisor.safe_counts import Safety, safe_split
from advisor.wording import listed

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
        mirrored: See `advisor.safe_counts.safe_split`.

    Returns:
        None where there is no safe split at all.
    """
    total = a.units_total or b.units_total
    if total is None or not (a.unsafe or b.unsafe):
        return tuple(wanted)
    return tuple(_safe_shares(split, total, a, b, mirrored=mirrored) for split in wanted)


def safe_counts(wanted: Iterable[int], safety: Safety) -> tuple[int, ...]:
    """The safe count nearest to each of these, each once, ascending."""
    found = (safety.nearest(units) for units in wanted)
    return tuple(sorted({units for units in found if units is not None}))


def unsafe_text(share_percent: float, safety: Safety) -> str:
    """Why a share is not safe: the middle of a sentence. Empty where it is."""
    total = safety.units_total
    if total is None or (units := units_for_percent(share_percent, total)) not in safety.unsafe:
        return ""
    return f"{share_percent:g} % is {units} of {total} SMs, at which {_cause(units, safety)}"


def unsafe_shares(shares: Shares, a: Safety, b: Safety) -> tuple[str, ...]:
    """Why a split is not safe, once for each unsafe share; empty where it is."""
    found = (unsafe_text(share, safety) for share, safety in zip(shares, (a, b), strict=True))
    return tuple(dict.fromkeys(filter(None, found)))


def check_shares(shares: Shares, a: Safety, b: Safety, *, mirrored: bool = False) -> None:
    """Refuse a split that was asked for and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest safe split.
    """
    if not (found := unsafe_shares(shares, a, b)):
        return
    wrong = (_wrong_at(share, safety) for share, safety in zip(shares, (a, b), strict=True))
    names = dict.fromkeys(name for of_job in wrong for name in of_job)
    (near,) = safe_shares([shares], a, b, mirrored=mirrored)
    total = a.units_total or b.units_total or 0
    raise UnsafeCountError(
        "; ".join(found),
        why=f"wrong were {listed(names)}" if names else "",
        fix=f"take {_split_text(near, total)}, the nearest safe split, {ANYWAY}" if near else "",
    )


def check_share(share_percent: float, safety: Safety) -> None:
    """Refuse a share of one job alone that was asked for and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest two safe counts.
    """
    if not (found := unsafe_text(share_percent, safety)):
        return
    names = _wrong_at(share_percent, safety)
    near = listed(safety.around(units_for_percent(share_percent, safety.units_total or 0)))
    raise UnsafeCountError(
        found,
        why=f"wrong were {listed(names)}" if names else "",
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
        yield f"not used are {listed(sorted(by_host))} of {total} SMs, at which {LIBRARIES}"
    for job, counts in own.items():
        if counts:
            what = f"not used for {job} are {listed(counts)} of {total} SMs"
            yield f"{what}, at which its own results were wrong"


def unchecked_texts(shares: Shares, jobs: tuple[str, str], a: Safety, b: Safety) -> Iterator[str]:
    """Which counts of a split nobody has looked at, on a host where others were checked."""
    for job, share, safety in zip(jobs, shares, (a, b), strict=True):
        if safety.host is None or safety.units_total is None:
            continue
        if safety.is_unchecked(units := units_for_percent(share, safety.units_total)):
            yield f"at {units} SMs, which {job} gets, no result was checked: advisor check"


def moved_text(wanted: Iterable[float], used: Iterable[int], safety: Safety) -> str:
    """Which shares of a job alone are not measured, and what is instead; empty where all are."""
    total = safety.units_total
    if total is None:
        return ""
    units = {share: units_for_percent(share, total) for share in wanted}
    unsafe = {share: count for share, count in units.items() if count in safety.unsafe}
    if not unsafe:
        return ""
    shares, counts = listed(f"{share:g}" for share in unsafe), listed(unsafe.values())
    causes = " or ".join(dict.fromkeys(_cause(count, safety) for count in unsafe.values()))
    new = sorted(set(used) - set(units.values()))
    instead = f"; measured at {listed(new)} SMs instead" if new else "; left out"
    verb = "is" if len(unsafe) == 1 else "are"
    return f"{shares} % {verb} {counts} of {total} SMs, at which {causes}{instead}"


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


def _wrong_at(share_percent: float, safety: Safety) -> tuple[str, ...]:
    """The operations with wrong results; none where the share is safe or only the job's were."""
    if not unsafe_text(share_percent, safety) or safety.host is None:
        return ()
    units = units_for_percent(share_percent, safety.host.units_total)
    return safety.host.wrong.get(units, ())


def _split_text(shares: Shares, total: int) -> str:
    counts = "+".join(str(units_for_percent(share, total)) for share in shares)
    return f"{shares[0]:g}/{shares[1]:g} ({counts} SMs)"
