"""How near simple rules come to measured sets of two to seven jobs: speeds and watts.

    python docs/measurements/sets/predict.py NAME [NAME ...]

NAME is a campaign's without the ending, as for report.py. A rule knows each job alone at its limit,
by the windows of the same campaign: rate, watts, counters. Its constants, if it has any, are fitted
to the sets of the same way of sharing without the job that is judged; watts of a set are the mean
over its jobs, each left out in turn. Errors of speeds are in points of the job's rate alone on the
whole GPU, errors of watts in percent; brackets hold 90 % of 500 draws of sets. `host`: jobs that
one core bounds alone (the flag cpu-bound), which repeat badly. The last row of each table is how
far the same set on another card and host is from itself.
"""

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import Split, without_limits
from advisor.predict.features import prior_kept, side
from advisor.predict.profiles import COLUMNS, Floats, Profile, make_profile
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.files import read_points
from advisor_models.model_predictor import ModelPredictor
from advisor_profiling.campaign.pairing import filling_jobs
from advisor_profiling.reports.sets import LEFT_OUT

MODEL = Path(__file__).resolve().parents[3] / "models/advisor_models/bundled"
ACTIVE_IDLE_W = [float(watts) for watts in range(60, 201, 5)]
"""Tried as the power of a card with contexts and no work."""


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

    def activity(self, name: str = "sm_active_percent") -> float:
        """Part of the GPU alone at its limit."""
        return (getattr(self.alone, name) or 0.0) / 100


@dataclass(frozen=True, slots=True)
class Row:
    """One window of a set, and the product's own answers for it."""

    text: str
    mode: str
    parts: tuple[Part, ...]
    power_w: float
    idle_w: float
    active_idle_w: float
    limit_w: float
    fill: int
    prior: tuple[float, ...] = ()
    model: tuple[float, ...] = ()
    model_w: float = math.nan

    @property
    def jobs(self) -> frozenset[str]:
        return frozenset(part.whole.job for part in self.parts)

    def total(self, name: str) -> float:
        """What all jobs want of it together."""
        return sum(part.activity(name) for part in self.parts)


Speeds: TypeAlias = Callable[[Row], Sequence[float]]
Watts: TypeAlias = Callable[[Row], float]


# rules for speeds: each is fitted to rows, and then says the speeds of one


def as_many_as_fit(rows: Sequence[Row]) -> Speeds:
    """Nobody loses anything: N times one."""
    return lambda row: [p.base for p in row.parts]


def equal_parts(rows: Sequence[Row]) -> Speeds:
    """Sharing gains nothing: 1 / N each."""
    return lambda row: [min(p.base, 1 / len(row.parts)) for p in row.parts]


def tax(rows: Sequence[Row]) -> Speeds:
    """The same loss for each neighbour, whatever it does."""

    def with_tax(loss: float) -> Speeds:
        return lambda row: [p.base / (1 + loss * (len(row.parts) - 1)) for p in row.parts]

    return nearest([with_tax(loss / 100) for loss in range(0, 61, 2)], rows)


def linear(rows: Sequence[Row]) -> Speeds:
    """Gpulets' form: SM and DRAM activity of the job and of all others, five constants."""
    x = [_linear(row, part) for row in rows for part in row.parts]
    y = [part.speed / part.base for row in rows for part in row.parts]
    weights = np.linalg.lstsq(np.array(x), np.array(y), rcond=None)[0]
    return lambda row: [
        p.base * min(1.1, max(0.02, float(np.dot(weights, _linear(row, p))))) for p in row.parts
    ]


def _linear(row: Row, part: Part) -> list[float]:
    sm, dram = part.activity(), part.activity("dram_active_percent")
    others = row.total("sm_active_percent") - sm, row.total("dram_active_percent") - dram
    return [1.0, sm, dram, *others]


