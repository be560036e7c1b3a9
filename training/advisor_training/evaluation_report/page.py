"""The evaluation as one HTML page that needs nothing else."""

from collections.abc import Iterator
from html import escape

from advisor_training.dataset import paper
from advisor_training.dataset_report.html_tables import details, table
from advisor_training.dataset_report.page_parts import document, drawn
from advisor_training.evaluation.methods import HEADLINE
from advisor_training.evaluation.values import Evaluation
from advisor_training.evaluation_report.figures import figures
from advisor_training.evaluation_report.gpu_tables import gpu_tables
from advisor_training.evaluation_report.paper import paper_and_here
from advisor_training.evaluation_report.sentences import (
    accuracy,
    basis,
    compared,
    headline,
    kept_limits,
)
from advisor_training.evaluation_report.tables import (
    TextTable,
    coverage,
    jobs,
    kinds,
    limits,
    other_objectives,
    protocols,
    seeds,
    unseen_jobs,
    worst_choices,
)
from advisor_training.learn.protocols import PROTOCOLS

TITLE = "How good is the model for jobs that it has not seen?"


def to_html(evaluation: Evaluation) -> str:
    """The page: what it says in short, the figures, then the tables."""
    return document(TITLE, [*_top(evaluation), *_sections(evaluation)])


def _top(evaluation: Evaluation) -> Iterator[str]:
    yield f"<h1>{TITLE}</h1>"
    yield f'<p class="headline">{escape(headline(evaluation))}</p>'
    lines = (compared, kept_limits, accuracy, basis)
    yield f"<p>{escape(' '.join(line(evaluation) for line in lines))}</p>"
    yield drawn(figures(evaluation))


def _sections(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>The paper, its method here, and the model</h2>"
    yield from paper_and_here(evaluation)
    yield "<h2>Jobs that were not seen</h2>"
    yield _section(unseen_jobs(evaluation))
    yield (
        "<p>A choice is one pair with one of its jobs left out of training. A rule chooses no "
        "speeds: it misses the limit where sharing costs that much. Choices that miss the limit, "
        "and rules, can be above 100 % of the oracle, which keeps it.</p>"
    )
    yield _section(other_objectives(evaluation))
    yield (
        "<p>Noise ceiling: the best split of one measurement of a pair, scored on another one.</p>"
    )
    yield _section(limits(evaluation))
    yield "<h2>What is left out of training</h2>"
    yield _section(protocols(evaluation))
    yield from _protocols()
    yield "<h2>Errors</h2>"
    yield _section(kinds(evaluation))
    yield (
        "<p>Rate: as served, the predicted relative speed times the rate in the job's profile. "
        f"The paper predicts sums only ({paper.TITLE}, section 3.3).</p>"
    )
    if evaluation.seeds:
        yield _section(seeds(evaluation))
    yield "<h2>Intervals</h2>"
    yield _section(coverage(evaluation))
    if evaluation.gpus:
        yield "<h2>Another GPU model</h2>"
        yield from map(_section, gpu_tables(evaluation))
    yield "<h2>Where it misses</h2>"
    for objective in HEADLINE:
        yield _section(worst_choices(evaluation, objective))
    yield details("Every job that was left out", _section(jobs(evaluation)))
    yield from _left_out(evaluation)


def _protocols() -> Iterator[str]:
    items = "".join(f"<li>{escape(p.name)}: {escape(p.meaning)}</li>" for p in PROTOCOLS.values())
    yield f"<ul>{items}</ul>"


def _left_out(evaluation: Evaluation) -> Iterator[str]:
    if rows := [(item.reason, str(item.points)) for item in evaluation.basis.left_out]:
        yield "<h3>Points that are not used</h3>"
        yield table(("why", "points"), rows)


def _section(found: TextTable) -> str:
    return f"<h3>{escape(found.title)}</h3>\n{table(found.headings, found.rows)}"
