"""A job of which one window on the whole GPU was seen: a whole profile is estimated from it.

What a GPU's exporter shows of any job, its power and how busy SMs and memory were, says most of how
it would do on a part of the GPU: to it `prior_kept` is added what trees learned from jobs that were
measured at every share. Watts are used only on the GPU models of those jobs: on any other card
`_prior_estimate` goes by how busy the GPU was. Of a server the window shows the load that it had,
not what it could serve. Fractions are 1 for the whole GPU.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.objectives import NORMAL_90
from advisor.core.records import PRIOR, SINGLE_WINDOW, UNCOUNTED_UNIT, SoloPoint
from advisor.errors import ModelError
from advisor.formats.wire import read
from advisor.predict.profiles import COLUMNS, MEASURED_ON, NEEDED, Floats, Profile, crowded, rounded
from advisor_models.model_predictor import Forest, read_trees
from advisor_models.registry import MANIFEST, checked_file, trees_file, whole_file

ESTIMATED_SHARES = tuple(map(float, range(10, 100, 10)))
"""Percent."""

COUNTERS = ("sm_active_percent", "dram_active_percent")
"""What is estimated where a site does not collect it."""

SM, DRAM, BUSY, MEMORY_BUSY = *COUNTERS, "gpu_busy_percent", "memory_busy_percent"
READ = (*COLUMNS, BUSY)
"""Columns of points that a window keeps."""

# DRAM activity for each 1 of the time in which the memory was busy, on H100 and H200.
_DRAM_OF_BUSY = 0.8

# Of any card, fitted to the bundled jobs and to half of the families of jobs of MISO on an A100
# (docs/measurements/audit.md): part of the GPU below which a job is slowed, for each 1 of GPU busy
# and of memory busy; SM activity for each 1 of both; and standard deviation of the logarithm of
# either, at least and for each 1 of the time without work of the memory, in which kernels may be
# of few blocks or of many.
_WANTED, _ACTIVE, _SPREAD = (0.5, 1.3), 0.55, (0.1, 1.0)

# Memory busy for each 1 of GPU busy, where it is not read: the job then wants what is busy.
_UNREAD_MEMORY = (1 - _WANTED[0]) / _WANTED[1]

# Standard deviation of the logarithm of what a job wants over its SM activity, where that is read.
_SPREAD_READ = 0.6

# Part of the power over idle that a job keeps is the part of its rate to this power.
_POWER_EXPONENT = 0.7

LEARNED_LIMIT_W = 700.0
"""Power limit of the cards that were learned from."""

IDLE_W = 70.0
"""Of a GPU without a job, where none was seen: an H100 or H200 (data/advisor_data/bundled)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloWindow:
    """Means over one window of a job alone on the whole GPU.

    Attributes:
        power_w: Of the whole card.
        power_limit_w: Enforced; None: not read, and nothing is put in its place.
        clock_part: SM clock over the highest that the GPU had; a clock that fell under load says
            that the power limit holds the job back. 1 where it is not known.
        idle_power_w: Of the card without the job.
        memory_used_mib: Most of it; None: not seen.
        counters: By the names of `READ`, those that were read.
    """

    job: str
    gpu_model: str
    units_total: int | None
    power_w: float
    power_limit_w: float | None
    clock_part: float
    idle_power_w: float
    memory_used_mib: float | None
    counters: Mapping[str, float]

    @property
    def missing(self) -> tuple[str, ...]:
        """Which of `COUNTERS` were not read."""
        return tuple(name for name in COUNTERS if math.isnan(self.read(name)))

    @property
    def is_learned(self) -> bool:
        """Whether jobs on this GPU model were learned from."""
        return self.gpu_model in MEASURED_ON

    @property
    def part_of_power(self) -> float:
        """Power over that of the empty card, of what a card that was learned from may draw."""
        return max(self.power_w - self.idle_power_w, 0.0) / max(
            LEARNED_LIMIT_W - self.idle_power_w, 1.0
        )

    @property
    def dram(self) -> float:
        """DRAM activity as it was read, else by the time in which the memory was busy."""
        dram, busy = self.read(DRAM), np.nan_to_num(self.read(MEMORY_BUSY))
        return float(_DRAM_OF_BUSY * busy if math.isnan(dram) else dram) / WHOLE

    def read(self, name: str) -> float:
        """A counter; NaN: not read."""
        return self.counters.get(name, math.nan)


def window_of(profile: Profile) -> SoloWindow:
    """What is left of a profile where only its window on the whole GPU was seen."""
    clocks = np.nan_to_num(profile.values["sm_clock_mhz"])
    return SoloWindow(
        job=profile.job,
        gpu_model=profile.gpu_model,
        units_total=profile.units_total,
        power_w=profile.whole_gpu_power_w,
        power_limit_w=profile.power_limit_w,
        clock_part=float(clocks[-1] / np.nanmax(clocks)) if clocks.any() else 1.0,
        idle_power_w=profile.idle_power_w,
        memory_used_mib=profile.memory_used_mib,
        counters={
            **{name: float(values[-1]) for name, values in profile.values.items()},
            BUSY: WHOLE * profile.busy,
        },
    )


