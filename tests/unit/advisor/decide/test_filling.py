"""Which waiting job runs beside those that run, and what that saves."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_up_profiles import Scripted, profile

from advisor.core.split import NINE, TIME_SLICED, UNCAPPED
from advisor.decide.decision import Decision, Outlook, decide
from advisor.decide.filling import Beside, alone, best_beside
from advisor.decide.options import Running
from advisor.predict.profiles import Profile, Serving

A, B, C = profile("a"), profile("b"), profile("c")
WEB = profile("server", serving=Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=()))


Figures = tuple[float, float, float]


def beside(there: Profile, waiting: Sequence[Profile], **known: Figures) -> Beside | None:
    def ask(profiles: Sequence[Profile], running: Running | None) -> Decision:
        options = dict.fromkeys((*NINE, UNCAPPED, TIME_SLICED), known[profiles[-1].job])
        return decide(Outlook(profiles, Scripted(options, off=0.0)), running=running)

    return best_beside([there], alone(there), waiting, ask)


def test_nobody_alone_is_faster_than_alone() -> None:
    """In the window of a server some more requests can arrive than its users ask for."""
    serving = Serving(offered_rate=100.0, rate_noise=0.02, latency_p99_ms=())
    rates = 1.015 * WEB.values["rate"]
    busy = replace(WEB, serving=serving, values={**WEB.values, "rate": rates})
    assert busy.at([100.0])["rate"][0] > busy.whole_gpu_rate
    assert alone(busy).parts[0].speed.value == 1.0


def test_what_is_saved_is_of_the_same_work() -> None:
    """In an hour together as in 0.9 h of one alone and 0.8 h of the other, which draw 400 W."""
    found = beside(A, [B], b=(0.9, 0.8, 500.0))
    assert found is not None
    assert found.time_saved == pytest.approx(1 - 1 / 1.7)
    assert found.energy_saved == pytest.approx(1 - 500 / (1.7 * 400))


def test_who_saves_most_runs_next() -> None:
    found = beside(A, [B, C], b=(0.9, 0.8, 500.0), c=(0.9, 0.8, 480.0))
    assert found is not None
    assert found.profile is C


@pytest.mark.parametrize(
    "figures",
    [
        (0.5, 0.5, 400.0),  # nothing is saved
        (0.7, 0.5, 500.0),  # a sixth of the time, for more energy
        (0.6, 0.5, 438.0),  # less than the least gain
        (0.9, 0.1, 300.0),  # the newcomer starves
    ],
)
def test_it_waits_where_jobs_are_not_to_share(figures: Figures) -> None:
    assert beside(A, [B], b=figures) is None


def test_who_joins_takes_no_turns() -> None:
    found = decide(Outlook((A, B), Scripted({TIME_SLICED: (0.9, 0.9, 400.0)}, off=0.0)))
    assert found.chosen.name == "time-sliced"
    assert best_beside([A], alone(A), [B], lambda profiles, running: found) is None


def test_beside_a_server_nobody_gains_by_waiting() -> None:
    assert beside(WEB, [B], b=(1.0, 0.5, 690.0)) is not None
    assert beside(WEB, [B], b=(0.9, 0.5, 400.0)) is None
