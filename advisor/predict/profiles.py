"""Solo points of a job as arrays over its shares, and what models see of jobs at a split.

A job that serves makes as much progress as its demand, so its relative speed is the part of its
demand that it serves: rates are divided by the one measured alone on the whole GPU, as for every
other job. That is the offered rate where the GPU keeps up, but for the chance of arrivals; where it
does not, no share can serve more than the whole GPU does.

More SMs do not make a job slower; where a profile shows that, mostly of launch-bound jobs, its
windows were disturbed. Dips are taken out by the non-decreasing fit that changes the logarithms
least, each weighted by how surely it is known (pool adjacent violators: R. E. Barlow,
D. J. Bartholomew, J. M. Bremner, H. D. Brunk, "Statistical Inference under Order Restrictions",
1972, chapter 1).

The relative speed of a job is predicted from features seen from that job, arrays over splits:
`speed_features(own, others)`, so that swapping two jobs swaps the answer exactly. Power features do
not change when jobs are swapped. Names beginning with `own` are the job's readings alone at the
share of the split, those with `other` the largest of its neighbours', and those with `sum` of all
jobs together. The nine features of "Energy-efficient GPU SM allocation" (section 3.1, table 1) are
among them; the others say how much of what the GPU has the jobs want together.

What is learned on one GPU model is to hold on another one, so watts are in parts of the power
limit, clocks in parts of the highest one in the profile, and busy units, bandwidth and occupancy
in percent of what the GPU has. Traffic over PCIe is absolute: the link is the host's as much.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import WHOLE, vendor_of
from advisor.core.objectives import Interval
from advisor.core.records import BACKLOG, CPU_BOUND, DOUBTFUL, SoloPoint, grouped
from advisor.core.telemetry import NEAR_LIMIT
from advisor.errors import InputError
from advisor.predict.kernels import Kernels, computes_in_bursts
from advisor.validity.points import (
    NO_PROFILE,
    is_usable,
    newest_program,
    results_of_job,
    with_solo_flags,
)
from advisor.validity.safe_counts import CheckedCounts, Safety

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
    return Kernels(
        per_unit=_middle([point.kernels_per_unit for point in whole]),
        hold_s=_middle([point.kernel_hold_s for point in whole]),
        source="probe"
        if any(point.kernels_per_unit_stderr is not None for point in whole)
        else "counted",
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
        job_hash: Of the program that was profiled; None: not known.
        profiled_at: When its newest point began, ISO 8601.
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
    reported: str | None = None
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
    job_hash: str | None = None
    profiled_at: str = ""

    def is_of(self, job_hash: str | None) -> bool:
        """Whether it may be of the program with that hash; None: not known."""
        return job_hash is None or self.job_hash in (None, job_hash)

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
    def whole_gpu_needed(self) -> float:
        """Part of its time that a server needs for its demand; 0: its curve says nothing.

        At the shares at which it falls short, from the smallest on, as long as more SMs serve more
        and it keeps those that it has busy, the rate is its capacity there. The whole GPU does no
        more for each SM than the largest of these shares. An estimated rate says nothing.
        """
        serving, rates = self.serving, self.values["rate"]
        if serving is None or serving.offered_rate is None:
            return 0.0
        most = (1 - serving.tolerance) * np.minimum(serving.offered_rate, rates[1:])
        # Where SMs are active for less of its share, a server that falls short waits for something
        # else. Of the bundled ones two have 0.49 and 0.52, all others 0.80 to 0.90.
        unsure = self.values["sm_active_percent"] < 0.7 * self.shares
        unsure |= self.doubt_at(self.shares)[0] > 0
        count = int(np.logical_and.accumulate((rates[:-1] < most) & ~unsure[:-1]).sum())
        part = self.whole_gpu_rate / WHOLE * self.shares[count - 1] / rates[count - 1]
        return float(part) if count else 0.0

    @property
    def reads_ahead(self) -> bool:
        """Whether a job that computes in bursts reads its next input meanwhile.

        Such a job is as fast on fewer SMs until its bursts take all of the time; one that computes
        and then pauses gets slower at once. The smallest share at which bursts still leave time
        decides by the nearer of the two. An estimated rate says nothing.
        """
        active = float(np.fmax(*(self.values[f"{of}_active_percent"][-1] for of in ("sm", "dram"))))
        fits = (self.shares >= 1.25 * active) & (self.doubt_at(self.shares)[0] == 0)
        if not self.in_bursts or not fits[:-1].any():
            return False
        first = int(fits.argmax())
        longer = 1 + active / self.shares[first] - active / WHOLE
        return bool(self.values["rate"][first] > (1 + 1 / longer) / 2 * self.values["rate"][-1])

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
        job_hash=next((point.job_hash for point in usable if point.job_hash), None),
        profiled_at=newest.started_at,
    )


def make_profiles(points: Iterable[SoloPoint]) -> dict[tuple[str, str], Profile]:
    """The profile of each (job, GPU model) that has one.

    A share is taken from points that passed every cross-check, where there are any; never from
    points of which the results are wrong, or that lack the rate or the power. Rates do not fall
    with the share. Of a job that was profiled again after its job file changed, only points of its
    newest program are used.
    """
    groups = grouped(with_solo_flags(points), lambda point: (point.job, point.gpu_model))
    profiles: dict[tuple[str, str], Profile] = {}
    for key, of_all in sorted(groups.items()):
        of_job = newest_program(of_all)
        # A job that holds another number of GPUs than before is another one.
        held = max(of_job, key=lambda p: p.started_at).gpus
        best = {
            share: _undoubted(p for p in group if is_usable(p) and p.gpus == held)
            for share, group in grouped(of_job, lambda point: point.share_percent).items()
        }
        if best.get(WHOLE) and sum(map(bool, best.values())) > 1:
            # Wrong results make no profile, and still say where not to run.
            right, wrong = results_of_job(of_job)
            reports = (
                p.reported
                for p in sorted(best[WHOLE], key=lambda p: p.started_at, reverse=True)
                if p.results == "right" and p.job_hash and p.reported
            )
            profiles[key] = replace(
                _smoothed(p for group in best.values() for p in group),
                reported=next(reports, None),
                right_units=right,
                wrong_units=wrong,
            )
    # A unit of a job takes the same kernels on another GPU model; each is taken to last as long.
    counted = {(p.job, p.job_hash): p.kernels for p in profiles.values() if p.kernels}
    return {
        key: replace(p, kernels=replace(kernels, source="elsewhere"))
        if not p.kernels and (kernels := counted.get((p.job, p.job_hash)))
        else p
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
    column = "sm_active_percent"
    active = math.nan if column in profile.missing else float(profile.values[column][-1])
    # No job is taken to use less than 1 % of the SMs; NaN: not read.
    per_active = float(profile.values["rate"][-1]) / max(active, 1.0)
    could = np.maximum(rates, wanted * np.fmax(per_share[below], per_active))
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
        could = relative_capacity(profile, profile.shares)
        if needed := profile.whole_gpu_needed:
            could = np.minimum(could, np.maximum(rates / rate, profile.shares / (WHOLE * needed)))
        rates = np.minimum(could * profile.whole_gpu_rate, rate)
        is_more = rate > (1 + serving.tolerance) * serving.offered_rate
        serving = replace(
            serving, offered_rate=rate, latency_p99_ms=() if is_more else serving.latency_p99_ms
        )
    part = rates / profile.values["rate"]
    idle_w = np.fmax(profile.active_idle_power_w, profile.idle_power_w)
    power_w = idle_w + (profile.values["power_w"] - idle_w) * part
    return replace(
        profile,
        job=f"{profile.job} at {rate:.4g}/s",
        values={
            **profile.values,
            **{
                name: np.minimum(column * part, 100.0 if name in ACTIVITY else np.inf)
                for name, column in profile.values.items()
                if name != "sm_clock_mhz"
            },
            "rate": rates,
            "power_w": np.minimum(power_w, profile.power_limit_w or math.inf),
        },
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


def non_decreasing_rates(rates: Sequence[float], stderrs: Sequence[float]) -> list[float]:
    """The rates without dips.

    Args:
        rates: Over ascending shares, above 0.
        stderrs: Standard error of each, in the same unit; NaN where it is not known.
    """
    pools: list[tuple[float, float, int]] = []  # mean of the logarithms, weight, how many
    for rate, stderr in zip(rates, stderrs, strict=True):
        relative = stderr / rate if stderr == stderr else 0.0  # NaN is not itself
        # Two profiles of a GPU-bound job on one card differ by 0.1 to 0.2 % (docs/measurements,
        # "Does a profile repeat?").
        pool = (math.log(rate), 1 / max(relative, 0.002) ** 2, 1)
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


# What a profile has of the GPU, and may lack like a column.
IDLE = "idle_power_w"

# By how much active idle power is above idle power, for profiles that lack it. Of a GPU model with
# measurements, its name follows (`active_idle_above_of`).
ACTIVE_IDLE_ABOVE = "active_idle_above_w"


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
    # Gaps between and beyond known values are filled from their neighbours.
    readings = {
        n: np.full_like(profile.shares, fill[n])
        if n in profile.missing
        else np.interp(profile.shares, profile.shares[~np.isnan(v)], v[~np.isnan(v)])
        for n, v in profile.values.items()
    }
    return replace(profile, values=readings)


@functools.lru_cache(maxsize=1024)  # the same profile stays the same, so that its features do
def _above_idle(profile: Profile, above_w: float) -> Profile:
    return replace(profile, active_idle_power_w=profile.idle_power_w + above_w)


JobKind: TypeAlias = Literal["server", "launch-bound", "filling"]

# Below, a job of `_BY_SHARE` is harder to predict: how its rate falls there differs most.
_LOW_SHARE_PERCENT = 35.0

LEAST_ACTIVE_PERCENT = 50.0
"""A job whose SMs are active less alone on the whole GPU is launch-bound."""

# Situations of a job in which it matters how large its share is.
_BY_SHARE = ("launch-bound", "filling beside filling")


def is_launch_bound(profile: Profile) -> bool:
    """Whether the job keeps the GPU waiting alone on all of it.

    The kind `launch` of docs/colocate.md: flagged `cpu-bound`, or SMs active under half the time.
    """
    active = float(profile.values["sm_active_percent"][-1])
    return CPU_BOUND in profile.flags or active < LEAST_ACTIVE_PERCENT


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


# Readings that are features as they are.
_AT_SHARE = (*ACTIVITY, "relative_sm_clock", "job_cpu_percent")

# Readings of which a pair has the sum and the gap.
_PAIRED = (*_AT_SHARE, "pcie_tx_mib_per_s", "pcie_rx_mib_per_s", "relative_power")

FULL_BANDWIDTH_PERCENT = 93.0
"""`dram_active_percent` of a copy that waits for nothing but memory: 92 to 94 on H200 (triad,
transpose and reduction at 100 %, data/advisor_data/bundled)."""


MEASURED_ON = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""The GPU models whose bundled sets and pairs constants are fitted to."""

