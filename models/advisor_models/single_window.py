"""The head for jobs of which only one window on the whole GPU was seen: a whole profile from it."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.objectives import NORMAL_90
from advisor.errors import ModelError
from advisor.formats.wire import read
from advisor.predict.profiles import NEEDED, Floats, Profile, rounded
from advisor.predict.single_window import (
    BUSY,
    COUNTERS,
    ESTIMATED_SHARES,
    SM,
    SoloWindow,
    WindowEstimate,
    counter_features,
    estimated_profile,
    prior_estimate,
    prior_kept,
    share_features,
)
from advisor_models.model_predictor import Forest, read_trees
from advisor_models.registry import MANIFEST, checked_file, trees_file, whole_file

BUNDLED = Path(__file__).with_name("bundled_one_window")
HEADS = (SM, "rate", "power")
COLUMNS = 5
"""Features of each head."""

_RENEW = "install advisor again"


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleWindowManifest:
    """What stands next to the trees.

    Attributes:
        profiles: How many it was learned from.
        dataset_sha256: Of their points.
        files: SHA-256 of each file, by name.
    """

    profiles: int
    dataset_sha256: str
    libraries: Mapping[str, str]
    files: Mapping[str, str]


def as_float32(features: Floats) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """Features as trees see them: the same on every processor."""
    return rounded(features).astype(np.float32)


ERRORS = "errors.json"
"""Has the errors of jobs that were left out, as `left_out`."""

# Of the families, how many a world has: three of sixteen. Of all the nearest would mostly be the
# same one.
_OF_WORLD = 1 / 4

# Quantile of 95 % of Student's t, for 1 to 10 degrees of freedom.
_STUDENT_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutJob:
    """One job whose family was left out.

    Attributes:
        missing: Counters that it was estimated without.
        sm: SM activity as it was estimated, or read; fraction.
        part_of_power: Of its window.
        errors: True less told of each of `WindowEstimate.numbers`.
    """

    family: str
    is_server: bool
    missing: tuple[str, ...]
    sm: float
    part_of_power: float
    errors: tuple[float, ...]


class SingleWindowHead:
    """Estimates profiles, and what they might be; safe to share between threads.

    Args:
        trees: Of each head.
        left_out: Errors of jobs whose family was left out; none: how far off it is, is not known.

    Raises:
        ModelError: trees are missing or damaged.
    """

    def __init__(self, trees: Mapping[str, bytes], left_out: Sequence[LeftOutJob] = ()) -> None:
        read = {name: read_trees(name, trees[name], COLUMNS, _RENEW) for name in HEADS}
        self._sm = Forest(read[SM])
        self._shares = Forest(read["rate"], read["power"])
        self.left_out = left_out

    def estimate(self, window: SoloWindow) -> WindowEstimate:
        """What its profile is made of."""
        if not window.is_learned:
            return prior_estimate(window)
        sm, dram = self._sm_activity(window), window.dram
        rows = as_float32(share_features(window, sm, dram, ESTIMATED_SHARES))
        prior = prior_kept(sm, ESTIMATED_SHARES)
        rate, power = (prior + np.array(own) for own in self._shares(rows, rows))
        return WindowEstimate.possible(sm, dram, rate, power)

    def _sm_activity(self, window: SoloWindow) -> float:
        """As it was read, or estimated, and then no more than GPU busy."""
        if SM not in window.missing:
            return window.read(SM) / WHOLE
        ((sm,),) = self._sm(as_float32(counter_features(window)))
        return float(np.fmin(max(sm, 0.0), window.read(BUSY) / WHOLE))

    def likeliest(self, window: SoloWindow) -> Profile:
        """Its profile at `ESTIMATED_SHARES` and on the whole GPU."""
        return estimated_profile(window, self.estimate(window))

    def profile(self, window: SoloWindow, *, is_server: bool) -> Profile:
        """The same, with how far off it may be at each share: as far as other families were."""
        estimate, profile = self.estimate(window), self.likeliest(window)
        if not window.is_learned:
            return replace(profile, doubt=_prior_doubt(window, estimate))
        near = np.array([*self._nearest(window, estimate, is_server=is_server).values()])
        kept = np.maximum(estimate.numbers() + near, 0.01)[:, len(COUNTERS) :]
        rate, drawn = np.split(kept, 2, axis=1)
        watts = window.idle_power_w + drawn * (window.power_w - window.idle_power_w)
        said = (profile.values[name][:-1] for name in NEEDED)
        offs = [
            np.log(of / value) ** 2
            for of, value in zip((rate, np.maximum(watts, 1)), said, strict=True)
        ]
        spread = wider(len(near)) * np.sqrt(np.mean(offs, axis=1))
        return replace(profile, doubt=np.pad(spread, ((0, 0), (0, 1))))

    def guesses(self, window: SoloWindow, *, is_server: bool) -> Callable[[int], Profile]:
        """Its profile in each world, by number; those of all windows belong together."""
        if not window.is_learned:
            return lambda world: estimated_profile(
                window, prior_estimate(window, np.random.default_rng(world).standard_normal())
            )
        estimate = self.estimate(window)
        near = self._nearest(window, estimate, is_server=is_server)
        errors = drawn_errors(near, {job.family for job in self.left_out})
        return lambda world: estimated_profile(window, estimate.off_by(errors(world)))

    def _nearest(
        self, window: SoloWindow, estimate: WindowEstimate, *, is_server: bool
    ) -> dict[str, Floats]:
        """Errors of the job of each family that is most like this one, the nearest family first."""
        # Without SM activity, that of the DRAM makes little difference.
        missing = COUNTERS if COUNTERS[0] in window.missing else ()
        comparable = [job for job in self.left_out if job.missing == missing]
        alike = [job for job in comparable if job.is_server == is_server]
        # One family says nothing of how far families are from each other.
        several = len({job.family for job in alike}) > 1
        nearest: dict[str, Floats] = {}
        for job in sorted(
            alike if several else comparable,
            key=lambda job: (
                abs(job.sm - estimate.sm) + abs(job.part_of_power - window.part_of_power)
            ),
        ):
            nearest.setdefault(job.family, np.array(job.errors))
        return nearest


# Of what `prior_estimate` says, standard deviation of the logarithm of watts on a part of the GPU,
# and of the speed beside others without limits, for each 1 of that of the SM activity: the bundled
# jobs and sets.
_SPREAD_W, _SPREAD_BESIDE = 0.2, 0.3


def _prior_doubt(window: SoloWindow, estimate: WindowEstimate) -> Floats:
    """`Profile.doubt` of what `prior_estimate` says."""
    ends = np.array([prior_estimate(window, off).numbers() for off in (-1, 1)])
    off = np.abs(np.log(np.maximum(ends, 0.01) / np.maximum(estimate.numbers(), 0.01))).max(axis=0)
    rates = off[len(COUNTERS) :][: len(ESTIMATED_SHARES)]
    watts = np.full(len(rates), _SPREAD_W)
    return np.array([[*rates, _SPREAD_BESIDE * off[0]], [*watts, 0.0]])


def drawn_errors(near: Mapping[str, Floats], families: Iterable[str]) -> Callable[[int], Floats]:
    """Errors of a job in each world, by number.

    Args:
        near: Of each family that it may be like, the nearest first.
        families: All of them; what is drawn of these is so for all jobs of a world.
    """
    errors, order, n = np.array([*near.values()]), sorted(families), len(near)
    count = max(1, round(_OF_WORLD * n))
    draws = [math.comb(n - 1 - place, count - 1) for place in range(n)]
    chances = np.array(draws, dtype=np.float64) / math.comb(n, count)
    mean, times = chances @ errors, wider(1 / float(chances @ chances))

    def in_world(world: int) -> Floats:
        shuffled = np.random.default_rng(world).permutation(order).tolist()
        drawn = [family for family in shuffled if family in near][:count]
        return mean + times * (next(near[family] for family in near if family in drawn) - mean)

    return in_world


def wider(number: float) -> float:
    """How much further from the mean of so many families a further one is than they are."""
    degrees = max(number - 1, 1.0)
    student = float(np.interp(degrees, range(1, len(_STUDENT_95) + 1), _STUDENT_95))
    return student / NORMAL_90 * math.sqrt((number + 1) / degrees)


@functools.cache
def bundled_head() -> SingleWindowHead:
    """The one that comes with the package.

    Raises:
        ModelError: it is not whole.
    """
    with ModelError.instead_of(ValueError, f"{BUNDLED} cannot be read", fix=_RENEW):
        hashes = read(SingleWindowManifest, whole_file(BUNDLED / MANIFEST, _RENEW)).files
        files = {name: checked_file(BUNDLED / name, of, _RENEW) for name, of in hashes.items()}
        (left_out,) = read(dict[str, tuple[LeftOutJob, ...]], files[ERRORS]).values()
    return SingleWindowHead({name: files[trees_file(name)] for name in HEADS}, left_out)
