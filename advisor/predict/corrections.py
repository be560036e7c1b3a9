"""What predictions are corrected by: windows of the same jobs, the card, a lower power limit. Pure.

What a prediction gets wrong of jobs it gets wrong each time, and nearly the same at splits that are
near each other. So the logarithm of measured over predicted is a Gaussian process over splits, and
what is expected of a split is its posterior (Rasmussen and Williams, "Gaussian Processes for
Machine Learning", 2006, equations 2.23 and 2.24): the prediction, moved by what was measured, each
weighted by its own error. docs/measurements/model.md says what the bounds hold.

Cards of one model differ by several percent in power at the same rate. The factor of a card is
what was seen of it, `shrunk` towards 1 by how much cards differ; that of a host for rates likewise.
docs/measurements/model.md has its effect. All power is scaled, idle power
with it: between jobs of one card the ratio of the whole power spreads by 1.5 % (2.9 % with single
windows beside launches), that of the power above idle by 3.4 % (4.2 %).

A GPU at its power limit L lowers its clocks. A job that would draw P without the limit keeps
((L - f) / (P - f)) ** a of its speed. f is drawn at any clock: 0.35 of the card's own limit; a is
0.25. Both fit V100 and A40 of the traces of Zeus (NSDI 2023) best. They are off by 3.2 % on P100
and 5.3 % on RTX 6000 (`advisor evaluate --public zeus`), and by 2.0 % for clocks of bundled windows
at the limit (docs/measurements/power/limits.py). The form is a ratio, so it also holds for work
that was measured at its limit; higher limits are unknown.
"""

import functools
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, ALL_GPUS, WHOLE, Split
from advisor.core.objectives import NORMAL_90, Interval, shrunk
from advisor.core.records import CPU_BOUND, DOUBTFUL, WRONG, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT, OVER_LIMIT
from advisor.errors import InputError
from advisor.predict.features import speed_left
from advisor.predict.profiles import (
    NEEDED,
    P99_MEASURED,
    Floats,
    JobKind,
    Prediction,
    Predictions,
    Predictor,
    Profile,
    is_within,
    joined,
    kind_of,
    possible_speeds,
    solo_of,
)
from advisor.predict.sets import fills, is_by_physics
from advisor.wire.answers import CardPower, LowerLimit


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
    if len(set(names)) == len(names):
        return of_names
    return [other for window in of_names for other in _of_copies(window, names)]


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
        served = _served_splits(profile, evidence.windows, measured)
        is_served = [split in served for split in evidence.splits[: evidence.n]]
        speeds[1] = np.where(is_served, speeds[0], speeds[1])
        most = max([1.0, *(speed for speed in measured if speed is not None)])
        return possible_speeds(profile, speeds, most)

    def _powers(
        self, profiles: Sequence[Profile], base: Predictions, evidence: "_Evidence"
    ) -> Floats:
        limit_w = profiles[0].power_limit_w or math.inf
        errors = POWER if len(profiles) == ADVISED_JOBS else _SET_POWER
        shares, measured = (
            [split.shares for split in evidence.splits],
            [w.power_w or None for w in evidence.windows],
        )
        watts = evidence.posterior(base.power_w, shares, measured, errors, limit_w)
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
    if serving is None or serving.offered_rate is None or speed < 1 - serving.tolerance:
        return speed
    return max(speed, _SPARE)


def _served_splits(
    profile: Profile, windows: Sequence[Window], measured: Sequence[float | None]
) -> set[Split]:
    """Where every window of a server served all of its demand."""
    if profile.serving is None or profile.serving.offered_rate is None:
        return set()
    serving = [
        (w.split, speed) for w, speed in zip(windows, measured, strict=True) if speed is not None
    ]
    return {split for split, _ in serving} - {split for split, speed in serving if speed < _SPARE}


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
        left = (after / before).tolist()
        moved = map(_moved, *expected[:, :n].tolist(), moves.tolist(), after.tolist(), left)
        return np.array([*moved]).T


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
    every = np.concatenate([power_w[:, None], speeds], axis=1)
    return [
        math.hypot(*(math.log(high / low) for low, high in of_split))
        for of_split in every[1:].T.tolist()
    ]


