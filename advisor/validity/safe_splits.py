"""Splits in percent at safe counts of units, and the sentences that say what was avoided. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from advisor.core.gpu import WHOLE
from advisor.core.split import Split
from advisor.core.units import UNIT_NAMES, quantum, share_for_units, units_for_share
from advisor.core.wording import in_ranges, listed
from advisor.errors import UnsafeCountError
from advisor.validity.safe_counts import Safety, safe_counts

_NAMED = 3
"""Operations that are named of those that were wrong."""

LIBRARIES = "GPU libraries compute wrong results (advisor check)"

ANYWAY = "or ask for it all the same: --allow-unsafe, over HTTP allow_unsafe"


def safe_splits(
    wanted: Sequence[Split], safeties: Sequence[Safety], *, mirrored: bool = False
) -> tuple[Split | None, ...]:
    """For each split the nearest one at safe counts of all jobs: itself where all are safe.

    None where there is no safe split at all. A share whose count stays as it is keeps its
    percentage. For `mirrored` see `safe_counts`.
    """
    known = _known(safeties)
    if known.units_total is None or not any(s.unsafe for s in safeties):
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
    known = sorted(units for units in counts if units is not None)
    return tuple(
        kept[units] if units in kept else share_for_units(units, total, safety.vendor)
        for units in known
    )


def unsafe_texts(*asked: tuple[float, Safety]) -> tuple[str, ...]:
    """Reasons why these shares are unsafe, one sentence each; empty if safe."""
    shares: dict[str, dict[float, int]] = {}
    for share, safety in asked:
        if units := _unsafe_units(share, safety):
            shares.setdefault(_cause(units, safety), {})[share] = units
    of_gpu = next((_of_gpu(safety) for _, safety in asked if safety.units_total), "")
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
    asked = list(zip(split.shares, safeties, strict=True))
    if not (found := unsafe_texts(*asked)):
        return
    (near,) = safe_splits([split], safeties, mirrored=mirrored)
    text = _split_text(near, _known(safeties)) if near else ""
    raise UnsafeCountError(
        "; ".join(found),
        why=_wrong_text(*asked),
        fix=f"take {text}, the nearest safe split, {ANYWAY}" if near else "",
    )


def check_share(share_percent: float, safety: Safety, option: str = "--units") -> None:
    """Refuse a share of one job that was asked for by an option, and is not safe.

    Raises:
        UnsafeCountError: with the operations that were wrong, and the nearest two safe counts.
    """
    if not (found := unsafe_texts((share_percent, safety))):
        return
    around = safety.around(_unsafe_units(share_percent, safety))
    near, total = f"{listed(around)} {UNIT_NAMES[safety.vendor]}", safety.units_total or 0
    shares = (f"{share_for_units(count, total, safety.vendor):g} %" for count in around)
    option = option if option == "--units" else f"{listed(shares)} in {option}"
    raise UnsafeCountError(
        "; ".join(found),
        why=_wrong_text((share_percent, safety)),
        fix=f"the nearest safe counts are {near} ({option}), {ANYWAY}" if around else "",
    )


def avoided_texts(
    wanted: Iterable[Split], jobs: Sequence[str], safeties: Sequence[Safety]
) -> Iterator[str]:
    """Which counts of the wanted splits are not used, and why."""
    known = _known(safeties)
    if known.units_total is None:
        return
    total, vendor = known.units_total, known.vendor
    of_gpu, step = _of_gpu(known), quantum(total, vendor)
    sides = zip(*(split.shares for split in wanted), strict=True)
    units = [sorted({units_for_share(p, total, vendor) for p in side}) for side in sides]
    own: dict[str, list[int]] = {}
    by_host: set[int] = set()
    for job, counts, safety in zip(jobs, units, safeties, strict=True):
        unsafe = [count for count in counts if count in safety.unsafe]
        own[job] = [count for count in unsafe if count in safety.wrong]
        by_host |= set(unsafe) - safety.wrong
    if by_host:
        yield f"not used: {in_ranges(sorted(by_host), step)} {of_gpu}, at which {LIBRARIES}"
    for job, counts in own.items():
        if counts:
            what = f"not used for {job}: {in_ranges(counts, step)} {of_gpu}"
            yield f"{what}, at which its own results were wrong"


def unchecked_texts(split: Split, jobs: Sequence[str], safeties: Sequence[Safety]) -> Iterator[str]:
    """Which counts of a split nobody has looked at, on a host where others were checked."""
    for job, share, safety in zip(jobs, split.shares, safeties, strict=True):
        if share == WHOLE or safety.host is None or safety.units_total is None:
            continue
        units = units_for_share(share, safety.units_total, safety.vendor)
        if safety.is_unchecked(units):
            at = f"at {units} {UNIT_NAMES[safety.vendor]}"
            yield f"{at}, which {job} gets, no result was checked: advisor check"


def moved_text(wanted: Sequence[float], safety: Safety) -> str:
    """Which shares of a job alone are moved to the nearest safe count, and why; empty: none is."""
    total = safety.units_total
    used = safe_solo_shares(wanted, safety)
    if total is None or not (moved := [share for share in wanted if share not in used]):
        return ""
    counts = [units_for_share(share, total, safety.vendor) for share in moved]
    causes = " or ".join(dict.fromkeys(_cause(units, safety) for units in counts))
    new = (share for share in used if share not in wanted)
    instead = listed(units_for_share(share, total, safety.vendor) for share in new)
    verb = "is" if len(moved) == 1 else "are"
    return (
        f"{listed(f'{share:g}' for share in moved)} % {verb} {listed(counts)} {_of_gpu(safety)}, "
        f"at which {causes}; measured at {instead} {UNIT_NAMES[safety.vendor]} instead"
    )


def _safe_split(split: Split, safeties: Sequence[Safety], *, mirrored: bool) -> Split | None:
    known = _known(safeties)
    total, vendor = known.units_total or 0, known.vendor
    asked = tuple(units_for_share(share, total, vendor) for share in split.shares)
    found = safe_counts(asked, total, safeties, mirrored=mirrored)
    if found is None or found == asked:
        return split if found else None
    of_jobs = zip(split.shares, found, asked, strict=True)
    return Split(
        tuple(
            share if count == before else share_for_units(count, total, vendor)
            for share, count, before in of_jobs
        )
    )


def _known(safeties: Sequence[Safety]) -> Safety:
    """The first one of which the number of units is known; else any."""
    return next((s for s in safeties if s.units_total), safeties[-1])


def _cause(units: int, safety: Safety) -> str:
    return "the job's own results were wrong" if units in safety.wrong else LIBRARIES


def _unsafe_units(share_percent: float, safety: Safety) -> int:
    """The count of a share, if it is unsafe; else 0."""
    if safety.units_total is None:
        return 0
    units = units_for_share(share_percent, safety.units_total, safety.vendor)
    return units if units in safety.unsafe else 0


def _wrong_text(*asked: tuple[float, Safety]) -> str:
    """The operations that were wrong at unsafe shares; empty where only a job's results were."""
    names: dict[str, None] = {}
    for share, safety in asked:
        if safety.host and (units := _unsafe_units(share, safety)):
            names |= dict.fromkeys(safety.host.wrong.get(units, ()))
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"wrong were {listed([*list(names)[:_NAMED], *more])}" if names else ""


def _split_text(split: Split, known: Safety) -> str:
    total, vendor = known.units_total or 0, known.vendor
    counts = "+".join(str(units_for_share(share, total, vendor)) for share in split.shares)
    return f"{split} ({counts} {UNIT_NAMES[vendor]})"


def _of_gpu(safety: Safety) -> str:
    return f"of {safety.units_total} {UNIT_NAMES[safety.vendor]}"
