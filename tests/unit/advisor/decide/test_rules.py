"""What the simple rules choose."""

from collections.abc import Sequence

import pytest
from made_up_profiles import SHARES, profile

from advisor.core.split import EQUAL, EXCLUSIVE, NINE, UNCAPPED, Split
from advisor.decide.recommend import MEANINGS, physical_predictions, simple_choices
from advisor.predict.predictions import Prediction


def most_work(predictions: Sequence[Prediction]) -> Prediction:
    return max(predictions, key=lambda p: p.result.stp / p.result.power_w)


def test_rules_by_hand() -> None:
    # A tenth of the GPU is enough for `light`, and it counts in large numbers.
    light, heavy = profile("light", [1000] * 10), profile("heavy")
    choices = simple_choices([light, heavy])
    assert choices == {
        "equal": EQUAL,
        "uncapped": UNCAPPED,
        "exclusive": EXCLUSIVE,
        "larger-rate": Split((90, 10)),
    }
    assert [*choices, "physical"] == list(MEANINGS)
    assert most_work(physical_predictions([light, heavy], NINE)).split == Split((10, 90))


@pytest.mark.parametrize(("rate", "split"), [(100, (50, 50)), (99, (10, 90)), (101, (90, 10))])
def test_equal_rates_are_no_larger_rate(rate: float, split: tuple[float, float]) -> None:
    other = profile("other", [*SHARES[:-1], rate])
    choice = simple_choices([other, profile("job")])["larger-rate"]
    assert choice == Split(split)


def test_split_that_the_profiles_do_not_reach_is_no_choice() -> None:
    short = profile("short", shares=SHARES[6:])
    choices = simple_choices([short, short])
    assert choices["equal"] is None
    assert choices["larger-rate"] is None


def test_physics_by_hand() -> None:
    """Rates alone at the shares; powers less one idle power, up to the limit."""
    a, b = profile("a"), profile("b", idle_power_w=100.0)
    split, both = physical_predictions([a, b], [Split((30.0, 70.0)), UNCAPPED])
    assert (split.split.sharing, both.split.sharing) == ("limited", "uncapped")
    assert split.parts[0].speed.value == pytest.approx(0.3)
    assert split.parts[1].speed.value == pytest.approx(0.7)
    assert split.power_w.value == pytest.approx(190 + 310 - 90)
    assert both.power_w.value == 700.0
    assert both.parts[0].rate.value == 100.0
