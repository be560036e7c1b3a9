"""Prints what choosing by prediction loses against the best of all ways to run two jobs.

    .venv/bin/python docs/measurements/model/all_ways.py

All ways are the nine splits, no limits (uncapped) and one after the other (exclusive). Each job is
left out in turn. A cell: the value lost (100 % less the fraction of the measured best of all ways),
how much more that is than today's, how often uncapped is chosen, and how often a job ends up below
its minimum speed. Over the measurements that have a window without limits; 95 % intervals by job.
Takes a minute on one core.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, PER_WATT_OBJECTIVE, RAW_OBJECTIVE
from advisor.decide import choice
from advisor.decide.recommend import TIE
from advisor.predict.features import FULL_BANDWIDTH_PERCENT, Side, power_factor
from advisor.predict.profiles import Floats
from advisor.settings import MIN_SPEED
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_models.heads import POWER, SPEED, Features
from advisor_training.dataset.rows import Rows, make_rows
from advisor_training.described import LEARNER
from advisor_training.evaluation.choices import (
    CandidateScope,
    Choice,
    Question,
    choose,
    choose_by_rule,
    keys_of,
)
from advisor_training.evaluation.data import Data, make_data
from advisor_training.learn.bootstrap import Resamples
from advisor_training.learn.held_out import HeldOut, leave_one_job_out
from advisor_training.learn.learners import LEARNERS, Fitted, Predicted, extra_trees, fit
from advisor_training.learn.scoring import speed_errors

Chooser: TypeAlias = Callable[[Question], list[Choice]]

QUESTIONS = (
    Question(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", MIN_SPEED),
    *(
        Question(OBJECTIVES[name], "every way")
        for name in (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE)
    ),
)

LEAD = choice.MARGINS["uncapped"]

MISSED = -1.0
"""What the gate learns where a job does not keep its minimum speed without limits."""


def main() -> None:
    """One table: a line for each way to choose, with each question."""
    data = make_data(
        select(bundled_pair_points()).points, bundled_solo_points(), bundled_reference_points()
    )
    lines, errors = ways_to_choose(data)
    today = {question: lines["today"](question) for question in QUESTIONS}
    print(f"| chosen by | {' | '.join(map(heading, QUESTIONS))} |")
    print("|" + " --- |" * (1 + len(QUESTIONS)))
    for name, chooser in lines.items():
        cells = [cell(chooser(question), today[question]) for question in QUESTIONS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| rates without limits by | mean error | median |\n| --- | --- | --- |")
    for name, off in errors.items():
        print(f"| {name} | {100 * off.mean():.1f} % | {100 * np.median(off):.1f} % |")


def heading(question: Question) -> str:
    """What is asked."""
    least = question.min_speed
    return f"{question.objective.name}, {f'each at {least:g} or more' if least else 'any speed'}"


def cell(found: Sequence[Choice], today: Sequence[Choice]) -> str:
    """Value lost; how much more than today, with its interval; uncapped and below the minimum."""
    drawn = Resamples([c.jobs for c in found])
    lost = drawn.mean([100 * (1 - c.fraction) for c in found])
    more = drawn.mean([100 * (b.fraction - c.fraction) for c, b in zip(found, today, strict=True)])
    counts = sum(c.chosen == "uncapped" for c in found), sum(bool(c.missed) for c in found)
    return f"{lost}; {more.value:+.2f} [{more.low:+.2f} {more.high:+.2f}]; {counts[0]}; {counts[1]}"


def ways_to_choose(data: Data) -> tuple[dict[str, Chooser], dict[str, Floats]]:
    """How to choose, by name, and errors of the rates without limits, by what predicts them."""
    rows, learner = data.rows, LEARNERS[LEARNER]
    model = leave_one_job_out(rows, learner)
    shared = make_rows(data.pairs, data.profiles, (replace(SPEED, prior_of=shared_prior), POWER))
    by_physics = leave_one_job_out(shared, _prior_and_power)
    predicted = {
        "the model": model,
        "proportional sharing": by_physics,
        "the model over proportional sharing": leave_one_job_out(shared, learner),
        "a head of its own": leave_one_job_out(rows, _own_head),
        "a head of its own over proportional sharing": leave_one_job_out(shared, _own_head),
    }
    asked = {name: without_limits_by(found, model, rows) for name, found in predicted.items()}
    lines = {
        "today": by(data, model, "every way"),
        "the nine splits only": by(data, model, "nine"),
        "these or exclusive": by(data, model, "nine or exclusive"),
        "always uncapped": always(data, model, "uncapped"),
        "always exclusive": always(data, model, "exclusive"),
        **{
            f"{name}, {lead:.0%} ahead": by(data, found, "every way", lead)
            for name, found in asked.items()
            for lead in (0.0, LEAD)
            if (name, lead) != ("the model", LEAD)
        },
        "a learned gate": gated(data, model, learned_gate),
        "a gate that knows": gated(data, model, lambda _, __, gains: gains),
    }
    return lines, {name: speed_errors(rows, found, "uncapped") for name, found in predicted.items()}


def by(data: Data, found: HeldOut, scope: CandidateScope, lead: float = LEAD) -> Chooser:
    """Chosen by predictions from a scope, no limits ahead by a lead."""

    def chooser(question: Question) -> list[Choice]:
        choice.MARGINS = {**choice.MARGINS, "uncapped": lead}
        chosen = choose(data, found, replace(question, scope=scope), TIE, question)
        return [c for c in chosen if data.measurements[c.number].uncapped]

    return chooser


def always(data: Data, model: HeldOut, rule: str) -> Chooser:
    """The same way for every pair."""
    of_all = by(data, model, "every way")
    return lambda question: choose_by_rule(data, keys_of(of_all(question)), rule, question)


def gated(
    data: Data, model: HeldOut, gate: Callable[[Data, Sequence[Choice], Floats], Floats]
) -> Chooser:
    """No limits where a gate expects more of them than of the best of the other ways."""

    def chooser(question: Question) -> list[Choice]:
        others = by(data, model, "nine or exclusive")(question)
        without = choose_by_rule(data, keys_of(others), "uncapped", question)
        gains = np.array(
            [
                MISSED if w.missed else w.fraction - o.fraction
                for o, w in zip(others, without, strict=True)
            ]
        )
        taken = gate(data, others, gains) > 0
        return [w if yes else o for o, w, yes in zip(others, without, taken, strict=True)]

    return chooser


def learned_gate(data: Data, choices: Sequence[Choice], gains: Floats) -> Floats:
    """What no limits would gain, learned from choices that have not the job that is left out."""
    rows = data.rows
    row_of = {n: row for row, n in enumerate(rows.measurement) if rows.kind[row] == "uncapped"}
    features = rows.heads["power"].features[[row_of[c.number] for c in choices], 0]
    left_out = np.array([c.left_out for c in choices])
    jobs = np.array([c.jobs for c in choices])
    expected = np.zeros(len(choices))
    for job in np.unique(left_out):
        asked, learned = left_out == job, ~(jobs == job).any(axis=1)
        expected[asked] = (
            extra_trees().fit(features[learned], gains[learned]).predict(features[asked])
        )
    return expected


def shared_prior(sides: Sequence[Side], features: Features) -> Floats:
    """Without limits each job gets SM time and bandwidth in proportion to its demand alone."""
    both = np.all([side.shares >= 100 for side in sides], axis=0)
    kept = np.minimum(
        _part_of(sides, "sm_active_percent", 100.0),
        _part_of(sides, "dram_active_percent", FULL_BANDWIDTH_PERCENT),
    )
    limited = SPEED.prior_of(sides, features)
    return np.where(both, np.minimum(kept, power_factor(sides)), limited)


def _part_of(sides: Sequence[Side], name: str, supply: float) -> Floats:
    demand = np.sum([side.readings[name] for side in sides], axis=0)
    return np.minimum(1, supply / np.maximum(demand, 1.0))


def _prior_and_power(rows: Rows) -> Fitted:
    """Speeds without learning; the power is the model's."""
    model = fit(extra_trees, rows)

    def predict(some: Rows) -> Predicted:
        speed = some.heads["speed"].prior
        heads = {"speed": speed, "power": model(some).heads["power"]}
        return Predicted(np.minimum(speed, 1), heads)

    return predict


def _own_head(rows: Rows) -> Fitted:
    """Learned from rows without limits only."""
    return fit(extra_trees, rows.take(rows.kind == "uncapped"))


def without_limits_by(found: HeldOut, model: HeldOut, rows: Rows) -> HeldOut:
    """The model's predictions, those without limits in place of its own."""
    these = (rows.kind[model.row] == "uncapped")[:, None]
    heads = {n: np.where(these, found.heads[n], values) for n, values in model.heads.items()}
    speed = np.where(these, found.speed, model.speed)
    return HeldOut(model.left_out, model.row, Predicted(speed, heads))


if __name__ == "__main__":
    main()
