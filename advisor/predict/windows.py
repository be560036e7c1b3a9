"""What was measured of jobs together on a GPU model, as predictions take it in."""

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from advisor.core.gpu import WHOLE
from advisor.core.split import Split
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.predict.sets import fills


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs together at one split: a measured window, or a launch.

    Attributes:
        rates: Of each job, in its own unit per second; None: not known.
        gpu_uuid: The card.
        started_at: ISO 8601, UTC.
        is_launch: Observed while jobs did their work.
        is_bundled: It came with advisor.
        latencies_p99_ms: Of each job that answers requests, else None; empty: of none.
    """

    split: Split
    rates: tuple[float | None, ...]
    power_w: float | None
    gpu_uuid: str
    started_at: str = ""
    is_launch: bool = False
    is_bundled: bool = False
    latencies_p99_ms: tuple[float | None, ...] = ()

    def ordered(self, order: Sequence[int]) -> "Window":
        """The same with the jobs in another order: which of the present ones stands where."""
        tails = self.latencies_p99_ms
        return replace(
            self,
            split=Split(tuple(self.split.shares[n] for n in order), self.split.sharing),
            rates=tuple(self.rates[n] for n in order),
            latencies_p99_ms=tuple(tails[n] for n in order) if tails else (),
        )


Windows: TypeAlias = Mapping[tuple[str, ...], Sequence[Window]]
"""By the names of the jobs, in their order, as a window has them."""


def windows_of(profiles: Sequence[Profile], windows: Windows) -> list[Window]:
    """Those of jobs, in the order of the profiles; of copies under several limits in each order."""
    names = [profile.job for profile in profiles]
    by_name = sorted(range(len(names)), key=names.__getitem__)
    seats = sorted(range(len(names)), key=by_name.__getitem__)
    found = [w.ordered(seats) for w in windows.get(tuple(sorted(names)), ())]
    if len(set(names)) == len(names):
        return found
    return [other for window in found for other in _of_copies(window, names)]


def fewer_of(
    profiles: Sequence[Profile], windows: Windows
) -> Iterator[tuple[list[Profile], Split]]:
    """Fewer of these jobs, two or more, that were measured together without limits, and how."""
    names, by_name = Counter(p.job for p in profiles), {p.job: p for p in profiles}
    for jobs, of_jobs in windows.items():
        if 1 < len(jobs) < len(profiles) and Counter(jobs) <= names:
            for split in dict.fromkeys(w.split for w in of_jobs if not w.split.is_limited):
                yield [by_name[job] for job in jobs], split


def beyond(
    p: Prediction, profiles: Sequence[Profile], fewer: Prediction, jobs: Sequence[Profile]
) -> Prediction:
    """Where fewer of the jobs are among those without a limit, none faster and no less drawn.

    Nor is any in turns faster than side by side, where no job's long kernels are to be waited for.
    """
    seats = list(zip(profiles, p.split.shares, strict=True))
    free = Counter(profile.job for profile, share in seats if share == WHOLE)
    sharing = "uncapped" if p.split.is_limited else p.split.sharing
    is_alike = sharing == fewer.split.sharing
    is_slower = sharing == "time-sliced" and not any(map(fills, profiles))
    if not (is_alike or is_slower) or not Counter(profile.job for profile in jobs) <= free:
        return p
    most = {profile.job: part.speed for profile, part in zip(jobs, fewer.parts, strict=True)}
    parts = (
        replace(part, speed=part.speed.at_most(most.get(profile.job, part.speed)))
        if share == WHOLE
        else part
        for part, (profile, share) in zip(p.parts, seats, strict=True)
    )
    power_w = p.power_w.at_least(fewer.power_w) if is_alike else p.power_w
    return replace(p, parts=tuple(parts), power_w=power_w)


def _of_copies(window: Window, names: Sequence[str]) -> Iterator[Window]:
    """The window with copies of a job in every order of their limits; equal ones do the same."""
    even, seen = _evened(window, names), set[Split]()
    seats = [[n for n, name in enumerate(names) if name == job] for job in dict.fromkeys(names)]
    back = sorted(range(len(names)), key=[n for of_job in seats for n in of_job].__getitem__)
    differ = any(len({window.split.shares[n] for n in of_job}) > 1 for of_job in seats)
    orders = itertools.product(*map(itertools.permutations, seats)) if differ else [seats]
    for order in orders:
        flat = [n for of_job in order for n in of_job]
        found = tuple(window.split.shares[flat[n]] for n in back)
        if (split := Split(found, window.split.sharing)) not in seen:
            seen.add(split)
            yield even.ordered([flat[n] for n in back])


def _evened(window: Window, names: Sequence[str]) -> Window:
    """With the mean of copies under one limit, which of them is which has no meaning."""
    seats = list(zip(names, window.split.shares, strict=True))

    def means(values: Sequence[float | None]) -> tuple[float | None, ...]:
        of_seat: dict[tuple[str, float], list[float]] = {seat: [] for seat in seats}
        for seat, value in zip(seats, values, strict=True):
            if value is not None:
                of_seat[seat].append(value)
        return tuple(statistics.fmean(x) if (x := of_seat[seat]) else None for seat in seats)

    tails = window.latencies_p99_ms
    return replace(
        window, rates=means(window.rates), latencies_p99_ms=means(tails) if tails else ()
    )
