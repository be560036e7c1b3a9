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

from advisor.core.gpu import WHOLE
from advisor.core.interval import NORMAL_90, Interval
from advisor.core.split import ADVISED_JOBS, Split
from advisor.core.telemetry import NEAR_LIMIT, OVER_LIMIT
from advisor.predict.predictions import (
    Prediction,
    Predictions,
    Predictor,
    is_within,
    possible_speeds,
)
from advisor.predict.profiles import P99_MEASURED, Floats, Profile, kind_of
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


def _fewer_of(
    profiles: Sequence[Profile], windows: Windows
) -> Iterator[tuple[list[Profile], Split]]:
    """Fewer of these jobs, two or more, that were measured together without limits, and how."""
    names, by_name = Counter(p.job for p in profiles), {p.job: p for p in profiles}
    for jobs, of_jobs in windows.items():
        if 1 < len(jobs) < len(profiles) and Counter(jobs) <= names:
            for split in dict.fromkeys(w.split for w in of_jobs if not w.split.is_limited):
                yield [by_name[job] for job in jobs], split


def _beyond(
    p: Predictions, profiles: Sequence[Profile], fewer: Prediction, jobs: Sequence[Profile]
) -> Predictions:
    """Where fewer of the jobs are among those without a limit, none faster and no less drawn.

    Nor is any in turns faster than side by side, where no job's long kernels are to be waited for.
    """
    free = np.array([split.shares for split in p.splits]).T == WHOLE
    names = np.array([profile.job for profile in profiles])
    counts = Counter(profile.job for profile in jobs)
    there = [free[names == job].sum(axis=0) >= count for job, count in counts.items()]
    sharings = np.array(["uncapped" if s.is_limited else s.sharing for s in p.splits])
    are_alike = sharings == fewer.split.sharing
    are_slower = (sharings == "time-sliced") & (not any(map(fills, profiles)))
    all_there, speeds = np.logical_and.reduce(there), p.speeds
    held = free & all_there & (are_alike | are_slower)
    for profile, part in zip(jobs, fewer.parts, strict=True):
        most, own = np.array(astuple(part.speed))[:, None, None], (names == profile.job)[:, None]
        speeds = np.where(held & own, np.minimum(speeds, most), speeds)
    least_w = np.array(astuple(fewer.power_w))[:, None]
    power_w = np.where(all_there & are_alike, np.maximum(p.power_w, least_w), p.power_w)
    return replace(p, speeds=speeds, power_w=power_w)


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


SPEED = _ErrorModel(reach_percent=30.0, of_jobs=0.0, noise=0.02, of_card=0.0, least=0.06)
POWER = _ErrorModel(reach_percent=5.0, of_jobs=0.3, noise=0.012, of_card=0.031, least=0.015)

SET_SPEED = replace(SPEED, noise=0.08, least=0.25)
SET_POWER = replace(POWER, noise=0.06)
"""Of three jobs and more, whose windows were repeated on another card and host only
(docs/measurements/sets/measured.py)."""

HOST_SPEED = replace(SET_SPEED, noise=0.15)
"""The same of jobs in a set that wait for their host."""

SPARE = 1.05
"""Relative speed that a server counts with where it was measured to serve all of its demand: how
much more it could serve is not to be seen."""


