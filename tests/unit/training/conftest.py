"""One small evaluation and its data for all tests of training: fits take most of their time."""

import pytest
import synthetic_pairs as made_up
from made_up_rows import full_solo_points
from retraining import few_trees

from advisor_training.evaluation import Evaluation, run_evaluation
from advisor_training.rows import Data, make_data


@pytest.fixture(scope="session")
def data() -> Data:
    """Every made-up pair, one of them in two runs."""
    points = [*made_up.pair_points(), *made_up.pair_points([(made_up.HOG, made_up.SLOW)], "again")]
    return make_data(points, full_solo_points())


@pytest.fixture(scope="session")
def fits_made() -> list[tuple[str, str]]:
    """Protocol and method of each fit of the evaluation."""
    return []


@pytest.fixture(scope="session")
def evaluation(data: Data, fits_made: list[tuple[str, str]]) -> Evaluation:
    """The quick evaluation of the data, by a model of few trees."""
    with few_trees():
        return run_evaluation(data, quick=True, watch=lambda p, m: fits_made.append((p, m)))
