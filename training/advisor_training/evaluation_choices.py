"""The splits that predictions and simple rules choose, and what those are worth as measured."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from advisor import recommend
from advisor.objectives import Objective, SplitResult
from advisor.predictions import Interval, Prediction, predict_exclusive
from advisor.profiles import Profile
from advisor.rules import rule_choices
from advisor_training.evaluation_data import Data
from advisor_training.gains import BASELINES
from advisor_training.noise import quantile
from advisor_training.pairs import Measurement
from advisor_training.split_kinds import EQUAL, split_text
from advisor_training.unseen import Unseen

Scope = Literal["nine", "every way"]
"""What is chosen from: the nine splits, as in the paper, or those, uncapped and exclusive."""

Key = tuple[str, int]
"""What was left out, and the number of the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice, scored by what was measured.

    Attributes:
        left_out: What the learner had not seen.
        number: Of the measurement.
        chosen: Name of the way: shares such as "30/70", "uncapped", "time-sliced", "exclusive".
        oracle: The best way of the scope.
        fraction: Value at the choice for each one of the oracle; above 1 where a rule chooses what
            is not in the scope.
        over: Value at the choice for each one of a baseline, by the baseline's name.
    """

    left_out: str
    number: int
    job_a: str
    job_b: str
    chosen: str
    oracle: str
    fraction: float
    over: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Over:
    """Gain over one baseline in percent, of so many choices.

    The mean of ratios hangs on few pairs in which the baseline starves a job; the median does not.
    """

    choices: int
    mean_percent: float
    median_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceFigures:
    """Many choices in short, in percent.

    Attributes:
        p10_percent: A tenth of the choices reaches less.
        worst_pair: The two jobs of the choice that reaches least.
        worst_choice: What was chosen there, and what the oracle is.
        over: Gain over each baseline; without those that were never measured.
    """

    choices: int
    mean_percent: float
    p10_percent: float
    worst_percent: float
    worst_pair: tuple[str, str]
    worst_choice: tuple[str, str]
    over: Mapping[str, Over]


def choose(
    data: Data, unseen: Unseen, objective: Objective, tie: float, scope: Scope
) -> list[Choice]:
    """What predictions choose, one choice for each thing left out and measurement.

    Choices are made from what is known before: predicted relative speeds and power, and the
    profiles' rates. Measurements in which nothing is worth anything are left out.

    Args:
        data: The measured pairs.
        unseen: Predictions of their rows.
        objective: What is maximised.
        tie: As for `advisor.recommend.choose`, which chooses.
        scope: What is chosen from.
    """
    found = (
        _scored(data, key, _pick(options, objective, tie), objective, scope)
        for key, options in _expected(data, unseen, scope)
    )
    return [choice for choice in found if choice]


def choose_by_rule(
    data: Data, keys: Iterable[Key], rule: str, objective: Objective, scope: Scope
) -> list[Choice]:
    """What a simple rule chooses, for the same measurements as `choose`, so that both compare.

    Args:
        data: The measured pairs.
        keys: Left out, and the measurement's number.
        rule: A name of `RULES`; measurements that lack what it chooses are left out.
        objective: What it is worth by.
        scope: What the oracle chooses from.
    """
    named = ((key, RULES[rule](data, data.measurements[key[1]])) for key in keys)
    found = (_scored(data, key, name, objective, scope) for key, name in named)
    return [choice for choice in found if choice]


def keys_of(choices: Iterable[Choice]) -> list[Key]:
    """What the choices are of."""
    return [(choice.left_out, choice.number) for choice in choices]


def figures_of(choices: Sequence[Choice]) -> ChoiceFigures | None:
    """The choices in short; None of none."""
    if not choices:
        return None
    fractions = [choice.fraction for choice in choices]
    worst = min(choices, key=lambda choice: choice.fraction)
    over = {
        name: [choice.over[name] for choice in choices if name in choice.over] for name in BASELINES
    }
    return ChoiceFigures(
        choices=len(choices),
        mean_percent=100 * statistics.mean(fractions),
        p10_percent=100 * quantile(fractions, 0.1),
        worst_percent=100 * worst.fraction,
        worst_pair=(worst.job_a, worst.job_b),
        worst_choice=(worst.chosen, worst.oracle),
        over={name: _over(values) for name, values in over.items() if values},
    )


def _over(ratios: Sequence[float]) -> Over:
    means = statistics.mean(ratios), statistics.median(ratios)
    return Over(len(ratios), 100 * (means[0] - 1), 100 * (means[1] - 1))


def _larger_rate(data: Data, measurement: Measurement) -> str:
    choice = rule_choices(*data.profiles_of(measurement), (), lambda found: found[0])["larger-rate"]
    return split_text(choice[1]) if choice else ""


RULES: Mapping[str, Callable[[Data, Measurement], str]] = MappingProxyType(
    {
        "equal": lambda data, measurement: split_text(EQUAL),
        "uncapped": lambda data, measurement: "uncapped",
        "time-sliced": lambda data, measurement: "time-sliced",
        "exclusive": lambda data, measurement: "exclusive",
        "larger-rate": _larger_rate,
    }
)
"""Rules that need no model, as `advisor.rules` names them: the way that each of them takes."""


def _expected(
    data: Data, unseen: Unseen, scope: Scope
) -> Iterator[tuple[Key, dict[str, Prediction]]]:
    """What is expected of each way, by its name, for each choice."""
    tests: dict[Key, list[int]] = {}
    numbers = data.rows.measurement[unseen.row].tolist()
    for test, key in enumerate(zip(unseen.left_out.tolist(), numbers, strict=True)):
        tests.setdefault(key, []).append(test)
    for key, its in sorted(tests.items()):
        if not data.measurements[key[1]].is_full:
            continue
        profiles = data.profiles_of(data.measurements[key[1]])
        named = (_prediction(data, unseen, test, profiles) for test in its)
        options = {name: found for name, found in named if _in_scope(name, scope)}
        if scope == "every way":
            options["exclusive"] = predict_exclusive(*profiles)
        if options:
            yield key, options


def _prediction(
    data: Data, unseen: Unseen, test: int, profiles: tuple[Profile, Profile]
) -> tuple[str, Prediction]:
    row = unseen.row[test]
    uncapped = data.rows.kind[row] == "uncapped"
    shares = float(data.rows.share_a[row]), float(data.rows.share_b[row])
    prediction = Prediction(
        way="uncapped" if uncapped else "split",
        share_a_percent=shares[0],
        share_b_percent=shares[1],
        speed_a=_exact(unseen.speed_a[test]),
        speed_b=_exact(unseen.speed_b[test]),
        power_w=_exact(unseen.power_w[test]),
        solo_rate_a=profiles[0].whole_gpu_rate,
        solo_rate_b=profiles[1].whole_gpu_rate,
        solo_power_a_w=profiles[0].whole_gpu_power_w,
        solo_power_b_w=profiles[1].whole_gpu_power_w,
    )
    return "uncapped" if uncapped else split_text(shares), prediction


def _exact(value: float) -> Interval:
    return Interval(float(value), float(value), float(value))


def _pick(options: Mapping[str, Prediction], objective: Objective, tie: float) -> str:
    # Jobs of a measurement are in the order of their names, so nothing is mirrored.
    chosen = recommend.choose(
        options.values(), lambda p: objective.value(p.result), tie, mirrored=False
    )
    return next(name for name, option in options.items() if option is chosen)


def _scored(data: Data, key: Key, name: str, objective: Objective, scope: Scope) -> Choice | None:
    """The choice of a way, None where it was not measured or nothing is worth anything."""
    measurement = data.measurements[key[1]]
    measured = dict(_measured(measurement))
    if name not in measured:
        return None
    within = {n: r for n, r in measured.items() if _in_scope(n, scope)}
    return _choice(key, measurement, name, measured[name], within, objective)


def _choice(
    key: Key,
    measurement: Measurement,
    name: str,
    result: SplitResult,
    within: Mapping[str, SplitResult],
    objective: Objective,
) -> Choice | None:
    values = {way: objective.value(found) for way, found in within.items()}
    oracle = max(values, key=lambda way: values[way])
    if values[oracle] <= 0:
        return None
    value = objective.value(result)
    return Choice(
        left_out=key[0],
        number=key[1],
        job_a=measurement.job_a,
        job_b=measurement.job_b,
        chosen=name,
        oracle=oracle,
        fraction=value / values[oracle],
        over={
            baseline: value / worth
            for baseline, find in BASELINES.items()
            if (found := find(measurement)) and (worth := objective.value(found)) > 0
        },
    )


def _measured(measurement: Measurement) -> Iterator[tuple[str, SplitResult]]:
    """Every way that was measured, by name; exclusive comes from the jobs alone."""
    for split, result in measurement.nine.items():
        yield split_text(split), result
    for name in ("uncapped", "time-sliced", "exclusive"):
        if result := BASELINES[name](measurement):
            yield name, result


def _in_scope(name: str, scope: Scope) -> bool:
    return "/" in name or (scope == "every way" and name != "time-sliced")
