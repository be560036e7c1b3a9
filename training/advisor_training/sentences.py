"""What the analysis says, in sentences; every number in them is computed."""

from advisor.objectives import DEFAULT_OBJECTIVE
from advisor_training.dataset import Analysis, ObjectiveReport
from advisor_training.gains import Gain
from advisor_training.groups import GroupRow, group_text
from advisor_training.solo import HIGH_PERCENT

RAW_OBJECTIVE = "raw-throughput-per-watt"
"""The paper's."""

FEW_PAIRS = 3
"""A group with fewer pairs is in the table, but no sentence is made of it."""


def headline(analysis: Analysis) -> str:
    """Whether an uneven split pays, and how much."""
    report = analysis.objectives[DEFAULT_OBJECTIVE]
    over = gain_over(report, "equal")
    pays = f"{report.uneven_pays_pairs} of {pair_count(len(analysis.pairs))}"
    return (
        f"An uneven split beats 50/50{beyond_noise(report)} in {pays}. The best of the nine splits "
        f"does {over.mean_percent:.1f} % more work per joule on average, "
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


def where_sharing_loses(analysis: Analysis) -> str:
    """How many pairs are better off one after the other."""
    report = analysis.objectives[DEFAULT_OBJECTIVE]
    count, pairs = len(report.losses) or "none", pair_count(len(analysis.pairs))
    return (
        f"In {count} of {pairs} one after the other beats every shared split"
        f"{beyond_noise(report)}, per joule."
    )


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
        f"{ceiling.choices} choices, from {pair_count(ceiling.pairs)} measured repeatedly"
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


def signed(percent: float | None) -> str:
    """A gain or a loss; "-" where there is none."""
    return "-" if percent is None else f"{percent:+.1f} %"


def part(percent: float | None) -> str:
    """A part of something; "-" where there is none."""
    return "-" if percent is None else f"{percent:.0f} %"


def pair_count(count: int) -> str:
    """So many pairs."""
    return "1 pair" if count == 1 else f"{count} pairs"


def _group(row: GroupRow) -> str:
    over = pair_count(row.pairs)
    return f"{group_text(row.classes)} ({signed(row.mean_percent)} over {over})"


def _other_cards(count: int) -> str:
    return f", {count} of them on several cards" if count else ""