def soft_minimum(rows: Sequence[Row]) -> Speeds:
    """What all want of the SMs against what there is, rounded at the corner; two constants.

    For N copies of a job of SM activity u that is the soft minimum of N and of c / u.
    """

    def bend(there_is: float, sharpness: float) -> Speeds:
        def speeds(row: Row) -> list[float]:
            wanted = max(row.total("sm_active_percent"), row.total("dram_active_percent"))
            kept = (1 + (wanted / there_is) ** sharpness) ** (-1 / sharpness)
            return [part.base * kept for part in row.parts]

        return speeds

    grid = [(c / 10, k) for c in range(5, 31) for k in (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)]
    return nearest([bend(*constants) for constants in grid], rows)


def turns(rows: Sequence[Row]) -> Speeds:
    """Turns in proportion to the time that a job is busy alone, SM activity to a power."""

    def taking(power: float) -> Speeds:
        def speeds(row: Row) -> list[float]:
            busy = sum(part.activity() ** power for part in row.parts)
            return [part.base * min(1.0, 1 / busy) for part in row.parts]

        return speeds

    return nearest([taking(power / 20) for power in range(1, 31)], rows)


def equal_turns(rows: Sequence[Row]) -> Speeds:
    """As much as each wants while all want less than there is; else none gets more than a level."""

    def taking(power: float) -> Speeds:
        def speeds(row: Row) -> list[float]:
            busy = [part.activity() ** power for part in row.parts]
            level = _level(busy)
            of_jobs = zip(row.parts, busy, strict=True)
            return [part.base * min(1.0, level / its) for part, its in of_jobs]

        return speeds

    return nearest([taking(power / 20) for power in range(1, 31)], rows)


def _level(wanted: Sequence[float]) -> float:
    """The most that any gets of 1, so that all together get no more than that."""
    left, waiting = 1.0, sorted(wanted)
    for number, least in enumerate(waiting):
        if least * (len(waiting) - number) > left:
            return left / (len(waiting) - number)
        left -= least
    return math.inf


def prior(rows: Sequence[Row]) -> Speeds:
    """The product's supply of bandwidth and power, without learning."""
    return lambda row: [p.base * kept for p, kept in zip(row.parts, row.prior, strict=True)]


def model(rows: Sequence[Row]) -> Speeds:
    """The bundled model, which has learned from two jobs."""
    return lambda row: row.model


def nearest(choices: Sequence[Speeds], rows: Sequence[Row]) -> Speeds:
    """The choice that errs least on these rows."""
    return min(choices, key=lambda rule: sum(sum(_off(rule, row)) for row in rows))


def _off(rule: Speeds, row: Row) -> list[float]:
    return [abs(said - p.speed) for said, p in zip(rule(row), row.parts, strict=True)]


SPEED_RULES: Mapping[str, Callable[[Sequence[Row]], Speeds]] = {
    "as many as fit, N times one": as_many_as_fit,
    "1 / N each": equal_parts,
    "a tax for each neighbour": tax,
    "linear in activity (gpulets)": linear,
    "soft minimum of N and c / activity": soft_minimum,
    "turns in proportion to busy time": turns,
    "equal turns, none longer than it is busy": equal_turns,
    "product: supply, no learning": prior,
    "product: bundled model": model,
}


# rules for watts


def added(idle_w: float | None = None) -> Watts:
    """All powers less one idle power, up to the limit; None: the idle power of the empty card."""

    def watts(row: Row) -> float:
        idle = row.idle_w if idle_w is None else idle_w
        own = sum(max(0.0, (p.alone.power_w or 0.0) - idle) for p in row.parts)
        return min(row.limit_w, idle + own)

    return watts


def added_measured(row: Row) -> float:
    """The same with the active idle power of the card, where the campaign has measured it."""
    return math.nan if math.isnan(row.active_idle_w) else added(row.active_idle_w)(row)


def added_active(rows: Sequence[Row]) -> Watts:
    """The same with one active idle power for all cards, fitted."""
    return nearest_watts(list(map(added, ACTIVE_IDLE_W)), rows)


