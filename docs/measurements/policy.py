"""What the policy would save of measured pairs and sets, and how often limits break or would hold.

    .venv/bin/python docs/measurements/policy.py         # two minutes; no GPU

The decision on each pair or set is among its measured options and separate GPUs. Trees are fitted
without the jobs of the pair, the law of sets is as shipped, and no window of the set is used.
Speeds are over the rate alone in the same run. A window keeps its limits where every job keeps the
policy's speed, and a server its demand and p99. Brackets: 95 %, by a bootstrap over sets.
"""

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.core.split import ADVISED_JOBS, Split, without_limits
from advisor.decide.decision import Outlook, decide
from advisor.decide.limits import CHANCES, WEIGHTS, Request, floor, is_served
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Prediction, Predictor, is_within
from advisor.predict.profiles import Profile
from advisor.predict.sets import AnyWay, fills
from advisor.settings import read_settings
from advisor_advice.answers import with_known_idle
from advisor_advice.expected import measured_split
from advisor_advice.profiles import find_profiles
from advisor_data.bundled import (
    bundled_points_together,
    bundled_reference_points,
    bundled_set_references,
    select,
)
from advisor_models.forest import Forest, read_trees
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry
from advisor_training.learners import extra_trees, fit, learners_for
from advisor_training.rows import Rows, read_measured
from advisor_training.train import forest_bytes, make_training_set

TOLERANCE = 0.005
"""Of a speed or a demand: a measured rate repeats to half a percent."""

ERRORS: list[float] = []
"""Of speeds in pairs: to the measured one from the expected, for each way to the low end, logs."""