def window_of_point(point: SoloPoint) -> SoloWindow | None:
    """What a point on the whole GPU shows; None: it lacks its power, or how busy the GPU was."""
    counters = {name: getattr(point, name) for name in READ}
    if point.power_w is None or counters[SM] is counters[BUSY] is None:
        return None
    return SoloWindow(
        job=point.job,
        gpu_model=point.gpu_model,
        units_total=point.units_total,
        power_w=point.power_w,
        power_limit_w=point.power_limit_w,
        clock_part=1.0,
        idle_power_w=IDLE_W if point.idle_power_w is None else point.idle_power_w,
        memory_used_mib=point.memory_used_mib,
        counters={name: value for name, value in counters.items() if value is not None},
    )


def mean_window(points: Sequence[SoloPoint]) -> SoloPoint:
    """The last of points of a job on one GPU model, at the means of all, weighted by length.

    Rates are of those in the unit of the last that was counted; without any they stay as they are.
    """
    counted = [point for point in points if point.rate_unit != UNCOUNTED_UNIT] or points
    newest, means = points[-1], dict[str, float]()
    for name in (*READ, "idle_power_w"):
        same = [p for p in counted if p.rate_unit == counted[-1].rate_unit]
        if readings := [
            (value, point.window_s or 1.0)
            for point in (same if name == "rate" else points)
            if (value := getattr(point, name)) is not None
        ]:
            means[name] = sum(value * of_s for value, of_s in readings) / sum(
                s for _, s in readings
            )
    memory_mib = max((point.memory_used_mib or 0.0 for point in points), default=0.0) or None
    return replace(newest, rate_unit=counted[-1].rate_unit, memory_used_mib=memory_mib, **means)


def counter_features(window: SoloWindow) -> Floats:
    """What SM activity is estimated from on a GPU model that is learned; shape (1, 5)."""
    # Any driver reads these, and power.
    read = (
        np.nan_to_num(window.read(name)) / WHOLE
        for name in (MEMORY_BUSY, "pcie_tx_mib_per_s", "pcie_rx_mib_per_s")
    )
    return np.array([[*read, window.part_of_power, window.clock_part]])


def share_features(window: SoloWindow, sm: float, dram: float, shares: Sequence[float]) -> Floats:
    """What the rate and the power at shares are estimated from, fractions; shape (shares, 5)."""
    parts = np.array(shares) / WHOLE
    whole = (sm, dram, window.part_of_power, window.clock_part)
    return np.column_stack([*(np.full(len(parts), x) for x in whole), parts])


def prior_kept(sm: float, shares: Sequence[float]) -> Floats:
    """Part of its rate, and of its power, that a job keeps by the SMs that it is active on."""
    return np.minimum(1.0, np.array(shares) / WHOLE / max(sm, 0.01))


@dataclass(frozen=True, slots=True, eq=False)
class WindowEstimate:
    """What a profile is made of, beside its window.

    Attributes:
        sm: Activity of the SMs, read or estimated.
        dram: That of the DRAM.
        rate: Part of the rate that it keeps at `ESTIMATED_SHARES`, for each 1 on the whole GPU.
        power: Part of the power over that of the empty card.
    """

    sm: float
    dram: float
    rate: Floats
    power: Floats

    def numbers(self) -> Floats:
        """All of them in one row."""
        return np.concatenate([[self.sm, self.dram], self.rate, self.power])

    def off_by(self, errors: Floats) -> "WindowEstimate":
        """With so much added to `numbers`."""
        sm, dram, *kept = (self.numbers() + errors).tolist()
        return self.possible(sm, dram, *np.split(np.array(kept), 2))

    @classmethod
    def possible(cls, sm: float, dram: float, rate: Floats, power: Floats) -> Self:
        """The same within what can be: a smaller share keeps no more than a larger one."""
        kept, drawn = (np.maximum.accumulate(values).clip(0.01, 1) for values in (rate, power))
        return cls(min(max(sm, 0.0), 1.0), min(max(dram, 0.0), 1.0), kept, drawn)


