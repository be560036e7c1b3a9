"""The report of a dataset of pairs: when does an uneven split pay?"""

from pathlib import Path

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor_training.analysis.analysis import Analysis
from advisor_training.dataset import paper
from advisor_training.reports import dataset_sentences
from advisor_training.reports.dataset_figures import figures
from advisor_training.reports.document import to_html, to_png, write_files

HTML_NAME, PNG_NAME = "dataset.html", "dataset.png"


def write_report(analysis: Analysis, folder: Path) -> tuple[Path, ...]:
    """Write the page and the image into the folder, which is made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    image = to_png(dataset_sentences.said(analysis), figures(analysis))
    return write_files({HTML_NAME: page(analysis).encode(), PNG_NAME: image}, folder)


def page(analysis: Analysis) -> str:
    """What it says in short, the figures, then the tables."""
    return to_html(
        "dataset.html",
        analysis=analysis,
        default_objective=DEFAULT_OBJECTIVE,
        raw_objective=RAW_OBJECTIVE,
        figures=figures(analysis),
        paper=paper,
        say=dataset_sentences,
        selves=sum(pair.jobs[0] == pair.jobs[1] for pair in analysis.pairs),
    )
