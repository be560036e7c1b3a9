"""Runs of retraining that are killed, or that meet a full disk: the champion serves on."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import retraining
from retraining import FIRST_DAY, bundled_model, collected, few_trees, registry_in

from advisor.errors import StoreError
from advisor_models.manifest import read_manifest
from advisor_training.retrain.retrain import retrain

FAKES = Path(retraining.__file__).parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("points", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_at_random_points(tmp_path: Path, points: int) -> None:
    """The old or the new champion, versions that are whole, and a next run that comes to its end.

    A process that may write no file of the size of a model ends as on a full disk.
    """
    done = subprocess.run(
        [sys.executable, FAKES / "killed_retrain.py", tmp_path, str(points), "7"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    versions, champion = found["after"]
    assert versions == [champion]
    assert len(found["seen"]) == points
    assert found["changes"] > 10
    for seen in found["seen"]:
        assert seen in ([[], None], [versions, None], [versions, champion])
    assert found["full"] == StoreError.exit_code
    assert found["left_when_full"] == [[[], None], []]


@pytest.fixture(scope="module", autouse=True)
def small_models() -> Iterator[None]:
    with few_trees():
        yield


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundled_model(tmp_path_factory.mktemp("bundled"))


@pytest.mark.parametrize(
    "place", [14, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 6, 9, 16))]
)
def test_full_disk(
    tmp_path: Path, bundled: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, left = registry_in(tmp_path, bundled), place
    real = os.fsync

    def full(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        retrain(collected(), tmp_path / "models", FIRST_DAY, registry=registry)
    monkeypatch.undo()
    for version in registry.versions():
        read_manifest(registry.folder(version))
    assert registry.champion() in (None, *registry.versions())
    assert list((tmp_path / "models/versions").glob(".*")) == []
    retrain(collected(), tmp_path / "models", FIRST_DAY, registry=registry)
    assert [registry.champion()] == registry.versions()