CARD_SPREAD = 0.04
"""Standard deviation between cards of the log power of one job alone at the same rate, below the
power limit: inference and benchmarks on 12 cards of H200 and 3 of H100, 1.5 % between jobs of one
card taken off. With single windows beside launches, on 18 cards, docs/measurements/model.md
has 3.1 %; the larger one stays, where intervals of one run are made of it."""

# Standard deviation of that between steady jobs of one card, training among them
# (docs/measurements/model.md; 2.7 % with single windows beside launches).
_REFERENCE_SPREAD = 0.024

# Standard deviation of the log power of a pair over what the model expects, cards taken off:
# between pairs of a card 3.0 % on H200 and, where both jobs are new, 4.7 % on H100
# (docs/measurements/model.md, 2026-11-23).
_OBSERVATION_SPREAD = 0.04

# Above this part of the power limit all cards draw the same.
_BELOW_LIMIT = 0.95

# Flags of points whose power depends on more than the card and the job.
_UNSTEADY = WRONG | {"noisy-rate", "noisy-power", CPU_BOUND}


RATE_SPREADS: Mapping[JobKind, tuple[float, float]] = {
    "launch-bound": (0.474, 0.17),
    "filling": (0.061, 0.04),
}
"""Standard deviations of the log rate of one job alone on the whole GPU, over that of its profile:
between hosts, and between windows on one. Of 226 rates on other cards of H200 that come with
advisor. Of 70 on H100, 0.42 to 1.49 times those of the profiles, 98 % are in ranges for 90 %; where
a job had one window there before, 10 of 11 in ranges half as wide, at an error of 0.15 for 0.35.
Other jobs of the host told nothing there (0.36), so they do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFactor:
    """What a card draws, for each watt of what others of its model do.

    Attributes:
        log_factor: Natural logarithm of it.
        log_stderr: Standard deviation of what is known of that.
        references: Jobs alone on the whole GPU that it was learned from.
        observations: Pairs of jobs that it was learned from.
    """

    gpu_uuid: str
    log_factor: float
    log_stderr: float
    references: int
    observations: int

    @property
    def factor(self) -> Interval:
        """With the bounds that hold it in 90 % of cards."""
        off = NORMAL_90 * self.log_stderr
        low, value, high = (math.exp(self.log_factor + by) for by in (-off, 0.0, off))
        return Interval(value, low, high)

    @property
    def summary(self) -> CardPower:
        """As command line, service and client tell it."""
        return CardPower(
            gpu_uuid=self.gpu_uuid,
            power_factor=self.factor,
            references=self.references,
            observations=self.observations,
        )

    @property
    def text(self) -> str:
        """In words."""
        percent, stderr = 100 * math.expm1(self.log_factor), 100 * self.log_stderr
        word = "less" if percent < 0 else "more"
        return (
            f"this card ({self.gpu_uuid}) draws {abs(percent):.1f} ± {stderr:.1f} % {word} than "
            "others of its model: power is corrected for it"
        )


def card_factor(
    gpu_uuid: str,
    references: Mapping[str, Mapping[str, float]],
    observations: Mapping[tuple[str, ...], Sequence[float]],
) -> CardFactor | None:
    """The factor of a card; None where nothing was seen of it.

    Args:
        gpu_uuid: The card.
        references: Logarithms of `reference_ratio` of its GPU model, by card and job. The other
            cards say where a usual one stands, seen from the profiles.
        observations: Logarithms of observed over expected power on the card, by pair. What a model
            gets wrong of a pair it gets wrong each time, so that a pair counts once.
    """
    logs = references.get(gpu_uuid, {})
    if not logs and not observations:
        return None
    others = [statistics.mean(of.values()) for card, of in references.items() if card != gpu_uuid]
    usual = statistics.mean(others) if others else 0.0
    estimates: list[tuple[float, float]] = []
    if logs:
        # Without other cards the one that was profiled on stands for them.
        variance = _REFERENCE_SPREAD**2 / len(logs) + CARD_SPREAD**2 / max(len(others), 1)
        estimates.append((statistics.mean(logs.values()) - usual, variance))
    if observations:
        pairs = [statistics.median(logs) for logs in observations.values()]
        estimates.append((statistics.mean(pairs), _OBSERVATION_SPREAD**2 / len(pairs)))
    log_factor, log_stderr = shrunk(estimates, CARD_SPREAD)
    return CardFactor(
        gpu_uuid=gpu_uuid,
        log_factor=log_factor,
        log_stderr=log_stderr,
        references=len(logs),
        observations=len(observations),
    )


def reference_logs(
    points: Iterable[SoloPoint], profiles: Mapping[tuple[str, str], Profile], gpu_model: str
) -> dict[str, dict[str, float]]:
    """By card and job, the log of power alone over the profile's: the median of repeats.

    A profile that was measured on the card itself says nothing of it.
    """
    ratios: dict[str, dict[str, list[float]]] = {}
    for point in points:
        profile = profiles.get((point.job, gpu_model))
        if point.gpu_model != gpu_model or profile is None or point.gpu_uuid in profile.gpu_uuids:
            continue
        if (
            not (point.gpus or profile.gpus > 1)  # else of no single card
            and (ratio := _reference_ratio(point, profile)) is not None
        ):
            ratios.setdefault(point.gpu_uuid, {}).setdefault(point.job, []).append(ratio)
    return {
        card: {job: statistics.median(logs) for job, logs in jobs.items()}
        for card, jobs in ratios.items()
    }


def _reference_ratio(point: SoloPoint, profile: Profile) -> float | None:
    """Log of a job's power alone on the whole GPU over its profile's; None: not comparable."""
    power_w, limit_w = point.power_w, profile.power_limit_w or math.inf
    if not power_w or not _UNSTEADY.isdisjoint(point.flags) or point.share_percent != WHOLE:
        return None
    below = max(power_w, profile.whole_gpu_power_w) < _BELOW_LIMIT * limit_w
    # Only where the job runs within this part of the profile's rate does power tell of the card.
    if not below or abs(point.rate / profile.whole_gpu_rate - 1) >= 0.02:
        return None
    return math.log(power_w / profile.whole_gpu_power_w)


def host_factor(kind: JobKind, profile: Profile, here: Iterable[SoloPoint]) -> tuple[float, float]:
    """Log of a job's rate on a host over that of its profile from elsewhere; standard deviation.

    Args:
        kind: How much hosts differ for it.
        profile: Of another host.
        here: Points of the job on cards of this one; windows alone on the whole GPU count.
    """
    between_hosts, between_windows = RATE_SPREADS[kind]
    logs = [
        math.log(point.rate / profile.whole_gpu_rate)
        for point in here
        if (point.share_percent, point.rate_unit) == (WHOLE, profile.rate_unit)
        and point.rate > 0
        and DOUBTFUL.isdisjoint(point.flags)
    ]
    log_factor, stderr = shrunk([(log, between_windows**2) for log in logs], between_hosts)
    return log_factor, math.hypot(stderr, between_windows)


def observation_ratio(
    power_w: float, rates: Sequence[float], expected: Prediction, limit_w: float | None
) -> float | None:
    """Log of a pair's observed power over a usual card's expected one; None: not comparable."""
    below = max(power_w, expected.power_w.value) < _BELOW_LIMIT * (limit_w or math.inf)
    parts = zip(rates, expected.parts, strict=True)
    # Within 5 % of the rates, since those of a pair are predicted.
    same = all(abs(rate / part.rate.value - 1) < 0.05 for rate, part in parts)
    return math.log(power_w / expected.power_w.value) if below and same else None


def _on_card(profile: Profile, factor: CardFactor) -> Profile:
    """The profile as the card would have measured it.

    Where the profile is at the power limit the card is, too: how far beyond it the job would go is
    not known. A profile that has points of the card already is as it is.
    """
    if factor.gpu_uuid in profile.gpu_uuids:
        return profile
    limit_w = profile.power_limit_w or math.inf
    power_w = profile.values["power_w"]
    scaled: Floats = np.minimum(power_w * math.exp(factor.log_factor), limit_w)
    kept = np.where(power_w >= NEAR_LIMIT * limit_w, power_w, scaled)
    return replace(profile, values={**profile.values, "power_w": kept})


class CardPredictor:
    """Predicts for profiles that were brought to a card: rates as they were, power as it is there.

    Intervals of power move with it and stay as wide: on one GPU model the errors of a model differ
    by 3 to 5 % from pair to pair of a card and by under 1 % from card to card, so there is little
    in them that a factor could take out (docs/measurements/model.md, 2026-11-23).

    It is made with the predictor of a usual card and with profiles that were measured.
    """

    def __init__(
        self, predictor: Predictor, profiles: Iterable[Profile], factor: CardFactor
    ) -> None:
        self._predictor = predictor
        self._brought = {profile: _on_card(profile, factor) for profile in profiles}
        self._measured = {brought: profile for profile, brought in self._brought.items()}

    def brought(self, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
        """The profiles as the card would have measured them."""
        return tuple(self._brought[profile] for profile in profiles)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order; profiles are `brought` ones."""
        usual = self._predictor.predict([self._measured[p] for p in profiles], splits)
        return replace(self._predictor.predict(profiles, splits), speeds=usual.speeds)


