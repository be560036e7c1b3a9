"""The home of a demonstration."""

import tempfile
from pathlib import Path

import pytest

from advisor.settings import read_settings
from advisor_api.demo.player import demo_settings


def test_a_signal_as_the_home_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is there, and who made it has not heard of it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make = Path.mkdir

    def make_and_end(self: Path, mode: int = 0o777) -> None:
        make(self, mode)
        raise SystemExit(143)

    monkeypatch.setattr(Path, "mkdir", make_and_end)
    with pytest.raises(SystemExit), demo_settings(read_settings()):
        pass
    assert [*tmp_path.iterdir()] == []


def test_the_home_is_this_users_alone_and_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with demo_settings(read_settings()) as settings:
        [home] = tmp_path.iterdir()
        assert settings.home == home
        assert home.stat().st_mode & 0o777 == 0o700
    assert not home.exists()
