"""The report as one HTML page that needs nothing else."""

from collections.abc import Iterable, Iterator
from html import escape

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor.core.wording import count_of
from advisor_training.analysis.analysis import Analysis, ObjectiveReport
from advisor_training.dataset_report.figures import figures
from advisor_training.dataset_report.html_tables import details, table
from advisor_training.dataset_report.page_paper import paper_and_here
from advisor_training.dataset_report.page_parts import document, drawn
from advisor_training.dataset_report.sentences import (
    beyond_noise,
    headline,
    not_measured,
    pair_count,
    part,
    replay_note,
    signed,
    solo_sentence,
    where_it_pays,
    where_sharing_loses,
    who_gets_more,
    who_pays,
)

TITLE = "When does an uneven split pay?"


def to_html(analysis: Analysis) -> str:
    """The page: what it says in short, the figures, then the tables."""
    return document(TITLE, [*_top(analysis), *_sections(analysis)])


def _top(analysis: Analysis) -> Iterator[str]:
    yield f"<h1>{TITLE}</h1>"
    if note := replay_note(analysis):
        yield f'<p class="headline">{escape(note)}</p>'
    yield f'<p class="headline">{escape(headline(analysis))}</p>'
    more = (who_gets_more, who_pays, where_it_pays, where_sharing_loses, not_measured)
    yield f"<p>{escape(' '.join(text for say in more if (text := say(analysis))))}</p>"
    yield drawn(figures(analysis))


def _sections(analysis: Analysis) -> Iterator[str]:
    default, raw = (analysis.objectives[name] for name in (DEFAULT_OBJECTIVE, RAW_OBJECTIVE))
    others = [r for r in analysis.objectives.values() if r not in (default, raw)]
    yield "<h2>What the best of nine gains</h2>"
    yield _gains([default, raw])
    yield (
        "<p>Loses in: the part of the pairs in which the best of nine is worth less than the other "
        f"way{' by more than the noise' if default.ceiling else '; the noise is not known'}.</p>"
    )
    yield details("By the other objectives", _gains(others))
    yield "<h2>The paper and here</h2>"
    yield from paper_and_here(analysis, default, raw)
    yield "<h2>Noise ceiling</h2>"
    yield from _ceiling(analysis)
    yield "<h2>Where sharing loses to one after the other</h2>"
    yield from _losses(analysis)
    yield "<h2>Finer than nine splits</h2>"
    yield _grid(analysis)
    yield "<h2>What this rests on</h2>"
    yield from _basis(analysis)


def _gains(reports: Iterable[ObjectiveReport]) -> str:
    headings = ("objective", "over", "pairs", "mean", "median", "most", "least", "loses in")
    rows = [
        (
            report.name,
            gain.baseline,
            str(gain.pairs),
            signed(gain.mean_percent),
            signed(gain.median_percent),
            signed(gain.most_percent),
            signed(gain.least_percent),
            part(gain.loses_percent),
        )
        for report in reports
        for gain in report.gains
    ]
    return table(headings, rows)


def _ceiling(analysis: Analysis) -> Iterator[str]:
    found = [(r.name, r.ceiling) for r in analysis.objectives.values() if r.ceiling]
    if not found:
        yield "<p>Not known: no pair was measured twice.</p>"
        return
    pairs, cards = found[0][1].pairs, found[0][1].other_card_pairs
    yield (
        f"<p>Measured twice or more: {pair_count(pairs)}, {cards} of them on several cards. Choose "
        "the best split on one measurement, score it on another, as a part of that one's best: "
        "no predictor can be expected to do better. The noise is how much an uneven split over "
        "50/50 differs between two measurements; 95 % of the differences are smaller.</p>"
    )
    yield table(
        ("objective", "choices", "mean", "median", "a tenth is below", "worst", "noise"),
        [
            (
                name,
                str(c.choices),
                f"{c.mean_percent:.2f} %",
                f"{c.median_percent:.2f} %",
                f"{c.p10_percent:.2f} %",
                f"{c.worst_percent:.2f} %",
                f"{c.noise_percent:.2f} %",
            )
            for name, c in found
        ],
    )


