"""The part of the report's page that puts the paper's numbers beside ours."""

from collections.abc import Iterator
from html import escape

from advisor_training.analysis.analysis import Analysis, ObjectiveReport
from advisor_training.analysis.groups import GroupRow
from advisor_training.dataset import paper
from advisor_training.dataset_report.html_tables import table
from advisor_training.dataset_report.sentences import axis_sentence, pair_count, part, signed


def paper_and_here(
    analysis: Analysis, default: ObjectiveReport, raw: ObjectiveReport
) -> Iterator[str]:
    """Both tables, and what they rest on."""
    ours, cards = pair_count(len(analysis.pairs)), escape(", ".join(analysis.gpu_models))
    yield (
        f"<p>{paper.TITLE}: 121 pairs on a V100, by (X1 + X2)/W, splits chosen by its model. "
        f"Here: {ours} on {cards}, splits chosen by measuring all nine. Other jobs, other loads, "
        "another card: the same question, not the same experiment.</p>"
    )
    by_job = [(r.job_gains.mean_percent, r.job_gains.most_percent, r.job_gains.least_percent)
            if r.job_gains else (None, None, None) for r in (raw, default)]  # fmt: skip
    figures_ = (paper.MEAN_GAIN, paper.MOST_GAIN, paper.LEAST_GAIN)
    yield table(
        ("averaged by job, as in figure 3", "paper", "where", "ours, raw", "ours, default"),
        [
            (f.name, signed(f.percent), f.place, signed(by_raw), signed(by_default))
            for f, by_raw, by_default in zip(figures_, *by_job, strict=True)
        ],
    )
    yield table(
        (
            "group", "paper", "ours, raw: mean", "as figure 3", "at 90/10", "light job gets 90",
            "ours, default: mean", "pairs", "the paper says",
        ),
        [_group(*rows) for rows in zip(raw.groups, default.groups, strict=True)],
    )  # fmt: skip
    yield f"<p>{escape(axis_sentence(analysis))}</p>"
    yield (
        "<p>The paper's text names the classes of groups 2, 4 and 5; those of 1 and 3 are marked "
        "with ? and read from its hints: three classes make six kinds of pairs, and its figure 4 "
        "has five groups. As figure 3: from the mean part of the oracle that 50/50 reaches, not "
        "from the mean of the pairs' gains.</p>"
    )


def _group(raw: GroupRow, default: GroupRow) -> tuple[str, ...]:
    doubt = "" if raw.paper_certain else "?"
    number = f" (group {raw.paper_number}{doubt})" if raw.paper_number else ""
    return (
        f"{raw.classes[0]} with {raw.classes[1]}{number}",
        signed(raw.paper_gain_percent) if raw.paper_gain_percent is not None else _not_in(raw),
        signed(raw.mean_percent),
        signed(raw.of_means_percent),
        part(raw.at_90_10_percent),
        part(raw.second_gets_90_percent),
        signed(default.mean_percent),
        str(raw.pairs),
        raw.paper_note or "-",
    )


def _not_in(row: GroupRow) -> str:
    return "no number" if row.paper_number else "no such group"
