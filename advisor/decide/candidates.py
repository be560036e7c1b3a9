"""The ways of running a set of jobs on one GPU that are looked at. Pure."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.core.split import SHARINGS, Sharing, Split, can_be_masked, without_limits
from advisor.core.units import share_for_units, units_for_share, vendor_of
from advisor.predict.profiles import Profile
from advisor.predict.sets import fills
from advisor.validity.safe_counts import CheckedCounts

MOST_WAYS = 250
"""With limits: the levels of each job that fills are spread evenly, so that all of its ways
together are no more. One such job is looked at under each safe count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Jobs that run together and keep their shares, beside which another one is to run.

    Attributes:
        cap_percent: The largest share that the newcomer can get.
    """

    shares: tuple[float, ...]
    sharing: Sharing
    cap_percent: float


def candidate_ways(
    profiles: Sequence[Profile],
    checked: CheckedCounts | None = None,
    most_ways: int = MOST_WAYS,
) -> tuple[Split, ...]:
    """Every way that is looked at, one after the other among them.

    AMD GPUs have no turns to choose: without masks processes run side by side.
    """
    is_amd = vendor_of(profiles[0].gpu_model) == "amd"
    sharings: tuple[Sharing, ...] = ("uncapped", "exclusive") if is_amd else SHARINGS[1:]
    free = (without_limits(sharing, len(profiles)) for sharing in sharings)
    limited = (w for w in _limited(profiles, checked, most_ways) if not is_amd or can_be_masked(w))
    return (*free, *limited)


def _limited(
    profiles: Sequence[Profile], checked: CheckedCounts | None, most_ways: int
) -> Iterator[Split]:
    """Limits for some or all of those that fill the GPU; the others have none."""
    seats: dict[str, list[int]] = {}
    for seat, profile in enumerate(profiles):
        if fills(profile):
            seats.setdefault(profile.job, []).append(seat)
    if not seats:
        return
    most_levels = _most_levels([*map(len, seats.values())], most_ways)
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
        if min(shares) < WHOLE:
            yield Split(tuple(shares))


def joining_ways(
    running: Running, profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Every share that the last job can get, none among them where nothing bounds it."""
    limits = [*_limits(profiles[-1], checked), WHOLE] if running.sharing == "limited" else [WHOLE]
    ways = (
        Split((*running.shares, share), running.sharing)
        for share in limits
        if share <= running.cap_percent
    )
    is_amd = vendor_of(profiles[-1].gpu_model) == "amd"
    yield from (way for way in ways if not is_amd or can_be_masked(way))


def _most_levels(copies: Sequence[int], most_ways: int) -> int:
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


def safe_ways(
    splits: Iterable[Split], profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Those of the splits at which no job has an unsafe count."""
    safeties = [profile.safety(checked) for profile in profiles]
    for split in splits:
        seats = zip(split.shares, safeties, strict=True)
        if not any(
            share < WHOLE
            and s.units_total
            and units_for_share(share, s.units_total, s.vendor) in s.unsafe
            for share, s in seats
        ):
            yield split


def _limits(profile: Profile, checked: CheckedCounts | None) -> list[float]:
    """Limits of one job at safe counts, ascending, as far as its profile reaches."""
    safety, least = profile.safety(checked), float(profile.shares[0])
    total = safety.units_total
    if total is None:
        shares = [float(share) for share in range(10, 100, 10)]
    else:
        allowed = (units for units in safety.allowed if units < total)
        shares = [share_for_units(units, total, safety.vendor) for units in allowed]
    return [share for share in shares if least <= share < WHOLE]


def _spread(shares: Sequence[float], most: int) -> list[float]:
    """So many of them at most, evenly."""
    if len(shares) <= most:
        return list(shares)
    return [shares[round((n + 0.5) * len(shares) / most - 0.5)] for n in range(most)]
