"""How often a job is slower than the minimum speed that a choice was to keep."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor_training.bootstrap import Estimate
from advisor_training.evaluation_choices import Question, choose
from advisor_training.evaluation_data import Data
from advisor_training.evaluation_methods import Told
from advisor_training.evaluation_outcomes import figures_of

LEAST_SPEEDS = (0.4, 0.5)
"""The default, and "both keep half of their speed"."""

MARGINS = (0.0, 0.1)
"""How much more than the minimum speed is asked of a prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """Choices by energy for the same work that keep a minimum speed as predicted.

    Attributes:
        min_speed: What each job is to keep, as measured.
        margin: A split is chosen where predictions are above that by this part of it.
        shared: Choices that are not one after the other, percent.
        missed: Of these, those with a job below the minimum speed as measured, percent.
        saved: Energy saved, percent.
    """

    protocol: str
    method: str
    min_speed: float
    margin: float
    shared: Estimate
    missed: Estimate | None
    saved: Estimate


def limit_rows(data: Data, protocol: str, told: Told) -> Iterator[LimitRow]:
    """One for each minimum speed and margin."""
    for least, margin in itertools.product(LEAST_SPEEDS, MARGINS):
        wanted = Question(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", least)
        asked = told.method.asks(replace(wanted, min_speed=least * (1 + margin)))
        chosen = choose(data, told.speeds.unseen, asked, told.method.tie, wanted)
        if found := figures_of(chosen):
            yield LimitRow(
                protocol=protocol,
                method=told.method.name,
                min_speed=least,
                margin=margin,
                shared=found.shared,
                missed=found.missed,
                saved=found.saved,
            )