def weighted(speed_rule: Callable[[Sequence[Row]], Speeds]) -> Callable[[Sequence[Row]], Watts]:
    """As `added_active`, each job's part in proportion to the speed that a rule expects."""

    def fitted(rows: Sequence[Row]) -> Watts:
        speeds = speed_rule(rows)

        def at(idle_w: float) -> Watts:
            def watts(row: Row) -> float:
                kept = zip(speeds(row), row.parts, strict=True)
                own = (s / p.base * max(0.0, (p.alone.power_w or 0) - idle_w) for s, p in kept)
                return min(row.limit_w, idle_w + sum(own))

            return watts

        return nearest_watts(list(map(at, ACTIVE_IDLE_W)), rows)

    return fitted


def nearest_watts(choices: Sequence[Watts], rows: Sequence[Row]) -> Watts:
    """The choice that errs least on these rows."""
    return min(choices, key=lambda rule: _watts_off(rule, rows))


def _watts_off(rule: Watts, rows: Sequence[Row]) -> float:
    return sum(abs(rule(row) / row.power_w - 1) for row in rows)


WATT_RULES: Mapping[str, Callable[[Sequence[Row]], Watts]] = {
    "sum less bare idle": lambda rows: added(),
    "sum less active idle, fitted": added_active,
    "sum less active idle, measured": lambda rows: added_measured,
    "the same at the soft minimum's speeds": weighted(soft_minimum),
    "the same at speeds by equal turns": weighted(equal_turns),
    "product: bundled model": lambda rows: lambda row: row.model_w,
}


# what is measured


def rows_of(campaign: str, bundled: Mapping[str, Profile], predictor: ModelPredictor) -> list[Row]:
    """The sets of a campaign all of whose jobs were measured alone, too."""
    solo: dict[tuple[str, float], SoloPoint] = {}
    for point in cast("list[SoloPoint]", read_points(Path(f"{campaign}.jsonl"))):
        if not LEFT_OUT & set(point.flags):
            solo.setdefault((point.job, point.share_percent), point)
    found = list[Row]()
    for point in cast("list[PairPoint]", read_points(Path(f"{campaign}-sets.jsonl"))):
        seats = [((p.job, p.share_percent), (p.job, 100.0)) for p in point.parts]
        if not LEFT_OUT & set(point.flags) and all(a in solo and b in solo for a, b in seats):
            found.append(_with_product(_row(point, solo), point, bundled, predictor))
    return found


def _row(point: PairPoint, solo: Mapping[tuple[str, float], SoloPoint]) -> Row:
    parts = list[Part]()
    for p in point.parts:
        whole = solo[p.job, 100.0]
        speed = (p.rate or 0.0) / whole.rate
        speed = min(1.0, speed) if p.offered_rate else speed
        parts.append(Part(solo[p.job, p.share_percent], whole, speed, p.latency_p99_ms))
    text = "+".join(f"{p.job}@{p.share_percent:g}" for p in point.parts)
    mode = "limits" if point.mode == "mps" else point.mode
    filling = filling_jobs(solo.values(), point.gpu_model)
    return Row(
        text=text,
        mode=mode,
        parts=tuple(parts),
        power_w=point.power_w or math.nan,
        idle_w=point.idle_power_w or 0.0,
        active_idle_w=point.active_idle_power_w or math.nan,
        limit_w=point.power_limit_w or math.inf,
        fill=sum(job in filling for job in point.jobs),
    )


