"""Who joins those that run on a GPU, and what that saves against waiting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from made_up_profiles import profile

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.decide.filling import Beside, alone, best_beside
from advisor.decide.ways import Running, SetDecision, recommend_set
from advisor.errors import NoSplitError
from advisor.predict.predictions import Prediction, predict_exclusive, predicted_part
from advisor.predict.profiles import Profile, Serving

A, B, C = profile("a"), profile("b"), profile("c")
SERVER = profile("server", serving=Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=()))


@dataclass(frozen=True)
class Said:
    """The speeds of all, and the power, by the name of the newcomer, however they share."""

    known: dict[str, tuple[Sequence[float], float]]

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        speeds, power_w = self.known[profiles[-1].job]
        together = tuple(
            predicted_part(one, Interval(speed, speed, speed))
            for one, speed in zip(profiles, speeds, strict=True)
        )
        return [
            predict_exclusive(profiles)
            if split.sharing == "exclusive"
            else Prediction(
                split=split, parts=together, power_w=Interval(power_w, power_w, power_w)
            )
            for split in splits
        ]


def beside(
    there: Profile, waiting: Sequence[Profile], **known: tuple[Sequence[float], float]
) -> Beside | None:
    """The answer where one runs alone on the GPU and these wait."""

    def ask(profiles: Sequence[Profile], running: Running | None) -> SetDecision | None:
        try:
            return recommend_set(profiles, Said(known), running=running)
        except NoSplitError:
            return None

    return best_beside([there], alone(there), waiting, ask)


def test_nobody_alone_is_faster_than_alone() -> None:
    """In the window of a server some more requests can arrive than its users ask for."""
    serving = Serving(offered_rate=100.0, rate_noise=0.02, latency_p99_ms=())
    rates = 1.015 * SERVER.values["rate"]
    busy = replace(SERVER, serving=serving, values={**SERVER.values, "rate": rates})
    assert busy.at([100.0])["rate"][0] > busy.whole_gpu_rate
    assert alone(busy).parts[0].speed.value == 1.0


def test_what_is_saved_is_of_the_same_work() -> None:
    """In an hour together as in 0.9 h of one alone and 0.8 h of the other, which draw 400 W."""
    found = beside(A, [B], b=((0.9, 0.8), 500.0))
    assert found is not None
    assert found.time_saved == pytest.approx(1 - 1 / 1.7)
    assert found.energy_saved == pytest.approx(1 - 500 / (1.7 * 400))


@pytest.mark.parametrize(
    ("speeds", "power_w"),
    [
        ((0.5, 0.5), 400.0),  # nothing is saved
        ((0.7, 0.5), 500.0),  # a sixth of the time, for more energy
        ((0.45, 0.5), 300.0),  # energy, for more time
        ((0.9, 0.1), 300.0),  # the newcomer starves
    ],
)
def test_it_waits_where_nothing_is_saved(speeds: tuple[float, float], power_w: float) -> None:
    assert beside(A, [B], b=(speeds, power_w)) is None


def test_the_one_that_saves_most_is_next() -> None:
    found = beside(A, [B, C, B], b=((0.9, 0.5), 500.0), c=((0.9, 0.9), 520.0))
    assert found is not None
    assert found.profile.job == "c"


def test_beside_a_server_nobody_gains_by_waiting() -> None:
    """It does not end before them; but what it needs it keeps."""
    assert beside(SERVER, [B], b=((1.0, 0.5), 690.0)) is not None
    assert beside(SERVER, [B], b=((0.9, 0.5), 400.0)) is None


def test_alone_it_does_what_its_profile_says_of_its_share() -> None:
    found = alone(A, 50.0)
    assert found.parts[0].speed.value == 0.5
    assert found.power_w.value == 250.0
    assert str(found.split) == "50"
