"""What the analysis says, in sentences; every number in them is computed."""

import statistics

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor.core.wording import count_of
from advisor_training.analysis.analysis import Analysis, ObjectiveReport
from advisor_training.analysis.gains import Gain
from advisor_training.analysis.groups import GroupRow, group_text
from advisor_training.dataset.solo import HIGH_PERCENT
from advisor_training.reports.document import signed

FEW_PAIRS = 3
"""A group with fewer pairs is in the table, but no sentence is made of it."""


def headline(analysis: Analysis) -> str:
    """Whether an uneven split pays, and how much."""
    report = analysis.objectives[DEFAULT_OBJECTIVE]
    over = gain_over(report, "equal")
    pays = f"{report.uneven_pays_pairs} of {count_of(len(analysis.pairs), 'pair')}"
    unknown = "" if report.ceiling else " (by any amount: the noise is not known)"
    return (
        f"An uneven split beats 50/50{beyond_noise(report)} in {pays}{unknown}. The best of the "
        f"nine splits does {over.mean_percent:.1f} % more work per joule on average, "
        f"{over.most_percent:.1f} % at most."
    )


def where_it_pays(analysis: Analysis) -> str:
    """Which kinds of pairs gain the most and the least; empty where there are too few to tell."""
    rows = [
        (row.mean_percent, row)
        for row in analysis.objectives[DEFAULT_OBJECTIVE].groups
        if row.mean_percent is not None and row.pairs >= FEW_PAIRS
    ]
    if len(rows) < 2:
        return ""
    ordered = [row for _, row in sorted(rows, key=lambda item: -item[0])]
    most, least = _group(ordered[0]), _group(ordered[-1])
    return f"It pays most for {most}, and least for {least}."


def who_gets_more(analysis: Analysis) -> str:
    """Whether the larger share goes to the busier job; empty where no pair tells."""
    uneven = analysis.objectives[DEFAULT_OBJECTIVE].best_splits[1:]
    lighter, busier = sum(b.to_other for b in uneven), sum(b.to_busier for b in uneven)
    if not lighter + busier:
        return ""
    return (
        f"Where it pays, the larger share goes to the job that keeps fewer SMs busy alone in "
        f"{count_of(lighter, 'pair')}, to the busier one in {busier}."
    )


def who_pays(analysis: Analysis) -> str:
    """How slow the slower job becomes; empty where an uneven split pays nowhere."""
    values = [pair.objectives[DEFAULT_OBJECTIVE] for pair in analysis.pairs]
    paying = [value for value in values if value.beyond_noise]
    if not paying:
        return ""
    then = statistics.median(value.slower_percent for value in paying)
    at_equal = statistics.median(value.slower_at_equal_percent for value in paying)
    return (
        f"The slower of the two jobs then runs at {then:.0f} % of its speed alone in the median, "
        f"where 50/50 gives it {at_equal:.0f} %."
    )


def where_sharing_loses(analysis: Analysis) -> str:
    """How many pairs are better off one after the other."""
    report = analysis.objectives[DEFAULT_OBJECTIVE]
    count, pairs = len(report.losses) or "none", count_of(len(analysis.pairs), "pair")
    return (
        f"In {count} of {pairs} one after the other beats every shared split"
        f"{beyond_noise(report)}, per joule."
    )


def not_measured(analysis: Analysis) -> str:
    """What the data cannot tell; empty where it has everything."""
    missing = [
        text
        for text, found in (
            ("any pair twice, so how much of a gain is noise is not known", _noise_known(analysis)),
            ("uncapped", analysis.points_by_kind["uncapped"]),
            ("time-sliced", analysis.points_by_kind["time-sliced"]),
            ("exact counts of units", analysis.points_by_kind["grid"]),
        )
        if not found
    ]
    return f"Not measured: {'; '.join(missing)}." if missing else ""


def replay_note(analysis: Analysis) -> str:
    """That points are no new measurements; empty where all are."""
    count = analysis.replayed_points
    if not count:
        return ""
    of = "all" if count == analysis.pair_points else f"{count} of"
    return f"REPLAY: {of} {analysis.pair_points} pair points are replays of recorded ones."


def said(analysis: Analysis) -> list[str]:
    """What stands above the figures, line by line."""
    ceilings = [analysis.objectives[name] for name in (DEFAULT_OBJECTIVE, RAW_OBJECTIVE)]
    lines = [
        replay_note(analysis),
        headline(analysis),
        f"{who_gets_more(analysis)} {who_pays(analysis)}".strip(),
        where_it_pays(analysis),
        where_sharing_loses(analysis),
        *(f"Noise ceiling by {ceiling_sentence(r)}" for r in ceilings if r.ceiling),
        not_measured(analysis),
    ]
    return [line for line in lines if line]


def beyond_noise(report: ObjectiveReport) -> str:
    """What a difference that counts exceeds; empty where the noise is not known."""
    if not (ceiling := report.ceiling):
        return ""
    return f" by more than the noise ({ceiling.noise_percent:.1f} %)"


def ceiling_sentence(report: ObjectiveReport) -> str:
    """How good a choice can be at all."""
    if not (ceiling := report.ceiling):
        return f"{report.name}: not known, since no pair was measured twice."
    return (
        f"{report.name}: {ceiling.mean_percent:.2f} % of the best on average over "
        f"{ceiling.choices} choices, from {count_of(ceiling.pairs, 'pair')} measured repeatedly"
        f"{_other_cards(ceiling.other_card_pairs)}."
    )


def solo_sentence(analysis: Analysis) -> str:
    """Where the solo rates were measured."""
    counts = ", ".join(f"{count} {source}" for source, count in analysis.solo_sources.items())
    return f"Solo rates at 100 %, seen from the measured pairs: {counts}."


def axis_sentence(analysis: Analysis) -> str:
    """What the memory axis is, and which classes hang on that."""
    counters = sorted({job.memory_counter for job in analysis.jobs if job.memory_counter})
    unclear = [
        f"{job.job} ({job.code}, or {job.code_by_other_counter})"
        for job in analysis.jobs
        if job.code_by_other_counter
    ]
    other = f" Of another class by the other memory counter: {', '.join(unclear)}."
    return (
        f"High is {HIGH_PERCENT:g} % or more, alone on the whole GPU: compute by "
        f"sm_active_percent, memory by {' or '.join(counters) or 'no counter'}. The paper's "
        "memory axis is memory bandwidth utilisation, which dram_active_percent is; it lists "
        "memory busy rate as another metric."
        f"{other if unclear else ''}"
    )


def gain_over(report: ObjectiveReport, baseline: str) -> Gain:
    """The oracle's gain over one baseline."""
    return next(gain for gain in report.gains if gain.baseline == baseline)


def _group(row: GroupRow) -> str:
    over = count_of(row.pairs, "pair")
    return f"{group_text(row.classes)} ({signed(row.mean_percent)} over {over})"


def _noise_known(analysis: Analysis) -> bool:
    return any(report.ceiling for report in analysis.objectives.values())


def _other_cards(count: int) -> str:
    return f", {count} of them on several cards" if count else ""