Ways = dict[Split, list["Window"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was measured: energy saved, relative speeds, p99 latencies, ms, and work per joule."""

    saved: float
    per_joule: float
    speeds: tuple[float, ...]
    p99_ms: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One decision.

    Attributes:
        saved: By the chosen option; 0: separate GPUs.
        best: By the best measured option in which all limits held.
        held: Whether speeds and tails held in the chosen option.
        refused: For each option that may break a limit, whether all held.
        chances: For each option the stated chance that all speeds hold, and whether they did.
    """

    saved: float
    best: float
    held: tuple[bool, bool] | None
    refused: tuple[bool, ...]
    chances: tuple[tuple[float, bool], ...]


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
    """A table, a row for each kind of jobs."""
    request = Request(policy=read_settings().policy)
    answers: dict[str, list[Answer]] = defaultdict(list)
    for profiles, ways, predictor in questions():
        answer = answered(profiles, ways, predictor, request)
        answers[kind_of(profiles)].append(answer)
        names = (profile.job for profile in profiles)
        print(*names, f"{answer.saved:.3f} of {answer.best:.3f}", file=sys.stderr)
    weights = (f"{chance:g}: {-np.quantile(ERRORS, 1 - chance):.2f}" for chance in CHANCES)
    print(f"WEIGHTS by CHANCES, from {len(ERRORS)} speeds of pairs:", *weights, "\n")
    print(
        "| jobs | n | saved, % | best measured, % | shared | speed broke | p99 broke "
        "| refused, held all the same | chance of speeds as stated, % | held, % |"
    )
    print(f"|---|{'--:|' * 9}")
    for kind, of_kind in [*sorted(answers.items()), ("all", [*chain(*answers.values())])]:
        print(f"| {kind} | {' | '.join(cells(of_kind))} |")


def questions() -> Iterator[tuple[tuple[Profile, ...], Ways, AnyWay]]:
    """Jobs that all have a profile on the GPU model, their windows, and who predicts them."""
    settings = read_settings()
    model = Registry(settings.home / "models").open_champion()
    points, without_profile = read_measured(None, None), 0
    rows = make_training_set(points.pairs, points.profiled, points.references).rows
    for (gpu_model, jobs), ways in sorted(measured().items(), key=itemgetter(0)):
        try:
            found = find_profiles(list(jobs), settings, gpu_model)
        except InputError:
            without_profile += 1
            continue
        found, _ = with_known_idle(found, model.manifest.fill)
        is_pair = len(jobs) == ADVISED_JOBS
        yield found.profiles, ways, AnyWay(Unseen(model, rows, jobs) if is_pair else model)
    print(f"{without_profile} sets have a job without a profile on that GPU model\n")


def measured() -> Mapping[tuple[str, tuple[str, ...]], Ways]:
    """Windows by GPU model and jobs."""
    alone: dict[tuple[str, str, str], list[SoloPoint]] = defaultdict(list)
    for point in (*bundled_reference_points(), *bundled_set_references()):
        if point.share_percent == WHOLE and point.power_w:
            alone[point.run, point.gpu_uuid, point.job].append(point)
    found: dict[tuple[str, tuple[str, ...]], Ways] = defaultdict(lambda: defaultdict(list))
    for point in select(bundled_points_together()).points:
        ours = [alone.get((point.run, point.gpu_uuid, part.job), []) for part in point.parts]
        split = measured_split(point.mode, point.shares_percent)
        if split is None or not point.power_w or not all(ours):
            continue
        speeds, work_w = [], 0.0
        for part, own in zip(point.parts, ours, strict=True):
            speeds.append((part.rate or 0.0) / statistics.median(p.rate for p in own))
            work_w += speeds[-1] * statistics.median(p.power_w or 0.0 for p in own)
        found[point.gpu_model, point.jobs][split].append(
            Window(
                saved=1 - point.power_w / work_w if work_w else -1.0,
                per_joule=sum(speeds) / point.power_w,
                speeds=tuple(speeds),
                p99_ms=tuple(part.latency_p99_ms for part in point.parts),
            )
        )
    return found


def among(
    profiles: Sequence[Profile], ways: Iterable[Split], predictor: Predictor
) -> tuple[Outlook, list[Split]]:
    """What to decide by among these ways and separate GPUs, and the ways that are known of."""
    outlook, apart = Outlook(profiles, predictor), without_limits("exclusive", len(profiles))
    within = [split for split in ways if is_within(split, profiles)]
    expected = predictor.predict(profiles, [*within, apart])
    outlook.expected = lambda **_: expected
    return outlook, within


def answered(
    profiles: Sequence[Profile], ways: Ways, predictor: Predictor, request: Request
) -> Answer:
    """The decision among the measured ways, by what was measured there."""
    outlook, within = among(profiles, ways, predictor)
    expected = outlook.expected()
    held = {split: held_limits(ways[split], profiles, request) for split in within}
    for p in [*expected][: len(within) * (len(profiles) == ADVISED_JOBS)]:
        for seat, x in enumerate(part.speed for part in p.parts):
            real = statistics.fmean(window.speeds[seat] for window in ways[p.split])
            if x.low < x.value and real > 0:
                ERRORS.append(math.log(real / x.value) / math.log(x.value / x.low))
    choice, refused = None, list[bool]()
    with suppress(NoSplitError):
        decision = decide(outlook, request)
        choice = decision.choice and decision.choice.prediction.split
        options = (o for o in decision.options if o.violations and o.prediction.split in held)
        refused = [all(held[option.prediction.split]) for option in options]
    return Answer(
        saved=saved(ways[choice]) if choice else 0.0,
        best=max((saved(ways[split]) for split in within if all(held[split])), default=0.0),
        held=held[choice] if choice else None,
        refused=tuple(refused),
        chances=tuple(
            (chance_of(p, profiles, request), held[p.split][0]) for p in expected if p.split in held
        ),
    )


def chance_of(p: Prediction, profiles: Sequence[Profile], request: Request) -> float:
    """That the job of which it is least likely keeps its speed, as the policy states it."""
    weights = [
        math.log(part.speed.value / max(floor(profile, request), 1e-6))
        / max(math.log(part.speed.value / part.speed.low), 1e-6)
        for part, profile in zip(p.parts, profiles, strict=True)
    ]
    return float(np.interp(min(weights), WEIGHTS, CHANCES))


def saved(windows: Iterable[Window]) -> float:
    """Mean of the windows."""
    return statistics.fmean(window.saved for window in windows)


def held_limits(
    windows: Sequence[Window], profiles: Sequence[Profile], request: Request
) -> tuple[bool, bool]:
    """Whether every job kept its speed, and every server its p99, by the means of the windows."""
    speeds, tails = True, True
    for seat, profile in enumerate(profiles):
        least = floor(profile, request) - TOLERANCE
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
    percent = 100 * np.array([a.saved for a in answers])
    means = np.random.default_rng(1).choice(percent, (2000, len(percent))).mean(axis=1)
    yield "{:.1f} [{:.1f} {:.1f}]".format(percent.mean(), *np.quantile(means, [0.025, 0.975]))
    yield f"{100 * statistics.fmean(max(a.best, 0.0) for a in answers):.1f}"
    offered = [a.held for a in answers if a.held is not None]
    yield str(len(offered))
    yield from (str(sum(not held[limit] for held in offered)) for limit in (0, 1))
    refused = [held for a in answers for held in a.refused]
    yield f"{sum(refused)} of {len(refused)}"
    for values in zip(*(one for a in answers for one in a.chances), strict=True):
        yield f"{100 * statistics.fmean(values):.0f}"


if __name__ == "__main__":
    main()
