"""Locks on files."""

from pathlib import Path

from advisor.files.locks import try_lock


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as second:
        with path.open() as first:
            assert try_lock(first)
            assert not try_lock(second)
        assert try_lock(second)