CORNER = 8.0
"""How sharply jobs slow down that have SMs of their own, where they want all of the memory."""


def crowded(sm: Floats, dram: Floats, corner: float | Floats = CORNER) -> Floats:
    """Part of its speed that each job keeps of what all want together; shape (ways,)."""
    return (1 + np.maximum(sm.sum(axis=0), dram.sum(axis=0)) ** corner) ** (-1 / corner)


# Of the form that `advisor.predict.predictions` explains.
FIXED = 0.35
EXPONENT = 0.25


def speed_left(
    limit_w: Floats | float, wanted_w: Floats | float, profiled_limit_w: float
) -> Floats:
    """Part of the speed that a limit leaves work which draws `wanted_w` without it."""
    fixed_w = FIXED * profiled_limit_w
    over_w = np.maximum(wanted_w, limit_w) - fixed_w
    return (np.maximum(limit_w - fixed_w, 1.0) / np.maximum(over_w, 1.0)) ** EXPONENT


def without_limit_w(limit_w: float, power_w: Floats | float, clock: Floats | float) -> Floats:
    """What a job would draw without its limit, by its clock there, for each 1 of the highest."""
    # The lowest clock that a bundled window at the limit had is 0.68 of the highest.
    wanted_w = limit_w * (FIXED + (1 - FIXED) / np.clip(clock, 0.5, 1.0) ** (1 / EXPONENT))
    return np.where((power_w >= NEAR_LIMIT * limit_w) & (clock < 1), wanted_w, power_w)