def _with_product(
    row: Row, point: PairPoint, bundled: Mapping[str, Profile], predictor: ModelPredictor
) -> Row:
    """The row with what the product's physics and its model say, for as many jobs as it has."""
    profiles = [profile_of(part, bundled) for part in row.parts]
    shares, free = point.shares_percent, row.mode != "limits"
    split = without_limits("uncapped", len(shares)) if free else Split(shares)
    sides = [side(p, [share]) for p, share in zip(profiles, shares, strict=True)]
    predicted = predictor.predict(profiles, [split])[0]
    return replace(
        row,
        prior=(float(prior_kept(sides)[0]),) * len(sides),
        model=tuple(part.speed.value for part in predicted.parts),
        model_w=predicted.power_w.value,
    )


def profile_of(part: Part, bundled: Mapping[str, Profile]) -> Profile:
    """The job's readings of this campaign at 100 %, over shares as a bundled profile has it.

    A job without one (llm-serve-10, of which a tenth is asked) is as good at any share.
    """
    own = {name: float(getattr(part.whole, name) or 0.0) for name in COLUMNS}
    shape = bundled.get(part.whole.job)
    shares = np.array([10.0, 100.0]) if shape is None else shape.shares
    ones = np.ones(len(shares))
    values = {
        name: ones * own[name] if shape is None else _scaled(shape.values[name], own[name])
        for name in COLUMNS
    }
    return Profile(
        job=part.whole.job,
        gpu_model=part.whole.gpu_model,
        rate_unit=part.whole.rate_unit,
        units_total=part.whole.units_total,
        idle_power_w=part.whole.idle_power_w or 0.0,
        power_limit_w=part.whole.power_limit_w,
        shares=shares,
        values=values,
    )


def _scaled(values: Floats, at_whole: float) -> Floats:
    known = np.nan_to_num(values)
    return known * (at_whole / known[-1]) if known[-1] else np.full_like(known, at_whole)


class AnyNumber(ModelPredictor):
    """The bundled model without the guard that keeps it to two jobs."""

    def _known(self, profiles: Sequence[Profile]) -> tuple[bool, bool]:
        return True, True


def bundled_profiles() -> dict[str, Profile]:
    """By job; of an H100 where there is one."""
    points = defaultdict[tuple[str, str], list[SoloPoint]](list)
    for point in bundled_solo_points():
        points[point.gpu_model, point.job].append(point)
    return {job: make_profile(those) for (_, job), those in sorted(points.items(), reverse=True)}


# errors


@dataclass(frozen=True, slots=True)
class Off:
    """One error of one rule."""

    rule: str
    row: Row
    host: bool
    error: float


def speed_errors(rows: Sequence[Row]) -> list[Off]:
    """Of each job of each set, by a rule that was fitted without the job; in points."""
    found = list[Off]()
    for mode in {row.mode for row in rows}:
        own = [row for row in rows if row.mode == mode]
        for name, fit in SPEED_RULES.items():
            for job in sorted({job for row in own for job in row.jobs}):
                rule = fit([row for row in own if job not in row.jobs])
                for row in (row for row in own if job in row.jobs):
                    offs = zip(_off(rule, row), row.parts, strict=True)
                    found += [
                        Off(name, row, "cpu-bound" in p.whole.flags, 100 * off)
                        for off, p in offs
                        if p.whole.job == job
                    ]
    return found


def watt_errors(rows: Sequence[Row]) -> list[Off]:
    """Of each set, the mean over its jobs of rules that were fitted without one; in percent."""
    found = list[Off]()
    for mode in {row.mode for row in rows}:
        own = [row for row in rows if row.mode == mode]
        for name, fit in WATT_RULES.items():
            jobs = sorted({job for row in own for job in row.jobs})
            rules = {job: fit([row for row in own if job not in row.jobs]) for job in jobs}
            for row in own:
                offs = [100 * abs(rules[job](row) / row.power_w - 1) for job in row.jobs]
                host = any("cpu-bound" in p.whole.flags for p in row.parts)
                if not math.isnan(mean := statistics.fmean(offs)):
                    found.append(Off(name, row, host, mean))
    return found


