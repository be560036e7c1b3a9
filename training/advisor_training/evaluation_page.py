"""The evaluation as one HTML page that needs nothing else."""

import re
from collections.abc import Iterator
from html import escape
from importlib import resources

from advisor_training import paper
from advisor_training.evaluation_figures import figures
from advisor_training.evaluation_methods import HEADLINE
from advisor_training.evaluation_paper import paper_and_here
from advisor_training.evaluation_protocols import PROTOCOLS
from advisor_training.evaluation_sentences import accuracy, basis, compared, headline
from advisor_training.evaluation_tables import (
    TextTable,
    coverage,
    errors,
    jobs,
    kinds,
    other_objectives,
    protocols,
    unseen_jobs,
    worst_choices,
)
from advisor_training.evaluation_values import Evaluation
from advisor_training.figures import SVG_INK, Figure, to_svg
from advisor_training.html_tables import details, table

TITLE = "How good is the model for jobs that it has not seen?"


def to_html(evaluation: Evaluation) -> str:
    """The page: what it says in short, the figures, then the tables."""
    style = resources.files("advisor_training").joinpath("page.css").read_text("utf-8")
    body = "\n".join([*_top(evaluation), *_sections(evaluation)])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _top(evaluation: Evaluation) -> Iterator[str]:
    yield f"<h1>{TITLE}</h1>"
    yield f'<p class="headline">{escape(headline(evaluation))}</p>'
    yield f"<p>{escape(' '.join(f(evaluation) for f in (compared, accuracy, basis)))}</p>"
    yield _figures(evaluation)


def _figures(evaluation: Evaluation) -> str:
    drawn = "\n".join(map(_figure, figures(evaluation)))
    return f'<div class="figures">\n{drawn}\n</div>'


def _sections(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>The paper, its method here, and the model</h2>"
    yield from paper_and_here(evaluation)
    yield "<h2>Jobs that were not seen</h2>"
    for objective in HEADLINE:
        yield _section(unseen_jobs(evaluation, objective))
    yield (
        "<p>A choice is one pair with one of its jobs left out of training. Noise ceiling: the "
        "best split of one measurement of a pair, scored on another one.</p>"
    )
    yield details("By the other objectives", _section(other_objectives(evaluation)))
    yield "<h2>What is left out of training</h2>"
    yield _section(protocols(evaluation))
    yield from _protocols()
    yield "<h2>Errors</h2>"
    yield _section(errors(evaluation))
    yield (
        "<p>Rate: as served, the predicted relative speed times the rate in the job's profile. "
        f"The paper predicts sums only ({paper.TITLE}, section 3.3).</p>"
    )
    yield _section(kinds(evaluation))
    yield "<h2>Intervals</h2>"
    yield _section(coverage(evaluation))
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


def _figure(figure: Figure) -> str:
    """The figure with the page's colours, and identities that no other figure has."""
    svg = to_svg(figure)
    svg = svg.replace(SVG_INK.text, "currentColor").replace(SVG_INK.faint, "var(--faint)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{figure.name}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(figure.caption)}" ', 1)
    return f"<figure>\n{svg}\n<figcaption>{escape(figure.caption)}</figcaption>\n</figure>"
