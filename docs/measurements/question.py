"""Prints what choices by each objective and minimum speed come to, at the same work.

    .venv/bin/python docs/measurements/question.py
    .venv/bin/python docs/measurements/question.py --pairs pairs.parquet --solo solo.parquet
    .venv/bin/python docs/measurements/question.py --json question.json

A table for each GPU model, of the bundled points and those of the files, less the flagged ones.
Means over choices with 95 % intervals by a bootstrap over jobs. Takes about a minute.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from advisor.cli.learn.measured import read_measured
from advisor_training.evaluation.data import make_data
from advisor_training.evaluation_report.question import Answer, answers
from advisor_training.learn.bootstrap import Estimate

HEADINGS = (
    "chosen by", "objective", "minimum speed", "choices", "energy saved, %", "median, %",
    "lose, %", "STP", "slower job, %", "share, %", "below minimum speed, %",
)  # fmt: skip


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


def _between(found: Estimate, digits: int = 1) -> str:
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