def again(rows: Sequence[Row]) -> tuple[list[Off], list[Off]]:
    """How far sets that were measured on two cards are from themselves: speeds, and watts."""
    first: dict[tuple[str, str], Row] = {}
    speeds, watts = list[Off](), list[Off]()
    for row in rows:
        if (before := first.setdefault((row.text, row.mode), row)) is row:
            continue
        for one, other in zip(before.parts, row.parts, strict=True):
            off = 100 * abs(one.speed - other.speed)
            speeds.append(Off(AGAIN, row, "cpu-bound" in other.whole.flags, off))
        host = any("cpu-bound" in p.whole.flags for p in row.parts)
        watts.append(Off(AGAIN, row, host, 100 * abs(before.power_w / row.power_w - 1)))
    return speeds, watts


AGAIN = "the same set on another card"

CUTS: Mapping[str, Callable[[Off], bool]] = {
    "MPS, no limits": lambda off: off.row.mode == "uncapped",
    "one limit": lambda off: off.row.mode == "limits",
    "time-sliced": lambda off: off.row.mode == "time-sliced",
}
MPS_CUTS: Mapping[str, Callable[[Off], bool]] = {
    "2 jobs": lambda off: len(off.row.parts) == 2,
    "3, 4": lambda off: len(off.row.parts) in (3, 4),
    "5 to 7": lambda off: len(off.row.parts) > 4,
    "none fills": lambda off: off.row.fill == 0,
    "one fills": lambda off: off.row.fill == 1,
    "two fill": lambda off: off.row.fill == 2,
    "not host": lambda off: not off.host,
    "host": lambda off: off.host,
}


def table(title: str, offs: Sequence[Off], cuts: Mapping[str, Callable[[Off], bool]]) -> None:
    """Print mean errors of each rule, with the bounds of draws of sets."""
    print(f"\n| {title} | {' | '.join(cuts)} |")
    print(f"|---|{'--:|' * len(cuts)}")
    for rule in dict.fromkeys(off.rule for off in offs):
        own = [off for off in offs if off.rule == rule]
        cells = [_cell([off for off in own if cut(off)]) for cut in cuts.values()]
        print(f"| {rule} | {' | '.join(cells)} |")


def _cell(offs: Sequence[Off]) -> str:
    sets: dict[str, list[float]] = defaultdict(list)
    for off in offs:
        sets[off.row.text].append(off.error)
    if not sets:
        return ""
    chance, groups = random.Random(1), list(sets.values())
    draws = sorted(
        statistics.fmean(e for group in chance.choices(groups, k=len(groups)) for e in group)
        for _ in range(500)
    )
    mean = statistics.fmean(off.error for off in offs)
    return f"{mean:.1f} [{draws[25]:.1f} {draws[474]:.1f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("campaigns", nargs="+")
    bundled, predictor = bundled_profiles(), AnyNumber(MODEL)
    campaigns: list[str] = parser.parse_args().campaigns
    rows = [row for name in campaigns for row in rows_of(name, bundled, predictor)]
    for mode in ("uncapped", "limits", "time-sliced"):
        own = [row for row in rows if row.mode == mode]
        jobs = sum(len(row.parts) for row in own)
        idle_w = min(ACTIVE_IDLE_W, key=lambda w: _watts_off(added(w), own))
        print(f"{mode}: {len(own)} sets with {jobs} jobs, active idle power fitted: {idle_w:g} W")
    speeds, watts = again(rows)
    speed_offs, watt_offs = [*speed_errors(rows), *speeds], [*watt_errors(rows), *watts]
    mps = [off for off in speed_offs if off.row.mode == "uncapped"]
    mps_watts = [off for off in watt_offs if off.row.mode == "uncapped"]
    table("speeds, points", speed_offs, CUTS)
    table("speeds, MPS without limits", mps, MPS_CUTS)
    table("watts, %", watt_offs, CUTS)
    table("watts, MPS without limits", mps_watts, MPS_CUTS)


if __name__ == "__main__":
    main()
