"""What the policy would save of measured pairs and sets, and how often limits break or would hold.

    .venv/bin/python docs/measurements/policy.py         # two minutes; no GPU

The decision on each pair or set is among its measured options and separate GPUs. Trees are fitted
without the jobs of the pair, the law of sets is as shipped, and no window of the set is used.
Speeds are over the rate alone in the same run. A window keeps its limits where every job keeps the
policy's speed, and a server its p99 and its demand: no fewer requests than three standard errors of
a count below it. Brackets: 95 %, by a bootstrap over sets. Last in
a row are the stated chance that all speeds hold and how often they did, and the same of all p99s.

Then random sets of three to five jobs that leave most of the GPU idle, one or two of them servers:
how many are refused, also by an even chance of every limit, and without that of p99.
"""

import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
from sets.rows import asked_windows

from advisor.core.gpu import ADVISED_JOBS, WHOLE, Split, without_limits
from advisor.decide.decision import Outlook, decide
from advisor.decide.limits import CHANCES, P99_WEIGHTS, WEIGHTS, Request, is_served
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Prediction, Predictor, is_within
from advisor.predict.profiles import Profile
from advisor.predict.sets import OptionPredictor, fills
from advisor.settings import Settings, read_settings
from advisor_advice.conditions import find_profiles, measured_split
from advisor_data.bundled import (
    GPU_MODEL,
    bundled_points_together,
    bundled_reference_points,
    bundled_set_references,
    bundled_solo_points,
    select,
)
from advisor_models.model_predictor import Forest, ModelPredictor, read_trees
from advisor_models.registry import Registry
from advisor_training.learners import extra_trees, fit, learners_for
from advisor_training.rows import Rows, read_measured
from advisor_training.train import forest_bytes, make_training_set

TOLERANCE = 0.005
"""Of a speed: a measured rate repeats to half a percent."""

ERRORS: list[tuple[str, float]] = []
"""Of speeds in pairs, with the job: from the measured one to the expected, for each way to the low
end, of logarithms."""

Ways = dict[Split, list["Window"]]
Sets = Mapping[tuple[str, tuple[str, ...]], Ways]

Alone = tuple[float, float, float]
"""A window of a job alone: rate, watts, and p99 in ms or NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was measured: energy saved, relative speeds, and p99s, ms.

    Attributes:
        alone_ms: p99s alone; NaN: no server.
        above: Of a server, requests above its demand in standard errors of a count; else 0.
    """

    saved: float
    speeds: tuple[float, ...]
    p99_ms: tuple[float | None, ...]
    alone_ms: tuple[float, ...]
    above: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A set, and the ways that were measured and that its profiles reach.

    Attributes:
        held: Of each way whether speeds and tails held.
    """

    jobs: tuple[str, ...]
    profiles: Sequence[Profile]
    ways: Ways
    held: Mapping[Split, tuple[bool, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One decision.

    Attributes:
        saved: By the chosen option; 0: separate GPUs.
        best: By the best measured option in which all limits held.
        held: Whether speeds and tails held in the chosen option.
        refused: For each option that may break a limit, whether all held.
        chances: For each option the stated chance that all speeds hold, and whether they did;
            and the same of p99s.
    """

    saved: float
    best: float
    held: tuple[bool, bool] | None
    refused: tuple[bool, ...]
    chances: tuple[tuple[float, bool, float, bool], ...]


class Unseen(ModelPredictor):
    """The model in use, but for trees that were fitted without some jobs."""

    def __init__(self, model: ModelPredictor, rows: Rows, jobs: Iterable[str]) -> None:
        vars(self).update(vars(model))
        kept = rows.take(~np.logical_or.reduce([rows.of(job) for job in jobs]))
        fitted = fit(extra_trees, kept, learners_for(kept)).by_head
        self._forest = Forest(
            *(
                read_trees(h.name, forest_bytes(fitted[h.name].regressor_), len(h.features))
                for h in model.manifest.heads
            )
        )


