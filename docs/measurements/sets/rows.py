"""Measured sets beside what each of their jobs does alone, and tables of errors over them.

Of the bundled campaigns, all or those named by RUN and --gpu-model. Errors of speeds are in points
of the job's rate alone on the whole GPU, errors of watts in percent; brackets hold 95 % of 1,000
draws of jobs, of which a set counts to each of its own alike. `host`: jobs that one core bounds
alone (the flag cpu-bound), which repeat badly.
"""

import argparse
import functools
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from advisor.core.gpu import WHOLE, Sharing, Split
from advisor.core.records import FILLS_PERCENT, PairPoint, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.kernels import Kernels
from advisor.predict.profiles import Floats, Profile, make_profiles
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_set_points,
    bundled_set_references,
    bundled_solo_points,
    select,
)
from advisor_profiling.reports import LEFT_OUT

AGAIN = "the same set on another card"

Alone = Mapping[tuple[str, float], SoloPoint]
"""What a job did alone at a share."""


@functools.cache
def known_profiles() -> Mapping[str, Profile]:
    """Of each job, on whatever GPU model."""
    return {job: p for (job, _), p in make_profiles(bundled_solo_points()).items()}


@functools.cache
def known_busy() -> Mapping[str, float]:
    """Percent of the time in which kernels of each job run alone, the median of its windows."""
    read: dict[str, list[float]] = defaultdict(list)
    for point in (*bundled_solo_points(), *bundled_set_references()):
        if point.gpu_busy_percent is not None and point.share_percent == WHOLE:
            read[point.job].append(point.gpu_busy_percent)
    return {job: statistics.median(own) for job, own in read.items()}


@dataclass(frozen=True, slots=True)
class Part:
    """A job of a set: what it does alone at its limit, and its speed in the set."""

    alone: SoloPoint
    whole: SoloPoint
    speed: float
    p99_ms: float | None = None

    @property
    def base(self) -> float:
        """Speed alone at its limit."""
        return self.alone.rate / self.whole.rate

    @property
    def serves(self) -> bool:
        return self.whole.offered_rate is not None

    @property
    def fills(self) -> bool:
        return (self.whole.sm_active_percent or 0.0) >= FILLS_PERCENT

    @property
    def is_host(self) -> bool:
        return "cpu-bound" in self.whole.flags

    @property
    def kind(self) -> str:
        """Whose errors are counted together."""
        return "server" if self.serves else "host" if self.is_host else ""

    @property
    def kernels(self) -> Kernels | None:
        profile = known_profiles().get(self.whole.job)
        return profile and profile.kernels

    @property
    def needs(self) -> float:
        return getattr(known_profiles().get(self.whole.job), "whole_gpu_needed", 0.0)

    def activity(self, name: str = "sm_active_percent") -> float:
        """Part of the GPU alone at its limit."""
        return (getattr(self.alone, name) or 0.0) / 100


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One window of a set."""

    gpu_model: str
    gpu_uuid: str
    text: str
    mode: str
    parts: tuple[Part, ...]
    power_w: float
    idle_w: float
    active_idle_w: float
    limit_w: float
    clock: float

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for windows that differ in card and moment alone."""
        return self.gpu_model, self.text, self.mode

    @property
    def jobs(self) -> frozenset[str]:
        return frozenset(part.whole.job for part in self.parts)

    @property
    def kind(self) -> str:
        """Whether one core bounds one of its jobs."""
        return "host" if any(part.is_host for part in self.parts) else ""

    @property
    def split(self) -> Split:
        shares = tuple(part.alone.share_percent for part in self.parts)
        return Split(shares, "limited" if self.mode == "limits" else cast("Sharing", self.mode))

    @property
    def is_apart(self) -> bool:
        """Whether limits leave each job SMs of its own."""
        return sum(part.alone.share_percent for part in self.parts) <= WHOLE + 1

    @property
    def is_at_limit(self) -> bool:
        return self.power_w >= NEAR_LIMIT * self.limit_w

    @property
    def fill(self) -> int:
        """How many of its jobs fill the GPU."""
        return sum(part.fills for part in self.parts)

    def column(self, of_part: Callable[[Part], float]) -> Floats:
        """A value of each job; shape (jobs, 1)."""
        return np.array([[float(of_part(part))] for part in self.parts])


