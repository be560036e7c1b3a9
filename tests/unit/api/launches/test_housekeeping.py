"""What a service removes by itself: at its first look, then once an hour."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from ended_launches import ended_launch, launch_id

from advisor.errors import StoreError
from advisor.launch.folder import OBSERVATIONS, list_folders
from advisor.settings import read_settings
from advisor.wire.lists import AuditEntry
from advisor_api.http.options import ServeOptions
from advisor_api.launches import reconciler as housekeeping
from advisor_api.launches.launch_metrics import LaunchMetrics
from advisor_api.launches.reconciler import Housekeeping, Reconciler
from advisor_api.service import Metrics, Service, open_service

OLD = AuditEntry(
    at="2020-01-31T12:00:00.000+00:00", who="ci", action="x", subject="y", outcome="done"
)


@pytest.fixture(params=["", "0"])
def days(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service(tmp_path: Path, days: str) -> Iterator[Service]:
    bounds = dict.fromkeys(("ADVISOR_KEEP_LAUNCHES_DAYS", "ADVISOR_KEEP_AUDIT_DAYS"), days)
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_JOBS": ".", **bounds})
    with open_service(settings, ServeOptions(), Metrics()) as opened:
        yield opened


def test_what_is_beyond_its_bound_goes_and_is_in_both_logs(
    service: Service, days: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Launches are brought in first, as rows and observations; 0 keeps everything."""
    home = service.settings.home
    ended_launch(home, 1, 1000)
    ended_launch(home, 2, 1)
    service.state.audit(OLD)
    reconciler = Reconciler(service, LaunchMetrics())
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            reconciler.look_safely()
    assert len(service.store.observations()) == 2
    assert [row.state for row in service.state.launches()] == ["finished"] * 2
    left = {folder.launch_id for folder in list_folders(home / "launches")}
    actions = [entry.action for entry in service.state.audit_log()]
    texts = f"the launch {launch_id(1)}, which ended", "1 entries of the audit log before"
    assert (left, actions, [caplog.text.count(text) for text in texts]) == (
        ({launch_id(1), launch_id(2)}, ["x"], [0, 0])
        if days == "0"
        else ({launch_id(2)}, ["audit.prune", "launch.remove"], [1, 1])
    )


@pytest.mark.parametrize("days", [""], indirect=True)
def test_it_looks_once_an_hour(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a look failed: a database that is away is not asked for sizes of folders."""
    at = {"s": 100.0}
    monkeypatch.setattr(housekeeping.time, "monotonic", lambda: at["s"])
    keeper = Housekeeping(service)
    keeper.look()
    ended_launch(service.settings.home, 1, 1000)
    keeper.look()
    root = service.settings.home / "launches"
    assert list_folders(root)

    def away(before: str, who: str) -> int:
        raise StoreError("away")

    monkeypatch.setattr(service.state, "prune_audit_log", away)
    at["s"] += housekeeping.EVERY_S
    with pytest.raises(StoreError):
        keeper.look()
    assert not list_folders(root)
    keeper.look()


@pytest.mark.parametrize("days", [""], indirect=True)
def test_what_cannot_go_is_told_once_and_stops_nothing(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.0)
    (ended_launch(service.settings.home, 1, 1000).path / OBSERVATIONS).write_text("{}\n")
    keeper = Housekeeping(service)
    for _ in range(3):
        keeper.look()
    assert caplog.text.count("cannot be read") == 1