def main() -> None:
    """A table, a row for each kind of jobs, and what of random sets is refused."""
    settings = read_settings()
    request = Request(policy=settings.policy)
    found: list[tuple[Measured, Answer]] = []
    for of_set, predictor in questions(request, measured()):
        found.append((of_set, answered(of_set, predictor, request)))
        print(*of_set.jobs, "{0.saved:.3f} of {0.best:.3f}".format(found[-1][1]), file=sys.stderr)
    jobs = sorted({job for job, _ in ERRORS})
    halves = {"of all": jobs, "of one half of the jobs": jobs[::2], "of the other": jobs[1::2]}
    for name, own in halves.items():
        told = [error for job, error in ERRORS if job in own]
        others = [error for job, error in ERRORS if job not in own] or told
        held = 100 * np.mean(np.array(others) <= np.quantile(told, 0.9))
        table = np.round(np.quantile(told, CHANCES), 2)
        print(f"WEIGHTS {name}, {len(told)} speeds of pairs:", *table, f"; 0.9 holds {held:.0f} %")
    print(
        "\n| jobs | n | saved, % | best, % | shared | speed broke, % | p99 broke, % "
        "| refused | held, % | chance, % | held, % | chance of p99s, % | held, % |"
    )
    print(f"|---|{'--:|' * 12}")
    kinds = [kind_of(of_set.profiles) for of_set, _ in found]
    for kind in (*sorted({*kinds}), "all"):
        which = [a for (_, a), own in zip(found, kinds, strict=True) if kind in (own, "all")]
        print(f"| {kind} | {' | '.join(cells(which))} |")
    offered = [answer.held for _, answer in found if answer.held]
    print(f"\n{sum(not all(held) for held in offered)} of {len(offered)} offers broke a limit")
    model = Registry(settings.home / "models").open_champion()
    drawn = random_sets(settings, model)
    print("", *refusals(drawn, model, request), sep="\n")


def questions(request: Request, sets: Sets) -> Iterator[tuple[Measured, OptionPredictor]]:
    """Sets whose jobs all have a profile on the GPU model, and what predicts each."""
    settings = read_settings()
    model = Registry(settings.home / "models").open_champion()
    points, without_profile = read_measured(None, None), 0
    rows = make_training_set(points.pairs, points.profiled, points.references).rows
    for (gpu_model, jobs), ways in sorted(sets.items(), key=itemgetter(0)):
        try:
            profiles = profiles_of(jobs, gpu_model, settings, model)
        except InputError:
            without_profile += 1
            continue
        within = [split for split in ways if is_within(split, profiles)]
        held = {split: held_limits(ways[split], profiles, request) for split in within}
        is_pair = len(jobs) == ADVISED_JOBS
        predictor = OptionPredictor(Unseen(model, rows, jobs) if is_pair else model)
        yield Measured(jobs, profiles, ways, held), predictor
    print(f"{without_profile} sets have a job without a profile on that GPU model\n")


def profiles_of(
    jobs: Sequence[str], gpu_model: str, settings: Settings, model: ModelPredictor
) -> Sequence[Profile]:
    """Of jobs, with the idle power that is known.

    Raises:
        InputError: a job has none on that GPU model.
    """
    found = find_profiles(list(jobs), settings, gpu_model)
    return found.with_idle_power_filled(model.manifest.fill)[0].profiles


def measured() -> Sets:
    """Windows by GPU model and jobs."""
    alone: dict[tuple[str, str, str], list[Alone]] = defaultdict(list)
    for point in (*bundled_reference_points(), *bundled_set_references()):
        if point.share_percent == WHOLE and point.power_w:
            own = (point.rate, point.power_w, point.latency_p99_ms or math.nan)
            alone[point.run, point.gpu_uuid, point.job].append(own)
    found: dict[tuple[str, tuple[str, ...]], Ways] = defaultdict(lambda: defaultdict(list))
    for point in select(bundled_points_together())[0]:
        split = measured_split(point.mode, point.shares_percent)
        seats = [
            (alone.get((point.run, point.gpu_uuid, part.job)), part.rate or 0.0,
             part.latency_p99_ms, part.offered_rate)
            for part in point.parts
        ]  # fmt: skip
        if split is not None and point.power_w and all(own for own, *_ in seats):
            window = window_of(seats, point.power_w, point.window_s)
            found[point.gpu_model, point.jobs][split].append(window)
    return {**found, **asked()}


