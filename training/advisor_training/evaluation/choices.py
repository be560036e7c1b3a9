"""The splits that predictions and simple rules choose, and what those are worth as measured."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, Objective, SplitResult
from advisor.core.split import EQUAL, Split
from advisor.decide import recommend
from advisor.decide.constraints import violations
from advisor.decide.limits import Limits, floor
from advisor.predict.predictions import (
    Prediction,
    is_within,
    predict_exclusive,
    predicted_part,
    safe_splits_of,
)
from advisor.predict.profiles import Profile
from advisor.settings import MIN_SPEED
from advisor_training.dataset.data import Data
from advisor_training.dataset.pairs import BASELINES, Measurement
from advisor_training.evaluation.bounds import NO_BOUNDS, SpeedBounds, bounds_without
from advisor_training.learn.held_out import HeldOut

CandidateScope = Literal["nine", "nine or exclusive", "every way"]
"""What is chosen from: the nine splits, as in the paper, those and exclusive, or uncapped too."""

KeptBy = Literal["as advised", "low end", "expected"]

ChoiceKey = tuple[str, int]
"""What was left out, and the number of the measurement."""


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """What is asked.

    Attributes:
        min_speed: Relative speed that each job keeps where they share, and a job with a fixed
            demand all of it; 0: any.
        kept: What is to keep that: the low ends of the intervals, the expected values, or each
            where `advisor recommend` has it.
    """

    objective: Objective
    scope: CandidateScope = "nine"
    min_speed: float = 0.0
    kept: KeptBy = "as advised"

    def allows(self, name: str, result: SplitResult, jobs: tuple[Profile, Profile]) -> bool:
        """Whether a way, as measured, keeps the minimum speeds; jobs that do not share always do.

        They run one after the other, or each on a GPU of its own: the energy is the same.
        """
        if name == "exclusive" or not self.min_speed:
            return True
        limits = Limits(default_min_speed=self.min_speed)
        return all(s >= floor(job, limits) for s, job in zip(result.speeds, jobs, strict=True))


QUESTIONS: Mapping[str, ChoiceQuestion] = MappingProxyType(
    {
        **{name: ChoiceQuestion(objective) for name, objective in OBJECTIVES.items()},
        DEFAULT_OBJECTIVE: ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", MIN_SPEED),
    }
)
"""By objective: the default one as `advisor recommend` asks it, the others as the paper does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice, scored by what was measured.

    Attributes:
        left_out: What the learner had not seen.
        chosen: Name of the way: shares such as "30/70", "uncapped", "time-sliced", "exclusive".
        oracle: The best way of the scope that keeps the minimum speed as measured.
        fraction: Value at the choice for each one of the oracle; above 1 where the choice is not
            in the scope or does not keep the minimum speed.
        missed: Whether a job is below the minimum speed that was asked for; None where none was
            asked for, or the jobs do not share.
        over: Value at the choice for each one of a baseline, by the baseline's name.
    """

    left_out: str
    number: int
    jobs: tuple[str, str]
    chosen: str
    oracle: str
    fraction: float
    energy_saved: float
    stp: float
    slower_speed: float
    missed: bool | None
    over: Mapping[str, float]


def choose(
    data: Data,
    held_out: HeldOut,
    question: ChoiceQuestion,
    tie: float,
    judged_by: ChoiceQuestion | None = None,
) -> list[Choice]:
    """What predictions choose, one choice for each thing left out and measurement.

    Choices are made from what is known before: predicted relative speeds and power, and the
    profiles' rates; `tie` is that of `advisor.decide.recommend.choose`. They may be scored by
    another question. Measurements in which nothing is worth anything are left out.
    """
    found = (
        _scored(data, key, _pick(data, key, options, question, tie), judged_by or question)
        for key, options in _expected(data, held_out, question)
    )
    return [choice for choice in found if choice]


def choose_best(
    data: Data, keys: Iterable[ChoiceKey], by: ChoiceQuestion, judged_by: ChoiceQuestion
) -> list[Choice]:
    """What somebody who knows every measured value chooses by one question, scored by another."""
    found = (_scored(data, key, _best(data, key, by), judged_by) for key in keys)
    return [choice for choice in found if choice]


def choose_by_rule(
    data: Data, keys: Iterable[ChoiceKey], rule: str, question: ChoiceQuestion
) -> list[Choice]:
    """What a rule of `RULES` chooses of the same measurements as `choose`, so that both compare.

    Measurements that lack what it chooses are left out.
    """
    named = ((key, RULES[rule](data, data.measurements[key[1]])) for key in keys)
    found = (_scored(data, key, name, question) for key, name in named)
    return [choice for choice in found if choice]


def keys_of(choices: Iterable[Choice]) -> list[ChoiceKey]:
    """What the choices are of."""
    return [(choice.left_out, choice.number) for choice in choices]


def _larger_rate(data: Data, measurement: Measurement) -> str:
    """90 % for the job with more steps per second, at a safe split; empty: not in the profiles."""
    profiles = data.profiles_of(measurement)
    one, other = (profile.whole_gpu_rate for profile in profiles)
    larger = Split((90.0, 10.0) if one > other else (10.0, 90.0))
    (split,) = safe_splits_of(profiles, [EQUAL if one == other else larger], None)
    return str(split) if split and is_within(split, profiles) else ""


RULES: Mapping[str, Callable[[Data, Measurement], str]] = MappingProxyType(
    {
        "equal": lambda data, measurement: str(EQUAL),
        "uncapped": lambda data, measurement: "uncapped",
        "time-sliced": lambda data, measurement: "time-sliced",
        "exclusive": lambda data, measurement: "exclusive",
        "larger-rate": _larger_rate,
    }
)
"""Rules that need no model, and the way that each of them takes."""


def _expected(
    data: Data, held_out: HeldOut, question: ChoiceQuestion
) -> Iterator[tuple[ChoiceKey, dict[str, Prediction]]]:
    """What is expected of each way, by its name, for each choice."""
    tests: dict[ChoiceKey, list[int]] = {}
    numbers = data.rows.measurement[held_out.row].tolist()
    for test, key in enumerate(zip(held_out.left_out.tolist(), numbers, strict=True)):
        tests.setdefault(key, []).append(test)
    for key, its in sorted(tests.items()):
        if not data.measurements[key[1]].is_full:
            continue
        profiles = data.profiles_of(data.measurements[key[1]])
        bounds = NO_BOUNDS
        if question.min_speed and question.kept != "expected":
            bounds = bounds_without(data.rows, held_out, key[0], (profiles[0].job, profiles[1].job))
        named = (_prediction(data, held_out, test, profiles, bounds) for test in its)
        options = {name: found for name, found in named if _in_scope(name, question.scope)}
        if _in_scope("exclusive", question.scope):
            options["exclusive"] = predict_exclusive(profiles)
        if options:
            yield key, options


def _prediction(
    data: Data,
    held_out: HeldOut,
    test: int,
    profiles: tuple[Profile, Profile],
    bounds: SpeedBounds,
) -> tuple[str, Prediction]:
    capacities = held_out.heads["speed"][test].tolist()
    split = data.rows.split(held_out.row[test])
    prediction = Prediction(
        split=split,
        parts=tuple(
            predicted_part(profile, bounds.around(capacity, split, n, profiles))
            for n, (profile, capacity) in enumerate(zip(profiles, capacities, strict=True))
        ),
        power_w=_exact(held_out.power_w[test]),
    )
    return str(prediction.split), prediction


def _exact(value: float) -> Interval:
    return Interval(float(value), float(value), float(value))


def _pick(
    data: Data,
    key: ChoiceKey,
    options: Mapping[str, Prediction],
    question: ChoiceQuestion,
    tie: float,
) -> str:
    """The name of the way that is recommended; of those that are allowed, if any is.

    Jobs need not share: one that answers requests gets a GPU of its own then.
    """
    profiles = data.profiles_of(data.measurements[key[1]])
    limits = Limits(default_min_speed=question.min_speed)
    if question.kept == "low end":
        limits = replace(limits, min_speed={p.job: floor(p, limits) for p in profiles})
    allowed = {
        name: option
        for name, option in options.items()
        # Without a minimum speed a server may fall short as well, as the oracle has it.
        if name == "exclusive" or not question.min_speed or not violations(option, profiles, limits)
    } or options
    # Jobs of a measurement are in the order of their names, so nothing is mirrored.
    value = question.objective.value
    chosen = recommend.choose(allowed.values(), lambda p: value(p.result), tie, mirrored=False)
    return next(name for name, option in allowed.items() if option is chosen)


def _scored(data: Data, key: ChoiceKey, name: str, question: ChoiceQuestion) -> Choice | None:
    """The choice of a way, None where it was not measured or nothing is worth anything."""
    measurement = data.measurements[key[1]]
    jobs = data.profiles_of(measurement)
    result = dict(measured_ways(measurement)).get(name)
    oracle, most = _oracle(measurement, question, jobs)
    if result is None or most <= 0:
        return None
    value = question.objective.value(result)
    asked = question.min_speed > 0 and name != "exclusive"
    return Choice(
        left_out=key[0],
        number=key[1],
        jobs=measurement.jobs,
        chosen=name,
        oracle=oracle,
        fraction=value / most,
        energy_saved=result.energy_saved,
        stp=result.stp,
        slower_speed=min(result.speeds),
        missed=not question.allows(name, result, jobs) if asked else None,
        over={
            baseline: value / worth
            for baseline, find in BASELINES.items()
            if (found := find(measurement)) and (worth := question.objective.value(found)) > 0
        },
    )


def _best(data: Data, key: ChoiceKey, question: ChoiceQuestion) -> str:
    measurement = data.measurements[key[1]]
    return _oracle(measurement, question, data.profiles_of(measurement))[0]


def _oracle(
    measurement: Measurement, question: ChoiceQuestion, jobs: tuple[Profile, Profile]
) -> tuple[str, float]:
    """The best way of the scope as measured, and its value; allowed ones first."""
    within = {n: r for n, r in measured_ways(measurement) if _in_scope(n, question.scope)}
    allowed = {n: r for n, r in within.items() if question.allows(n, r, jobs)} or within
    values = {name: question.objective.value(result) for name, result in allowed.items()}
    oracle = max(values, key=lambda name: values[name])
    return oracle, values[oracle]


def measured_ways(measurement: Measurement) -> Iterator[tuple[str, SplitResult]]:
    """Every way that was measured, by name; exclusive comes from the jobs alone."""
    for split, result in measurement.nine.items():
        yield str(split), result
    for name in ("uncapped", "time-sliced", "exclusive"):
        if result := BASELINES[name](measurement):
            yield name, result


def _in_scope(name: str, scope: CandidateScope) -> bool:
    others = {"exclusive": scope != "nine", "uncapped": scope == "every way"}
    return "/" in name or others.get(name, False)
