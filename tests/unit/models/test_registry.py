"""The registry: versions that come in whole, one champion, and a history that outlives a kill."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import small_model
from small_model import POWER_TREES, SPEED_TREES, changed_head, save_model

from advisor.errors import ModelError
from advisor_models.registry import MANIFEST, Registry, read_manifest

FAKES = Path(small_model.__file__).parent


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    bundled = save_model(tmp_path / "bundled", version="bundled-1")
    return Registry(tmp_path / "models", bundled)


@pytest.fixture
def added(registry: Registry, tmp_path: Path) -> Registry:
    for number, version in enumerate(("v1", "v2", "v3")):
        figures = {"fraction_of_oracle": 0.9 + number / 100}
        registry.add(save_model(tmp_path / version, version=version, figures=figures))
    return registry


def test_added_is_a_copy(registry: Registry, tmp_path: Path) -> None:
    source = save_model(tmp_path / "v1", version="v1")
    (source / "notes.txt").write_text("mine")
    manifest = registry.add(source)
    for path in source.iterdir():
        path.unlink()
    copy = registry.folder("v1")
    assert read_manifest(copy) == manifest
    assert {path.name for path in copy.iterdir()} == {MANIFEST, SPEED_TREES, POWER_TREES}


@pytest.mark.parametrize(
    ("trap", "why"),
    [
        ("fifo", "not a regular file"), ("sparse", "larger than"), ("link", "is a link"),
        ("other", "SHA-256|is not a model manifest"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [SPEED_TREES, MANIFEST])
def test_what_is_not_whole_or_no_plain_file_is_not_added(
    registry: Registry, tmp_path: Path, name: str, trap: str, why: str
) -> None:
    """Nothing hangs, nothing fills the memory, and nothing of elsewhere is taken in."""
    file = save_model(tmp_path / "v1", version="v1") / name
    content = file.read_bytes()
    file.unlink()
    match trap:
        case "fifo":
            os.mkfifo(file)
        case "sparse":
            with file.open("wb") as sparse:
                sparse.truncate(30 << 30)
        case "link":
            (tmp_path / "elsewhere").write_bytes(content)
            file.symlink_to(tmp_path / "elsewhere")
        case _:
            file.write_bytes(b"other")
    with pytest.raises(ModelError, match=why):
        registry.add(tmp_path / "v1")
    assert registry.versions() == []


def test_what_cannot_be_promoted_is_not_added(registry: Registry, tmp_path: Path) -> None:
    """A refused model would stay in the list of those that can be chosen."""
    figures = {"rate_coverage_percent": 20.0, "rate_mean_error_percent": 30.0}
    with pytest.raises(ModelError, match="cannot be relied on"):
        registry.add(save_model(tmp_path / "v1", version="v1", figures=figures))
    with pytest.raises(ModelError, match="it is cut off"):
        registry.add(save_model(tmp_path / "v2", speed=b"no trees", version="v2"))
    assert registry.versions() == []


def test_added_twice(added: Registry, tmp_path: Path) -> None:
    before = added.folder("v1").stat().st_ino
    added.add(tmp_path / "v1")
    with pytest.raises(ModelError, match="another model v1"):
        added.add(save_model(tmp_path / "other", version="v1", figures={"x": 1.0}))
    found = (added.folder("v1").stat().st_ino, added.versions())
    assert found == (before, ["v1", "v2", "v3"])


def test_promote_and_roll_back(added: Registry) -> None:
    for version in ("v1", "v2", "v3"):
        added.promote(version)
    assert added.champion() == "v3"
    assert [added.rollback().version for _ in range(3)] == ["v2", "v1", "bundled-1"]
    with pytest.raises(ModelError, match="no model to go back to"):
        added.rollback()
    # The package's model can be gone back to in one step, and from there back again.
    added.promote("v1")
    assert added.promote("bundled").version == added.open_champion().manifest.version == "bundled-1"
    assert added.rollback().version == "v1"


def test_history(added: Registry, tmp_path: Path) -> None:
    for version in ("v1", "v1", "v2"):
        added.promote(version)
    added.rollback()
    found = [(c.action, c.version, c.replaced, dict(c.figures)) for c in added.history()]
    assert found == [
        ("promote", "v1", "bundled", {"fraction_of_oracle": 0.9}),
        ("promote", "v2", "v1", {"fraction_of_oracle": 0.91}),
        ("rollback", "v1", "v2", {"fraction_of_oracle": 0.9}),
    ]
    assert all(change.at.endswith("+00:00") for change in added.history())


@pytest.mark.parametrize("version", ["v9", "../v1", "", ".", "v1/../v2"])
def test_unknown_versions(added: Registry, version: str) -> None:
    with pytest.raises(ModelError):
        added.promote(version)
    assert added.history() == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"heads": changed_head("speed", features=("x",), ranges=((0.0, 1.0),))},
            "trained on other features",
        ),
        ({"speed": b"no trees"}, "it is cut off"),
        (None, "SHA-256"),
    ],
)
def test_what_cannot_be_opened_is_not_used(
    added: Registry, changes: dict[str, Any] | None, why: str
) -> None:
    """A version that this installation cannot predict with is not promoted or gone back to.

    It came in with another advisor: its files have the hashes of its manifest. Or it was damaged
    since; a champion that is damaged is told.
    """
    added.promote("v1")
    added.promote("v2")
    for version in ("v1", "v3"):
        if changes is None:
            (added.folder(version) / SPEED_TREES).write_bytes(b"other")
        else:
            save_model(added.folder(version), version=version, **changes)
    with pytest.raises(ModelError, match=why):
        added.promote("v3")
    with pytest.raises(ModelError, match=why):
        added.rollback()
    assert [change.version for change in added.history()] == ["v1", "v2"]
    assert added.open_champion().manifest.version == "v2"
    (added.folder("v2") / SPEED_TREES).unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        added.open_champion()


def test_damaged_history(added: Registry, tmp_path: Path) -> None:
    """A line that is no change is refused; where a crash cut the last one, it does not count."""
    added.promote("v1")
    path = tmp_path / "models/history.jsonl"
    old = path.read_bytes()
    added.promote("v2")
    new = path.read_bytes()
    for length in range(len(old), len(new)):
        path.write_bytes(new[:length])
        assert added.champion() == "v1"
    added.promote("v3")
    assert path.read_bytes().startswith(old)
    assert [change.version for change in added.history()] == ["v1", "v3"]
    with path.open("a") as file:
        file.write('{"action": "delete"}\n')
    with pytest.raises(ModelError, match=r"line \d is not a change"):
        added.champion()


@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path) -> None:
    for version in ("old", "new"):
        save_model(tmp_path / version, version=version)
    done = subprocess.run(
        [sys.executable, str(FAKES / "killed_registry.py"), str(tmp_path)],
        # Threads of a numerical library do not outlive a fork.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    both = ["new", "old"]
    assert found["add"]["seen"] == [[["old"], "bundled"], [both, "bundled"]]
    assert found["promote"]["seen"] == [[both, "old"], [both, "new"]]
    assert found["rollback"]["seen"] == [[both, "new"], [both, "old"]]
    assert all(act["steps"] > 20 for act in found.values())


def test_two_at_once(added: Registry) -> None:
    threads = [threading.Thread(target=added.promote, args=(v,)) for v in ("v1", "v2", "v3") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changes = added.history()
    assert [c.replaced for c in changes] == ["bundled", *(c.version for c in changes[:-1])]


def test_full_disk_leaves_no_half_model(
    added: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save_model(tmp_path / "v4", version="v4")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        added.add(source)
    with pytest.raises(OSError, match="No space"):
        added.promote("v1")
    monkeypatch.undo()
    assert {p.name for p in (tmp_path / "models/versions").iterdir()} == {"v1", "v2", "v3"}
    assert added.champion() == "bundled"