def _losses(analysis: Analysis) -> Iterator[str]:
    counts = ", ".join(
        f"{len(r.losses)} by {r.name}{beyond_noise(r)}" for r in analysis.objectives.values()
    )
    yield (
        "<p>Pairs whose best split, or uncapped, is worth less than running one after the other, "
        f"each on the whole GPU for half of the time: {escape(counts)}.</p>"
    )
    for name in (DEFAULT_OBJECTIVE, RAW_OBJECTIVE):
        if found := analysis.objectives[name].losses:
            rows = [
                (x.job_a, x.job_b, x.best_shared, f"-{x.loss_percent:.1f} %", x.solo_source)
                for x in found
            ]
            yield f"<h3>By {name}</h3>"
            yield table(
                ("job", "beside", "best shared", "against one after the other", "solo rates"), rows
            )


def _grid(analysis: Analysis) -> str:
    rows = [
        (
            report.name,
            str(grid.pairs),
            signed(grid.mean_percent),
            signed(grid.median_percent),
            signed(grid.most_percent),
            f"{grid.above_noise_pairs} of {grid.pairs}",
        )
        for report in analysis.objectives.values()
        if (grid := report.grid)
    ]
    if not rows:
        return "<p>No pair was measured at exact counts of units beside its nine splits.</p>"
    return table(("objective", "pairs", "mean", "median", "most", "above the noise"), rows)


def _basis(analysis: Analysis) -> Iterator[str]:
    itself = sum(pair.job_a == pair.job_b for pair in analysis.pairs)
    yield (
        f"<p>{count_of(analysis.pair_points, 'pair point')}, {pair_count(len(analysis.pairs))} of "
        f"{count_of(len(analysis.jobs), 'job')} ({itself} beside themselves), "
        f"{count_of(analysis.cards, 'card')} of {escape(', '.join(analysis.gpu_models))}, "
        f"{count_of(analysis.runs, 'run')}. Splits are compared on "
        "one card within one run only. Exclusive is not measured as a pair: it is made of the "
        f"solo points. {escape(solo_sentence(analysis))}</p>"
    )
    yield table(("kind of split", "points"), [(k, str(n)) for k, n in
                                               analysis.points_by_kind.items()])  # fmt: skip
    if analysis.flags:
        yield "<p>Flags of these points; one with several counts under each:</p>"
        yield table(("flag", "points"), [(flag, str(n)) for flag, n in analysis.flags.items()])
    if analysis.left_out:
        yield "<h3>Left out</h3>"
        rows = [(item.reason, str(item.points)) for item in analysis.left_out]
        yield table(("why", "points"), rows)
    else:
        yield "<p>Nothing was left out.</p>"
    yield details("Jobs and their classes", _jobs(analysis))
    yield details("Every pair", _pairs(analysis))


def _jobs(analysis: Analysis) -> str:
    rows = [
        (
            job.job,
            job.code or "-",
            part(job.sm_active_percent),
            part(job.memory_percent),
            job.memory_counter or "-",
            job.code_by_other_counter or "-",
        )
        for job in analysis.jobs
    ]
    headings = ("job", "class", "SM active", "memory", "memory counter", "class by the other one")
    return table(headings, rows)


def _pairs(analysis: Analysis) -> str:
    headings = (
        "job",
        "beside",
        "best",
        "gain",
        "uncapped",
        "time-sliced",
        "exclusive",
        "best, raw",
    )
    rows = [
        (
            pair.job_a,
            pair.job_b,
            pair.objectives[DEFAULT_OBJECTIVE].best_split,
            signed(pair.objectives[DEFAULT_OBJECTIVE].oracle_percent),
            signed(pair.objectives[DEFAULT_OBJECTIVE].uncapped_percent),
            signed(pair.objectives[DEFAULT_OBJECTIVE].time_sliced_percent),
            signed(pair.objectives[DEFAULT_OBJECTIVE].exclusive_percent),
            pair.objectives[RAW_OBJECTIVE].best_split,
        )
        for pair in analysis.pairs
    ]
    return f"<p>Against 50/50, by {DEFAULT_OBJECTIVE}.</p>{table(headings, rows)}"
