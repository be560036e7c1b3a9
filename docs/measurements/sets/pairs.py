"""Two jobs by the model of pairs and by the law of sets: errors, and what is chosen by each.

    python docs/measurements/sets/pairs.py [--seed 0]

First the windows of two jobs of the campaigns of sets, which the model of pairs has not seen, with
profiles of set references: of other cards where there are some, mostly at 50 and 100 % only. "As
seen" takes of a server no more than the demand that was seen at its smallest share, and not that
its SM activity is all that it takes. A way is chosen where it is worth most of those measured on
the card that an answer about two jobs looks at (not a limit for one alone) and keeps 0.4 of each
speed and a server's demand; else the jobs have a card each. Missed are those that did not keep
that. Then the bundled pairs, by trees that have not seen
the job (one seed, a minute), and by physics where `is_by_physics` says so. Words as in rows.py.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from unittest import mock

from rows import Row, bundled_campaigns, rows_of

from advisor.core.gpu import WHOLE
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.core.split import Sharing, Split
from advisor.decide.constraints import violations
from advisor.decide.limits import Limits, floor
from advisor.decide.recommendation import TIE, choose
from advisor.predict import profiles as of_profiles
from advisor.predict.predictions import Prediction, Predictor, predict_exclusive
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.sets import AnyWay, SetPredictor, is_by_physics
from advisor.predict.situation import kind_of
from advisor_data.files.bundled import bundled_set_references
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import BUNDLED
from advisor_training import choices
from advisor_training.held_out import leave_one_job_out
from advisor_training.learners import extra_trees, fit
from advisor_training.points import read_measured
from advisor_training.rows import Data, make_data

MIN_SPEED, MIN_GAIN = 0.4, 0.03
MET = 0.9
"""Part of its demand that a server has to answer."""

WORTH = OBJECTIVES[DEFAULT_OBJECTIVE].value


@dataclass(frozen=True, slots=True)
class Said:
    """A window of two jobs, and what one predictor says of it."""

    row: Row
    profiles: tuple[Profile, Profile]
    prediction: Prediction

    @property
    def saved(self) -> float:
        """Part of the energy for the same work, against a card each, the freed one off."""
        alone_w = sum(part.speed * (part.whole.power_w or 0.0) for part in self.row.parts)
        return 1 - self.row.power_w / alone_w


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    found = dict(said_by_each())
    show_errors(found)
    show_choices(found)
    show_bundled(seed)


def said_by_each() -> Iterator[tuple[str, list[Said]]]:
    """The same windows by each predictor."""
    unread = mock.patch.object(of_profiles, "_per_active_percent", return_value=0.0)
    with unread:
        yield "pairs, as seen", list(said_by(ModelPredictor(BUNDLED)))
    of_pairs = ModelPredictor(BUNDLED)
    by: Mapping[str, Predictor] = {
        "pairs": of_pairs,
        "physics": SetPredictor(),
        "as answered": AnyWay(of_pairs),
    }
    for name, predictor in by.items():
        yield name, list(said_by(predictor))


def said_by(predictor: Predictor) -> Iterator[Said]:
    """Windows of two jobs with two profiles, but for turns."""
    points = bundled_set_references()
    every = make_profiles(points)
    for campaign in bundled_campaigns():
        others = make_profiles(p for p in points if p.gpu_uuid != campaign.gpu_uuid)
        for row in rows_of(campaign):
            if len(row.parts) != 2 or row.mode == "time-sliced":
                continue
            keys = [(part.whole.job, row.gpu_model) for part in row.parts]
            known = [others.get(key) or every.get(key) for key in keys]
            if all(known):
                a, b = (profile for profile in known if profile)
                (prediction,) = predictor.predict((a, b), [split_of(row)])
                yield Said(row, (a, b), prediction)


def split_of(row: Row) -> Split:
    """As a predictor is asked."""
    sharing = cast("Sharing", "limited" if row.mode == "limits" else row.mode)
    return Split(tuple(part.alone.share_percent for part in row.parts), sharing)


def show_errors(found: Mapping[str, Sequence[Said]]) -> None:
    """Print errors by how many jobs fill the GPU, and of how many servers each is sure."""
    print(
        "| two jobs | by | windows | speeds, points | servers, points | watts, % | energy, points "
        "| speeds held, % | watts held, % | servers | sure | of these not |"
    )
    print(f"|---|---|{'--:|' * 10}")
    cells: dict[tuple[str, str], list[Said]] = defaultdict(list)
    for name, its in found.items():
        for one in its:
            mode = "limits" if one.row.mode == "limits" else "no limits"
            cells[f"{one.row.fill} of 2 fill, {mode}", name].append(one)
    for (kind, name), its in sorted(cells.items(), key=lambda of: of[0][0]):
        print(f"| {kind} | {name} | {len(its)} | {' | '.join(errors(its))} |")


def errors(its: Sequence[Said]) -> Iterator[str]:
    """Means over windows and jobs; a job that is faster than alone counts as unhindered."""
    jobs = [
        (min(1.0, part.speed), said.speed, kind_of(profile) == "server", profile)
        for one in its
        for part, said, profile in zip(
            one.row.parts, one.prediction.parts, one.profiles, strict=True
        )
    ]
    for served in (False, True):
        off = [
            100 * abs(did - min(1.0, x.value))
            for did, x, is_server, _ in jobs
            if is_server is served
        ]
        yield f"{statistics.fmean(off):.1f}" if off else ""
    watts = [(one.row.power_w, one.prediction.power_w) for one in its]
    yield f"{100 * statistics.fmean(abs(x.value / did - 1) for did, x in watts):.1f}"
    energy = (abs(one.prediction.energy_saved.value - one.saved) for one in its)
    yield f"{100 * statistics.fmean(energy):.1f}"
    for pairs in ([(did, x) for did, x, *_ in jobs], watts):
        held = [x.low - 1e-9 <= did <= x.high + 1e-9 for did, x in pairs]
        yield f"{100 * statistics.fmean(held):.0f}"
    servers = [(did, x, profile) for did, x, is_server, profile in jobs if is_server]
    sure = [did for did, x, profile in servers if x.low >= floor(profile, Limits())]
    yield from (str(len(servers)), str(len(sure)), str(sum(did < MET for did in sure)))


def show_choices(found: Mapping[str, Sequence[Said]]) -> None:
    """Print what the choices of each save, and miss, beside the best measured way."""
    print("\n| chosen by | pairs on a card | share | energy saved, % | missed |")
    print("|---|--:|--:|--:|--:|")
    for name, its in found.items():
        show_chosen(name, [chosen(ways) for ways in by_card(its)])
    cards = by_card(next(iter(found.values())))
    best = [
        max((w for w in ways if keeps(w)), key=lambda w: w.saved, default=None) for ways in cards
    ]
    show_chosen("who knows all", [way if way and way.saved > 0 else None for way in best])


def by_card(its: Sequence[Said]) -> list[list[Said]]:
    """The ways that one campaign measured of a pair, and an answer looks at."""
    ways: dict[tuple[object, ...], list[Said]] = defaultdict(list)
    for one in its:
        if one.prediction.split.is_limited and WHOLE in one.prediction.split.shares:
            continue
        jobs = sorted(part.whole.job for part in one.row.parts)
        ways[(one.row.gpu_uuid, *jobs)].append(one)
    return list(ways.values())


def chosen(ways: Sequence[Said]) -> Said | None:
    """The way that is worth most and keeps the limits; None: a card each."""
    limits, apart = Limits(default_min_speed=MIN_SPEED), predict_exclusive(ways[0].profiles)
    kept = {
        id(way.prediction): way
        for way in ways
        if not violations(way.prediction, way.profiles, limits)
        and WORTH(way.prediction.result) >= (1 + MIN_GAIN) * WORTH(apart.result)
    }
    options = (apart, *(way.prediction for way in kept.values()))
    return kept.get(id(choose(options, lambda p: WORTH(p.result), TIE, mirrored=False)))


def keeps(way: Said) -> bool:
    """Whether each job kept what it was to."""
    limits = Limits(default_min_speed=MIN_SPEED)
    parts = zip(way.row.parts, way.profiles, strict=True)
    return all(part.speed >= min(floor(p, limits), MET) for part, p in parts)


def show_chosen(name: str, picked: Sequence[Said | None]) -> None:
    """One row."""
    shared = [way for way in picked if way]
    saved = 100 * sum(way.saved for way in shared) / len(picked)
    missed = sum(not keeps(way) for way in shared)
    print(f"| {name} | {len(picked)} | {len(shared)} | {saved:.1f} | {missed} |")


# bundled pairs


def show_bundled(seed: int) -> None:
    """Print choices of bundled pairs of which no job fills the GPU, by trees and as answered."""
    measured = read_measured(None, None, with_bundled=False)
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    held_out = leave_one_job_out(data.rows, lambda rows: fit(lambda: extra_trees(seed), rows))
    question = choices.ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", MIN_SPEED)
    print("\n| bundled pairs | by | choices | share | energy saved, % | missed |")
    print("|---|---|--:|--:|--:|--:|")
    by_trees = choices._prediction  # pyright: ignore[reportPrivateUsage]
    ways = {"pairs": by_trees, "as answered": partial(by_physics, by_trees)}
    for name, said in ways.items():
        with mock.patch.object(choices, "_prediction", said):
            picked = choices.choose(data, held_out, question, TIE)
        for which, small in (("all", False), ("no job fills", True)):
            own = [c for c in picked if not small or _is_small(data, c)]
            shared = [c for c in own if c.missed is not None]
            saved = 100 * statistics.fmean(c.energy_saved for c in own)
            missed = sum(bool(c.missed) for c in shared)
            print(f"| {which} | {name} | {len(own)} | {len(shared)} | {saved:.2f} | {missed} |")
    show_held(data)


def show_held(data: Data) -> None:
    """Print what the ranges of physics hold of small pairs without limits."""
    held: dict[str, list[bool]] = defaultdict(list)
    for measurement in data.measurements:
        profiles = data.profiles_of(measurement)
        for split, did in measurement.splits["uncapped"].items():
            if is_by_physics(profiles, split):
                (said,) = SetPredictor().predict(profiles, [split])
                energy, watts = said.energy_saved, said.power_w
                held["energy"].append(energy.low <= did.energy_saved <= energy.high)
                held["watts"].append(watts.low <= did.power_w <= watts.high)
                held["speeds"] += [
                    part.speed.low <= min(1.0, speed) <= part.speed.high
                    for speed, part in zip(did.speeds, said.parts, strict=True)
                ]
    for what, of in held.items():
        print(f"{what} of small bundled pairs: {sum(of)} of {len(of)} held")


def by_physics(
    by_trees: Callable[..., tuple[str, Prediction]], *asked: Any
) -> tuple[str, Prediction]:
    """What is answered of a way."""
    name, prediction = by_trees(*asked)
    profiles = asked[3]
    if not is_by_physics(profiles, prediction.split):
        return name, prediction
    return name, SetPredictor().predict(profiles, [prediction.split])[0]


def _is_small(data: Data, choice: choices.Choice) -> bool:
    profiles = data.profiles_of(data.measurements[choice.number])
    return is_by_physics(profiles, Split((100.0, 100.0), "uncapped"))


if __name__ == "__main__":
    main()
