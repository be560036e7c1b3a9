"""The evaluation as tables of texts, for the terminal and for the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.objectives import OBJECTIVES, PER_WATT_OBJECTIVE
from advisor_training.evaluation_choices import RULES, ChoiceFigures, Scope
from advisor_training.evaluation_errors import Error
from advisor_training.evaluation_methods import HEADLINE, OURS, PAPER
from advisor_training.evaluation_protocols import BY_WORKLOAD, PROTOCOLS
from advisor_training.evaluation_values import ChoiceRow, ErrorRow, Evaluation
from advisor_training.gains import BASELINES

_WORST_PAIR = "worst pair"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts; the first column names the row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def printed_tables(evaluation: Evaluation) -> list[TextTable]:
    """The tables of the terminal."""
    return [
        *(_without(unseen_jobs(evaluation, objective), _WORST_PAIR) for objective in HEADLINE),
        protocols(evaluation),
        errors(evaluation),
        kinds(evaluation),
        coverage(evaluation),
    ]


def unseen_jobs(evaluation: Evaluation, objective: str) -> TextTable:
    """Every method and rule by one objective, a job left out at a time; the best first."""
    found = [
        row
        for row in evaluation.choices
        if (row.protocol, row.objective, row.pairs) == (BY_WORKLOAD, objective, "all")
    ]
    found.sort(key=lambda row: -row.figures.mean_percent)
    rows = [(_who(row), *_choice_cells(row.figures)) for row in found]
    if ceiling := evaluation.ceilings[objective]:
        top = (ceiling.mean_percent, ceiling.p10_percent, ceiling.worst_percent)
        rows.insert(0, ("noise ceiling", str(ceiling.choices), *map(_percent, top), "-",
                        *("-" for _ in BASELINES)))  # fmt: skip
    return TextTable(
        f"Unseen jobs, by {objective}: fraction of the oracle, and gain over others, in %",
        ("method", "choices", "mean", "10th pct.", "worst", _WORST_PAIR, *BASELINES),
        rows,
    )


def protocols(evaluation: Evaluation) -> TextTable:
    """Mean fraction of the oracle of each method under each protocol, by both main objectives."""
    rows = _some(evaluation, scope="nine")
    methods = [name for name in dict.fromkeys(row.method for row in rows) if name not in RULES]
    cells = {
        (row.protocol, row.method, row.objective): f"{row.figures.mean_percent:.2f}" for row in rows
    }
    return TextTable(
        f"Mean fraction of the oracle in %, by {' | '.join(HEADLINE)}",
        ("left out", *methods),
        [
            (
                name,
                *(
                    " | ".join(cells.get((name, method, o), "-") for o in HEADLINE)
                    for method in methods
                ),
            )
            for name in PROTOCOLS
            if any((name, method, PER_WATT_OBJECTIVE) in cells for method in methods)
        ],
    )


def errors(evaluation: Evaluation) -> TextTable:
    """Mean and median errors under each protocol, at the nine splits."""
    rows = [r for r in evaluation.errors if r.pairs == "all" and r.splits == "nine"]
    return TextTable(
        "Errors at splits that were not learned from, mean | median in %, and seconds of a fit",
        (
            "left out, method", "rate", "speed", "power", "X1 + X2", "sum of speeds", "fit",
        ),
        [
            (f"{row.protocol}, {row.method}", *_error_cells(row), _seconds(evaluation, row))
            for row in rows
        ],
    )  # fmt: skip


def kinds(evaluation: Evaluation) -> TextTable:
    """With and without launch-bound jobs, and at uncapped: where errors come from."""
    rows = [r for r in evaluation.errors if (r.protocol, r.method) == (BY_WORKLOAD, OURS)]
    fractions = {
        (row.pairs, row.objective): f"{row.figures.mean_percent:.2f}"
        for row in evaluation.choices
        if (row.protocol, row.method, row.scope) == (BY_WORKLOAD, OURS, "nine")
    }
    return TextTable(
        f"{OURS}, unseen jobs: errors, mean | median, and fraction of the oracle, in %",
        (
            "pairs, splits", "rate", "speed", "power", "X1 + X2", "sum of speeds", "oracle",
            "oracle, raw",
        ),
        [
            (
                f"{row.pairs}, {row.splits}",
                *_error_cells(row),
                *(
                    fractions.get((row.pairs, o), "-") if row.splits == "nine" else "-"
                    for o in HEADLINE
                ),
            )
            for row in rows
        ],
    )  # fmt: skip


def coverage(evaluation: Evaluation) -> TextTable:
    """How much the intervals hold of jobs that took no part in making them."""
    names = [*dict.fromkeys(s for c in evaluation.coverage.values() for s in c.strata)]
    return TextTable(
        f"What intervals for {evaluation.wanted_coverage:.0%} hold of unseen jobs, by share, in %",
        ("of", "all", "worst job", *names),
        [
            (
                name,
                _percent(100 * found.overall),
                _percent(100 * found.least),
                *(_percent(100 * found.strata[s]) if s in found.strata else "-" for s in names),
            )
            for name, found in evaluation.coverage.items()
        ],
    )


def other_objectives(evaluation: Evaluation) -> TextTable:
    """Mean fraction of the oracle by the objectives that have no table of their own."""
    others = [name for name in OBJECTIVES if name not in HEADLINE]
    rows = [
        row
        for row in evaluation.choices
        if (row.protocol, row.scope, row.pairs) == (BY_WORKLOAD, "nine", "all")
    ]
    cells = {(row.method, row.objective): _percent(row.figures.mean_percent) for row in rows}
    return TextTable(
        "Mean fraction of the oracle by the other objectives, jobs that were not seen, in %",
        ("method", *others),
        [
            (method, *(cells.get((method, o), "-") for o in others))
            for method in dict.fromkeys(row.method for row in rows)
        ],
    )


def jobs(evaluation: Evaluation) -> TextTable:
    """Each job that was left out, the one with the busiest SMs first."""
    return TextTable(
        f"{OURS}, by the job that was left out: fraction of the oracle and mean errors, in %",
        (
            "job", "SM active", "pairs", *HEADLINE, "own speed off by", "the other's", "power",
        ),
        [
            (
                f"{job.job}{' (launch-bound)' if job.launch_bound else ''}",
                f"{job.sm_active_percent:.0f}",
                str(job.bars[PER_WATT_OBJECTIVE].choices),
                *(_percent(job.bars[o].fraction_percent) for o in HEADLINE),
                *(_mean(error) for error in (job.own, job.beside, job.power)),
            )
            for job in evaluation.jobs
        ],
    )  # fmt: skip


def worst_choices(evaluation: Evaluation, objective: str, count: int = 12) -> TextTable:
    """The choices that lose most."""
    worst = sorted(evaluation.chosen[objective], key=lambda choice: choice.fraction)[:count]
    return TextTable(
        f"The choices that lose most by {objective}, fraction in %",
        ("pair", "left out", "chosen", "oracle", "fraction"),
        [
            (
                f"{choice.job_a} with {choice.job_b}",
                choice.left_out,
                choice.chosen,
                choice.oracle,
                _percent(100 * choice.fraction),
            )
            for choice in worst
        ],
    )


def find_choices(
    evaluation: Evaluation, method: str, objective: str, scope: Scope = "nine"
) -> ChoiceFigures | None:
    """A method's choices over all pairs, a job left out at a time; None where it was not asked."""
    wanted = (BY_WORKLOAD, method, objective, scope, "all")
    return next(
        (
            row.figures
            for row in evaluation.choices
            if (row.protocol, row.method, row.objective, row.scope, row.pairs) == wanted
        ),
        None,
    )


