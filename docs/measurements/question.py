"""Prints what choices by each objective and minimum speed come to, at the same work.

    .venv/bin/python docs/measurements/question.py
    .venv/bin/python docs/measurements/question.py --pairs pairs.parquet --solo solo.parquet
    .venv/bin/python docs/measurements/question.py --json question.json

A table for each GPU model, of the bundled points and those of the files, less the flagged ones.
Means over choices with 95 % intervals by a bootstrap over jobs. Takes about a minute.

Every row of a table has the same pairs. The oracle knows every measured value; the model and
physics see neither of the two values they are scored by: each job is left out in turn, on every GPU
model.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, PER_WATT_OBJECTIVE, RAW_OBJECTIVE
from advisor.decide.recommend import TIE
from advisor_training.choices import (
    RULES,
    Choice,
    ChoiceFigures,
    ChoiceQuestion,
    choose,
    choose_best,
    choose_by_rule,
    figures_of,
    keys_of,
)
from advisor_training.held_out import HeldOut, leave_one_job_out
from advisor_training.learners import LEARNERS
from advisor_training.noise import BootstrapEstimate
from advisor_training.points import read_measured
from advisor_training.rows import Data, make_data

HEADINGS = (
    "chosen by", "objective", "minimum speed", "choices", "energy saved, %", "median, %",
    "lose, %", "STP", "slower job, %", "share, %", "below minimum speed, %",
)  # fmt: skip


ASKED = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE)

MIN_SPEEDS = (0.0, 0.3, 0.4, 0.5)

ORACLE = "measured oracle"

LEARNED: Mapping[str, str] = MappingProxyType({"model": "extra-trees", "physics": "physical"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one way to choose comes to on one GPU model.

    Attributes:
        objective: What is chosen by; None: a rule, which chooses by none.
        min_speed: Relative speed that each job is to keep; None likewise.
        chosen_by: The measured oracle, the model, physics, or a rule.
    """

    gpu_model: str
    objective: str | None
    min_speed: float | None
    chosen_by: str
    figures: ChoiceFigures


def answers(data: Data) -> Iterator[Answer]:
    """By GPU model: the rules, then every objective with every minimum speed."""
    held_out = {
        name: leave_one_job_out(data.rows, LEARNERS[learner]) for name, learner in LEARNED.items()
    }
    for model in np.unique(data.rows.gpu_model).tolist():
        numbers = {n for n, m in enumerate(data.measurements) if m.gpu_model == model}
        yield from _rules(data, model, numbers, held_out["model"])
        for objective, least in itertools.product(ASKED, MIN_SPEEDS):
            for chosen_by, choices in _chosen(data, held_out, objective, least):
                its = [choice for choice in choices if choice.number in numbers]
                if figures := figures_of(its):
                    yield Answer(
                        gpu_model=model,
                        objective=objective,
                        min_speed=least,
                        chosen_by=chosen_by,
                        figures=figures,
                    )


def _rules(data: Data, model: str, numbers: set[int], held_out: HeldOut) -> Iterator[Answer]:
    judged = ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way")
    keys = [key for key in keys_of(choose(data, held_out, judged, TIE)) if key[1] in numbers]
    for rule in RULES:
        if figures := figures_of(choose_by_rule(data, keys, rule, judged)):
            yield Answer(
                gpu_model=model, objective=None, min_speed=None, chosen_by=rule, figures=figures
            )


def _chosen(
    data: Data, held_out: Mapping[str, HeldOut], objective: str, least: float
) -> Iterator[tuple[str, Sequence[Choice]]]:
    """All are scored by energy for the same work; uncapped only by who knows it starves jobs."""
    judged = ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", least)
    asked = ChoiceQuestion(OBJECTIVES[objective], "every way", least)
    splits = ChoiceQuestion(OBJECTIVES[objective], "nine or exclusive", least)
    found = {
        "model": choose(data, held_out["model"], asked, TIE, judged),
        "physics": choose(data, held_out["physics"], splits, TIE, judged),
    }
    yield ORACLE, choose_best(data, keys_of(found["model"]), asked, judged)
    yield from found.items()


def main() -> None:
    """A table for each GPU model."""
    options = _options()
    measured = read_measured(options.pairs, options.solo, with_bundled=True)
    data = make_data(measured.pairs, measured.profiled, measured.references)
    found = list(answers(data))
    for model, its in itertools.groupby(found, lambda answer: answer.gpu_model):
        print("\n".join(table(model, list(its))), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(answer) for answer in found], indent=1) + "\n")


def table(model: str, found: Sequence[Answer]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"\n{model}\n"
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|" + " --- |" * len(HEADINGS)
    for answer in found:
        yield f"| {' | '.join(cells(answer))} |"


def cells(answer: Answer) -> Iterator[str]:
    """One for each heading."""
    figures = answer.figures
    yield answer.chosen_by
    yield answer.objective or "-"
    yield "-" if answer.min_speed is None else f"{answer.min_speed:g}"
    yield str(figures.choices)
    yield _between(figures.saved)
    yield _between(figures.saved_median)
    yield _between(figures.loses, 0)
    yield _between(figures.stp, 2)
    yield _between(figures.slower, 0)
    yield f"{figures.shared.value:.0f}"
    yield "-" if figures.missed is None else _between(figures.missed, 0)


def _between(found: BootstrapEstimate, digits: int = 1) -> str:
    value, low, high = (f"{x:.{digits}f}" for x in (found.value, found.low, found.high))
    return f"{value} [{low} {high}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=Path, help="pair points beside the bundled ones")
    parser.add_argument("--solo", type=Path, help="solo points beside the bundled ones")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
