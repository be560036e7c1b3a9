"""Which jobs of a measured plan of sets fell below their floors, and which limits keep them out.

    python docs/measurements/planned_floors.py docs/measurements/planned/h100.json

Of the sets of planned_sets.py: each job below its floor, or with a p99 above what was said; how
many there are in sets said to draw the power limit, at which predicted watts are cut off, and in
others. Then, for limits that `advisor place` can be given: how many sets keep them, what those of
the plan did, what a plan of the same queue saves that keeps them, how many of its cards are said to
draw the power limit, and what those of its sets did that were measured. Jobs count on each card of
a plan, "s" are servers. Predictions are those of today.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planned_sets import WAYS, Told, line, measured, queue, said, seated, text, text_of

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.records import PairPoint
from advisor.core.split import ADVISED_JOBS, Split, without_limits
from advisor.decide.constraints import violations
from advisor.decide.limits import Limits, is_served
from advisor.place.sets.placing import Placing, Pool
from advisor.place.sets.solver import place_running
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.predict.sets import SetPredictor
from advisor.settings import MIN_SPEED
from advisor_advice.placing_sets import CUT_OFF_W
from advisor_data.files.files import read_points
from advisor_profiling.reports import SetPart

JOBS_HEAD = ("way", "set", "W said", "job", "floor", "speed: said", "measured", "p99, ms")
LIMITS_HEAD = (
    "limits", "planned sets kept", "jobs below", "p99 above", "by chance kept",
    "a plan saves, %", "gap, %", "cards at the power limit", "its sets measured", "jobs below",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seat:
    """A job of a set: what it had to keep, what was said, and what it did."""

    floor: float
    speed: Interval
    p99_ms: float | None
    is_server: bool
    part: SetPart

    @property
    def is_below(self) -> bool:
        """Its floor."""
        return self.part.speed < self.floor

    @property
    def is_late(self) -> bool:
        """Its p99 is longer than was said."""
        return bool(self.p99_ms) and (self.part.latency_p99_ms or 0.0) > (self.p99_ms or 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A measured set on so many cards of a plan."""

    way: str
    text: str
    cards: int
    power_w: float
    clock_mhz: float | None
    profiles: tuple[Profile, ...]
    prediction: Prediction
    seats: tuple[Seat, ...]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plan", type=Path)
    path: Path = parser.parse_args().plan
    told = json.loads(path.read_text())
    placing = queue(told["gpu_model"], told["seed"])
    known = list(known_sets(told, placing.pools[0], path.with_suffix(".jsonl")))
    show_jobs(known)
    show_cut_off(known, least_limit_w(placing.pools[0]))
    show_limits(known, placing)


def known_sets(told: Told, pool: Pool, windows: Path) -> Iterator[Known]:
    """Those that were measured."""
    _, found = measured(windows)
    points = [point for point in read_points(windows) if isinstance(point, PairPoint)]
    clocks = {text_of(point): point.sm_clock_mhz for point in points}
    profiles = {profile.job: profile for profile in pool.profiles if profile}
    for way, one in ((name, one) for name in WAYS for one in told[name]):
        if result := found.get(text(one)):
            own = tuple(profiles[job["job"]] for job in one["jobs"])
            prediction = predicted(one, own, pool)
            each = zip(one["jobs"], own, prediction.parts, seated(result), strict=True)
            seats = tuple(
                Seat(told["floors"][p.job], now.speed, job["p99_ms"], is_served(p), part)
                for job, p, now, part in each
            )
            watts, clock_mhz = one["power_w"], clocks[text(one)]
            yield Known(way, text(one), one["cards"], watts, clock_mhz, own, prediction, seats)


def predicted(one: Told, profiles: Sequence[Profile], pool: Pool) -> Prediction:
    """By the predictor that plans it."""
    shares = tuple(job["share_percent"] for job in one["jobs"])
    predictor = pool.of_pairs if len(shares) == ADVISED_JOBS and pool.of_pairs else SetPredictor()
    without = predictor is not pool.of_pairs and min(shares) == WHOLE
    split = without_limits("uncapped", len(shares)) if without else Split(shares)
    (found,) = predictor.predict(profiles, [split])
    return found


