"""The home of a demonstration, its replay and the mark of its answers."""

import json
import os
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from advisor.files import serving_home
from advisor.launch.folder import list_folders, read_history
from advisor.settings import read_settings
from advisor_api import demo
from advisor_api.demo import Replay, demo_settings, with_mark


def test_the_home_is_private_and_gone_at_the_end_or_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, served, begun = (tmp_path / f"advisor-demo-{name}" for name in "abc")
    for folder in (killed, served, begun):
        folder.mkdir(0o700)
    with serving_home(served):
        for folder in (killed, served):
            os.utime(folder, (0, 0))
        with demo_settings(read_settings()) as settings:
            assert {*tmp_path.iterdir()} == {served, begun, settings.home}
            assert settings.home.stat().st_mode & 0o777 == 0o700
    assert not settings.home.exists()


def test_a_second_day_follows_and_no_moment_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches of all folders, as their readers see them after one and a half days of replay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clock = iter([0.0])
    monkeypatch.setattr(demo.time, "monotonic", lambda: next(clock, 26.5 * 3600 / demo.SPEED))
    with demo_settings(read_settings()) as settings:
        replay = Replay(settings)
        replay.look()
        found = [folder.read_status() for folder in list_folders(settings.home / "launches")]
        running = [one for one in found if not one.over]
        assert len({*found}) == len(found) > 34
        assert {one.state for one in found} == {"running", "stopped"}
        assert len({one.gpu_uuid for one in running}) == len(running) <= 4
        held = {one.gpu_uuid or "" for one in running}
        assert {gpu.uuid for gpu, watts in replay.cards(held) if watts is None} == held
        for one in found:
            begun = datetime.fromisoformat(one.started_at or "")
            assert timedelta(0) <= begun - replay.now() + timedelta(hours=36)
            assert begun <= replay.now()
        folder = list_folders(settings.home / "launches")[-1]
        assert (history := read_history(folder))
        assert any(history.power_w)
        replay.close()


@pytest.mark.parametrize(
    "body", [b"{}", b'{"schema":5,"jobs":[]}', b'{"schema":5,"replayed":true}']
)
def test_an_object_says_so_once(body: bytes) -> None:
    pairs: list[tuple[str, object]] = []
    json.loads(with_mark(body), object_pairs_hook=lambda found: pairs.extend(found))
    assert pairs.count(("replayed", True)) == 1
    assert dict(pairs) == {**json.loads(body), "replayed": True}


@pytest.mark.parametrize("body", [b"", b"[]", b"null"])
def test_what_is_no_object_stays_as_it_is(body: bytes) -> None:
    assert with_mark(body) == body
