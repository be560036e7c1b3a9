"""Profiles, solo points of a job as arrays over its shares, and the predictions made from them.

Such a job makes as much progress as its demand, so its relative speed is the part of its
demand that it serves: rates are divided by the one measured alone on the whole GPU, as for every
other job. That is the offered rate where the GPU keeps up, but for the chance of arrivals; where it
does not, no share can serve more than the whole GPU does.

More SMs do not make a job slower; where a profile shows that, mostly of launch-bound jobs, its
windows were disturbed. Dips are taken out by the non-decreasing fit that changes the logarithms
least, each weighted by how surely it is known (pool adjacent violators: R. E. Barlow,
D. J. Bartholomew, J. M. Bremner, H. D. Brunk, "Statistical Inference under Order Restrictions",
1972, chapter 1).
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import WHOLE, Split, vendor_of, without_limits
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    NORMAL_90,
    OBJECTIVES,
    Interval,
    Objective,
    PartResult,
    SplitResult,
)
from advisor.core.records import BACKLOG, CPU_BOUND, DOUBTFUL, SoloPoint, grouped
from advisor.errors import InputError
from advisor.predict.kernels import Kernels, computes_in_bursts
from advisor.validity.points import NO_PROFILE, is_usable, results_of_job, with_solo_flags
from advisor.validity.safe_counts import CheckedCounts, Safety, safe_splits

Floats: TypeAlias = npt.NDArray[np.float64]

Float32s: TypeAlias = npt.NDArray[np.float32]
"""What the trees see; they split on single precision in training and in serving."""

LEAST_TOLERANCE, MOST_TOLERANCE = 0.02, 0.1
"""Bounds of `Serving.tolerance`: two windows vary by 2 %; a loss above 10 % is contention, not
noise."""


P99_MEASURED = Interval(1.0, 0.64, 1.55)
"""p99 beside another job for each 1 ms that other windows of the same jobs at the same split had:
5th, 50th and 95th percentile of 166 windows (docs/measurements/model.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is known of a job that answers requests.

    Attributes:
        offered_rate: Requests per second that arrive; None: it has no fixed demand.
        rate_noise: Relative standard error of its measured rates; None: not known.
        latency_p99_ms: 99th percentile of the time to answer, alone at a share: (share in percent,
            ms), by share; empty: never measured.
    """

    offered_rate: float | None
    rate_noise: float | None
    latency_p99_ms: tuple[tuple[float, float], ...]

    @property
    def tolerance(self) -> float:
        """Part of the demand that may be missing by chance.

        A relative speed is the ratio of two measured rates, so its standard error is the square
        root of 2 times theirs; twice that holds for 95 % of those that serve everything.
        """
        noise = 2 * math.sqrt(2) * (self.rate_noise or 0.0)
        return min(max(noise, LEAST_TOLERANCE), MOST_TOLERANCE)

    def served(self, speeds: Floats) -> Floats:
        """What is served of the demand by a job that could reach relative speeds, if it has one.

        All of it, 1, where the job could do more. Its bounds are then those of chance: a measured
        value lies `tolerance` below or above it. Values, low and high ends, shape (3, n).
        """
        if self.offered_rate is None:
            return speeds
        chance = self.tolerance
        served = np.minimum(speeds, np.array([[1.0], [1 - chance], [1 + chance]]))
        served[2] = np.maximum(served[2], served[0])
        return served

    def rate_alone(self, measured: float) -> float:
        """What its rates beside others are divided by: what arrives, where all of that was served.

        What arrived in one window differs from that by chance, and the other rates would have that
        difference in them. What was answered beyond it had waited in a queue.
        """
        offered = self.offered_rate
        return measured if offered is None or self.is_behind(measured) else offered

    def is_behind(self, whole_gpu_rate: float) -> bool:
        """Whether even the whole GPU serves less than what arrives."""
        offered = self.offered_rate
        return offered is not None and whole_gpu_rate < (1 - self.tolerance) * offered

    def p99_alone_ms(self, share_percent: float) -> float | None:
        """Alone at that share, linear between measured shares; None outside of them."""
        shares = [share for share, _ in self.latency_p99_ms]
        if not shares or not shares[0] <= share_percent <= shares[-1]:
            return None
        return float(np.interp(share_percent, shares, [ms for _, ms in self.latency_p99_ms]))


def serving_of(points: Iterable[SoloPoint]) -> Serving | None:
    """What points of one job on one GPU model tell; None: it answers no requests."""
    points = sorted(points, key=lambda point: point.started_at)
    offered = [p.offered_rate for p in points if p.offered_rate is not None]
    steady = [point for point in points if BACKLOG not in point.flags] or points
    tails = [(p.share_percent, p.latency_p99_ms) for p in steady if p.latency_p99_ms is not None]
    latencies = {share: [ms for at, ms in tails if at == share] for share, _ in tails}
    if not (offered or latencies):
        return None
    if latencies:  # more SMs answer no later, where the window of the whole GPU had a backlog
        latencies.setdefault(WHOLE, latencies[max(latencies)])
    noises = [p.rate_stderr / p.rate for p in points if p.rate_stderr is not None and p.rate > 0]
    return Serving(
        offered_rate=offered[-1] if offered else None,
        rate_noise=statistics.median(noises) if noises else None,
        latency_p99_ms=tuple((s, statistics.median(ms)) for s, ms in sorted(latencies.items())),
    )


def counted_kernels(points: Iterable[SoloPoint]) -> Kernels | None:
    """Medians of the points on the whole GPU that have kernels; None: none has."""
    whole = [point for point in points if point.share_percent == WHOLE]
    if all(point.kernels_per_unit is None for point in whole):
        return None
    is_probed = any(point.kernels_per_unit_stderr is not None for point in whole)
    return Kernels(
        per_unit=_middle([point.kernels_per_unit for point in whole]),
        hold_s=_middle([point.kernel_hold_s for point in whole]),
        source="probe" if is_probed else "counted",
    )


ACTIVITY = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "fp32_active_percent",
    "fp64_active_percent",
    "tensor_active_percent",
    "integer_active_percent",
    "dram_active_percent",
    "memory_busy_percent",
)

COLUMNS = (
    *("rate", "power_w", "sm_clock_mhz", "job_cpu_percent"),
    *ACTIVITY,
    *("pcie_tx_mib_per_s", "pcie_rx_mib_per_s"),
)
"""Columns of a solo point that a profile keeps; the first two are never missing."""

NEEDED = COLUMNS[:2]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Profile:
    """One job alone on one GPU model, at each share that was measured.

    Attributes:
        units_total: SMs or CUs of the GPU; None if not known.
        idle_power_w: Power before the job started.
        active_idle_power_w: Power with jobs open on the GPU and none at work; NaN if not known.
        power_limit_w: Enforced limit; None if not known.
        measured: The profile as it was measured, where another limit was asked for.
        memory_used_mib: Most GPU memory used at any share; None if not known.
        shares: Percent, ascending, the last one 100; shape (shares,).
        values: Each of `COLUMNS` over the shares, shape (shares,); NaN where it was not measured.
        missing: Columns that are NaN at every share.
        flags: Flags of its points, each once.
        right_units: Counts of units at which the job's own results were right.
        wrong_units: Counts at which they were wrong.
        serving: Demand and latencies; None: the job answers no requests.
        gpu_uuids: Cards that its points are of.
        in_bursts: Whether it has the whole GPU for a while, and then pauses.
        busy: Part of the time in which a kernel runs on the whole GPU, 0 to 1; NaN: not known.
        kernels: Its kernels on the whole GPU; None: not known.
        doubt: Standard deviations of the logarithms of rate and power over the shares, shape
            (2, shares), where they were estimated; None: they were measured.
        memory_bound: With which its memory was measured, as points have it.
        mps_clients: The most clients of MPS that it had on a GPU.
        gpus: How many GPUs the job holds; `values`, powers and memory are then of one of them, the
            mean of all.
    """

    job: str
    gpu_model: str
    rate_unit: str
    units_total: int | None = None
    idle_power_w: float
    active_idle_power_w: float = math.nan
    power_limit_w: float | None = None
    measured: "Profile | None" = None
    memory_used_mib: float | None = None
    shares: Floats
    values: Mapping[str, Floats]
    missing: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    reported: tuple[str, str] | None = None
    right_units: frozenset[int] = frozenset()
    wrong_units: frozenset[int] = frozenset()
    serving: Serving | None = None
    gpu_uuids: frozenset[str] = frozenset()
    in_bursts: bool = False
    busy: float = math.nan
    kernels: Kernels | None = None
    doubt: Floats | None = None
    memory_bound: str | None = None
    mps_clients: int = 1
    gpus: int = 1

    def doubt_at(self, shares: Floats) -> Floats:
        """`doubt` at these shares, linear between its own; shape (2, n), 0 where it is None."""
        doubt = np.zeros((2, len(self.shares))) if self.doubt is None else self.doubt
        return np.array([np.interp(shares, self.shares, of) for of in doubt])

    def at(self, shares: Sequence[float] | Floats, *names: str) -> dict[str, Floats]:
        """Columns at these shares, all that are not named, linear between the measured ones; (n,).

        Raises:
            InputError: a share lies outside the measured ones.
        """
        wanted = np.asarray(shares, dtype=np.float64)
        if wanted.size and (wanted.min() < self.shares[0] or wanted.max() > WHOLE):
            raise InputError(
                f"{self.job} was not measured at {wanted.min():g}..{wanted.max():g} %",
                why=f"its profile has {self.shares[0]:g}..100 %",
                fix=f"measure those shares: advisor profile {self.job}",
            )
        places, values = np.searchsorted(self.shares, wanted), self.values
        if bool(np.all(self.shares[places] == wanted)):
            return {name: values[name][places] for name in names or values}
        return {name: np.interp(wanted, self.shares, values[name]) for name in names or values}

    @property
    def whole_gpu_rate(self) -> float:
        """Rate at 100 %; of a server that serves all of its demand, the demand."""
        measured = float(self.values["rate"][-1])
        return measured if self.serving is None else self.serving.rate_alone(measured)

    @property
    def whole_gpu_p99_ms(self) -> float | None:
        """p99 latency alone at the largest share, ms; None: not known, or no server."""
        return self.serving and self.serving.p99_alone_ms(float(self.shares[-1]))

    @property
    def whole_gpu_power_w(self) -> float:
        """Power at 100 %, of all GPUs that the job holds."""
        return self.gpus * float(self.values["power_w"][-1])

    @property
    def lowered_w(self) -> float | None:
        """The limit that it was brought to; None: to no lower one."""
        profiled_w = self.measured.power_limit_w if self.measured else self.power_limit_w
        return None if self.power_limit_w == profiled_w else self.power_limit_w

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - a question asks it of the same few profiles
    def safety(self, host: CheckedCounts | None) -> Safety:
        """At which counts the job may run, by its own results and by the host's check, if any."""
        return Safety(
            units_total=host.units_total if host else self.units_total,
            host=host,
            right=self.right_units,
            wrong=self.wrong_units,
            vendor=vendor_of(self.gpu_model),
        )


def hold_several(profiles: Iterable[Profile]) -> bool:
    """Whether one of the jobs holds several GPUs."""
    return any(profile.gpus > 1 for profile in profiles)


def make_profile(points: Iterable[SoloPoint]) -> Profile:
    """The profile of one job on one GPU model; medians where a share was measured repeatedly.

    Points of any run or card are taken; those that failed a cross-check should be left out before.

    Raises:
        InputError: points of several jobs or models, no usable point at 100 %, or fewer than two
            shares.
    """
    usable = [point for point in points if is_usable(point)]
    names = {(point.job, point.gpu_model) for point in usable}
    if len(names) > 1:
        raise InputError(f"a profile is of one job on one GPU model, not of {sorted(names)}")
    shares = sorted({point.share_percent for point in usable})
    if len(shares) < 2 or shares[-1] != WHOLE:
        raise InputError(
            f"shares {', '.join(f'{share:g}' for share in shares) or 'none'} make no profile",
            why="a prediction needs the job alone at 100 % and at one smaller share at least",
            fix="advisor profile JOB",
        )
    by_share = [[p for p in usable if p.share_percent == share] for share in shares]
    values = {
        name: np.array([_middle([getattr(p, name) for p in points]) for points in by_share])
        for name in COLUMNS
    }
    if all(BACKLOG in point.flags for point in by_share[-1]):
        # What arrives was seen without a queue at the other shares.
        values["rate"][-1] = min(values["rate"][-1], max(values["rate"][:-1]))
    in_bursts = [computes_in_bursts(point) for point in by_share[-1]]
    newest = max(usable, key=lambda point: point.started_at)
    return Profile(
        job=newest.job,
        gpu_model=newest.gpu_model,
        rate_unit=newest.rate_unit,
        units_total=newest.units_total,
        idle_power_w=_middle([p.idle_power_w for p in usable]),
        active_idle_power_w=_middle([p.active_idle_power_w for p in usable]),
        power_limit_w=newest.power_limit_w,
        memory_used_mib=max((p.memory_used_mib or 0 for p in usable), default=0) or None,
        shares=np.array(shares),
        values=values,
        missing=tuple(name for name, v in values.items() if bool(np.isnan(v).all())),
        flags=tuple(sorted({flag for point in usable for flag in point.flags})),
        serving=serving_of(usable),
        gpu_uuids=frozenset(point.gpu_uuid for point in usable),
        in_bursts=sum(in_bursts) > len(in_bursts) / 2,
        busy=_middle([p.gpu_busy_percent for p in by_share[-1]]) / WHOLE,
        kernels=counted_kernels(usable),
        memory_bound=newest.memory_bound,
        mps_clients=max(point.mps_clients or 1 for point in usable),
        gpus=newest.gpus or 1,
    )


def make_profiles(points: Iterable[SoloPoint]) -> dict[tuple[str, str], Profile]:
    """The profile of each (job, GPU model) that has one.

    A share is taken from points that passed every cross-check, where there are any; never from
    points of which the results are wrong, or that lack the rate or the power. Rates do not fall
    with the share: `advisor.predict.profiles`.
    """
    groups = grouped(with_solo_flags(points), lambda point: (point.job, point.gpu_model))
    profiles: dict[tuple[str, str], Profile] = {}
    for key, of_job in sorted(groups.items()):
        # A job that holds another number of GPUs than before is another one.
        held = max(of_job, key=lambda p: p.started_at).gpus
        best = {
            share: _undoubted(p for p in group if is_usable(p) and p.gpus == held)
            for share, group in grouped(of_job, lambda point: point.share_percent).items()
        }
        if best.get(WHOLE) and sum(map(bool, best.values())) > 1:
            # Wrong results make no profile, and still say where not to run.
            right, wrong = results_of_job(of_job)
            # Of points on the whole GPU, the newest whose results are right.
            newest_first = sorted(best[WHOLE], key=lambda p: p.started_at, reverse=True)
            reports = ((p.job_hash, p.reported) for p in newest_first if p.results == "right")
            profiles[key] = replace(
                _smoothed(p for group in best.values() for p in group),
                reported=next(
                    ((job_hash, values) for job_hash, values in reports if job_hash and values),
                    None,
                ),
                right_units=right,
                wrong_units=wrong,
            )
    # A unit of a job takes the same kernels on another GPU model.
    counted = {job: p.kernels for (job, _), p in profiles.items() if p.kernels}
    return {
        key: p if p.kernels else replace(p, kernels=counted.get(key[0]))
        for key, p in profiles.items()
    }


def _smoothed(points: Iterable[SoloPoint]) -> Profile:
    """The profile of the points, its rates without dips that are noise, nor watts of bursts."""
    solo_points = list(points)
    profile = make_profile(solo_points)
    stderrs = [
        _middle([p.rate_stderr for p in solo_points if p.share_percent == share])
        for share in profile.shares
    ]
    rates = np.array(non_decreasing_rates(profile.values["rate"].tolist(), stderrs))
    watts = profile.values["power_w"]
    if profile.in_bursts:
        # A window that met few bursts would say that two copies draw less than one.
        none_w = np.fmax(profile.idle_power_w, profile.active_idle_power_w)
        watts = np.maximum(watts, none_w + rates / rates[-1] * (watts[-1] - none_w))
    return replace(profile, values={**profile.values, "rate": rates, "power_w": watts})


def relative_capacity(profile: Profile, shares: Sequence[float] | Floats) -> Floats:
    """Rate that a job could reach alone at shares, for each one on the whole GPU; shape (n,).

    A server (a job with a fixed demand) serves its demand, so its measured rate says little
    of what it can. How much of a GPU it can give up, and what a neighbour takes of it, depends on
    its capacity; what is served is the lower one of that and demand (`Serving.served`).

    Where a server falls short of its demand, its rate is its capacity. Where it does not, its
    capacity is taken to grow with the share from the best rate per share at the share or below:
    it served that much there. The capacity of servers is near that up to half an H100 (8 % less at
    most, bert-serve-60 in data/advisor_data/bundled) and less than that beyond, where it is far
    above the demand. A server without small shares is bounded by its SM activity on the whole GPU,
    as it answers fuller batches where it waits. That bound is 46 to 62 % of the capacity of servers
    that fell short, so they keep the latter. For other jobs it is the rate.

    Raises:
        InputError: a share lies outside the profile.
    """
    wanted = np.asarray(shares, dtype=np.float64)
    rates = profile.at(wanted, "rate")["rate"]
    serving = profile.serving
    if serving is None or serving.offered_rate is None:
        return rates / profile.whole_gpu_rate
    per_share = np.maximum.accumulate(profile.values["rate"] / profile.shares)
    below = np.searchsorted(profile.shares, wanted, side="right") - 1
    is_short = rates < (1 - serving.tolerance) * serving.offered_rate
    # SMs that it is active on, on the whole GPU; NaN: not read.
    column = "sm_active_percent"
    active = math.nan if column in profile.missing else float(profile.values[column][-1])
    # No job is taken to use less than 1 % of the SMs.
    per_active_percent = float(profile.values["rate"][-1]) / max(active, 1.0)
    could = np.maximum(rates, wanted * np.fmax(per_share[below], per_active_percent))
    return np.where(is_short, rates, could) / profile.whole_gpu_rate


def with_rate(profile: Profile, rate: float) -> Profile:
    """The job at another rate alone: of a server so many requests per second arrive.

    It has another name, as what was measured of it beside others was at its own rate.
    What it draws and keeps busy above (active) idle goes with its rate, which holds where a batch
    is not fuller than before. A server answers no more than it can, as far as that was seen. Less
    demand has no longer tail; that of more is not known. A hundredth more or less is no other rate.
    """
    if math.isclose(rate, profile.whole_gpu_rate, rel_tol=0.01):
        return profile
    serving, rates = profile.serving, profile.values["rate"] * rate / profile.whole_gpu_rate
    if serving and serving.offered_rate is not None:
        could = relative_capacity(profile, profile.shares) * profile.whole_gpu_rate
        rates = np.minimum(could, rate)
        is_more = rate > (1 + serving.tolerance) * serving.offered_rate
        tails = () if is_more else serving.latency_p99_ms
        serving = replace(serving, offered_rate=rate, latency_p99_ms=tails)
    part = rates / profile.values["rate"]
    idle_w = np.fmax(profile.active_idle_power_w, profile.idle_power_w)
    values = {
        name: np.minimum(column * part, 100.0 if name in ACTIVITY else np.inf)
        for name, column in profile.values.items()
        if name != "sm_clock_mhz"
    }
    power_w = idle_w + (profile.values["power_w"] - idle_w) * part
    values |= {"rate": rates, "power_w": np.minimum(power_w, profile.power_limit_w or math.inf)}
    return replace(
        profile,
        job=f"{profile.job} at {rate:.4g}/s",
        values={**profile.values, **values},
        serving=serving,
        busy=min(profile.busy * float(part[-1]), 1.0),
        measured=None,
    )


def _middle(values: Sequence[float | None]) -> float:
    """Median of those that were measured; NaN of none."""
    present = [value for value in values if value is not None]
    return float(np.median(present)) if present else float("nan")


def _undoubted(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """Those that passed every cross-check, else those that are not known to be wrong."""
    right = [point for point in points if not NO_PROFILE & set(point.flags)]
    return [point for point in right if DOUBTFUL.isdisjoint(point.flags)] or right


# Relative standard error that a rate has at least: two profiles of a GPU-bound job on one card
# differ by 0.1 to 0.2 % (docs/measurements, "Does a profile repeat?").
_LEAST_ERROR = 0.002


def non_decreasing_rates(rates: Sequence[float], stderrs: Sequence[float]) -> list[float]:
    """The rates without dips.

    Args:
        rates: Over ascending shares, above 0.
        stderrs: Standard error of each, in the same unit; NaN where it is not known.
    """
    pools: list[tuple[float, float, int]] = []  # mean of the logarithms, weight, how many
    for rate, stderr in zip(rates, stderrs, strict=True):
        relative = stderr / rate if stderr == stderr else 0.0  # NaN is not itself
        pool = (math.log(rate), 1 / max(relative, _LEAST_ERROR) ** 2, 1)
        while pools and pools[-1][0] > pool[0]:
            pool = _joined(pools.pop(), pool)
        pools.append(pool)
    starts = itertools.accumulate((count for _, _, count in pools), initial=0)
    return [
        rates[place] if count == 1 else math.exp(mean)
        for start, (mean, _, count) in zip(starts, pools, strict=False)
        for place in range(start, start + count)
    ]


def _joined(
    first: tuple[float, float, int], other: tuple[float, float, int]
) -> tuple[float, float, int]:
    weight = first[1] + other[1]
    return (first[0] * first[1] + other[0] * other[1]) / weight, weight, first[2] + other[2]


IDLE = "idle_power_w"
"""What a profile has of the GPU, and may lack like a column."""

ACTIVE_IDLE_ABOVE = "active_idle_above_w"
"""By how much active idle power is above idle power, for profiles that lack it; of a GPU model of
which that is known, its name is behind it: `active_idle_above_of`."""


def active_idle_above_of(gpu_model: str) -> str:
    """The name under which `fill` has it for a GPU model."""
    return f"{ACTIVE_IDLE_ABOVE} on {gpu_model}"


def with_active_idle(profile: Profile, fill: Mapping[str, float]) -> Profile:
    """The profile with an active idle power: what its GPU model draws above idle, else what all do.

    The same one if it has its own, or none is known.
    """
    above_w = fill.get(active_idle_above_of(profile.gpu_model), fill.get(ACTIVE_IDLE_ABOVE))
    if above_w is None or not math.isnan(profile.active_idle_power_w):
        return profile
    return _above_idle(profile, above_w)


def filled(profile: Profile, fill: Mapping[str, float]) -> Profile:
    """The profile without gaps: it has what it lacks at some shares from its own nearest ones.

    `missing` still tells what was not measured at all; it gets what the column is usually like.

    Raises:
        InputError: `fill` lacks a column that is missing.
    """
    if math.isnan(profile.idle_power_w) and IDLE in fill:
        profile = replace(profile, idle_power_w=fill[IDLE])
    profile = with_active_idle(profile, fill)
    # All columns at once: most profiles are whole, and a prediction asks twice.
    if not np.isnan(np.array(list(profile.values.values()))).any():
        return profile
    if unknown := [name for name in profile.missing if name not in fill]:
        raise InputError(
            f"the profile of {profile.job} lacks {', '.join(unknown)}",
            why="nothing is known that could stand in for it",
            fix="measure it with counters that are available: advisor doctor",
        )
    usual = {name: np.full_like(profile.shares, fill[name]) for name in profile.missing}
    measured = {n: v for n, v in profile.values.items() if n not in usual}
    # Gaps between and beyond known values are filled from their neighbours.
    readings = {
        n: np.interp(profile.shares, profile.shares[~np.isnan(v)], v[~np.isnan(v)])
        for n, v in measured.items()
    }
    return replace(profile, values={n: (usual | readings)[n] for n in profile.values})


@functools.lru_cache(maxsize=1024)  # the same profile stays the same, so that its features do
def _above_idle(profile: Profile, above_w: float) -> Profile:
    return replace(profile, active_idle_power_w=profile.idle_power_w + above_w)


JobKind: TypeAlias = Literal["server", "launch-bound", "filling"]

# Below, a job of `_BY_SHARE` is harder to predict: how its rate falls there differs most.
_LOW_SHARE_PERCENT = 35.0

# A job whose SMs are active less alone on the whole GPU is launch-bound.
_LEAST_ACTIVE_PERCENT = 50.0

# Situations of a job in which it matters how large its share is.
_BY_SHARE = ("launch-bound", "filling beside filling")


def is_launch_bound(profile: Profile) -> bool:
    """Whether the job keeps the GPU waiting alone on all of it.

    The kind `launch` of docs/colocate.md: flagged `cpu-bound`, or SMs active under half the time.
    """
    active = float(profile.values["sm_active_percent"][-1])
    return CPU_BOUND in profile.flags or active < _LEAST_ACTIVE_PERCENT


def kind_of(profile: Profile) -> JobKind:
    """What a job is: one with a fixed demand, one that waits for its CPU core, or neither."""
    if profile.serving is not None and profile.serving.offered_rate is not None:
        return "server"
    return "launch-bound" if is_launch_bound(profile) else "filling"


@functools.lru_cache(maxsize=4096)  # few, and a question asks for dozens
def of_job(situation_alone: str, others: tuple[str, ...], share_percent: float, place: str) -> str:
    """The situation of a job beside others, at a share of a place such as "split"."""
    if share_percent == WHOLE:  # a server without limits takes what it needs, as one that fills
        others = tuple("filling" if kind == "server" else kind for kind in others)
    situation = situation_alone
    if situation_alone == "filling":
        hardest = next(kind for kind in ("filling", "server", "launch-bound") if kind in others)
        situation = f"filling beside {hardest}"
    if situation in _BY_SHARE and share_percent < _LOW_SHARE_PERCENT:
        return f"{place}, {situation}, below {_LOW_SHARE_PERCENT:g} %"
    return f"{place}, {situation}"


def of_pair(kinds: Collection[str], place: str) -> str:
    """The situation of jobs together."""
    with_a = (f"with a {kind}" for kind in ("server", "launch-bound") if kind in kinds)
    return f"{place}, {next(with_a, 'both fill')}"


@dataclass(frozen=True, slots=True)
class _PredictedPart:
    """What is expected of one of the jobs.

    Attributes:
        speed: Relative speed: 1 is as fast as alone on the whole GPU.
        solo_power_w: Power of the GPUs while the job runs alone on all of what it holds.
        gpus: How many it holds.
        latency_p99_ms: None: it answers no requests, or its p99 alone is not known.
    """

    speed: Interval
    solo_rate: float
    solo_power_w: float
    gpus: int = 1
    latency_p99_ms: Interval | None = None

    @property
    def rate(self) -> Interval:
        """Progress per second, in the job's own unit."""
        return self.speed.times(self.solo_rate)


def possible_speeds(profile: Profile, speeds: Floats, most: float = 1.0) -> Floats:
    """Speeds of at most 1, and measured high ends of at most `most`; servers serve their demand.

    A job that was faster beside others was slow alone (`advisor.validity.slow_alone`). The next
    window may show that again, but it is no extra work. Values, low and high ends, shape (3, n).
    """
    if profile.serving:
        return profile.serving.served(speeds)
    return np.minimum(speeds, np.array([[1.0], [1.0], [most]]))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Jobs on one GPU at one split.

    Attributes:
        parts: One for each share of the split.
        memory_power_w: The part of it that its memory draws; None: the model does not say.
        efficiency_factors: What to multiply `energy-efficiency` with for its bounds, where they are
            known by its own errors: a card that draws more draws more for each job alone, too, so
            the bounds of speeds and power together would be too far apart.
    """

    split: Split
    parts: tuple[_PredictedPart, ...]
    power_w: Interval
    memory_power_w: Interval | None = None
    efficiency_factors: tuple[float, float] | None = None

    @functools.cached_property
    def result(self) -> SplitResult:
        """The expected values as objectives take them."""
        return self._result([part.speed.value for part in self.parts], self.power_w.value)

    @functools.cached_property
    def _worst(self) -> SplitResult:
        return self._result([part.speed.low for part in self.parts], self.power_w.high)

    @functools.cached_property
    def _best(self) -> SplitResult:
        return self._result([part.speed.high for part in self.parts], self.power_w.low)

    @functools.cached_property
    def energy_saved(self) -> Interval:
        """Part of the energy saved for the same work, against one after the other."""
        bounds = self.efficiency
        if bounds is None or bounds.low <= 0:
            return self.range_of(lambda result: result.energy_saved)
        return Interval(self.result.energy_saved, 1 - 1 / bounds.low, 1 - 1 / bounds.high)

    @functools.cached_property
    def stp(self) -> Interval:
        """Sum of relative speeds: how much more is done in an hour than one after the other."""
        return self.range_of(lambda result: result.stp)

    def objective_value(self, objective: Objective) -> Interval:
        """The objective; see `range_of`, and for the default one `efficiency_factors`."""
        # With the caller's prices it is another one.
        efficiency = self.efficiency if objective is OBJECTIVES[DEFAULT_OBJECTIVE] else None
        return efficiency or self.range_of(objective.value)

    @functools.cached_property
    def efficiency(self) -> Interval | None:
        """`energy-efficiency` with bounds of its own errors; None where these are not known."""
        if self.efficiency_factors is None:
            return None
        value = OBJECTIVES[DEFAULT_OBJECTIVE].value(self.result)
        return Interval(value, *(value * factor for factor in self.efficiency_factors))

    def range_of(self, value: Callable[[SplitResult], float]) -> Interval:
        """A value at the expected result, and between all bounds at their worst and best.

        The bounds of speeds and power hold one by one, so these hold more often than they do.
        """
        return Interval(value(self.result), value(self._worst), value(self._best))

    def _result(self, speeds: Sequence[float], power_w: float) -> SplitResult:
        parts = [
            PartResult(speed * part.solo_rate, part.solo_rate, part.solo_power_w, part.gpus)
            for speed, part in zip(speeds, self.parts, strict=True)
        ]
        return SplitResult(tuple(parts), power_w)


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """Jobs on one GPU at n splits: columns over them, each of which is a `Prediction`.

    Intervals stand as values, low and high ends; what is not known is NaN.

    Attributes:
        solo: Rate and power of each job alone on the whole GPU, and how many it holds.
        speeds: Relative ones; shape (3, jobs, n).
        power_w: Shape (3, n).
        latencies_p99_ms: As `_PredictedPart` has it; shape (3, jobs, n).
        memory_power_w: Shape (3, n).
        efficiency_factors: Shape (2, n).
    """

    splits: tuple[Split, ...]
    solo: tuple[tuple[float, float, int], ...]
    speeds: Floats
    power_w: Floats
    latencies_p99_ms: Floats
    memory_power_w: Floats
    efficiency_factors: Floats

    @classmethod
    def of(cls, rows: Sequence[Prediction]) -> "Predictions":
        """Columns of predictions of the same jobs, at least one."""
        parts = [[astuple(part.speed) for part in row.parts] for row in rows]
        tails = [[astuple(part.latency_p99_ms or _UNKNOWN) for part in row.parts] for row in rows]
        factors = [row.efficiency_factors or (math.nan, math.nan) for row in rows]
        return cls(
            splits=tuple(row.split for row in rows),
            solo=tuple((part.solo_rate, part.solo_power_w, part.gpus) for part in rows[0].parts),
            speeds=np.array(parts).T,
            power_w=np.array([astuple(row.power_w) for row in rows]).T,
            latencies_p99_ms=np.array(tails).T,
            memory_power_w=np.array([astuple(row.memory_power_w or _UNKNOWN) for row in rows]).T,
            efficiency_factors=np.array(factors).T,
        )

    def __iter__(self) -> Iterator[Prediction]:
        return map(self.__getitem__, range(len(self.splits)))

    @functools.lru_cache(maxsize=8192)  # noqa: B019 - other limits of the same jobs are asked for next
    def __getitem__(self, place: int) -> Prediction:
        low, high = self.efficiency_factors[:, place].tolist()
        return Prediction(
            split=self.splits[place],
            parts=tuple(self.part(place, job) for job in range(len(self.solo))),
            power_w=Interval(*self.power_w[:, place].tolist()),
            memory_power_w=_interval(self.memory_power_w[:, place]),
            efficiency_factors=None if math.isnan(low) else (low, high),
        )

    def part(self, place: int, job: int) -> _PredictedPart:
        """What is expected of one of the jobs at one of the splits."""
        speed = Interval(*self.speeds[:, job, place].tolist())
        return _PredictedPart(
            speed, *self.solo[job], _interval(self.latencies_p99_ms[:, job, place])
        )

    def values(self, objective: Objective) -> list[float]:
        """What each split is worth: objectives are formulas for arrays of rates and watts, too."""
        parts = [
            PartResult(speeds * rate, rate, alone_w, gpus)
            for speeds, (rate, alone_w, gpus) in zip(self.speeds[0], self.solo, strict=True)
        ]
        values: Any = objective.value(_Results(tuple(parts), self.power_w[0]))
        return values.tolist()

    @functools.cached_property
    def together(self) -> list[int]:
        """Places of the splits at which jobs run at the same time."""
        return [n for n, split in enumerate(self.splits) if split.sharing != "exclusive"]


class _Results(SplitResult):
    """Results at all splits at once: rates and watts are arrays over them."""

    def __post_init__(self) -> None:
        if not np.all(np.greater(self.power_w, 0)):
            raise InputError(f"power_w is {self.power_w}", why="objectives divide by it")

    @property
    def slowest(self) -> Any:
        """Relative speed of the slowest job."""
        return np.min(self.speeds, axis=0)


def joined(splits: Sequence[Split], *parts: Predictions) -> Predictions:
    """Predictions of the same jobs at these splits, each by the last part that has it."""
    if len(parts) == 1 and parts[0].splits == tuple(splits):
        return parts[0]
    places = {s: n for n, s in enumerate(split for part in parts for split in part.splits)}
    order = [places[split] for split in splits]
    columns = {
        field.name: np.concatenate([getattr(p, field.name) for p in parts], axis=-1)[..., order]
        for field in fields(Predictions)[2:]
    }
    return Predictions(splits=tuple(splits), solo=parts[0].solo, **columns)


def with_doubt(predictions: Predictions, profiles: Sequence[Profile]) -> Predictions:
    """Bounds that also hold what is not known of estimated profiles, whose errors are independent.

    Errors of rate and power of one job are not: a faster job draws more, so that work per joule is
    as unsure as the work alone.
    """
    if all(profile.doubt is None for profile in profiles):
        return predictions
    shares_of = [
        *zip(profiles, np.array([split.shares for split in predictions.splits]).T, strict=True)
    ]
    beside = [split.sharing != "exclusive" for split in predictions.splits]
    rates, powers = np.moveaxis(np.array([p.doubt_at(of) * beside for p, of in shares_of]), 1, 0)
    alone_w = np.array([p.at(of, "power_w")["power_w"] for p, of in shares_of])
    watts = np.sqrt(((powers * alone_w) ** 2).sum(axis=0)) / predictions.power_w[0]
    speeds = _wider(predictions.speeds, rates)
    for job, profile in enumerate(profiles):
        speeds[:, job] = possible_speeds(profile, speeds[:, job])
    work = predictions.speeds[0] * np.array(predictions.solo)[:, 1:2]
    of_work = np.sqrt(((rates * work) ** 2).sum(axis=0)) / work.sum(axis=0)
    factors = np.array([np.ones(len(predictions.splits)), *predictions.efficiency_factors])
    return replace(
        predictions,
        speeds=speeds,
        power_w=_wider(predictions.power_w, watts),
        efficiency_factors=_wider(factors, of_work)[1:],
    )


def _wider(bounds: Floats, doubt: Floats) -> Floats:
    """Values with low and high ends, moved out by a standard deviation of logarithms."""
    value, low, high = np.log(np.maximum(bounds, 1e-9))
    off = NORMAL_90 * doubt
    return np.exp([value, value - np.hypot(value - low, off), value + np.hypot(high - value, off)])


def solo_of(profiles: Sequence[Profile]) -> tuple[tuple[float, float, int], ...]:
    """As `Predictions` has it."""
    return tuple((p.whole_gpu_rate, p.whole_gpu_power_w, p.gpus) for p in profiles)


_UNKNOWN = Interval(math.nan, math.nan, math.nan)


def _interval(bounds: Floats) -> Interval | None:
    return None if math.isnan(bounds[0]) else Interval(*bounds.tolist())


class Predictor(Protocol):
    """Anything that can say how jobs behave at splits."""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, at least one, in their order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedPair:
    """What is expected of jobs at n splits, without intervals.

    Attributes:
        speeds: Of each job that always has something to do; shape (jobs, n).
        power_w: Shape (n,).
    """

    speeds: Floats
    power_w: Floats


PairQuery: TypeAlias = tuple[Sequence[Profile], Sequence[Split]]
"""Jobs, and the splits that they are asked for at."""


class PairPredictor(Predictor, Protocol):
    """One that can be asked of many pairs at once, which is faster."""

    def expected(self, queries: Sequence[PairQuery]) -> list[ExpectedPair]:
        """Of each pair the values of `predict`, to rounding, in the order of its splits."""
        ...


def predicted_part(profile: Profile, speed: Interval) -> _PredictedPart:
    """What is expected of a job with this profile at a relative speed."""
    return _PredictedPart(speed, profile.whole_gpu_rate, profile.whole_gpu_power_w, profile.gpus)


def are_mirrored(profiles: Sequence[Profile]) -> bool:
    """Whether the jobs stand against the order of their names, as `safe_splits` takes it."""
    return profiles[0].job > profiles[-1].job


def is_within(split: Split, profiles: Sequence[Profile]) -> bool:
    """Whether each job was measured at its share, or below it."""
    return all(s >= p.shares[0] for s, p in zip(split.shares, profiles, strict=True))


def safe_splits_of(
    profiles: Sequence[Profile], splits: Sequence[Split], checked: CheckedCounts | None
) -> tuple[Split | None, ...]:
    """For each split of jobs the nearest one that is safe; see `safe_splits`."""
    safeties = [profile.safety(checked) for profile in profiles]
    return safe_splits(splits, safeties, mirrored=are_mirrored(profiles))


def predict_exclusive(profiles: Sequence[Profile]) -> Prediction:
    """One after the other: measured, not predicted, so the bounds are the values.

    Of several GPUs those that one job leaves run another meanwhile.
    """
    gpus = max(profile.gpus for profile in profiles)
    part = gpus / sum(profile.gpus for profile in profiles)
    power_w = part * sum(p.whole_gpu_power_w for p in profiles)
    return Prediction(
        split=without_limits("exclusive", len(profiles)),
        parts=tuple(
            replace(predicted_part(p, Interval.sure(part)), latency_p99_ms=ms and Interval.sure(ms))
            for p, ms in ((p, p.whole_gpu_p99_ms) for p in profiles)
        ),
        power_w=Interval.sure(power_w),
    )
