"""Whether a split that was asked for may be launched: only at safe counts, unless as asked."""

from collections.abc import Sequence
from pathlib import Path

from advisor.core.gpu import UNIT_NAMES, WHOLE, Vendor, units_for_share
from advisor.core.split import ADVISED_JOBS
from advisor.launch.spec import LaunchSet
from advisor.validity.safe_counts import (
    Safety,
    check_share,
    check_split,
    unchecked_texts,
    unsafe_texts,
)
from advisor_data.known import checked_counts


def over_subscribed(
    pair: LaunchSet, units_total: int | None, vendor: Vendor = "nvidia"
) -> tuple[str, ...]:
    """A word on limits that add up to more than the GPU, where each job has one."""
    if WHOLE in pair.split.shares:
        return ()
    shares, name = pair.split.shares, UNIT_NAMES[vendor]
    if units_total:
        units = [units_for_share(share, units_total, vendor) for share in shares]
        over = f"{sum(units)} of {units_total} {name}" if sum(units) > units_total else ""
    else:
        # Exact counts are asked for as whole percentages, rounded up: two of them can reach 101.
        over = f"{sum(shares):g} %" if sum(shares) >= WHOLE + 2 else ""
    if not over:
        return ()
    return (f"{pair.split} is over-subscribed: {over}, so the jobs compete for {name}",)


def count_notes(
    pair: LaunchSet, safeties: Sequence[Safety], *, allow_unsafe: bool, joins: bool = False
) -> tuple[str, ...]:
    """What is to be said of the counts at which jobs are limited; the last one may be to join.

    Raises:
        UnsafeCountError: a count is unsafe, and that was not asked for.
    """
    if not pair.split.is_limited:
        return ()
    names = [job.name for job in pair.jobs]
    if not allow_unsafe and joins:
        check_share(pair.split.shares[-1], safeties[-1], "--share")
    elif not allow_unsafe:
        _check(pair, safeties)
    unsafe = unsafe_texts(*zip(pair.split.shares, safeties, strict=True))
    return (
        *(f"{text}: launched as asked, and watched" for text in unsafe),
        *unchecked_texts(pair.split, names, safeties),
    )


def host_safety(home: Path, gpu_model: str | None, units_total: int | None) -> Safety:
    """What the check of this host says of any job; nothing where the GPU is not known.

    Raises:
        StoreError: it cannot be read.
    """
    host = checked_counts(home, gpu_model, units_total) if gpu_model else None
    return Safety(units_total=host.units_total, host=host) if host else Safety()


def _check(pair: LaunchSet, safeties: Sequence[Safety]) -> None:
    if len(pair.jobs) == ADVISED_JOBS:
        first, last = pair.jobs
        check_split(pair.split, safeties, mirrored=first.name > last.name)
        return
    # Limits of more jobs add up to more than the GPU: each is looked at by itself.
    for share, safety in zip(pair.split.shares, safeties, strict=True):
        check_share(share, safety, "--split")
