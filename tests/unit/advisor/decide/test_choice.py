"""Which of several ways is taken where both shares are as far apart."""

import pytest
from made_up_profiles import Scripted, profile

from advisor.core.split import Split
from advisor.decide.recommendation import choose
from advisor.predict.predictions import Prediction

Figures = tuple[float, float, float]
"""Both relative speeds and the power."""

LESS, MORE = (0.6, 0.6, 400.0), (0.61, 0.61, 400.0)


def efficiency(p: Prediction) -> float:
    return p.result.stp / p.result.power_w


def chosen(at_30: Figures, at_70: Figures, *, mirrored: bool) -> float:
    """The first share, 30 or 70 %, where what comes of both is nearly equal."""
    less, more = Split((30.0, 70.0)), Split((70.0, 30.0))
    predictor = Scripted({less: at_30, more: at_70})
    ways = predictor.predict([profile("fft"), profile("gemm")], [less, more])
    return choose(ways, efficiency, 0.03, mirrored=mirrored).split.shares[0]


@pytest.mark.parametrize("mirrored", [False, True])
def test_of_equally_even_splits_the_better_one_is_taken(mirrored: bool) -> None:
    """A tie lets the more even split win; between 30/70 and 70/30 it decides nothing."""
    assert chosen(LESS, MORE, mirrored=mirrored) == 70
    assert chosen(MORE, LESS, mirrored=mirrored) == 30


def test_of_mirror_images_worth_the_same_the_names_decide() -> None:
    """The smaller share is the first job's, or the second one's where the order is mirrored."""
    assert chosen(LESS, LESS, mirrored=False) == 30
    assert chosen(LESS, LESS, mirrored=True) == 70
