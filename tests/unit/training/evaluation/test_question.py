"""What choices by each objective and minimum speed come to."""

from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import synthetic_pairs as made_up
from made_up_rows import full_solo_points

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor_training.rows import make_data

SCRIPT = run_path(str(Path(__file__).parents[4] / "docs/measurements/question.py"))
ASKED, MIN_SPEEDS, ORACLE = (SCRIPT[name] for name in ("ASKED", "MIN_SPEEDS", "ORACLE"))


@pytest.fixture(scope="module")
def found() -> list[Any]:
    return list(SCRIPT["answers"](make_data(made_up.pair_points(), full_solo_points())))


def test_nobody_saves_more_than_who_knows_all(found: list[Any]) -> None:
    """At any minimum speed, among those that keep it; one after the other saves nothing."""
    for least in MIN_SPEEDS:
        its = [a for a in found if a.min_speed == least]
        best = next(
            a for a in its if (a.chosen_by, a.objective) == (ORACLE, DEFAULT_OBJECTIVE)
        ).figures
        assert best.loses.value == 0
        for other in its:
            missed = other.figures.missed
            if missed is None or missed.value == 0:
                assert other.figures.saved.value <= best.saved.value + 1e-9
    exclusive = next(a for a in found if a.chosen_by == "exclusive").figures
    assert (exclusive.saved.value, exclusive.stp.value) == (0, 1)


def test_the_script_prints_a_cell_for_each_heading(found: list[Any]) -> None:
    lines = list(SCRIPT["table"]("Made-up GPU", found))
    assert len(lines) == len(found) + 3
    assert {line.count("|") for line in lines[1:]} == {len(SCRIPT["HEADINGS"]) + 1}