def asked() -> Sets:
    """Sets of own/asked_sets.py, by what each job did alone on the same GPU."""
    demand = {p.job: p.offered_rate for p in bundled_solo_points() if p.gpu_model == GPU_MODEL}
    alone: dict[tuple[str, str], list[Alone]] = defaultdict(list)
    found: dict[tuple[str, tuple[str, ...]], Ways] = defaultdict(lambda: defaultdict(list))
    for jobs, split, row in sorted(asked_windows(), key=lambda window: len(window[0])):
        rates, p99s, watts = row["rates_per_s"], row["p99_ms"], row["power_w"]
        if len(jobs) == 1:
            alone[row["uuid"], jobs[0]].append((rates[0], watts, p99s[0] or math.nan))
            continue
        own = [alone[row["uuid"], job] for job in jobs]
        seats = zip(own, rates, p99s, map(demand.get, jobs), strict=True)
        found[GPU_MODEL, jobs][split].append(window_of(seats, watts, row["window_s"]))
    return found


def window_of(seats: Iterable[Any], power_w: float, window_s: float) -> Window:
    """Of the windows alone of each job, its rate, its p99 and its demand."""
    alone, rates, p99s_ms, demands = zip(*seats, strict=True)
    usual = [[*map(statistics.median, zip(*own, strict=True))] for own in alone]
    speeds = tuple(rate / of[0] for rate, of in zip(rates, usual, strict=True))
    work_w = sum(speed * of[1] for speed, of in zip(speeds, usual, strict=True))
    return Window(
        saved=1 - power_w / work_w if work_w else -1.0,
        speeds=speeds,
        p99_ms=p99s_ms,
        alone_ms=tuple(of[2] for of in usual),
        above=tuple(
            (rate - demand) / math.sqrt(demand / window_s) if demand else 0.0
            for rate, demand in zip(rates, demands, strict=True)
        ),
    )


def among(of: Measured, predictor: Predictor) -> Outlook:
    """What is decided by: the measured ways and separate GPUs."""
    outlook, apart = Outlook(of.profiles, predictor), without_limits("exclusive", len(of.profiles))
    expected = predictor.predict(of.profiles, [*of.held, apart])
    outlook.expected = lambda **_: expected
    return outlook


def answered(of: Measured, predictor: Predictor, request: Request) -> Answer:
    """The decision among the measured ways, by what was measured there."""
    profiles, within, outlook = of.profiles, [*of.held], among(of, predictor)
    expected = outlook.expected()
    for p in [*expected][: len(within) * (len(profiles) == ADVISED_JOBS)]:
        for seat, x in enumerate(part.speed for part in p.parts):
            real = statistics.fmean(window.speeds[seat] for window in of.ways[p.split])
            if x.low < x.value and real > 0:
                off = math.log(x.value / real) / math.log(x.value / x.low)
                ERRORS.append((profiles[seat].job, off))
    choice, refused = None, list[Split]()
    with suppress(NoSplitError):
        decision = decide(outlook, request)
        choice = decision.choice and decision.choice.prediction.split
        refused = [o.prediction.split for o in decision.options if o.violations]
    chances = [
        (chance_of(p, profiles, request), speeds, p99_chance_of(p, profiles, request), p99s)
        for p in expected
        if p.split in of.held
        for speeds, p99s in [of.held[p.split]]
    ]
    held, saved = of.held, {s: statistics.fmean(w.saved for w in own) for s, own in of.ways.items()}
    return Answer(
        saved=saved[choice] if choice else 0.0,
        best=max((0.0, *(saved[split] for split in held if all(held[split])))),
        held=held[choice] if choice else None,
        refused=tuple(all(held[split]) for split in refused if split in held),
        chances=tuple(chances),
    )


def random_sets(settings: Settings, model: ModelPredictor) -> list[tuple[Profile, ...]]:
    """Sixty, of three to five jobs that leave most of the GPU idle, one or two of them servers."""
    jobs = sorted({p.job for p in bundled_solo_points() if p.gpu_model == GPU_MODEL})
    profiles = [profiles_of([job], GPU_MODEL, settings, model)[0] for job in jobs]
    small = [profile for profile in profiles if not fills(profile)]
    servers, others = ([p for p in small if is_served(p) is served] for served in (True, False))
    dice, drawn = random.Random(56), list[tuple[Profile, ...]]()
    while len(drawn) < 60:
        size, serving = dice.randint(3, 5), dice.randint(1, 2)
        drawn.append((*dice.choices(servers, k=serving), *dice.choices(others, k=size - serving)))
    return drawn