# Of the speed lost, for each 1 that is said, in 90 % of the points of these traces.
_SLOWDOWNS = 0.4, 2.1

LEAST = 0.5
"""Of the card's own limit: below it few of these traces have points, and some cards no setting."""

KEPT = 0.95
"""Least part of the speed that a limit may leave which is offered unasked."""

STEP_W = 5.0

# By which two limits differ that are the same.
_SAME_W = 1.0

# Least part of the energy that such a limit saves: less is within the error of the form.
_LEAST_SAVING = 0.03


@functools.lru_cache(maxsize=1024)  # copies of a job have one profile
def under_limit(profile: Profile, limit_w: float) -> Profile:
    """The job as a card with that limit would have measured it: as it is where that is no lower.

    Of another limit `measured` says that it was asked for (`limit_warnings`).

    Raises:
        InputError: the limit is below half of that of the profile.
    """
    profiled_w = profile.power_limit_w
    if profiled_w is None or limit_w > profiled_w + _SAME_W:
        return replace(profile, measured=profile)
    if limit_w > profiled_w - _SAME_W:
        return profile
    if limit_w < LEAST * profiled_w:
        raise InputError(
            f"what {profile.job} does at {limit_w:g} W is not known",
            why=(
                f"it was profiled under {profiled_w:g} W, and limits are known down to half of that"
            ),
            fix=f"profile it under that limit: advisor profile {profile.job}",
        )
    left = speed_left(limit_w, profile.values["power_w"], profiled_w)
    doubt = np.zeros((2, len(left))) if profile.doubt is None else profile.doubt
    # The range of lost speed is for 90 %, so 3.3 standard deviations wide.
    of_form = (max(_SLOWDOWNS) - min(_SLOWDOWNS)) / 3.3 * (1 - left)
    return replace(
        profile,
        power_limit_w=limit_w,
        measured=profile,
        values={
            **profile.values,
            **{name: profile.values[name] * left for name in ("rate", "sm_clock_mhz")},
            "power_w": np.minimum(profile.values["power_w"], limit_w),
        },
        doubt=np.array([np.hypot(doubt[0], of_form), doubt[1]]),
    )


