"""What a launch did over its time, as its folder keeps it."""

from dataclasses import replace
from pathlib import Path

import pytest
from ended_launches import ended_launch

from advisor.launch.overview import MOST_POINTS, HistoryKeeper, read_history, write_history
from advisor.launch.status import JobStatus, LaunchStatus

STATUS = LaunchStatus(
    launch_id="x", state="running", updated_at="",
    jobs=tuple(JobStatus(job=name, rate_unit="steps", share_percent=50) for name in "ab"),
)  # fmt: skip


def kept(seconds: int) -> HistoryKeeper:
    """Four looks a second at a power that grows by a watt a second."""
    keeper = HistoryKeeper("2026-01-31T12:00:00Z")
    for look in range(4 * seconds + 1):
        keeper.add(look / 4, replace(STATUS, power_w=look / 4))
    return keeper


@pytest.mark.parametrize("seconds", [1, 50, MOST_POINTS + 1, 3000])
def test_it_is_bounded_and_covers_all_of_the_time(seconds: int) -> None:
    """However long it takes: few points, none of them off, and the newest not far behind."""
    history = kept(seconds).history
    assert len(history.power_w) <= MOST_POINTS
    assert seconds - history.step_s <= len(history.power_w) * history.step_s <= seconds
    for n, power_w in enumerate(history.power_w):
        assert power_w == pytest.approx((n + 0.5) * history.step_s, abs=1)
    assert [len(job.speeds) for job in history.jobs] == [len(history.power_w)] * 2


def test_who_joins_has_no_past_and_a_gap_has_no_points() -> None:
    """What was not seen is None, never 0."""
    keeper = kept(3)
    joined = replace(STATUS.jobs[0], job="c", relative_speed=0.5)
    assert keeper.add(6.0, replace(STATUS, jobs=(*STATUS.jobs, joined), power_w=10.0))
    history = keeper.history
    assert history.power_w[3:] == (None, None, 10.0)
    assert history.jobs[2].speeds == (None, None, None, None, None, 0.5)


def test_it_is_read_from_the_folder_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    """A launch of an older version has none."""
    folder, history = ended_launch(tmp_path, 1, 1.0), kept(5).history
    assert read_history(folder) is None
    write_history(folder, history)
    assert read_history(folder) == history
    (folder.path / "history.json").write_text("{")
    assert read_history(folder) is None