@dataclass(frozen=True, slots=True)
class Campaign:
    """What a run measured on one card: sets, and their jobs alone."""

    run: str
    gpu_model: str
    gpu_uuid: str
    sets: tuple[PairPoint, ...]
    alone: tuple[SoloPoint, ...]


def campaigns(text: str | None) -> list[Campaign]:
    """The campaigns that the command line names; all where it names none."""
    parser = argparse.ArgumentParser(description=(text or "").split("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--gpu-model", default="", help="A part of its name, such as H200")
    asked = parser.parse_args()
    return bundled_campaigns(asked.runs, asked.gpu_model)


def bundled_campaigns(runs: Collection[str] = (), gpu_model: str = "") -> list[Campaign]:
    """Those runs, or all, on GPUs of which that is a part of the name."""
    alone: dict[tuple[str, str], list[SoloPoint]] = defaultdict(list)
    for point in bundled_set_references():
        alone[point.run, point.gpu_uuid].append(point)
    sets: dict[tuple[str, str, str], list[PairPoint]] = defaultdict(list)
    for window in bundled_set_points():
        if gpu_model in window.gpu_model and (not runs or window.run in runs):
            sets[window.run, window.gpu_model, window.gpu_uuid].append(window)
    return [
        Campaign(run, model, uuid, tuple(points), tuple(alone[run, uuid]))
        for (run, model, uuid), points in sorted(sets.items())
    ]


def measured_rows(text: str | None) -> list[Row]:
    """The sets of those campaigns all of whose jobs were measured alone, too."""
    return [row for campaign in campaigns(text) for row in rows_of(campaign)]


def measured_pairs() -> list[Row]:
    """Bundled pairs; none where the command line names campaigns.

    None with limits of which a job that one core bounds was not alone on that host.
    """
    return [
        row
        for row in (rows_of_pairs() if len(sys.argv) == 1 else ())
        if row.mode != "limits"
        or {part.whole.gpu_uuid for part in row.parts if part.is_host} <= {row.gpu_uuid}
    ]


def rows_of_pairs() -> list[Row]:
    """Bundled pairs whose jobs have a bundled point at each share.

    Jobs alone on the whole GPU are of the same run and card where both were measured there, at
    limits as much slower as in the profile.
    """
    solo = _profiled()
    for point in bundled_reference_points():
        solo[point.run, point.gpu_uuid].setdefault((point.job, point.share_percent), point)
    found, at_limits = list[Row | None](), dict[object, Alone]()
    for point in select(bundled_pair_points())[0]:
        known, key = solo[point.gpu_model], (point.run, point.gpu_uuid)
        if all((part.job, 100.0) in solo[key] for part in point.parts):
            if key not in at_limits:
                at_limits[key] = _with_limits(known, solo[key])
            known = at_limits[key]
        found.append(row_of(point, known))
    return [row for row in found if row]


def _profiled() -> dict[object, dict[tuple[str, float], SoloPoint]]:
    """By GPU model; empty for other keys."""
    solo: dict[object, dict[tuple[str, float], SoloPoint]] = defaultdict(dict)
    for point in bundled_solo_points():
        solo[point.gpu_model].setdefault((point.job, point.share_percent), point)
    return solo


def _with_limits(of_model: Alone, there: Alone) -> Alone:
    """Jobs alone on a host; at limits by how much slower they are there in profiles."""
    return {**there} | {
        (job, share): replace(point, rate=point.rate / whole.rate * there[job, 100.0].rate)
        for (job, share), point in of_model.items()
        if share < WHOLE and (whole := of_model.get((job, 100.0))) and (job, 100.0) in there
    }


def asked_windows() -> Iterator[tuple[tuple[str, ...], Split, Any]]:
    """Jobs, split and readings of each window of own/asked_sets.py."""
    for line in (Path(__file__).parents[1] / "own/asked-h200.jsonl").read_text().splitlines():
        window = json.loads(line)
        names = [re.fullmatch(r"([^@~!]+)(?:@(\d+))?(~?)((?:!1)?)", n) for n in window["jobs"]]
        jobs, limits, turns, low = zip(*(one.groups() for one in names if one), strict=True)
        shares = tuple(float(limit or WHOLE) for limit in limits)
        sharing = "time-sliced" if any(turns) else "limited" if any(limits) else "uncapped"
        yield (
            jobs,
            Split(shares, sharing, tuple(n for n, is_low in enumerate(low) if is_low)),
            window,
        )


def asked_rows() -> list[Row]:
    """Sets of own/asked_sets.py without priorities; none where the command line names campaigns.

    What a job does alone is the median of its windows on that GPU. Idle power and what bounds the
    job are of its profile; jobs without one are left out.
    """
    windows = [*asked_windows()] if len(sys.argv) == 1 else []
    known, alone = _profiled()["NVIDIA H200"], defaultdict[Any, list[Any]](list)
    for (job, *others), _, window in windows:
        if not others and (job, 100.0) in known:
            alone[window["uuid"], job].append(window)
    there = defaultdict[str, dict[tuple[str, float], SoloPoint]](dict)
    for (uuid, job), own in alone.items():
        there[uuid][job, 100.0] = _measured_alone(known[job, 100.0], uuid, own)
    found = list[Row]()
    for jobs, split, window in windows:
        solo = _with_limits(known, there[window["uuid"]])
        parts = [
            _part(solo[job, share], solo[job, 100.0], rate)
            for job, share, rate in zip(jobs, split.shares, window["rates_per_s"], strict=True)
            if (job, share) in solo
        ]
        if len(jobs) == len(parts) > 1 and not split.below_normal:
            read = {"power_w": window["power_w"], "sm_clock_mhz": window["sm_mhz"]}
            point = replace(parts[0].whole, active_idle_power_w=None, **read)
            found.append(_row(point, "limits" if split.is_limited else split.sharing, parts))
    return found


def _measured_alone(profiled: SoloPoint, uuid: str, windows: Sequence[Any]) -> SoloPoint:
    """The point of a profile, with what these windows read instead."""
    columns: dict[str, Callable[[Any], float]] = {
        "rate": lambda window: window["rates_per_s"][0],
        "power_w": lambda window: window["power_w"],
        "sm_clock_mhz": lambda window: window["sm_mhz"],
        "sm_active_percent": lambda window: window["percent"]["sm"],
        "sm_occupancy_percent": lambda window: window["percent"]["occupancy"],
        "dram_active_percent": lambda window: window["percent"]["dram"],
    }
    medians = {name: statistics.median(map(read, windows)) for name, read in columns.items()}
    return replace(profiled, gpu_uuid=uuid, **medians)


def rows_of(campaign: Campaign, left_out: Collection[str] = LEFT_OUT) -> list[Row]:
    """Those of one campaign, without windows that have one of these flags."""
    solo: dict[tuple[str, float], SoloPoint] = {}
    for point in campaign.alone:
        if not set(left_out) & set(point.flags):
            solo.setdefault((point.job, point.share_percent), point)
    return [row for row in (row_of(point, solo, left_out) for point in campaign.sets) if row]


def row_of(
    point: PairPoint,
    solo: Mapping[tuple[str, float], SoloPoint],
    left_out: Collection[str] = LEFT_OUT,
) -> Row | None:
    """One window; None if a check failed, or a job was not measured alone at its limit."""
    seats = [((p.job, p.share_percent), (p.job, 100.0)) for p in point.parts]
    if set(left_out) & set(point.flags) or not all(a in solo and b in solo for a, b in seats):
        return None
    parts = [
        _part(solo[seat], solo[whole], p.rate or 0.0, p.latency_p99_ms)
        for p, (seat, whole) in zip(point.parts, seats, strict=True)
    ]
    return _row(point, "limits" if point.mode == "mps" else point.mode, parts)


def _part(alone: SoloPoint, whole: SoloPoint, rate: float, p99_ms: float | None = None) -> Part:
    speed = rate / whole.rate
    return Part(alone, whole, min(1.0, speed) if whole.offered_rate else speed, p99_ms)


def _row(of: PairPoint | SoloPoint, mode: str, parts: Sequence[Part]) -> Row:
    return Row(
        gpu_model=of.gpu_model,
        gpu_uuid=of.gpu_uuid,
        text="+".join(f"{part.whole.job}@{part.alone.share_percent:g}" for part in parts),
        mode=mode,
        parts=tuple(parts),
        power_w=of.power_w or math.nan,
        idle_w=of.idle_power_w or 0.0,
        active_idle_w=of.active_idle_power_w or math.nan,
        limit_w=of.power_limit_w or math.inf,
        clock=(of.sm_clock_mhz or math.nan) / 1980,
    )


# errors


@dataclass(frozen=True, slots=True)
class Off:
    """One error of one rule, of one job of a window or of all."""

    rule: str
    row: Row
    kind: str
    jobs: frozenset[str]
    error: float


def again(rows: Sequence[Row]) -> tuple[list[Off], list[Off]]:
    """How far sets that were measured on two cards are from themselves: speeds, and watts."""
    first: dict[tuple[str, str, str], Row] = {}
    speeds, watts = list[Off](), list[Off]()
    for row in rows:
        if (before := first.setdefault(row.key, row)) is row:
            continue
        for one, other in zip(before.parts, row.parts, strict=True):
            off = 100 * abs(one.speed - other.speed)
            speeds.append(Off(AGAIN, row, other.kind, frozenset([other.whole.job]), off))
        off = 100 * abs(before.power_w / row.power_w - 1)
        watts.append(Off(AGAIN, row, row.kind, row.jobs, off))
    return speeds, watts


CUTS: Mapping[str, Callable[[Off], bool]] = {
    "all": lambda off: True,
    "MPS, no limits": lambda off: off.row.mode == "uncapped",
    "one limit": lambda off: off.row.mode == "limits" and not off.row.is_apart,
    "own SMs": lambda off: off.row.mode == "limits" and off.row.is_apart,
    "own SMs, at the limit": lambda off: CUTS["own SMs"](off) and off.row.is_at_limit,
    "time-sliced": lambda off: off.row.mode == "time-sliced",
    "time-sliced, host": lambda off: off.row.mode == "time-sliced" and off.kind == "host",
}
MPS_CUTS: Mapping[str, Callable[[Off], bool]] = {
    "2 jobs": lambda off: len(off.row.parts) == 2,
    "3, 4": lambda off: len(off.row.parts) in (3, 4),
    "5 to 7": lambda off: len(off.row.parts) > 4,
    "none fills": lambda off: off.row.fill == 0,
    "one fills": lambda off: off.row.fill == 1,
    "two or more fill": lambda off: off.row.fill > 1,
    "one of 3 and more": lambda off: off.row.fill == 1 and len(off.row.parts) > 2,
    "servers": lambda off: off.kind == "server",
    "not host": lambda off: off.kind == "",
    "host": lambda off: off.kind == "host",
    "H100": lambda off: "H100" in off.row.gpu_model,
    "H200": lambda off: "H200" in off.row.gpu_model,
}


def tables(title: str, offs: Sequence[Off]) -> None:
    """Print mean errors by way of sharing, and of MPS without limits by what is shared."""
    table(title, offs, CUTS)
    free = [off for off in offs if off.row.mode == "uncapped"]
    table(f"{title}; MPS without limits", free, MPS_CUTS)


def table(title: str, offs: Sequence[Off], cuts: Mapping[str, Callable[[Off], bool]]) -> None:
    """Print mean errors of each rule, with the bounds of draws of jobs."""
    print(f"\n| {title} | {' | '.join(cuts)} |")
    print(f"|---|{'--:|' * len(cuts)}")
    for rule in dict.fromkeys(off.rule for off in offs):
        own = [off for off in offs if off.rule == rule]
        cells = [cell([off for off in own if cut(off)]) for cut in cuts.values()]
        print(f"| {rule} | {' | '.join(cells)} |")


def cell(offs: Sequence[Off]) -> str:
    """The mean, with the bounds of draws of jobs; empty where there is none."""
    if not offs:
        return ""
    found = over_jobs([off.jobs for off in offs], [off.error for off in offs], 1000)
    return "{:.1f} [{:.1f} {:.1f}]".format(*found)


def over_jobs(
    jobs: Sequence[Collection[str]], values: Sequence[float], draws: int
) -> tuple[float, float, float]:
    """The mean over sets, and 95 % of draws of jobs, of which a set counts to each of its own."""
    of_jobs: dict[str, Floats] = defaultdict(lambda: np.zeros(2))
    for own, value in zip(jobs, values, strict=True):
        for job in own:
            of_jobs[job] += np.array([value, 1.0]) / len(own)
    sums = np.array([*of_jobs.values()])
    drawn = np.random.default_rng(1).integers(len(sums), size=(draws, len(sums)))
    errors, counts = sums[drawn].sum(axis=1).T
    low, high = np.quantile(errors / counts, [0.025, 0.975])
    return statistics.fmean(values), low, high
