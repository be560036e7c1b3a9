"""Figures 1 to 4 of "Energy-efficient GPU SM allocation" (Han et al.), on the bundled points.

    python docs/measurements/paper.py    # about 20 minutes on one core

Figure 1: errors of X1 + X2 and of the power against the part of the rows that is learned from, and
seconds of a fit. Figure 2: fraction of the oracle by (X1 + X2) / W against the same. Rows are drawn
at random whatever their pair, ten times, as in the paper. Figure 3: fraction of the oracle by the
left-out job, next to that of 50/50. Figure 4: the same by what the two jobs use of the GPU.

`paper` is the paper's method (`advisor_training.learners.paper_learner`), `extra-trees` the model
of this product.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.core.objectives import RAW_OBJECTIVE, Policy
from advisor_training.evaluation import bar_of
from advisor_training.learners import (
    LEARNERS,
    PAPER_REPEATS,
    SUBSETS,
    Fitted,
    Learner,
    draw_rows,
    leave_job_out,
    leave_out,
    paper_learner,
)
from advisor_training.rows import Data, Rows, job_classes, make_data, read_measured, whole_gpu
from advisor_training.scoring import QUESTIONS, Choice, Error, choose, errors_of

CLASSES = ("HH", "HL", "LH", "LL")
"""Compute, then memory: high or low; the heaviest first."""

PAPER = {
    "1": "errors below 10 % (section 5.1)",
    "2": "1.5 % below the oracle (section 5.2)",
    "3": "gain over 50/50 35 % in the mean, 12 % to 60.6 % by job (sections 5.2, 6)",
    "4": "by compute and memory use, high from 50 % on (section 5.2)",
}

Cells = tuple[object, ...]


def learning_curve(data: Data, name: str, learner: Learner) -> Iterator[Cells]:
    """Figures 1 and 2: one row for each tenth of the rows that is learned from."""
    for tenths in range(1, SUBSETS):
        seconds: list[float] = []

        def timed(rows: Rows, seconds: list[float] = seconds) -> Fitted:
            start = time.perf_counter()
            fitted = learner(rows)
            seconds.append(time.perf_counter() - start)
            return fitted

        draws = draw_rows(data.rows, tenths / SUBSETS, PAPER_REPEATS)
        held_out = leave_out(data.rows, timed, [*draws])
        errors = errors_of(data, held_out, np.asarray(data.rows.kind == "nine"))
        found = choose(data, held_out, QUESTIONS[RAW_OBJECTIVE], _tie(name))
        fraction = statistics.mean(choice.fraction for choice in found)
        yield (
            name, f"{10 * tenths}", _mean(errors.rates_sum), _mean(errors.power),
            f"{statistics.median(seconds):.3f}", f"{100 * fraction:.2f}",
        )  # fmt: skip


def bars(
    chosen: Mapping[str, Sequence[Choice]], key: Callable[[Choice], str | None], *every: str
) -> Iterator[Cells]:
    """Figures 3 and 4: fraction of the oracle of each group, that of 50/50, and the gain.

    Choices without a key are in no group; last is that of all choices, where it has a name.
    """
    for name, choices in chosen.items():
        groups = defaultdict[str, list[Choice]](list)
        for choice in choices:
            if group := key(choice):
                groups[group].append(choice)
        for group, own in [*sorted(groups.items()), *((one, choices) for one in every)]:
            bar = bar_of(own)
            gain = "-" if bar["gain_percent"] is None else f"{bar['gain_percent']:+.1f}"
            fractions = f"{bar['fraction_percent']:.2f}", f"{bar['equal_percent']:.2f}"
            yield name, group, bar["choices"], *fractions, gain


def group_of(data: Data, classes: Any, choice: Choice) -> str | None:
    """Classes of both jobs of a choice, the heavier first; None where one is not known."""
    gpu_model = data.measurements[choice.number].gpu_model
    codes = [classes.get((gpu_model, job)) for job in choice.jobs]
    return " with ".join(sorted(codes, key=CLASSES.index)) if all(codes) else None


def _tie(name: str) -> float:
    """The paper takes no ties."""
    return 0.0 if name == "paper" else Policy().tie


def _mean(error: Error | None) -> str:
    return f"{error.mean_percent:.2f}" if error else "-"


def _print(figure: str, title: str, headings: Cells, rows: Iterable[Cells]) -> None:
    print(f"\nFigure {figure}. {title}. The paper: {PAPER[figure[0]]}.\n")
    for row in (headings, ["---"] * len(headings), *rows):
        print("|", " | ".join(map(str, row)), "|", flush=True)


def main() -> None:
    """Print the figures as tables."""
    measured = read_measured(None, None)
    data = make_data(measured.pairs, measured.profiled, measured.references)
    learners = {"paper": paper_learner(data.profiles), "extra-trees": LEARNERS["extra-trees"]}
    heads = ("method", "learned, %", "X1 + X2, %", "power, %", "fit, s", "of the oracle, %")
    points = [point for each in learners.items() for point in learning_curve(data, *each)]
    _print("1 and 2", "Errors and fraction of the oracle by part learned from", heads, points)
    chosen = {
        name: choose(data, leave_job_out(data.rows, learner), QUESTIONS[RAW_OBJECTIVE], _tie(name))
        for name, learner in learners.items()
    }
    heads = ("method", "group", "choices", "of the oracle, %", "50/50, %", "gain, %")
    rows = bars(chosen, lambda choice: choice.left_out, "all jobs")
    _print("3", "By the job that was left out", heads, rows)
    classes = job_classes(whole_gpu([*measured.references, *measured.profiled]))
    rows = bars(chosen, lambda choice: group_of(data, classes, choice))
    _print("4", "By what both jobs use of the GPU, compute then memory", heads, rows)


if __name__ == "__main__":
    main()
