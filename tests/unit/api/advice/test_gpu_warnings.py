"""What is said of predictions for a GPU model that the model has not seen."""

import dataclasses

import pytest
from small_model import make_manifest, make_profile

from advisor_advice.answers import gpu_warnings
from advisor_models.manifest import MOST_PAIRS, OtherGpu

A, B = make_profile("a", 1, gpu_model="New"), make_profile("b", 2, gpu_model="New")


def warnings_of(other_gpu: OtherGpu) -> list[str]:
    return list(gpu_warnings(make_manifest({}, other_gpu=other_gpu), [A, B, A]))


def test_names_the_card_the_models_the_width_and_the_command() -> None:
    (text,) = warnings_of(OtherGpu({"speed": 2.0, "power": 1.5}, (), MOST_PAIRS))
    assert text == (
        "the model has not seen the New, only Card: intervals are wider: 2 times for speed and "
        "1.5 times for power, somewhat more than leaving out cards of one GPU model took. About "
        "20 pairs measured there, and none need be wider: advisor colocate --among a,b; "
        "docs/training.md says how to learn from them"
    )


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (0, "It took no pairs measured there"),
        (1, "About 1 pair measured there"),
        (5, "About 5 pairs measured there"),
        (None, "It takes more than 20 pairs measured there"),
    ],
)
def test_width_from_gpu_models_that_were_left_out(pairs: int | None, said: str) -> None:
    (text,) = warnings_of(OtherGpu({"speed": 1.25, "power": 1.0}, ("X", "Y"), pairs))
    assert "1.2 times for speed and 1 times for power" in text
    assert "which leaving out the X or the Y took" in text
    assert said in text


def test_no_wider_intervals_are_said_to_be_so() -> None:
    (text,) = warnings_of(OtherGpu({"speed": 1.0, "power": 1.0}, ("X",), 0))
    assert "only Card: intervals are no wider, since leaving out the X took none. It took" in text


def test_unknown_power_limit_is_said() -> None:
    """Of a GPU that the model has seen as well, but only where neither profile knows it."""
    manifest = make_manifest({}, gpu_models=("New",))
    free = [dataclasses.replace(profile, power_limit_w=None) for profile in (A, B)]
    (text,) = gpu_warnings(manifest, free)
    assert text.startswith("the power limit of the New is not known: watts are compared with")
    assert list(gpu_warnings(manifest, [A, free[1]])) == []