class MeasuredPredictor:
    """Predicts with what was measured of the same jobs on the same GPU model.

    Args:
        predictor: Says what to expect without that.
        windows: What was measured of any jobs.
        gpu_uuid: The card that is asked for; None: it may be any.
    """

    def __init__(self, predictor: Predictor, windows: Windows, gpu_uuid: str | None = None) -> None:
        self._predictor, self._windows, self._gpu_uuid = predictor, windows, gpu_uuid or ""
        # The same subsets are in many sets and in each other.
        self._together = functools.cache(self._of_few)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Adding a job neither raises a speed nor lowers the power beyond those of a measured subset.
        """
        found = self._of_all(profiles, splits)
        for fewer, split in _fewer_of(profiles, self._windows):
            found = _beyond(found, profiles, self._together(tuple(fewer), split), fewer)
        return found

    def _of_few(self, profiles: tuple[Profile, ...], split: Split) -> Prediction:
        return self.predict(profiles, [split])[0]

    def _of_all(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        windows = [w for w in windows_of(profiles, self._windows) if is_within(w.split, profiles)]
        if not windows:
            return self._predictor.predict(profiles, splits)
        asked = list(dict.fromkeys((*splits, *(w.split for w in windows))))
        known = dict(zip(asked, self._predictor.predict(profiles, asked), strict=True))
        found = [known[split] for split in splits]
        seen = [(window, known[window.split]) for window in windows]
        speeds = [self._speeds(n, profiles, found, seen) for n in range(len(profiles))]
        powers = self._powers(profiles, found, seen)
        return Predictions.of(
            [
                _with_latencies(_changed(prediction, power_w, of_jobs), windows)
                for prediction, power_w, *of_jobs in zip(found, powers, *speeds, strict=True)
            ]
        )

    def _speeds(
        self,
        n: int,
        profiles: Sequence[Profile],
        found: Sequence[Prediction],
        measured: Sequence[tuple[Window, Prediction]],
    ) -> list[Interval]:
        profile = profiles[n]
        is_pair = len(found[0].parts) == ADVISED_JOBS
        of_set = HOST_SPEED if kind_of(profile) == "launch-bound" else SET_SPEED
        errors = SPEED if is_pair else of_set

        def value(p: Prediction, gpu_uuid: str) -> _Value:
            # By physics a job hangs on the limits of others, where they overlap.
            shares, law = p.split.shares, is_by_physics(profiles, p.split)
            own = shares if law else (shares[n],)
            return _Value(p.split, own, p.parts[n].speed, gpu_uuid, law)

        seen = [
            (value(p, w.gpu_uuid), _reached(profile, rate / solo_rate))
            for w, p in measured
            if (rate := w.rates[n]) and (solo_rate := p.parts[n].solo_rate)
        ]
        asked = [value(p, self._gpu_uuid) for p in found]
        most = max(1.0, *(speed for _, speed in seen)) if seen else 1.0
        served = _served_splits(profile, seen)
        # What was measured to serve all of its demand does, whatever its like falls short by.
        sure = [
            replace(speed, low=speed.value) if value.split in served else speed
            for value, speed in zip(asked, _posterior(asked, seen, errors), strict=True)
        ]
        bounds = np.array([(speed.value, speed.low, speed.high) for speed in sure]).T
        return [Interval(*own) for own in possible_speeds(profile, bounds, most).T.tolist()]

    def _powers(
        self,
        profiles: Sequence[Profile],
        found: Sequence[Prediction],
        measured: Sequence[tuple[Window, Prediction]],
    ) -> list[Interval]:
        limit_w = profiles[0].power_limit_w or math.inf
        errors = POWER if len(found[0].parts) == ADVISED_JOBS else SET_POWER

        def value(p: Prediction, gpu_uuid: str) -> _Value:
            law = is_by_physics(profiles, p.split)
            return _Value(p.split, p.split.shares, p.power_w, gpu_uuid, law, limit_w)

        seen = [(value(p, w.gpu_uuid), w.power_w) for w, p in measured if w.power_w]
        asked = [value(p, self._gpu_uuid) for p in found]
        most_w = Interval(*[OVER_LIMIT * limit_w] * 3)
        return [x.at_most(most_w) for x in _posterior(asked, seen, errors)]


def _reached(profile: Profile, speed: float) -> float:
    """What a job could do at least: one that served all of its demand could do more."""
    serving = profile.serving
    if serving is None or serving.offered_rate is None or speed < 1 - serving.tolerance:
        return speed
    return max(speed, SPARE)


def _served_splits(profile: Profile, seen: Sequence[tuple["_Value", float]]) -> set[Split]:
    """Where every window of a server served all of its demand."""
    if profile.serving is None or profile.serving.offered_rate is None:
        return set()
    return {v.split for v, _ in seen} - {v.split for v, speed in seen if speed < SPARE}


@dataclass(frozen=True, slots=True)
class _Value:
    """What is expected at a split on a card.

    Attributes:
        shares: What errors are alike by, percent.
        gpu_uuid: Empty: any card.
        law: Whether it is by physics: what the model of pairs gets wrong says nothing of that.
        limit: From `NEAR_LIMIT` of it on all cards are the same.
    """

    split: Split
    shares: tuple[float, ...]
    expected: Interval
    gpu_uuid: str
    law: bool
    limit: float = math.inf

    def card_spread(self, errors: _ErrorModel) -> float:
        return 0.0 if self.expected.value >= NEAR_LIMIT * self.limit else errors.of_card

    def spread(self, errors: _ErrorModel) -> float:
        """Standard deviation of the log of it."""
        x = self.expected
        return max(
            math.log(x.high / x.low) / (2 * NORMAL_90), errors.least, self.card_spread(errors)
        )


def _covariances(values: Sequence[_Value], errors: _ErrorModel, known: int) -> Floats:
    """Covariances of log errors between all values and the last ones, shape (values, known)."""
    spread, of_card = (
        np.array([of(value, errors) for value in values])
        for of in (_Value.spread, _Value.card_spread)
    )
    own = np.sqrt(spread**2 - of_card**2)  # the part of the spread that every card has
    cards = np.array([value.gpu_uuid for value in values])
    kinds = np.array([f"{value.split.sharing} {value.law}" for value in values])
    jobs = max(len(value.shares) for value in values)
    shares = np.array([(*value.shares, *[0.0] * (jobs - len(value.shares))) for value in values])
    apart = np.linalg.norm(shares[:, None] - shares[None, -known:], axis=2) / errors.reach_percent
    alike = errors.of_jobs + (1 - errors.of_jobs) * np.exp(-(apart**2))
    same_kind = kinds[:, None] == kinds[None, -known:]
    same_card = (cards[:, None] == cards[None, -known:]) & (cards != "")[:, None]
    found: Floats = np.outer(own, own[-known:]) * alike * same_kind
    return found + np.outer(of_card, of_card[-known:]) * same_card


def _posterior(
    asked: Sequence[_Value], seen: Sequence[tuple[_Value, float]], errors: _ErrorModel
) -> list[Interval]:
    """What is to be expected after what was measured, `seen` with its measured values."""
    if not seen:
        return [value.expected for value in asked]
    known = [value for value, _ in seen]
    logs = np.log([measured / value.expected.value for value, measured in seen])
    towards, among = np.split(_covariances([*asked, *known], errors, len(known)), [len(asked)])
    weights = np.linalg.solve(among + errors.noise**2 * np.eye(len(known)), towards.T).T
    before = np.array([value.spread(errors) for value in asked])
    explained = (weights * towards).sum(axis=1)
    after = np.sqrt(
        np.maximum(before**2 - explained, 0.0) + errors.noise**2 * explained / before**2
    )
    return [
        _moved(value.expected, move, sd, sd / was)
        for value, move, sd, was in zip(
            asked, (weights @ logs).tolist(), after.tolist(), before.tolist(), strict=True
        )
    ]


def _moved(x: Interval, move: float, spread: float, left: float) -> Interval:
    """An interval moved on the log scale and as much narrower as its error is.

    Args:
        x: What was expected.
        move: To be added to its logarithm.
        spread: Standard deviation that is left.
        left: That, as a part of what it was.
    """
    value = x.value * math.exp(move)
    least = NORMAL_90 * spread * math.sqrt(max(1 - left**2, 0.0))
    low = max(left * math.log(x.value / x.low), least)
    high = max(left * math.log(x.high / x.value), least)
    return Interval(value, value * math.exp(-low), value * math.exp(high))


def _changed(p: Prediction, power_w: Interval, speeds: Sequence[Interval]) -> Prediction:
    """With other speeds and power; the bounds of energy, which has errors of its own, get closer.

    By the square root, which holds 89 to 92 % in docs/measurements/model.md; by the
    whole it were 71 to 81 %.
    """
    parts = tuple(replace(part, speed=s) for part, s in zip(p.parts, speeds, strict=True))
    if power_w == p.power_w and parts == p.parts:
        return p
    old = math.hypot(_width(p.power_w), *(_width(part.speed) for part in p.parts))
    left = min(math.hypot(_width(power_w), *map(_width, speeds)) / old, 1.0) if old else 1.0
    factors = p.efficiency_factors and tuple(f ** math.sqrt(left) for f in p.efficiency_factors)
    return replace(p, parts=parts, power_w=power_w, efficiency_factors=factors)


def _with_latencies(p: Prediction, windows: Sequence[Window]) -> Prediction:
    """With the tails that windows at that split had; of other splits they say little."""
    there = [w.latencies_p99_ms for w in windows if w.split == p.split and w.latencies_p99_ms]
    if not there:
        return p
    of_jobs = [[ms for ms in one if ms is not None] for one in zip(*there, strict=True)]
    found = [P99_MEASURED.times(statistics.median(ms)) if ms else None for ms in of_jobs]
    parts = zip(p.parts, found, strict=True)
    return replace(p, parts=tuple(replace(part, latency_p99_ms=ms) for part, ms in parts))


def _width(x: Interval) -> float:
    return math.log(x.high / x.low)
