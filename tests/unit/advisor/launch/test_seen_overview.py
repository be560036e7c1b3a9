"""All at one look: who has which GPU, and what was saved today and this week."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ended_launches import ended_launch

from advisor.core.gpu import Gpu
from advisor.core.objectives import NO_PRICES
from advisor.launch.folder import (
    MOST_ENDED,
    MOST_POINTS,
    HistoryKeeper,
    Overview,
    overview,
    read_history,
    write_history,
)
from advisor.launch.spec import History, JobHistory, JobStatus, LaunchStatus, Ledger, add

ZONE = timezone(timedelta(hours=2))


NOW = datetime(2026, 1, 29, 12, tzinfo=ZONE)  # a Thursday


HOUR_S, KWH_J = 3600.0, 3.6e6


TWO_HOURS = Ledger(
    held_s=2 * HOUR_S, energy_j=1 * KWH_J, alone_s=4 * HOUR_S, alone_j=1.5 * KWH_J,
    freed_idle_j=0.2 * KWH_J,
)  # fmt: skip


@pytest.fixture(autouse=True)
def host_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """The zone of this host, by the text that C libraries know without a data base of zones."""

    def live_in(text: str) -> None:
        monkeypatch.setenv("TZ", text)
        time.tzset()

    live_in("XXX-2")
    yield live_in
    monkeypatch.undo()
    time.tzset()


def entry(begun: datetime, ledger: Ledger | None = TWO_HOURS) -> LaunchStatus:
    """A launch of two hours that is over."""
    ended = (begun + timedelta(hours=2)).isoformat()
    return LaunchStatus(
        launch_id="e", state="finished", updated_at=ended, started_at=begun.isoformat(),
        ended_at=ended, overlap_s=2 * HOUR_S, ledger=ledger,
    )  # fmt: skip


def seen(*entries: LaunchStatus, history: History | None = None, **more: Any) -> Overview:
    empty: dict[str, Any] = {
        "now": NOW, "running": (), "ended": (), "cards": (), "host": "here", "entries": entries,
        "history_of": dict.fromkeys(("r", *map(str, range(50))), history).get, "prices": NO_PRICES,
    }  # fmt: skip
    return overview(**empty | more)


def launch(launch_id: str, **more: object) -> LaunchStatus:
    running = LaunchStatus(launch_id=launch_id, state="running", updated_at="", host="there")
    return replace(running, **more)


def test_days_and_weeks_begin_at_midnight_of_the_host() -> None:
    midnight, monday = datetime(2026, 1, 29, tzinfo=ZONE), datetime(2026, 1, 26, tzinfo=ZONE)
    entries = (
        entry(midnight - timedelta(hours=1)),
        entry(monday - timedelta(hours=2)),
        entry(monday),
        replace(entry(NOW - timedelta(hours=2)), state="running", ended_at=None),
    )
    found = seen(*entries)
    assert (found.today.launches, found.week.launches) == (2, 3)
    assert (found.today.kwh, found.today.kwh_saved) == (pytest.approx(1.5), pytest.approx(0.75))
    assert found.today.kwh_saved_idle == pytest.approx(0.45)
    assert found.today.gpu_hours_saved == pytest.approx(3)
    assert (found.week.gpu_hours_saved, found.today.cost_saved) == (pytest.approx(6), None)


def test_days_on_which_clocks_change_have_another_length(
    host_zone: Callable[[str], None],
) -> None:
    """Midnight is by the clock of then: what ran in the hour before it was yesterday."""
    host_zone("CET-1CEST,M3.5.0,M10.5.0/3")
    for day, begin in (("03-29", "03-29T00:00:00+01:00"), ("10-25", "10-25T00:00:00+02:00")):
        now = datetime.fromisoformat(f"2026-{day}T12:00:00").astimezone()
        found = seen(entry(datetime.fromisoformat(f"2026-{begin}") - timedelta(hours=1)), now=now)
        assert (found.today.since, found.today.kwh) == (f"2026-{begin}", pytest.approx(0.5))
    # Monday of a week whose Sunday has a change.
    assert found.week.since == "2026-10-19T00:00:00+02:00"
    now = datetime.fromisoformat("2026-03-29T12:00:00").astimezone()
    assert seen(now=now).week.since == "2026-03-23T00:00:00+01:00"


def test_what_is_not_known_is_told_and_left_out() -> None:
    begun = NOW - timedelta(hours=3)
    without_idle = replace(TWO_HOURS, freed_idle_j=None, unread_s=HOUR_S / 2)
    entries = entry(begun), entry(begun, ledger=None), entry(begun, ledger=without_idle)
    today = seen(*entries).today
    assert (today.launches, today.uncounted, today.idle_known) == (3, 1, 1)
    assert (today.gpu_hours, today.gpu_hours_unread) == (pytest.approx(4), pytest.approx(0.5))
    assert (today.kwh_saved, today.kwh_saved_idle) == (pytest.approx(1.0), pytest.approx(0.3))
    nothing = seen().today
    assert (nothing.kwh_saved, nothing.kwh_saved_idle) == (0, None)


def test_ledgers_add_up() -> None:
    assert add(TWO_HOURS, None) == add(None, TWO_HOURS) == TWO_HOURS
    assert add(TWO_HOURS, TWO_HOURS.part(2)) == TWO_HOURS.part(3)
    without_idle = replace(TWO_HOURS.part(2), freed_idle_j=None)
    assert add(TWO_HOURS, without_idle.part(0.5)) == without_idle


def test_each_gpu_of_a_launch_is_held_by_it() -> None:
    """Its power and limit are those of both."""
    both = {"gpu_uuid": "GPU-1", "power_w": 900.0, "power_limit_w": 1400.0}
    running = [launch("a", beside=("GPU-2",), **both)]
    known = Gpu(uuid="GPU-2", model="H200", power_limit_w=700)
    found = seen(cards=[(known, None)], running=running).gpus
    assert [(c.gpu_uuid, c.launch_id, c.power_w, c.power_limit_w) for c in found] == [
        ("GPU-2", "a", 450, 700), ("GPU-1", "a", 450, 700)
    ]  # fmt: skip


def test_a_gpu_shows_who_holds_it() -> None:
    """One that was not heard of lately tells no watts."""
    cards = [(Gpu(uuid=f"GPU-{n}", model="H200", power_limit_w=700), 80.0) for n in (1, 2, 3)]
    running = [
        launch("a", gpu_uuid="GPU-2", power_w=400.0, units_total=132),
        launch("b", gpu_uuid="GPU-9", gpu_model="H100", power_limit_w=350.0, power_w=200.0),
        launch("c"),
        launch("d", gpu_uuid="GPU-3", power_w=400.0, silent_s=60.0),
        launch("e", gpu_uuid="GPU-8", power_w=400.0, silent_s=60.0),
    ]
    found = seen(cards=cards, running=running).gpus
    assert [(card.gpu_uuid, card.launch_id, card.host) for card in found] == [
        ("GPU-1", None, "here"), ("GPU-2", "a", "here"), ("GPU-3", "d", "here"),
        ("GPU-8", "e", "there"), ("GPU-9", "b", "there"),
    ]  # fmt: skip
    assert [card.power_w for card in found] == [80.0, 400.0, 80.0, None, 200.0]
    assert [card.units_total for card in found] == [None, 132, None, None, None]
    assert [card.power_limit_w for card in found] == [700, 700, 700, None, 350.0]


def test_what_is_drawn_is_small_and_ended_ones_are_few() -> None:
    """The answer is asked for every second or two, so it has to stay small."""
    jobs = (
        JobHistory(job="a", speeds=(1.0,) * 120, p99_ms=(None,) * 120),
        JobHistory(job="b", speeds=(1.0,) * 120, p99_ms=(None, 8.0) * 60),
    )
    kept = History(started_at="", step_s=1.0, power_w=(300.0,) * 120, jobs=jobs)
    ended = [launch(str(n), state="finished") for n in range(50)]
    found = seen(ended=ended, running=[launch("r")], history=kept)
    [running] = found.running
    assert running.history
    assert [len(job.p99_ms) for job in running.history.jobs] == [0, 60]
    assert len(found.ended) == MOST_ENDED
    assert all(one.history and len(one.history.power_w) <= 32 for one in found.ended)


STATUS = LaunchStatus(
    launch_id="x", state="running", updated_at="",
    jobs=tuple(JobStatus(job=name, rate_unit="steps", share_percent=50) for name in "ab"),
)  # fmt: skip


def kept(seconds: int) -> HistoryKeeper:
    keeper = HistoryKeeper("2026-01-31T12:00:00Z")
    for look in range(4 * seconds + 1):
        keeper.add(look / 4, replace(STATUS, power_w=look / 4))
    return keeper


@pytest.mark.parametrize("seconds", [1, 50, MOST_POINTS + 1, 3000])
def test_it_is_bounded_and_covers_all_of_the_time(seconds: int) -> None:
    history = kept(seconds).history
    assert len(history.power_w) <= MOST_POINTS
    assert seconds - history.step_s <= len(history.power_w) * history.step_s <= seconds
    for n, power_w in enumerate(history.power_w):
        assert power_w == pytest.approx((n + 0.5) * history.step_s, abs=1)
    assert [len(job.speeds) for job in history.jobs] == [len(history.power_w)] * 2


def test_who_joins_has_no_past_and_a_gap_has_no_points() -> None:
    keeper = kept(3)
    joined = replace(STATUS.jobs[0], job="c", relative_speed=0.5)
    keeper.add(3.5, STATUS)
    status = replace(STATUS, jobs=(*STATUS.jobs, joined), power_w=10.0, energy_saved=0.2)
    assert keeper.add(6.0, status)
    history = keeper.history
    assert history.power_w[3:] == (None, None, 10.0)
    assert history.energy_saved[3:] == (None, None, 0.2)
    assert history.jobs[2].speeds == (None, None, None, None, None, 0.5)


def test_it_is_read_from_the_folder_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    folder, history = ended_launch(tmp_path, 1, 1.0), kept(5).history
    assert read_history(folder) is None
    write_history(folder, history)
    assert read_history(folder) == history
    (folder.path / "history.json").write_text("{")
    assert read_history(folder) is None
