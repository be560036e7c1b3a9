"""`advisor launches clean`: what it says and removes."""

from pathlib import Path

import pytest
from command_line import Advisor
from ended_launches import ended_launch, launch_id
from reading import answer_of

from advisor.launch.folder import OBSERVATIONS, list_folders
from advisor_data import open_store


def test_keys_for_programs_stay(advisor: Advisor, tmp_path: Path) -> None:
    ended_launch(tmp_path / "home", 1, 1000, output_bytes=2**20)
    (ended_launch(tmp_path / "home", 2, 1000).path / OBSERVATIONS).write_text("{}\n")
    for words in (("--dry-run",), ()):
        done = advisor("launches", "clean", "--json", *words)
        assert done.code == 0
        found = answer_of(done.out)
        assert (set(found), found["dry_run"]) == ({"dry_run", "removed", "kept"}, bool(words))
        ((removed,), (kept,)) = found["removed"], found["kept"]
        assert (removed["launch_id"], kept["launch_id"]) == (launch_id(1), launch_id(2))
        assert removed["size_bytes"] >= 2**20
    assert [folder.launch_id for folder in list_folders(tmp_path / "home/launches")] == [
        launch_id(2)
    ]


def test_points_in_files_are_enough(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/points.db"
    monkeypatch.setenv("ADVISOR_DATABASE_URL", url)
    ended_launch(tmp_path / "home", 1, 1000)
    assert "1 folder removed" in advisor("launches", "clean").out
    with open_store(url, tmp_path / "home") as store:
        assert [seen.launch_id for seen in store.observations()] == [launch_id(1)]
