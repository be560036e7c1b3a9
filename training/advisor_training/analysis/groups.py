"""Gains by what the two jobs use of the GPU: the paper's groups, with our numbers next to them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.core.objectives import Objective
from advisor.core.split import Split
from advisor_training.analysis.gains import equal_of_oracle, gain_of_means
from advisor_training.dataset.noise import best_split
from advisor_training.dataset.pairs import MeasuredPair
from advisor_training.dataset.paper import GROUPS, PaperGroup
from advisor_training.dataset.solo import JobClass

Classes = Mapping[tuple[str, str], JobClass]
"""Class of each (GPU model, job)."""

CLASS_NAMES = {
    "HH": "high compute and high memory",
    "HL": "high compute and low memory",
    "LH": "low compute and high memory",
    "LL": "low compute and low memory",
}
"""Classes in the order in which a group names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Pairs of two classes, under one objective.

    Attributes:
        classes: Classes of the two jobs, the heavier first.
        paper_number: The paper's group; None where it has none.
        paper_certain: Whether the paper's text says that its group has these classes.
        paper_gain_percent: The paper's gain over 50/50, where its text gives one.
        pairs: Our pairs.
        mean_percent: Mean of the pairs' gains of the oracle over 50/50.
        median_percent: Median of the same.
        of_means_percent: Gain from the mean parts of the oracle, as the paper's bars are
            normalised; below `mean_percent`, since large gains count for less.
        at_90_10_percent: Part of the pairs whose oracle is 90/10, whichever job gets the 90.
        second_gets_90_percent: Part of the pairs whose oracle gives 90 % to the job of the second,
            lighter class; None where the classes are the same.
    """

    classes: tuple[str, str]
    paper_number: int | None
    paper_certain: bool
    paper_gain_percent: float | None
    paper_note: str
    pairs: int
    mean_percent: float | None
    median_percent: float | None
    of_means_percent: float | None
    at_90_10_percent: float | None
    second_gets_90_percent: float | None


def group_of(pair: MeasuredPair, classes: Classes) -> tuple[str, str] | None:
    """Classes of a pair's jobs, the heavier first; None where one is not known."""
    codes = [_code(pair, job, classes) for job in pair.jobs]
    known = sorted((code for code in codes if code is not None), key=_rank)
    return (known[0], known[1]) if len(known) == 2 else None


def group_rows(
    pairs: Sequence[MeasuredPair], classes: Classes, objective: Objective
) -> tuple[GroupRow, ...]:
    """One row for each of the paper's groups, then one for each other one that we have pairs of."""
    ours: dict[tuple[str, str], list[MeasuredPair]] = {}
    for pair in pairs:
        if group := group_of(pair, classes):
            ours.setdefault(group, []).append(pair)
    paper = {group.classes: group for group in GROUPS}
    others = sorted(ours.keys() - paper.keys(), key=lambda group: [*map(_rank, group)])
    return tuple(
        _row(group, paper.get(group), ours.get(group, []), classes, objective)
        for group in (*paper, *others)
    )


def group_text(group: tuple[str, str]) -> str:
    """A group in words."""
    first, second = (CLASS_NAMES[code] for code in group)
    if first == second:
        return f"two jobs of {first}"
    return f"a job of {first} beside one of {second}"


def _rank(code: str) -> int:
    return [*CLASS_NAMES].index(code)


def _code(pair: MeasuredPair, job: str, classes: Classes) -> str | None:
    found = classes.get((pair.gpu_model, job))
    return found.code if found else None


def _row(
    group: tuple[str, str],
    paper: PaperGroup | None,
    pairs: Sequence[MeasuredPair],
    classes: Classes,
    objective: Objective,
) -> GroupRow:
    parts = [equal_of_oracle(pair, objective) for pair in pairs]
    gains = [100 * (1 / part - 1) for part in parts if part > 0]
    splits = [best_split(pair.main.nine, objective) for pair in pairs]
    light = [
        _share_of_class(pair, split, group[1], classes)
        for pair, split in zip(pairs, splits, strict=True)
    ]
    return GroupRow(
        classes=group,
        paper_number=paper.number if paper else None,
        paper_certain=paper.certain if paper else False,
        paper_gain_percent=paper.gain_percent if paper else None,
        paper_note=paper.note if paper else "",
        pairs=len(pairs),
        mean_percent=statistics.mean(gains) if gains else None,
        median_percent=statistics.median(gains) if gains else None,
        of_means_percent=gain_of_means(parts) if parts else None,
        at_90_10_percent=_part([max(split.shares) == 90 for split in splits]),
        second_gets_90_percent=_part([share == 90 for share in light])
        if group[0] != group[1]
        else None,
    )


def _share_of_class(pair: MeasuredPair, split: Split, code: str, classes: Classes) -> float:
    return split.shares[0 if _code(pair, pair.jobs[0], classes) == code else 1]


def _part(found: Sequence[bool]) -> float | None:
    return 100 * sum(found) / len(found) if found else None