@dataclass(frozen=True, eq=False)
class Side:
    """One of the jobs at its shares, alone; what its neighbour does not change.

    Attributes:
        shares: Percent; shape (n,).
        readings: Each column at the shares, `relative_sm_clock`, which is 1 at the highest clock
            of the profile, and `relative_power`, which is 1 at `full_power_w`; shape (n,).
    """

    profile: Profile
    shares: Floats
    readings: Mapping[str, Floats]

    @functools.cached_property
    def capacity(self) -> Floats:
        """What it could do if there were always something to do, for each 1 of its whole rate."""
        return relative_capacity(self.profile, self.shares)

    @functools.cached_property
    def alone(self) -> Mapping[str, Floats]:
        """Features that a job has as `own` and as `other`, `relative_rate` among them; (n,) each.

        That is its rate for each one on the whole GPU.
        """
        profile, shares, readings = self.profile, self.shares, self.readings
        idle = profile.idle_power_w / _full_power_w(profile)
        return {
            **{name: readings[name] for name in _AT_SHARE},
            "log_pcie_tx": np.log1p(readings["pcie_tx_mib_per_s"]),
            "log_pcie_rx": np.log1p(readings["pcie_rx_mib_per_s"]),
            "relative_dynamic_power": readings["relative_power"] - idle,
            "relative_rate": readings["rate"] / profile.whole_gpu_rate,
            "sm_filled": readings["sm_active_percent"] / shares,
            **{
                f"whole_{name}": np.full_like(shares, profile.values[name][-1])
                for name in ("sm_active_percent", "dram_active_percent")
            },
        }

    @functools.cached_property
    def shape(self) -> Mapping[str, Floats]:
        """How the rate answers to the share: around it, over all shares, and in bandwidth; (n,)."""
        profile, shares, readings = self.profile, self.shares, self.readings
        low = np.maximum(shares - 10, profile.shares[0])
        high = np.minimum(shares + 10, WHOLE)
        rates = profile.values["rate"]
        step = np.log(
            np.interp(high, profile.shares, rates) / np.interp(low, profile.shares, rates)
        )
        whole = np.log(rates[-1] / rates[0]) / np.log(WHOLE / profile.shares[0])
        dram = max(float(profile.values["dram_active_percent"][-1]), 0.5)
        return {
            "own_local_sensitivity": step / np.log(high / low),
            "own_sensitivity": np.full_like(shares, whole),
            "own_bandwidth_saturation": readings["dram_active_percent"] / dram,
        }

    @functools.cached_property
    def paired(self) -> Floats:
        """Those of the readings that are `_PAIRED`; shape (readings, n)."""
        return np.array([self.readings[name] for name in _PAIRED])


