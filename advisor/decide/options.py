"""Every option of sharing a GPU that is looked at, for two to seven jobs. Pure.

No limits, limits for those that fill the GPU, the same limit for everybody, time slicing, and a GPU
for each job; of two jobs the nine splits too, and a job that fills the GPU below normal priority.
All limits are at counts of SMs or CUs at which libraries compute right results
(docs/measurements/results.md).
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.core.gpu import (
    ADVISED_JOBS,
    MOST_JOBS,
    NINE,
    SHARINGS,
    UNIT_NAMES,
    WHOLE,
    Sharing,
    Split,
    can_be_masked,
    fine_splits,
    share_for_units,
    units_for_share,
    vendor_of,
    without_limits,
)
from advisor.errors import InputError
from advisor.predict.predictions import is_within, safe_splits_of
from advisor.predict.profiles import Profile
from advisor.predict.sets import fills, why_not_below_normal
from advisor.validity.safe_counts import CheckedCounts

MOST_WAYS = 60
"""With limits: the levels of each job that fills are spread evenly, so that all of its options
together are no more. One such job is looked at under each safe count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Jobs that run together and keep their shares, beside which another one is to run.

    Attributes:
        cap_percent: The largest share that the newcomer can get.
    """

    split: Split
    cap_percent: float


def options_of(
    profiles: Sequence[Profile],
    checked: CheckedCounts | None = None,
    measured: Iterable[Split] = (),
    *,
    fine: bool = False,
    most_ways: int = MOST_WAYS,
    running: Running | None = None,
) -> tuple[Split, ...]:
    """Every option, limited ones first, a GPU for each job last.

    Args:
        profiles: Of the jobs, on one GPU model.
        checked: What the check of the GPU model found.
        measured: Splits at which these jobs were measured together; kept where they are safe.
        fine: Of two jobs every split in steps of the GPU's quantum, too.
        most_ways: Most options with a limit for those that fill.
        running: All but the last job run already: only the share of that one is open.

    Raises:
        InputError: fine splits of more than two jobs, or of a GPU whose units are not known.
    """
    is_amd = vendor_of(profiles[0].gpu_model) == "amd"
    if running is not None:
        found = _joining(running, profiles, checked)
    else:
        # AMD GPUs have no time slicing to choose: without masks processes run side by side.
        free: tuple[Sharing, ...] = ("uncapped",) if is_amd else ("uncapped", "time-sliced")
        found = itertools.chain(
            _of_two(profiles, checked, fine=fine),
            _for_everybody(profiles, checked),
            _for_filling(profiles, checked, most_ways),
            below_normal(profiles, checked),
            (without_limits(sharing, len(profiles)) for sharing in free),
            _safe(measured, profiles, checked),
        )
    kept = {split for split in found if not is_amd or can_be_masked(split)}
    kept.add(without_limits("exclusive", len(profiles)))
    return tuple(sorted(kept, key=lambda s: (SHARINGS.index(s.sharing), s.below_normal, s.shares)))


def wanted_splits(profiles: Sequence[Profile], *, fine: bool) -> tuple[Split, ...]:
    """The splits of two jobs before any is replaced by a safe one, or left out."""
    if len(profiles) != ADVISED_JOBS:
        return ()
    return (*NINE, *_unit_splits(profiles)) if fine else NINE


def _of_two(
    profiles: Sequence[Profile], checked: CheckedCounts | None, *, fine: bool
) -> Iterator[Split]:
    """In the place of a split with an unsafe count stands the nearest safe one."""
    if fine and len(profiles) != ADVISED_JOBS:
        raise InputError(
            f"fine splits are of {ADVISED_JOBS} jobs, not of {len(profiles)}",
            fix="leave them out, or name two jobs",
        )
    for split in safe_splits_of(profiles, wanted_splits(profiles, fine=fine), checked):
        if split and is_within(split, profiles):
            yield split


def _unit_splits(profiles: Sequence[Profile]) -> tuple[Split, ...]:
    gpu_model = profiles[0].gpu_model
    vendor = vendor_of(gpu_model)
    total = next((p.units_total for p in profiles if p.units_total), None)
    if total is None:
        raise InputError(
            f"the number of {UNIT_NAMES[vendor]} of {gpu_model} is not known",
            why="no point of the profiles has units_total",
            fix="leave out the fine splits",
        )
    return fine_splits(total, vendor)


def _for_everybody(profiles: Sequence[Profile], checked: CheckedCounts | None) -> Iterator[Split]:
    """The same limit for all, at the largest safe counts that together fit the GPU."""
    shares = [_even_share(profile, checked, len(profiles)) for profile in profiles]
    if None not in shares:
        yield Split(tuple(share for share in shares if share))


@functools.lru_cache(maxsize=4096)
def _even_share(profile: Profile, checked: CheckedCounts | None, jobs: int) -> float | None:
    """The largest share of which so many jobs have units of their own; None: there is none."""
    safety, limits = profile.safety(checked), _limits(profile, checked)
    if (total := safety.units_total) is None:
        return max((share for share in limits if share * jobs <= WHOLE), default=None)
    units = {share: units_for_share(share, total, safety.vendor) for share in limits}
    return max((share for share in limits if units[share] * jobs <= total), default=None)


def _for_filling(
    profiles: Sequence[Profile], checked: CheckedCounts | None, most_ways: int
) -> Iterator[Split]:
    """Limits for some or all of those that fill the GPU, side by side; the others have none."""
    seats: dict[str, list[int]] = {}
    for seat, profile in enumerate(profiles):
        if fills(profile):
            seats.setdefault(profile.job, []).append(seat)
    if not seats:
        return
    most_levels = _most_levels(tuple(map(len, seats.values())), most_ways)
    choices: list[Iterable[tuple[float, ...]]] = []
    for own in seats.values():
        limits = _limits(profiles[own[0]], checked)
        levels = (*_spread(limits, most_levels - 1), WHOLE)
        choices.append(itertools.combinations_with_replacement(levels, len(own)))
    for chosen in itertools.product(*choices):
        shares = [WHOLE] * len(profiles)
        for own, of_copies in zip(seats.values(), chosen, strict=True):
            for seat, share in zip(own, of_copies, strict=True):
                shares[seat] = share
        limits = [share for share in shares if share < WHOLE]
        # Limits that overlap each other were never measured.
        if limits and sum(limits) <= WHOLE + 1:
            yield Split(tuple(shares))


_BELOW_NORMAL_ON = "NVIDIA H200"
"""Pairs were measured with priority on this GPU model alone, without a limit for the job below
normal and with one of 50 %."""

_NEAR_HALF = 10.0
"""Percent that the safe limit for the latter may be off."""


def below_normal(
    profiles: Sequence[Profile], checked: CheckedCounts | None = None
) -> tuple[Split, ...]:
    """Two jobs of which one fills the GPU, below normal priority; none where that gives nothing."""
    seats = tuple(seat for seat, profile in enumerate(profiles) if fills(profile))
    if len(profiles) != ADVISED_JOBS or len(seats) != 1:
        return ()
    free = Split((WHOLE,) * len(profiles), "uncapped", seats)
    is_known = profiles[0].gpu_model == _BELOW_NORMAL_ON and all(p.kernels for p in profiles)
    if not is_known or why_not_below_normal(profiles, free):
        return ()
    limits = _limits(profiles[seats[0]], checked)
    half = min(limits, key=lambda share: abs(share - 50), default=WHOLE)
    if abs(half - 50) > _NEAR_HALF:
        return (free,)
    shares = tuple(half if seat in seats else WHOLE for seat in range(len(profiles)))
    return free, Split(shares, below_normal=seats)


def _joining(
    running: Running, profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Every share that the last job can get, none among them where nothing bounds it.

    None beside a job below normal priority where that was not measured.
    """
    limits = _limits(profiles[-1], checked) if running.split.is_limited else ()
    for share in (*limits, WHOLE):
        split = running.split.joined_by(share)
        is_known = not split.below_normal or not why_not_below_normal(profiles, split)
        if share <= running.cap_percent and is_known:
            yield split


