"""Runs of retraining that are killed, or that meet a full disk: the champion serves on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import retraining

from advisor.errors import StoreError

FAKES = Path(retraining.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("points", [2, pytest.param(10, marks=pytest.mark.nightly)])
def test_killed_at_random_points(tmp_path: Path, points: int) -> None:
    """The old or the new champion, versions that are whole, and a next run that comes to its end.

    A process that may write no file of the size of a model ends as on a full disk.
    """
    done = subprocess.run(
        [sys.executable, FAKES / "killed_retrain.py", tmp_path, str(points), "7"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    versions, champion = found["after"]
    assert (versions, len(found["seen"])) == ([champion], points)
    assert found["changes"] > 10
    for seen in found["seen"]:
        assert seen in ([[], "bundled"], [versions, "bundled"], [versions, champion])
    assert (found["full"], found["left_when_full"]) == (StoreError.exit_code, [[[], "bundled"], []])