def side(profile: Profile, shares: Sequence[float] | Floats) -> Side:
    """A job at its shares.

    Raises:
        InputError: a share lies outside the profile.
    """
    points = np.asarray(shares, dtype=np.float64)
    readings = profile.at(points)
    # A clock that no profile of the training data had is filled in as 0.
    highest_mhz = max(float(profile.values["sm_clock_mhz"].max()), 1.0)
    readings["relative_sm_clock"] = readings["sm_clock_mhz"] / highest_mhz
    readings["relative_power"] = readings["power_w"] / _full_power_w(profile)
    return Side(profile, points, readings)


def power_limit_w(sides: Sequence[Side]) -> float:
    """The lowest of the known limits; without one, no limit."""
    return min(
        (s.profile.power_limit_w for s in sides if s.profile.power_limit_w is not None),
        default=math.inf,
    )


def full_power_w(sides: Sequence[Side]) -> float:
    """What watts are parts of: the limit; where none is known, the most that a job drew alone."""
    limit = power_limit_w(sides)
    return limit if math.isfinite(limit) else max(_full_power_w(s.profile) for s in sides)


def _active_idle_power_w(sides: Sequence[Side]) -> float:
    """What the GPU draws before any job does work: the mean of the profiles.

    With jobs open its clocks are up, so it is more than the empty GPU draws; if unknown, it is that
    of the empty GPU.
    """
    idles_w = ((s.profile.active_idle_power_w, s.profile.idle_power_w) for s in sides)
    return sum(idle if math.isnan(active) else active for active, idle in idles_w) / len(sides)


def demanded_power_w(sides: Sequence[Side]) -> Floats:
    """What all jobs would draw together if nothing held them back; shape (n,)."""
    return _demanded_power_w(tuple(sides))


def physical_power_w(sides: Sequence[Side]) -> Floats:
    """Power without learning: all powers with one active idle power, clipped at the limit; (n,)."""
    return np.minimum(demanded_power_w(sides), power_limit_w(sides))


def prior_kept(sides: Sequence[Side]) -> Floats:
    """What a job keeps of its rate at the share, by supply of bandwidth and power alone; (n,)."""
    return _supply(tuple(sides))["prior_kept"]


def beside(sides: Sequence[Side], n: int) -> tuple[Side, ...]:
    """All sides but one: the neighbours of the job at that place."""
    return (*sides[:n], *sides[n + 1 :])


