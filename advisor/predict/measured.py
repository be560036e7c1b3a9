"""What was measured of jobs together, taken into what is predicted of them. Pure.

What a prediction gets wrong of jobs it gets wrong each time, and nearly the same at splits that are
near each other. So the logarithm of measured over predicted is a Gaussian process over splits, and
what is expected of a split is its posterior (Rasmussen and Williams, "Gaussian Processes for
Machine Learning", 2006, equations 2.23 and 2.24): the prediction, moved by what was measured, each
weighted by its own error. docs/measurements/model.md says what the bounds hold.
"""

import functools
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, WHOLE, Split
from advisor.core.objectives import NORMAL_90
from advisor.core.telemetry import NEAR_LIMIT, OVER_LIMIT
from advisor.predict.predictions import (
    Prediction,
    Predictions,
    Predictor,
    is_within,
    joined,
    possible_speeds,
)
from advisor.predict.profiles import NEEDED, P99_MEASURED, Floats, Profile, kind_of
from advisor.predict.sets import fills, is_by_physics


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
            split=self.split.ordered(order),
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
    of_names = [w.ordered(seats) for w in windows.get(tuple(sorted(names)), ())]
    of_copies = (other for window in of_names for other in _of_copies(window, names))
    return of_names if len(set(names)) == len(names) else [*of_copies]


def _fewer_of(
    profiles: Sequence[Profile], windows: Windows
) -> Iterator[tuple[list[Profile], Split]]:
    """Fewer of these jobs, two or more, that were measured together without limits, and how."""
    names, by_name = Counter(p.job for p in profiles), {p.job: p for p in profiles}
    for jobs, of_jobs in windows.items():
        if 1 < len(jobs) < len(profiles) and Counter(jobs) <= names:
            for split in dict.fromkeys(w.split for w in of_jobs):
                if not (split.is_limited or split.below_normal):
                    yield [by_name[job] for job in jobs], split


def _beyond(
    p: Predictions, profiles: Sequence[Profile], fewer: Prediction, jobs: Sequence[Profile]
) -> Predictions:
    """Where fewer of the jobs are among those without a limit, none faster and no less drawn.

    Nor is time slicing faster than MPS, unless a job's long kernels keep others off.
    """
    free = np.array([split.shares for split in p.splits]).T == WHOLE
    names = np.array([profile.job for profile in profiles])
    counts = Counter(profile.job for profile in jobs)
    there = [free[names == job].sum(axis=0) >= count for job, count in counts.items()]
    sharings = np.array(
        ["" if s.below_normal else "uncapped" if s.is_limited else s.sharing for s in p.splits]
    )
    are_alike = sharings == fewer.split.sharing
    are_slower = (sharings == "time-sliced") & (not any(map(fills, profiles)))
    all_there, speeds = np.logical_and.reduce(there), p.speeds
    held = free & all_there & (are_alike | are_slower)
    for profile, part in zip(jobs, fewer.parts, strict=True):
        most, is_job = np.array(astuple(part.speed))[:, None, None], (names == profile.job)[:, None]
        speeds = np.where(held & is_job, np.minimum(speeds, most), speeds)
    least_w = np.array(astuple(fewer.power_w))[:, None]
    power_w = np.where(all_there & are_alike, np.maximum(p.power_w, least_w), p.power_w)
    return replace(p, speeds=speeds, power_w=power_w)


def _of_copies(window: Window, names: Sequence[str]) -> Iterator[Window]:
    """The window with copies of a job in every order of their limits; equal ones do the same."""
    even, splits = _evened(window, names), set[Split]()
    seats = [[n for n, name in enumerate(names) if name == job] for job in dict.fromkeys(names)]
    back = sorted(range(len(names)), key=[n for of_job in seats for n in of_job].__getitem__)
    differ = any(len({window.split.seats[n] for n in of_job}) > 1 for of_job in seats)
    orders = itertools.product(*map(itertools.permutations, seats)) if differ else [seats]
    for order in orders:
        flat = [n for of_job in order for n in of_job]
        if (split := window.split.ordered([flat[n] for n in back])) not in splits:
            splits.add(split)
            yield even.ordered([flat[n] for n in back])


def _evened(window: Window, names: Sequence[str]) -> Window:
    """With the mean of copies under one limit, which of them is which has no meaning."""
    seats = list(zip(names, window.split.seats, strict=True))

    def means(values: Sequence[float | None]) -> tuple[float | None, ...]:
        of_seat = {seat: list[float]() for seat in seats}
        for seat, value in zip(seats, values, strict=True):
            if value is not None:
                of_seat[seat].append(value)
        return tuple(statistics.fmean(x) if (x := of_seat[seat]) else None for seat in seats)

    tails = window.latencies_p99_ms
    return replace(
        window, rates=means(window.rates), latencies_p99_ms=means(tails) if tails else ()
    )