def refusals(
    drawn: Sequence[Sequence[Profile]], model: ModelPredictor, request: Request
) -> Iterator[str]:
    """How many are to have a GPU each, and how many by a policy that takes more."""
    for name, change in (
        ("the policy", {}),
        ("an even chance of every limit", {"chance": 0.5}),
        ("no limit of p99", {"p99_times_alone": 0.0}),
    ):
        other = replace(request, policy=replace(request.policy, **change))
        decided = (decide(Outlook(profiles, OptionPredictor(model)), other) for profiles in drawn)
        refused = sum(decision.choice is None for decision in decided)
        yield f"{refused} of {len(drawn)} random sets are refused by {name}"


def chance_of(p: Prediction, profiles: Sequence[Profile], request: Request) -> float:
    """That the job of which it is least likely keeps its speed, as the policy states it."""
    weights = [
        math.log(part.speed.value / max(request.floor(profile), 1e-6))
        / max(math.log(part.speed.value / part.speed.low), 1e-6)
        for part, profile in zip(p.parts, profiles, strict=True)
    ]
    return float(np.interp(min(weights), WEIGHTS, CHANCES))


def p99_chance_of(p: Prediction, profiles: Sequence[Profile], request: Request) -> float:
    """That all servers keep their p99, copies alike, others each by chance; NaN: none has one."""
    weights = {
        profile.job: math.log(most_ms / p99_ms.value) / math.log(p99_ms.high / p99_ms.value)
        for part, profile in zip(p.parts, profiles, strict=True)
        if (p99_ms := part.latency_p99_ms) and (most_ms := request.longest_p99_ms(profile))
    }
    chances = np.interp([*weights.values()], P99_WEIGHTS, CHANCES)
    return float(np.prod(chances)) if weights else math.nan


def held_limits(
    windows: Sequence[Window], profiles: Sequence[Profile], request: Request
) -> tuple[bool, bool]:
    """Whether every job kept its speed, and every server its p99, by the means of the windows."""
    speeds, tails = True, True
    for seat, profile in enumerate(profiles):
        least = request.floor(profile) - TOLERANCE
        if is_served(profile):
            speeds &= statistics.fmean(window.above[seat] for window in windows) >= -3
        else:
            speeds &= statistics.fmean(window.speeds[seat] for window in windows) >= least
        known_ms = [tail for window in windows if (tail := window.p99_ms[seat]) is not None]
        most_ms = request.longest_p99_ms(profile)
        tails &= not (known_ms and most_ms and statistics.fmean(known_ms) > most_ms)
    return speeds, tails


def kind_of(profiles: Sequence[Profile]) -> str:
    """Number of jobs, servers, and jobs that fill the GPU, in words; sets are few."""
    filling, served = sum(map(fills, profiles)), any(map(is_served, profiles))
    if len(profiles) > ADVISED_JOBS:
        filled = "one or more fill" if filling else "none fills"
        return f"three to seven, {'with a server' if served else filled}"
    server = ", with a server" if served else ""
    return f"two{server}, {('none fills', 'one fills', 'both fill')[filling]}"


def cells(answers: Sequence[Answer]) -> Iterator[str]:
    """Of a row."""
    yield str(len(answers))
    yield bracketed([(100 * a.saved, 1) for a in answers])
    yield f"{100 * statistics.fmean(a.best for a in answers):.1f}"
    offered = [a for a in answers if a.held is not None]
    yield str(len(offered))
    served = [a for a in offered if not any(math.isnan(chance[2]) for chance in a.chances)]
    for limit, those in enumerate((offered, served)):
        yield bracketed([(100 * (not a.held[limit]), 1) for a in those if a.held])
    yield str(sum(len(a.refused) for a in answers))
    yield bracketed([(100 * sum(a.refused), len(a.refused)) for a in answers if a.refused])
    for column in range(4):
        known = [one[column] for a in answers for one in a.chances if not math.isnan(one[2])]
        values = [one[column] for a in answers for one in a.chances] if column < 2 else known
        yield f"{100 * statistics.fmean(values):.0f}" if values else ""


def bracketed(sums: Sequence[tuple[float, float]]) -> str:
    """The first over the second, added up over sets, with the interval of draws of sets."""
    if not any(part for part, _ in sums):
        return "0" if sums else ""
    draws = np.random.default_rng(1).choice(np.array(sums), (2000, len(sums))).sum(axis=1)
    parts = draws[:, 0] / draws[:, 1]
    whole = sum(part for part, _ in sums) / sum(of for _, of in sums)
    return "{:.1f} [{:.1f} {:.1f}]".format(whole, *np.quantile(parts, [0.025, 0.975]))


if __name__ == "__main__":
    main()