def show_jobs(known: Sequence[Known]) -> None:
    """Print those that are below or late."""
    line(JOBS_HEAD)
    line(["---"] * len(JOBS_HEAD))
    for one in known:
        for seat in (seat for seat in one.seats if seat.is_below or seat.is_late):
            part, speed = seat.part, seat.speed
            line(
                [
                    one.way,
                    f"{one.text} x{one.cards}",
                    f"{one.power_w:.0f}",
                    f"{part.job}{' s' * seat.is_server}",
                    f"{seat.floor:.3f}",
                    f"{speed.value:.3f} [{speed.low:.3f} {speed.high:.3f}]",
                    f"{part.speed:.3f}{' below' * seat.is_below}",
                    f"{seat.p99_ms:.0f} → {part.latency_p99_ms:.0f}" if seat.p99_ms else "",
                ]
            )


def show_cut_off(known: Sequence[Known], limit_w: float) -> None:
    """Print how many are below, by whether watts were cut off."""
    print()
    for way in WAYS:
        for which, cut in (("at", True), ("below", False)):
            own = [k for k in of_way(known, way) if (k.power_w > limit_w - CUT_OFF_W) is cut]
            clocks = sorted(one.clock_mhz for one in own if one.clock_mhz)
            print(
                f"{way}, said {which} {limit_w:.0f} W: {len(own)} sets at MHz of "
                f"{' to '.join(f'{of:.0f}' for of in clocks[:: max(len(clocks) - 1, 1)])}, "
                f"{below(own)} jobs below, {late(own)} p99 above"
            )
    print()


def show_limits(known: Sequence[Known], placing: Placing) -> None:
    """Print what limits keep out, and cost."""
    line(LIMITS_HEAD)
    line(["---"] * len(LIMITS_HEAD))
    for name, limits in limits_of(placing.pools[0]).items():
        pool = replace(placing.pools[0], limits=limits)
        line([name, *kept(known, limits), *planned_anew(known, replace(placing, pools=(pool,)))])


def kept(known: Sequence[Known], limits: Limits) -> Iterator[str]:
    """How many sets keep limits, and what those did that were planned."""
    for way in WAYS:
        all_of = of_way(known, way)
        own = [one for one in all_of if not violations(one.prediction, one.profiles, limits)]
        yield f"{len(own)} of {len(all_of)}"
        if way == WAYS[0]:
            yield from (below(own), late(own))


def planned_anew(known: Sequence[Known], placing: Placing) -> Iterator[str]:
    """What a plan with these limits saves, and what is known of its sets."""
    plan = place_running(placing, time_limit_s=60.0)
    most_w = least_limit_w(placing.pools[0]) - CUT_OFF_W
    yield f"{100 * (1 - plan.power_w / plan.same_work_w):.1f}"
    yield f"{100 * plan.gap:.1f}"
    yield f"{sum(n for one, n in plan.sets.items() if one.power_w > most_w)} of {plan.cards}"
    cards = {text(said(placing, one, n)): n for one, n in plan.sets.items() if one.split}
    again = {one.text: replace(one, cards=cards[one.text]) for one in known if one.text in cards}
    yield f"{len(again)} of {len(cards)}"
    yield below(list(again.values()))


def limits_of(pool: Pool) -> dict[str, Limits]:
    """By what `advisor place` would be told."""
    batch = [profile.job for profile in pool.profiles if profile and not is_served(profile)]
    sure = dict.fromkeys(batch, MIN_SPEED)
    most_w = least_limit_w(pool) - CUT_OFF_W
    return {
        "as it is: low ends of servers": Limits(),
        "low ends of all": Limits(min_speed=sure),
        "not at the power limit": Limits(max_power_w=most_w),
        "both": Limits(min_speed=sure, max_power_w=most_w),
    }


def least_limit_w(pool: Pool) -> float:
    """Power limit of the card."""
    return min(p.power_limit_w for p in pool.profiles if p and p.power_limit_w)


def of_way(known: Sequence[Known], way: str) -> list[Known]:
    """Planned ones, or those by chance."""
    return [one for one in known if one.way == way]


def below(known: Sequence[Known]) -> str:
    """Jobs below their floors, of all."""
    jobs = sum(one.cards * len(one.seats) for one in known)
    return f"{sum(one.cards * sum(s.is_below for s in one.seats) for one in known)} of {jobs}"


def late(known: Sequence[Known]) -> str:
    """Servers of which the p99 is longer than was said, of all."""
    servers = sum(one.cards * sum(bool(s.p99_ms) for s in one.seats) for one in known)
    return f"{sum(one.cards * sum(s.is_late for s in one.seats) for one in known)} of {servers}"


if __name__ == "__main__":
    main()