@dataclass(frozen=True, slots=True)
class _ErrorModel:
    """How the errors of one predicted quantity hang together; standard deviations of logarithms.

    Attributes:
        reach_percent: Distance of shares over which errors stay alike.
        of_jobs: Part of the variance that is the same at every split under limits.
        noise: Between two windows of the same jobs at one split: of a pair on one card, of a set on
            two.
        of_card: Between cards of one model, below their power limit.
        least: Of the prediction: bounds at a limit or at a demand are narrow because of what is
            possible, not of what is known.
    """

    reach_percent: float
    of_jobs: float
    noise: float
    of_card: float
    least: float

    def alike(self, apart_percent: Floats) -> Floats:
        """How much of the variance is the same at shares that lie so far apart."""
        return self.of_jobs + (1 - self.of_jobs) * np.exp(
            -((apart_percent / self.reach_percent) ** 2)
        )


SPEED = _ErrorModel(reach_percent=30.0, of_jobs=0.0, noise=0.02, of_card=0.0, least=0.06)
POWER = _ErrorModel(reach_percent=5.0, of_jobs=0.3, noise=0.012, of_card=0.031, least=0.015)

# Of three jobs and more, whose windows were repeated on another card and host only
# (docs/measurements/sets/measured.py).
_SET_SPEED = replace(SPEED, noise=0.08, least=0.25)
_SET_POWER = replace(POWER, noise=0.06)

# The same of jobs in a set that wait for their host.
_HOST_SPEED = replace(_SET_SPEED, noise=0.15)

# Relative speed that a server counts with where it was measured to serve all of its demand: how
# much more it could serve is not to be seen.
_SPARE = 1.05