def _prior_estimate(window: SoloWindow, off: float = 0.0) -> WindowEstimate:
    """What follows on any card from how busy SMs, GPU and memory were: watts say nothing there.

    GPU busy is no SM activity: a kernel on one SM keeps the GPU busy. So both are told from it, and
    from how much of that time the memory was busy.

    Args:
        window: With SM activity or GPU busy.
        off: By how many standard deviations the job wants more of the GPU.
    """
    sm, busy, memory = (window.read(name) / WHOLE for name in (SM, BUSY, MEMORY_BUSY))
    wanted, spread = sm, _SPREAD_READ
    if math.isnan(sm):
        memory = min(_UNREAD_MEMORY * busy if math.isnan(memory) else memory, busy)
        wanted = float(np.array(_WANTED) @ (busy, memory))
        spread = _SPREAD[0] + _SPREAD[1] * (busy - memory)
        sm = min(busy, _ACTIVE * (busy + memory) * math.exp(off * spread))
    wants = wanted * math.exp(off * spread) / (np.array([[*ESTIMATED_SHARES, WHOLE]]) / WHOLE)
    # The corner that the half of MISO chose, with the rest of this prior.
    *kept, whole = crowded(wants, wants, 5.0)
    rate = np.array(kept) / whole
    return WindowEstimate.possible(sm, window.dram, rate, rate**_POWER_EXPONENT)


def estimated_profile(window: SoloWindow, estimate: WindowEstimate) -> Profile:
    """The profile of a seen job."""
    kept, drawn = (np.append(v, 1) for v in (estimate.rate, estimate.power))
    shares = np.array([*ESTIMATED_SHARES, WHOLE])
    # A job does the same work for each step at any share, so counters go with its rate.
    values = {name: kept * window.read(name) for name in COLUMNS}
    values |= {
        "rate": kept,
        "power_w": window.idle_power_w + drawn * (window.power_w - window.idle_power_w),
        "sm_clock_mhz": np.full(len(shares), window.read("sm_clock_mhz")),
        "sm_active_percent": np.minimum(shares, WHOLE * estimate.sm * kept),
        "dram_active_percent": WHOLE * estimate.dram * kept,
    }
    return Profile(
        job=window.job,
        gpu_model=window.gpu_model,
        rate_unit=UNCOUNTED_UNIT,
        units_total=window.units_total,
        idle_power_w=window.idle_power_w,
        power_limit_w=window.power_limit_w,
        memory_used_mib=window.memory_used_mib,
        shares=shares,
        values=values,
        missing=tuple(name for name, v in values.items() if np.isnan(v).all()),
        flags=(SINGLE_WINDOW,) if window.is_learned else (SINGLE_WINDOW, PRIOR),
        busy=window.read(BUSY) / WHOLE,
    )


BUNDLED = Path(__file__).with_name("bundled_one_window")
HEADS = (SM, "rate", "power")
# Features of each head.
_FEATURES = 5

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

# Of what `_prior_estimate` says, standard deviation of the logarithm of watts on a part of the GPU,
# and of the speed beside others without limits, for each 1 of that of the SM activity: the bundled
# jobs and sets.
_SPREAD_W, _SPREAD_BESIDE = 0.2, 0.3

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
        read = {name: read_trees(name, trees[name], _FEATURES, _RENEW) for name in HEADS}
        self._sm = Forest(read[SM])
        self._shares = Forest(read["rate"], read["power"])
        self.left_out = left_out

    def estimate(self, window: SoloWindow) -> WindowEstimate:
        """What its profile is made of."""
        if not window.is_learned:
            return _prior_estimate(window)
        sm, dram = window.read(SM) / WHOLE, window.dram
        if SM in window.missing:
            # No more than GPU busy.
            ((estimated,),) = self._sm(as_float32(counter_features(window)))
            sm = float(np.fmin(max(estimated, 0.0), window.read(BUSY) / WHOLE))
        rows = as_float32(share_features(window, sm, dram, ESTIMATED_SHARES))
        prior = prior_kept(sm, ESTIMATED_SHARES)
        rate, power = (prior + np.array(own) for own in self._shares(rows, rows))
        return WindowEstimate.possible(sm, dram, rate, power)

    def likeliest(self, window: SoloWindow) -> Profile:
        """Its profile at `ESTIMATED_SHARES` and on the whole GPU."""
        return estimated_profile(window, self.estimate(window))

    def profile(self, window: SoloWindow, *, is_server: bool) -> Profile:
        """The same, with how far off it may be at each share: as far as other families were."""
        estimate, profile = self.estimate(window), self.likeliest(window)
        if not window.is_learned:
            ends = np.array([_prior_estimate(window, off).numbers() for off in (-1, 1)])
            ratios = np.maximum(ends, 0.01) / np.maximum(estimate.numbers(), 0.01)
            off = np.abs(np.log(ratios)).max(axis=0)
            rates = off[len(COUNTERS) :][: len(ESTIMATED_SHARES)]
            watts = np.full(len(rates), _SPREAD_W)
            spread = np.array([[*rates, _SPREAD_BESIDE * off[0]], [*watts, 0.0]])
            return replace(profile, doubt=spread)
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
                window, _prior_estimate(window, np.random.default_rng(world).standard_normal())
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
        nearest: dict[str, Floats] = {}
        for job in sorted(
            alike if len({job.family for job in alike}) > 1 else comparable,
            key=lambda job: (
                abs(job.sm - estimate.sm) + abs(job.part_of_power - window.part_of_power)
            ),
        ):
            nearest.setdefault(job.family, np.array(job.errors))
        return nearest


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
