"""The evaluation as tables of texts, for the terminal and for the page."""

from collections.abc import Iterator, Sequence

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor_training.evaluation.choices import QUESTIONS
from advisor_training.evaluation.errors import Error, Errors
from advisor_training.evaluation.methods import HEADLINE, OURS, PAPER, PHYSICAL
from advisor_training.evaluation.outcomes import ChoiceFigures
from advisor_training.evaluation.values import Evaluation, choice_figures, errors_of_all_pairs
from advisor_training.learn.bootstrap import BootstrapEstimate
from advisor_training.learn.protocols import BY_WORKLOAD, PROTOCOLS
from advisor_training.reports.document import TextTable

_OTHERS = [name for name in OBJECTIVES if name != DEFAULT_OBJECTIVE]

_ORACLES = ("oracle", "oracle, per watt", "oracle, raw")
"""Headings of the fractions by `HEADLINE`."""


def printed_tables(evaluation: Evaluation) -> list[TextTable]:
    """The tables of the terminal."""
    found = [
        unseen_jobs(evaluation),
        by_objective(evaluation, HEADLINE[1:]),
        protocols(evaluation),
        limits(evaluation),
        kinds(evaluation),
        coverage(evaluation),
        seeds(evaluation),
    ]
    return [table for table in found if table.rows]


def unseen_jobs(evaluation: Evaluation) -> TextTable:
    """Every method and rule by energy for the same work, a job left out at a time."""
    found = choice_figures(evaluation).xs(
        (BY_WORKLOAD, DEFAULT_OBJECTIVE), level=("protocol", "objective")
    )
    best_first = sorted(found.items(), key=lambda row: -row[1].saved.value)
    least = QUESTIONS[DEFAULT_OBJECTIVE].min_speed
    return TextTable(
        "Jobs that were not seen: energy saved for the same work against one after the other, each "
        f"job to keep {least:g} of its speed; means in % with 95 % intervals by job",
        (
            "method", "choices", "saved", "median", "lose", "STP", "slower job", "share",
            "missed", "of the oracle", "worst",
        ),
        [(_who(str(method)), *_choice_cells(figures)) for method, figures in best_first],
    )  # fmt: skip


def by_objective(evaluation: Evaluation, objectives: Sequence[str]) -> TextTable:
    """Mean fraction of the oracle by other objectives, among the nine splits, any speed allowed."""
    cells = choice_figures(evaluation)[BY_WORKLOAD].map(_fraction).unstack(sort=False)
    rows = cells.reindex(columns=[*objectives]).fillna("-").itertuples()
    ceilings = {name: evaluation.ceilings[name] for name in objectives}
    noise = [f"{c.mean_percent:.2f}" if c else "-" for c in ceilings.values()]
    return TextTable(
        "Jobs that were not seen, by other objectives: mean fraction of the best of the nine "
        "splits, whatever speed a job keeps, in % with 95 % intervals by job",
        ("method", *objectives),
        [("noise ceiling", *noise), *((_who(str(method)), *row) for method, *row in rows)],
    )


def other_objectives(evaluation: Evaluation) -> TextTable:
    """The same by every objective but the default one."""
    return by_objective(evaluation, _OTHERS)


def protocols(evaluation: Evaluation) -> TextTable:
    """Each method under each protocol: what it saves, and how far it is off."""
    figures, errors = choice_figures(evaluation), errors_of_all_pairs(evaluation)
    steps = [step for name in PROTOCOLS for step in errors.index if step[0] == name]
    return TextTable(
        "By what is left out of training: energy saved, choices that lose, fraction of the oracle, "
        "and errors at the nine splits, mean | median, in %",
        ("left out, method", "saved", "lose", *_ORACLES, "rate", "power"),
        [
            (
                f"{protocol}, {method}",
                *_short(figures.get((protocol, method, DEFAULT_OBJECTIVE))),
                *(_mean_of(figures.get((protocol, method, name))) for name in HEADLINE),
                *error_cells(errors[protocol, method]),
            )
            for protocol, method in steps
        ],
    )


def limits(evaluation: Evaluation) -> TextTable:
    """How often a job is slower than it was to be, by what is left out of training."""
    return TextTable(
        "Minimum speeds that are missed, part of the choices that share, in % with 95 % intervals "
        "by job, by what is to keep it where a way is chosen: low ends of servers and expected "
        "speeds of others, as advised; all low ends; all expected speeds",
        ("left out, method", "each job keeps", "by", "share", "missed", "saved"),
        [
            (
                f"{row.protocol}, {row.method}",
                f"{row.min_speed:g}",
                row.kept,
                f"{row.shared.value:.1f}",
                str(row.missed or "-"),
                str(row.saved),
            )
            for row in evaluation.limits
            if (row.method == OURS or (row.method, row.protocol) == (PHYSICAL, BY_WORKLOAD))
        ],
    )


