"""All solo points of a job as arrays over its shares: what predictions are made from."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.flags import DOUBTFUL
from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.core.units import vendor_of
from advisor.errors import InputError
from advisor.predict.bursts import computes_in_bursts
from advisor.predict.serving import Serving, serving_of
from advisor.predict.smoothing import non_decreasing_rates
from advisor.validity.degenerate import with_solo_flags
from advisor.validity.safe_counts import CheckedCounts, Safety
from advisor.validity.usable import NO_PROFILE, is_usable, own_results

Floats: TypeAlias = npt.NDArray[np.float64]

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

_LEAST_ACTIVE_PERCENT = 1.0
"""No job is taken for smaller."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Profile:
    """One job alone on one GPU model, at each share that was measured.

    Attributes:
        units_total: SMs or CUs of the GPU; None if not known.
        idle_power_w: Power before the job started.
        active_idle_power_w: Power with jobs open on the GPU and none at work; NaN if not known.
        power_limit_w: Enforced limit; None if not known.
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
    """

    job: str
    gpu_model: str
    rate_unit: str
    units_total: int | None = None
    idle_power_w: float
    active_idle_power_w: float = math.nan
    power_limit_w: float | None = None
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

    def at(self, shares: Sequence[float] | Floats) -> dict[str, Floats]:
        """Every column at these shares, linear between the measured ones; shape (n,).

        Raises:
            InputError: a share lies outside the measured ones.
        """
        asked = np.asarray(shares, dtype=np.float64)
        if asked.size and (asked.min() < self.shares[0] or asked.max() > WHOLE):
            raise InputError(
                f"{self.job} was not measured at {asked.min():g}..{asked.max():g} %",
                why=f"its profile has {self.shares[0]:g}..100 %",
                fix=f"measure those shares: advisor profile {self.job}",
            )
        places = np.searchsorted(self.shares, asked)
        if bool(np.all(self.shares[places] == asked)):
            return {name: values[places] for name, values in self.values.items()}
        return {name: np.interp(asked, self.shares, v) for name, v in self.values.items()}

    @property
    def whole_gpu_rate(self) -> float:
        """Rate at 100 %; of a server that serves all of its demand, the demand."""
        measured = float(self.values["rate"][-1])
        return measured if self.serving is None else self.serving.rate_alone(measured)

    @property
    def whole_gpu_power_w(self) -> float:
        """Power at 100 %."""
        return float(self.values["power_w"][-1])

    def safety(self, host: CheckedCounts | None) -> Safety:
        """At which counts the job may run, by its own results and by the host's check, if any."""
        return Safety(
            units_total=host.units_total if host else self.units_total,
            host=host,
            right=self.right_units,
            wrong=self.wrong_units,
            vendor=vendor_of(self.gpu_model),
        )


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
    values = {name: _over_shares(by_share, name) for name in COLUMNS}
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
        in_bursts=_mostly(computes_in_bursts(point) for point in by_share[-1]),
    )


def make_profiles(points: Iterable[SoloPoint]) -> dict[tuple[str, str], Profile]:
    """The profile of each (job, GPU model) that has one.

    A share is taken from points that passed every cross-check, where there are any; never from
    points of which the results are wrong, or that lack the rate or the power. Rates do not fall
    with the share: `advisor.predict.smoothing`.
    """
    groups: dict[tuple[str, str], dict[float, list[SoloPoint]]] = {}
    for point in with_solo_flags(points):
        shares = groups.setdefault((point.job, point.gpu_model), {})
        shares.setdefault(point.share_percent, []).append(point)
    found: dict[tuple[str, str], Profile] = {}
    for key, shares in sorted(groups.items()):
        best = {share: _undoubted(filter(is_usable, group)) for share, group in shares.items()}
        if best.get(WHOLE) and sum(map(bool, best.values())) > 1:
            # Wrong results make no profile, and still say where not to run.
            right, wrong = own_results(p for group in shares.values() for p in group)
            found[key] = replace(
                _smoothed(p for group in best.values() for p in group),
                reported=_reported(best[WHOLE]),
                right_units=right,
                wrong_units=wrong,
            )
    return found


def _smoothed(points: Iterable[SoloPoint]) -> Profile:
    """The profile of the points, its rates without dips that are noise."""
    known = list(points)
    profile = make_profile(known)
    stderrs = [
        _middle([p.rate_stderr for p in known if p.share_percent == share])
        for share in profile.shares
    ]
    rates = non_decreasing_rates(profile.values["rate"].tolist(), stderrs)
    return replace(profile, values={**profile.values, "rate": np.array(rates)})


def relative_capacity(profile: Profile, shares: Sequence[float] | Floats) -> Floats:
    """Rate that a job could reach alone at shares, for each one on the whole GPU; shape (n,).

    A server (a job with a fixed demand) does what is asked of it, so its measured rate says little
    of what it can. How much of a GPU it can give up, and what a neighbour takes of it, depends on
    its capacity; what is served is the lower one of that and demand (`Serving.served`).

    Where a server falls short of its demand, its rate is its capacity. Where it does not, its
    capacity is taken to grow with the share from the best rate per share at the share or below:
    it served that much there. The capacity of servers is near that up to half an H100 (8 % less at
    most, bert-serve-60 in data/advisor_data/bundled) and less than that beyond, where it is far
    above the demand. Of a server that nobody saw at small shares that says little: it takes its SM
    activity on the whole GPU at most, as it answers fuller batches where it waits. Of the servers
    that were seen to fall short that is 46 to 62 % of their capacity, so they keep the latter. For
    other jobs it is the rate.

    Raises:
        InputError: a share lies outside the profile.
    """
    asked = np.asarray(shares, dtype=np.float64)
    rates = profile.at(asked)["rate"]
    serving = profile.serving
    if serving is None or serving.offered_rate is None:
        return rates / profile.whole_gpu_rate
    per_share = np.maximum.accumulate(profile.values["rate"] / profile.shares)
    below = np.searchsorted(profile.shares, asked, side="right") - 1
    is_short = rates < (1 - serving.tolerance) * serving.offered_rate
    could = np.maximum(rates, asked * np.fmax(per_share[below], _per_active_percent(profile)))
    return np.where(is_short, rates, could) / profile.whole_gpu_rate


def _per_active_percent(profile: Profile) -> float:
    """Rate on the whole GPU for each percent of the SMs that it is active on; NaN: not read."""
    column = "sm_active_percent"
    active = math.nan if column in profile.missing else float(profile.values[column][-1])
    return float(profile.values["rate"][-1]) / max(active, _LEAST_ACTIVE_PERCENT)


def _reported(whole: Iterable[SoloPoint]) -> tuple[str, str] | None:
    """Of points on the whole GPU, the newest whose results are right."""
    for point in sorted(whole, key=lambda p: p.started_at, reverse=True):
        if point.results == "right" and point.reported and point.job_hash:
            return point.job_hash, point.reported
    return None


def _over_shares(by_share: Sequence[Sequence[SoloPoint]], name: str) -> Floats:
    return np.array([_middle([getattr(p, name) for p in points]) for points in by_share])


def _mostly(found: Iterable[bool]) -> bool:
    known = list(found)
    return sum(known) > len(known) / 2


def _middle(values: Sequence[float | None]) -> float:
    """Median of those that were measured; NaN of none."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else float("nan")


def _undoubted(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """Those that passed every cross-check, else those that are not known to be wrong."""
    right = [point for point in points if not NO_PROFILE & set(point.flags)]
    return [point for point in right if DOUBTFUL.isdisjoint(point.flags)] or right