def _without(table: TextTable, heading: str) -> TextTable:
    """The table without a column, for narrow places."""
    left_out = list(table.headings).index(heading)

    def kept(cells: Sequence[str]) -> list[str]:
        return [cell for number, cell in enumerate(cells) if number != left_out]

    return TextTable(table.title, kept(table.headings), [kept(row) for row in table.rows])


def _some(evaluation: Evaluation, *, scope: Scope) -> list[ChoiceRow]:
    return [row for row in evaluation.choices if row.scope == scope and row.pairs == "all"]


def _who(row: ChoiceRow) -> str:
    if row.scope == "every way":
        return f"{row.method}, from every way"
    return f"{row.method}'s method" if row.method == PAPER else row.method


def _choice_cells(figures: ChoiceFigures) -> Iterator[str]:
    yield str(figures.choices)
    yield from map(_percent, (figures.mean_percent, figures.p10_percent, figures.worst_percent))
    yield " with ".join(figures.worst_pair)
    for name in BASELINES:
        over = figures.over.get(name)
        yield f"{over.mean_percent:+.1f}" if over else "-"


def _error_cells(row: ErrorRow) -> Iterator[str]:
    found = row.errors
    for error in (found.rate, found.speed, found.power, found.rates_sum, found.speeds_sum):
        yield f"{error.mean_percent:.1f} | {error.median_percent:.1f}" if error else "-"


def _seconds(evaluation: Evaluation, row: ErrorRow) -> str:
    seconds = evaluation.training_s.get(row.method)
    return "-" if seconds is None or row.protocol != BY_WORKLOAD else f"{seconds:.2f} s"


def _mean(error: Error | None) -> str:
    return f"{error.mean_percent:.1f}" if error else "-"


def _percent(value: float) -> str:
    return f"{value:.2f}"
