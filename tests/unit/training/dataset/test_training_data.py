"""What learning and evaluation know of measured pairs."""

from dataclasses import replace

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_profiles import profile
from made_up_rows import solo_points

from advisor.errors import InputError
from advisor.predict.situation import is_launch_bound
from advisor_training.pairs import LeftOut
from advisor_training.rows import UNPROFILED, make_data

POINTS, SOLOS = made_up.pair_points(), solo_points()
DATA = make_data(POINTS, SOLOS)


def test_jobs_without_a_profile_are_left_out_and_counted() -> None:
    """After what was left out before: each of the five pairs of one job has twelve points."""
    solos = [p for p in SOLOS if p.job != "slow" or p.share_percent == 100]
    before = LeftOut("flagged", 3)
    unread = replace(POINTS[0], power_w=None)
    found = make_data([*POINTS, unread], solos, left_out=[before])
    assert "slow" not in found.rows.jobs
    assert len(found.measurements) == len(np.unique(found.rows.measurement)) == 10
    assert found.left_out == (
        before, LeftOut("no reading of power", 1), LeftOut(UNPROFILED, 60)
    )  # fmt: skip
    assert make_data(POINTS, solos[:-1], solos[-1:]).left_out == (LeftOut(UNPROFILED, 60),)


def test_without_any_pair_it_is_said_why() -> None:
    with pytest.raises(InputError) as refused:
        make_data([replace(p, power_w=None) for p in POINTS[:2]], SOLOS, (), [LeftOut("late", 3)])
    assert (refused.value.what, refused.value.why) == (
        "none of 2 pair points can be learned from", "3: late; 2: no reading of power",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("active_percent", "flags", "bound"),
    [(49.9, (), True), (50.0, (), False), (99.0, ("cpu-bound",), True)],
)
def test_a_job_that_leaves_the_gpu_idle_is_launch_bound(
    active_percent: float, flags: tuple[str, ...], bound: bool
) -> None:
    columns = {"sm_active_percent": [99.0 - active_percent, active_percent]}
    assert is_launch_bound(profile("a", shares=(10, 100), flags=flags, columns=columns)) == bound


def test_measurements_with_a_launch_bound_job_are_told() -> None:
    """All five of the only one that keeps the GPU waiting."""
    with_sitter = ["sitter" in m.jobs for m in DATA.measurements]
    assert DATA.with_launch_bound().tolist() == with_sitter
    assert sum(with_sitter) == 5


def test_a_card_at_97_percent_of_its_limit_is_held_back() -> None:
    """As H200 cards at their limit read."""
    measured = {"power_w": [96.9, 97.0, 101.0], "power_limit_w": [100.0] * 3}
    rows = DATA.rows.take(np.arange(3)).assign(**{k: np.array(w) for k, w in measured.items()})
    assert replace(DATA, rows=rows).at_power_limit().tolist() == [False, True, True]