def kinds(evaluation: Evaluation) -> TextTable:
    """Launch-bound jobs, the power limit, uncapped: where errors come from."""
    rows = [
        r
        for r in evaluation.errors
        if r.protocol == BY_WORKLOAD and r.method in (OURS, PHYSICAL)
        if r.splits == "nine" or (r.method, r.pairs) == (OURS, "all")
    ]
    return TextTable(
        "Errors for jobs that were not seen, mean | median in %",
        ("method, pairs or rows, splits", "rows", "rate", "power"),
        [
            (f"{r.method}, {r.pairs}, {r.splits}", str(r.errors.rows), *error_cells(r.errors))
            for r in rows
        ],
    )


def coverage(evaluation: Evaluation) -> TextTable:
    """How much the intervals hold of jobs that took no part in making them."""
    rows = [
        (name, situation, _percent(100 * part))
        for name, found in evaluation.coverage.items()
        for situation, part in [
            ("all", found.overall),
            ("worst job", found.least),
            *sorted(found.strata.items()),
        ]
    ]
    return TextTable(
        f"What intervals for {evaluation.wanted_coverage:.0%} hold of unseen jobs in other runs on "
        "other cards, by what the jobs are beside each other, in %",
        ("of", "where", "held"),
        rows,
    )


def seeds(evaluation: Evaluation) -> TextTable:
    """What hangs on the seed of the trees."""
    return TextTable(
        f"{OURS} grown from other seeds, jobs that were not seen, in %",
        ("seed", "saved", "share", "missed", *_ORACLES, "rate", "power"),
        [
            (
                str(found.seed),
                _percent(found.saved_percent),
                f"{found.shared_percent:.0f}",
                "-" if found.missed_percent is None else f"{found.missed_percent:.1f}",
                *(_percent(found.fractions[name]) for name in HEADLINE),
                *error_cells(found.errors),
            )
            for found in evaluation.seeds
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
                str(job.bars[DEFAULT_OBJECTIVE].choices),
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
        f"The choices that lose most by {objective}, in %",
        ("pair", "left out", "chosen", "oracle", "of the oracle", "energy saved"),
        [
            (
                " with ".join(choice.jobs),
                choice.left_out,
                choice.chosen,
                choice.oracle,
                _percent(100 * choice.fraction),
                _percent(100 * choice.energy_saved),
            )
            for choice in worst
        ],
    )


def _fraction(figures: ChoiceFigures) -> str:
    return str(figures.fraction)


def _who(method: str) -> str:
    return f"{method}'s method" if method == PAPER else method


def _choice_cells(figures: ChoiceFigures) -> Iterator[str]:
    yield str(figures.choices)
    yield _short(figures)[0]
    yield f"{figures.saved_median.value:.1f}"
    yield f"{figures.loses.value:.0f}"
    yield f"{figures.stp.value:.2f}"
    yield f"{figures.slower.value:.0f}"
    yield f"{figures.shared.value:.0f}"
    yield _missed(figures.missed)
    yield str(figures.fraction)
    yield f"{figures.worst_percent:.1f}"


def _missed(missed: BootstrapEstimate | None) -> str:
    return "-" if missed is None else f"{missed.value:.0f} [{missed.low:.0f} {missed.high:.0f}]"


def _short(figures: ChoiceFigures | None) -> tuple[str, str]:
    if figures is None:
        return "-", "-"
    saved = figures.saved
    return f"{saved.value:.1f} [{saved.low:.1f} {saved.high:.1f}]", f"{figures.loses.value:.0f}"


def _mean_of(figures: ChoiceFigures | None) -> str:
    return _percent(figures.mean_percent) if figures else "-"


def error_cells(found: Errors) -> Iterator[str]:
    """Errors of rates and of the power: mean | median, percent."""
    for error in (found.rate, found.power):
        yield f"{error.mean_percent:.1f} | {error.median_percent:.1f}" if error else "-"


def _mean(error: Error | None) -> str:
    return f"{error.mean_percent:.1f}" if error else "-"


def _percent(value: float) -> str:
    return f"{value:.2f}"
