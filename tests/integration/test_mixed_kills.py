"""docs/measurements/mixed_kills.py for a minute, where it is measured for ten."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs/measurements/mixed_kills.py"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_nothing_is_lost_where_processes_are_killed_and_stopped_at_random() -> None:
    """Nor shown as what it is not, nor left: whoever watches is struck, under load."""
    command = [sys.executable, str(SCRIPT), "--seconds", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