class MeasuredPredictor:
    """Predicts with what was measured of the same jobs on the same GPU model.

    Args:
        predictor: Says what to expect without that.
        windows: What was measured of any jobs.
        gpu_uuid: The card that is asked for; None: it may be any.
    """

    def __init__(self, predictor: Predictor, windows: Windows, gpu_uuid: str | None = None) -> None:
        self._predictor, self._windows, self._gpu_uuid = predictor, windows, gpu_uuid or ""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Adding a job neither raises a speed nor lowers the power beyond those of a measured subset.
        """
        predictions = self._of_all(profiles, splits)
        for fewer, split in _fewer_of(profiles, self._windows):
            names = {profile.job for profile in fewer}
            smaller = tuple(
                (j, tuple(of)) for j, of in self._windows.items() if names.issuperset(j)
            )
            smaller_set = of_few(self._predictor, smaller, self._gpu_uuid, tuple(fewer), split)
            predictions = _beyond(predictions, profiles, smaller_set, fewer)
        return predictions

    def _of_all(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        windows = [w for w in windows_of(profiles, self._windows) if is_within(w.split, profiles)]
        if not windows:
            return self._predictor.predict(profiles, splits)
        base = self._predictor.predict(
            profiles, tuple(dict.fromkeys((*splits, *(w.split for w in windows))))
        )
        by_physics = [is_by_physics(split) for split in base.splits]
        both = base, _Evidence(len(splits), base.splits, by_physics, windows, self._gpu_uuid)
        speeds = [self._speeds(n, profiles, *both) for n in range(len(profiles))]
        predictions = joined(splits, base)
        predictions = _changed(predictions, self._powers(profiles, *both), np.stack(speeds, axis=1))
        # With the tails that windows at that split had; of other splits they say little.
        tails = predictions.latencies_p99_ms.copy()
        places = {split: place for place, split in enumerate(predictions.splits)}
        for split in {w.split for w in windows} & places.keys():
            there = [w.latencies_p99_ms for w in windows if w.split == split and w.latencies_p99_ms]
            for job, of_job in enumerate(zip(*there, strict=True)):
                if tails_ms := [ms for ms in of_job if ms is not None]:
                    tails[:, job, places[split]] = astuple(
                        P99_MEASURED.times(statistics.median(tails_ms))
                    )
        return replace(predictions, latencies_p99_ms=tails)

    def _speeds(
        self, n: int, profiles: Sequence[Profile], base: Predictions, evidence: "_Evidence"
    ) -> Floats:
        profile, is_pair = profiles[n], len(profiles) == ADVISED_JOBS
        of_set = _HOST_SPEED if kind_of(profile) == "launch-bound" else _SET_SPEED
        solo_rate = base.solo[n][0]
        measured = [
            _reached(profile, rate / solo_rate) if (rate := w.rates[n]) and solo_rate else None
            for w in evidence.windows
        ]
        # By physics a job hangs on the limits of others, where they overlap.
        shares = [
            s.shares if is_physics else (s.shares[n],)
            for s, is_physics in zip(evidence.splits, evidence.by_physics, strict=True)
        ]
        speeds = evidence.posterior(
            base.speeds[:, n], shares, measured, SPEED if is_pair else of_set
        )
        # What was measured to serve all of its demand does, whatever its like falls short by.
        of_windows = [
            (window.split, speed)
            for window, speed in zip(evidence.windows, measured, strict=True)
            if speed is not None and kind_of(profile) == "server"
        ]
        served = {split for split, _ in of_windows}
        served -= {split for split, speed in of_windows if speed < _SPARE}
        is_served = [split in served for split in evidence.splits[: evidence.n]]
        speeds[1] = np.where(is_served, speeds[0], speeds[1])
        most = max([1.0, *(speed for speed in measured if speed is not None)])
        return possible_speeds(profile, speeds, most)

    def _powers(
        self, profiles: Sequence[Profile], base: Predictions, evidence: "_Evidence"
    ) -> Floats:
        limit_w = profiles[0].power_limit_w or math.inf
        watts = evidence.posterior(
            base.power_w,
            [split.shares for split in evidence.splits],
            [w.power_w or None for w in evidence.windows],
            POWER if len(profiles) == ADVISED_JOBS else _SET_POWER,
            limit_w,
        )
        return np.minimum(watts, OVER_LIMIT * limit_w)


@functools.lru_cache(maxsize=1024)  # the same subsets are in many sets and in each other
def of_few(
    predictor: Predictor,
    windows: tuple[tuple[tuple[str, ...], tuple[Window, ...]], ...],
    gpu_uuid: str,
    profiles: tuple[Profile, ...],
    split: Split,
) -> Prediction:
    """What these jobs do, kept with its predictor; `cache_clear` lets go of an old model."""
    return MeasuredPredictor(predictor, dict(windows), gpu_uuid).predict(profiles, [split])[0]


def _reached(profile: Profile, speed: float) -> float:
    """What a job could do at least: one that served all of its demand could do more."""
    serving = profile.serving
    serves = serving and serving.offered_rate is not None and speed >= 1 - serving.tolerance
    return max(speed, _SPARE) if serves else speed


@dataclass(frozen=True, slots=True, eq=False)
class _Evidence:
    """A question about jobs, and their measurements.

    Attributes:
        n: How many splits are asked for.
        splits: These, then others of the windows.
        law: Which are by physics: what the model of pairs gets wrong says nothing of these.
        gpu_uuid: The card that is asked for; empty: any.
    """

    n: int
    splits: Sequence[Split]
    by_physics: Sequence[bool]
    windows: Sequence[Window]
    gpu_uuid: str

    def posterior(
        self,
        expected: Floats,
        shares: Sequence[tuple[float, ...]],
        measured: Sequence[float | None],
        errors: _ErrorModel,
        limit: float = math.inf,
    ) -> Floats:
        """What is to be expected after what was measured; values, low and high ends, (3, n).

        Args:
            expected: Before, at all splits.
            shares: What errors are alike by, percent, at each split.
            measured: In each window; None: it was not.
            errors: How errors hang together.
            limit: From `NEAR_LIMIT` of it on all cards are the same.
        """
        pairs = [(w, x) for w, x in zip(self.windows, measured, strict=True) if x is not None]
        if not pairs:
            return expected[:, : self.n].copy()
        n, count = self.n, len(pairs)
        rows = [*range(n), *(self.splits.index(w.split) for w, _ in pairs)]
        value, low, high = expected[:, rows].tolist()
        cards = np.array([*[self.gpu_uuid] * n, *(w.gpu_uuid for w, _ in pairs)])
        of_card = np.where(np.array(value) >= NEAR_LIMIT * limit, 0.0, errors.of_card)
        job_spread = [math.log(b / a) / (2 * NORMAL_90) for a, b in zip(low, high, strict=True)]
        spread = np.maximum(np.maximum(job_spread, errors.least), of_card)
        common = np.sqrt(spread**2 - of_card**2)  # the part of the spread that every card has
        of_rows = [(self.splits[row], self.by_physics[row]) for row in rows]
        kinds = np.array(
            [f"{s.sharing} {s.below_normal} {is_physics}" for s, is_physics in of_rows]
        )
        places = np.array([*itertools.zip_longest(*(shares[row] for row in rows), fillvalue=0.0)]).T
        alike = errors.alike(np.linalg.norm(places[:, None] - places[None, n:], axis=2))
        same_kind = kinds[:, None] == kinds[None, n:]
        same_card = (cards[:, None] == cards[None, n:]) & (cards != "")[:, None]
        covariances = np.outer(common, common[n:]) * alike * same_kind
        covariances = covariances + np.outer(of_card, of_card[n:]) * same_card
        towards, among = np.split(covariances, [n])
        logs = np.log([x / was for (_, x), was in zip(pairs, value[n:], strict=True)])
        before = spread[:n]
        moves, explained = _conditioned(among + errors.noise**2 * np.eye(count), towards, logs)
        after = np.sqrt(
            np.maximum(before**2 - explained, 0.0) + errors.noise**2 * explained / before**2
        )
        changes = moves.tolist(), after.tolist(), (after / before).tolist()
        return np.array([*map(_moved, *expected[:, :n].tolist(), *changes)]).T


def _conditioned(among: Floats, towards: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """What is expected after these, and how much of the variance they explain, shape (n,) each.

    `among` holds their covariances, with the noise of each; `towards` holds their covariances with
    the wanted value.
    """
    weights = np.linalg.solve(among, towards.T).T
    return weights @ logs, (weights * towards).sum(axis=1)


def narrowed(profile: Profile, shares: Floats, logs: Floats, spreads: Floats) -> Profile:
    """An estimated profile after what its job did beside others.

    What the estimate is off by is nearly the same at shares that are near each other; what the job
    does for each step is not in doubt, so counters go with its rate.

    Args:
        profile: With a `doubt`.
        shares: Of the job each time, percent, shape (n,).
        logs: Of its rate and its power, observed for each 1 expected; shape (2, n).
        spreads: Standard deviations of these, without the profile's own.
    """
    # What the job does alone on the whole GPU was seen: only the law is in doubt there.
    is_part = profile.shares < WHOLE
    doubt = np.array(profile.doubt)
    here, there = doubt * is_part, profile.doubt_at(shares) * (shares < WHOLE)
    posteriors = [
        _conditioned(
            np.outer(at_points, at_points) * errors.alike(shares[:, None] - shares)
            + np.diag(spread**2),
            np.outer(mine, at_points) * errors.alike(profile.shares[:, None] - shares),
            log,
        )
        for errors, mine, at_points, log, spread in zip(
            (SPEED, POWER), here, there, logs, spreads, strict=True
        )
    ]
    values = dict(profile.values) | {
        name: np.minimum(np.maximum.accumulate(was * np.exp(move)), was[-1])
        for name, (move, _) in zip(NEEDED, posteriors, strict=True)
        for was in [profile.values[name]]
    }
    paces = values["rate"] / profile.values["rate"]
    values |= {name: values[name] * paces for name in values.keys() - {*NEEDED, "sm_clock_mhz"}}
    left = here**2 - np.array([explained for _, explained in posteriors])
    doubt[:, is_part] = np.sqrt(np.maximum(left, 0.0))[:, is_part]
    return replace(profile, values=values, doubt=doubt)


def _moved(
    x: float, low: float, high: float, move: float, spread: float, left: float
) -> tuple[float, float, float]:
    """An interval moved on the log scale and as much narrower as its error is.

    Args:
        x: What was expected.
        low: Of its interval, as `high`.
        high: Of it.
        move: To be added to its logarithm.
        spread: Standard deviation that is left.
        left: That, as a part of what it was.
    """
    value = x * math.exp(move)
    least = NORMAL_90 * spread * math.sqrt(max(1 - left**2, 0.0))
    below, above = max(left * math.log(x / low), least), max(left * math.log(high / x), least)
    return value, value * math.exp(-below), value * math.exp(above)


def _changed(p: Predictions, power_w: Floats, speeds: Floats) -> Predictions:
    """With other speeds and power; the bounds of energy, which has errors of its own, get closer.

    By the square root, which holds 89 to 92 % in docs/measurements/model.md; by the
    whole it were 71 to 81 %.
    """
    factors = [
        [factor ** math.sqrt(min(new / old, 1.0) if old else 1.0) for factor in of_split]
        for of_split, new, old in zip(
            p.efficiency_factors.T.tolist(),
            _widths(power_w, speeds),
            _widths(p.power_w, p.speeds),
            strict=True,
        )
    ]
    return replace(p, speeds=speeds, power_w=power_w, efficiency_factors=np.array(factors).T)


def _widths(power_w: Floats, speeds: Floats) -> list[float]:
    """Of each split, those of all its intervals together, of logarithms."""
    return [
        math.hypot(*(math.log(high / low) for low, high in of_split))
        for of_split in np.concatenate([power_w[:, None], speeds], axis=1)[1:].T.tolist()
    ]
