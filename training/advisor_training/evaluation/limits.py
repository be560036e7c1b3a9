"""How often a job is slower than the minimum speed that a choice was to keep."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor_training.evaluation.choices import Question, choose
from advisor_training.evaluation.data import Data
from advisor_training.evaluation.methods import Told
from advisor_training.evaluation.outcomes import figures_of
from advisor_training.learn.bootstrap import Estimate

LEAST_SPEEDS = (0.4, 0.5)
"""The default, and "both keep half of their speed"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """Choices by energy for the same work that keep a minimum speed as predicted.

    Attributes:
        min_speed: What each job is to keep, as measured.
        sure: Whether a split is chosen where the low ends of the intervals keep that, as
            `advisor recommend` has it, or where the expected speeds do.
        shared: Choices that are not one after the other, percent.
        missed: Of these, those with a job below the minimum speed as measured, percent.
        saved: Energy saved, percent.
    """

    protocol: str
    method: str
    min_speed: float
    sure: bool
    shared: Estimate
    missed: Estimate | None
    saved: Estimate


def limit_rows(data: Data, protocol: str, told: Told) -> Iterator[LimitRow]:
    """One for each minimum speed, by expected speeds and by the low ends of their intervals."""
    for least, sure in itertools.product(LEAST_SPEEDS, (False, True)):
        wanted = Question(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", least)
        asked = told.method.asks(replace(wanted, sure=sure))
        chosen = choose(data, told.speeds.unseen, asked, told.method.tie, wanted)
        if found := figures_of(chosen):
            yield LimitRow(
                protocol=protocol,
                method=told.method.name,
                min_speed=least,
                sure=sure,
                shared=found.shared,
                missed=found.missed,
                saved=found.saved,
            )