def limit_warnings(profiles: Iterable[Profile]) -> Iterator[str]:
    """Warnings for jobs under a power limit at which they were not measured."""
    for profile in (p for p in profiles if p.measured):
        limit_w = profile.power_limit_w
        under = "a power limit that was not read" if limit_w is None else f"{limit_w:g} W"
        yield (
            f"no job was measured at a power limit of {under}: speeds there follow from traces of "
            "other cards"
            if profile.lowered_w
            else f"{profile.job} was profiled under {under}, so this is for that limit: nothing "
            f"was measured above it (advisor profile {profile.job})"
        )


class LimitPredictor:
    """Predicts for a card with a lower power limit than the profiles were measured under."""

    def __init__(self, predictor: Predictor, profiles: Iterable[Profile], limit_w: float) -> None:
        self._predictor, self._limit_w = predictor, limit_w
        self._brought = {profile: under_limit(profile, limit_w) for profile in profiles}
        self._measured = {brought: profile for profile, brought in self._brought.items()}

    def brought(self, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
        """The profiles as the card would have measured them."""
        return tuple(self._brought[profile] for profile in profiles)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order; profiles are `brought` ones.

        Jobs together slow down as their watts say, and each alone as its own do. Of several
        GPUs the one that draws most decides, by what its jobs draw alone.
        """
        measured = [self._measured[profile] for profile in profiles]
        predictions = self._predictor.predict(measured, splits)
        profiled_w = min(profile.power_limit_w or np.inf for profile in measured)
        seats = np.array([split.gpus or (ALL_GPUS,) * len(measured) for split in splits]).T
        alone_w = np.array([[profile.values["power_w"][-1]] for profile in measured])
        gpus = max(profile.gpus for profile in measured)
        there = np.array([(seats == ALL_GPUS) | (seats == gpu) for gpu in range(gpus)])
        of_gpus_w = (there * alone_w).sum(axis=1)
        most_w = predictions.power_w * of_gpus_w.max(axis=0) / of_gpus_w.sum(axis=0)
        together = speed_left(self._limit_w, np.minimum(most_w, profiled_w), profiled_w)
        solo = solo_of(profiles)
        alone = [rate / was for (rate, *_), (was, *_) in zip(solo, predictions.solo, strict=True)]
        apart = np.array([split.sharing == "exclusive" for split in splits])
        part = np.where(apart, 1.0, together[0] / np.array(alone)[:, None])
        return replace(
            predictions,
            solo=solo,
            speeds=np.minimum(predictions.speeds * part, np.maximum(predictions.speeds, 1.0)),
            power_w=np.minimum(predictions.power_w, gpus * self._limit_w),
            latencies_p99_ms=predictions.latencies_p99_ms / part,
        )


def lower_limit(
    profiles: Sequence[Profile],
    power_w: float,
    floors: Iterable[float],
) -> LowerLimit | None:
    """The limit with the least energy for the same work; None: none saves enough.

    Args:
        profiles: Of the jobs on the GPU, measured under one limit.
        power_w: What they draw under it.
        floors: What each is to keep, for each 1 of its speed under it.
    """
    now_w, *others = {profile.power_limit_w for profile in profiles}
    profiled_w = (profiles[0].measured or profiles[0]).power_limit_w
    if others or now_w is None or profiled_w is None:
        return None
    limits_w = np.arange(math.ceil(LEAST * profiled_w / STEP_W) * STEP_W, now_w, STEP_W)
    left = speed_left(limits_w, power_w, profiled_w)
    if not left.size:
        return None
    saved = 1 - np.minimum(limits_w / power_w, 1.0) / left
    saved = np.where(left >= max(KEPT, *floors), saved, 0.0)
    best = int(saved.argmax())
    if saved[best] < _LEAST_SAVING:
        return None
    part, lost = limits_w[best] / power_w, 1 - left[best]
    expected, low, high = (float(1 - lost * by) for by in (1.0, *reversed(_SLOWDOWNS)))
    return LowerLimit(
        jobs=tuple(profile.job for profile in profiles),
        power_limit_w=float(limits_w[best]),
        energy_saved=Interval(*(float(1 - part / left) for left in (expected, low, high))),
        longer=Interval(*(1 / left - 1 for left in (expected, high, low))),
    )
