"""Measured pairs with all that learning and evaluation need to know of them.

Active idle power where nobody measured it is learned from pairs below their power limit: two jobs
together draw both powers less what one GPU draws with jobs open and none at work. That is more than
it draws empty, since its clocks are up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core.records import PairPoint, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor.predict.gaps import ACTIVE_IDLE_ABOVE, active_idle_above_of, with_active_idle
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.sides import demanded_power_w, power_limit_w, side
from advisor.predict.situation import is_launch_bound, kind_of
from advisor_training.dataset.pairs import LeftOut, MeasuredPair, Measurement, make_pairs
from advisor_training.dataset.rows import Rows, make_rows
from advisor_training.dataset.rows import profiled as with_profiles

UNPROFILED = "a job of the pair has no profile that reaches down to its share"
"""Why a measurement is not learned from."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Data:
    """Pairs whose jobs have profiles.

    Attributes:
        measurements: In the order of their numbers in the rows; also those with too few splits for
            an oracle (`Measurement.is_full`), which are learned from only.
        profiles: By (job, GPU model).
        active_idle_fill: Of profiles that lack active idle power, as the pairs tell it; they
            have it now.
    """

    pairs: tuple[MeasuredPair, ...]
    rows: Rows
    measurements: tuple[Measurement, ...]
    profiles: Mapping[tuple[str, str], Profile]
    active_idle_fill: Mapping[str, float]
    left_out: tuple[LeftOut, ...]

    def profiles_of(self, measurement: Measurement) -> tuple[Profile, Profile]:
        """Of both jobs on the GPU model of the measurement, in its order."""
        model = measurement.gpu_model
        first, second = measurement.jobs
        return self.profiles[first, model], self.profiles[second, model]

    def with_launch_bound(self) -> npt.NDArray[np.bool_]:
        """Which measurements have a launch-bound job; shape (measurements,)."""
        return np.array([any(map(is_launch_bound, self.profiles_of(m))) for m in self.measurements])

    def with_server(self) -> npt.NDArray[np.bool_]:
        """Which measurements have a job with a fixed demand; shape (measurements,)."""
        kinds = (map(kind_of, self.profiles_of(m)) for m in self.measurements)
        return np.array(["server" in of for of in kinds])

    def at_power_limit(self) -> npt.NDArray[np.bool_]:
        """Which rows were held back by the power limit, as measured; shape (rows,)."""
        return self.rows.power_w >= NEAR_LIMIT * self.rows.power_limit_w


def make_data(
    points: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint] = (),
    left_out: Sequence[LeftOut] = (),
) -> Data:
    """Pairs, rows and profiles of points, which have been chosen by their flags already.

    `profiled` are jobs alone at all shares; `references` on the whole GPU in the runs of the pairs,
    if those are others. `left_out` is what was left out before, for the report.

    Raises:
        InputError: no pair was measured well enough, or none has profiles of both its jobs.
    """
    found, unused = make_pairs(points, [*references, *profiled], full=False)
    if not found:
        raise InputError(
            f"none of {count_of(len(points), 'pair point')} can be learned from",
            why="; ".join(f"{item.points}: {item.reason}" for item in (*left_out, *unused)),
            fix="measure pairs at the nine splits, and their jobs alone: advisor colocate",
        )
    profiles = make_profiles(profiled)
    pairs = tuple(with_profiles(found, profiles))
    above_w = active_idle_fill(pairs, profiles)
    profiles = {key: with_active_idle(profile, above_w) for key, profile in profiles.items()}
    rows = make_rows(pairs, profiles)
    missing = _points(found) - _points(pairs)
    without = [LeftOut(UNPROFILED, missing)] if missing else []
    return Data(
        pairs=pairs,
        rows=rows,
        measurements=tuple(m for pair in pairs for m in pair.measurements),
        profiles=profiles,
        active_idle_fill=above_w,
        left_out=(*left_out, *unused, *without),
    )


def _points(pairs: Iterable[MeasuredPair]) -> int:
    return sum(m.points for pair in pairs for m in pair.measurements)


def active_idle_fill(
    pairs: Sequence[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> dict[str, float]:
    """What to add to idle power, as `with_active_idle` takes it: of all, and of each GPU model.

    Cards of one model are alike in it, those of two are not: 58 W on H100, 30 W on H200
    (docs/measurements/model.md). A GPU model of which no pair tells has that of all.
    """
    models = sorted({pair.gpu_model for pair in pairs})
    of_models = {
        active_idle_above_of(model): active_idle_above_w(
            [pair for pair in pairs if pair.gpu_model == model], profiles
        )
        for model in models
    }
    known = {name: above_w for name, above_w in of_models.items() if above_w > 0}
    return {ACTIVE_IDLE_ABOVE: active_idle_above_w(pairs, profiles)} | known


def active_idle_above_w(
    pairs: Iterable[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> float:
    """What to add to idle power, so that added powers are off by least below the limit, W.

    The weighted median of what they are too high by makes the mean of |expected / measured - 1|
    least. 0 where no pair was measured below its limit.
    """
    found = [
        gap
        for pair in pairs
        for m in pair.measurements
        for gap in _gaps(m, *(profiles[job, pair.gpu_model] for job in pair.jobs))
    ]
    if not found:
        return 0.0
    gaps, weights = np.array(sorted(found)).T
    reached = np.cumsum(weights)
    return max(float(gaps[np.searchsorted(reached, reached[-1] / 2)]), 0.0)


def _gaps(m: Measurement, a: Profile, b: Profile) -> Iterator[tuple[float, float]]:
    """By how much added powers are too high at limited splits, W, each with its weight.

    Where they are above the limit it hides that.
    """
    splits = m.splits["nine"]
    sides = [side(p, [split.shares[n] for split in splits]) for n, p in enumerate((a, b))]
    limit_w = NEAR_LIMIT * power_limit_w(sides)
    for result, demanded_w in zip(splits.values(), demanded_power_w(sides).tolist(), strict=True):
        if max(result.power_w, demanded_w) < limit_w:  # NaN is not
            yield demanded_w - result.power_w, 1 / result.power_w
