"""Locks on files."""

import os
from pathlib import Path

import pytest

from advisor import files
from advisor.files import holders, try_lock


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as second:
        with path.open() as first:
            assert try_lock(first)
            assert not try_lock(second)
        assert try_lock(second)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel names no holders")
def test_holder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as held, path.open() as looking:
        assert holders(looking) == []
        assert try_lock(held)
        assert holders(looking) == [os.getpid()]
        monkeypatch.setattr(files, "_LOCKS", tmp_path / "missing")
        assert holders(looking) == []