@functools.cache
def _most_levels(copies: tuple[int, ...], most_ways: int) -> int:
    """How many levels each job that fills may have, no limit among them; of copies, so many each.

    Which of several copies has which limit makes no difference.
    """
    return max(
        (
            levels
            for levels in range(2, most_ways + 1)
            if math.prod(math.comb(levels + n - 1, n) for n in copies) <= most_ways
        ),
        default=1,
    )


def _safe(
    splits: Iterable[Split], profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Those of the splits at which no job has an unsafe count, nor a priority of no known use."""
    safeties = [profile.safety(checked) for profile in profiles]
    for split in splits:
        if split.below_normal and why_not_below_normal(profiles, split):
            continue
        seats = zip(split.shares, safeties, strict=True)
        if not any(
            share < WHOLE
            and s.units_total
            and units_for_share(share, s.units_total, s.vendor) in s.unsafe
            for share, s in seats
        ):
            yield split


@functools.lru_cache(maxsize=4096)
def _limits(profile: Profile, checked: CheckedCounts | None) -> tuple[float, ...]:
    """Limits of one job at safe counts, ascending, as far as its profile reaches."""
    safety, least = profile.safety(checked), float(profile.shares[0])
    total = safety.units_total
    if total is None:
        shares = [float(share) for share in range(10, 100, 10)]
    else:
        allowed = (units for units in safety.allowed if units < total)
        shares = [share_for_units(units, total, safety.vendor) for units in allowed]
    return tuple(share for share in shares if least <= share < WHOLE)


def _spread(shares: Sequence[float], most: int) -> list[float]:
    if len(shares) <= most:
        return list(shares)
    return [shares[round((n + 0.5) * len(shares) / most - 0.5)] for n in range(most)]


def check_set(jobs: int) -> None:
    """Refuse more jobs than sets were measured of, or fewer.

    Raises:
        InputError: so many jobs.
    """
    if not ADVISED_JOBS <= jobs <= MOST_JOBS:
        raise InputError(
            f"there is no advice for {jobs} job{'s' if jobs != 1 else ''} on one GPU",
            why=f"sets of two to {MOST_JOBS} were measured",
            fix="name two to seven jobs; for a queue of jobs ask for a plan: advisor place",
        )