@functools.lru_cache(maxsize=16)
def _supply(sides: tuple[Side, ...]) -> dict[str, Floats]:
    """What the GPU has for all of them."""
    # Parts, at most 1: of the memory bandwidth that all want together which there is, and of the
    # speed that the power limit leaves.
    demand = _summed(sides, "dram_active_percent")
    bandwidth = np.minimum(1.0, FULL_BANDWIDTH_PERCENT / np.maximum(demand, 1.0))
    idle = _active_idle_power_w(sides)
    # Not 1 W: speeds are to be the same where all watts of a card are larger by one factor.
    dynamic = np.maximum(demanded_power_w(sides) - idle, 1e-3 * full_power_w(sides))
    # The root of the dynamic power that there is, a prior that stands for what else two jobs take
    # from each other, too: with `speed_left` it is 9.4 points off for 8.8, and trees that correct
    # it are as far off as before, 4.2.
    power = np.sqrt(np.minimum(1.0, (power_limit_w(sides) - idle) / dynamic))
    return {
        "bandwidth_factor": bandwidth,
        "power_factor": power,
        "prior_kept": np.fmin(bandwidth, power),
    }


def _summed(sides: Sequence[Side], name: str) -> Floats:
    """A reading of all sides together."""
    return np.add.reduce([s.readings[name] for s in sides])


@functools.lru_cache(maxsize=16)  # many features of one question are made from these two
def _demanded_power_w(sides: tuple[Side, ...]) -> Floats:
    return _summed(sides, "power_w") - (len(sides) - 1) * _active_idle_power_w(sides)


def _full_power_w(profile: Profile) -> float:
    return profile.power_limit_w or float(profile.values["power_w"].max())


# What trees see and learn is a multiple of this. Processors differ in the last bit of a
# logarithm, and trees would branch elsewhere for it; no instrument tells so small a step of any
# feature.
_STEP = 2.0**-16


def speed_features(side_of_job: Side, others: Sequence[Side]) -> dict[str, Floats]:
    """What a model sees of `side_of_job` next to `others`; each shape (n,), in a fixed order."""
    sides = (side_of_job, *others)
    wanted = (
        *("dram_active_percent", "memory_busy_percent", "sm_active_percent"),
        *("tensor_active_percent", "pcie_rx_mib_per_s"),
    )
    sums = {f"sum_{name}": _summed(sides, name) for name in wanted}
    dram = np.maximum(sums["sum_dram_active_percent"], 1.0)
    return {
        **{f"own_{name}": values for name, values in side_of_job.alone.items()},
        **{
            f"other_{name}": np.maximum.reduce([s.alone[name] for s in others])
            for name in side_of_job.alone
        },
        "own_share_percent": side_of_job.shares,
        "shares_sum_percent": np.add.reduce([s.shares for s in sides]),
        **side_of_job.shape,
        **sums,
        "own_part_of_dram": side_of_job.readings["dram_active_percent"] / dram,
        "relative_demanded_power": demanded_power_w(sides) / full_power_w(sides),
        "other_resident_warps_percent": np.maximum.reduce(
            [
                s.readings["sm_active_percent"] * s.readings["sm_occupancy_percent"] / 100
                for s in others
            ]
        ),
        **_supply(sides),
    }


def power_features(sides: Sequence[Side]) -> dict[str, Floats]:
    """What a model sees of the power of jobs; each shape (n,), the same in any order of two."""
    shares = [s.shares for s in sides]
    features = {
        "relative_physical_power": physical_power_w(sides) / full_power_w(sides),
        "relative_demanded_power": demanded_power_w(sides) / full_power_w(sides),
        "shares_sum_percent": np.add.reduce(shares),
        "shares_gap_percent": np.ptp(shares, axis=0),
        "relative_rates": np.add.reduce([s.alone["relative_rate"] for s in sides]),
        "prior_kept": prior_kept(sides),
    }
    paired = [s.paired for s in sides]
    for name, total, gap in zip(
        _PAIRED, np.add.reduce(paired), np.ptp(paired, axis=0), strict=True
    ):
        features |= {f"sum_{name}": total, f"gap_{name}": gap}
    return features


@functools.cache
def feature_names_of(features: Callable[[Sequence[Side]], Mapping[str, Floats]]) -> tuple[str, ...]:
    """Names of the features that a function makes, in the order of the columns."""
    profile = Profile(
        job="",
        gpu_model="",
        rate_unit="",
        idle_power_w=0.0,
        shares=np.array([WHOLE / 2, WHOLE]),
        values=dict.fromkeys(COLUMNS, np.ones(2)),
    )
    any_side = side(profile, profile.shares)
    return tuple(features((any_side, any_side)))


def matrix(features: Mapping[str, Floats]) -> Float32s:
    """Features as columns, `rounded`; shape (n, features), in the order of the names."""
    return np.ascontiguousarray(rounded(np.array(list(features.values()))).T, dtype=np.float32)


def rounded(values: Floats) -> Floats:
    """To multiples of `_STEP`: the same on every processor."""
    return np.rint(values / _STEP) * _STEP
