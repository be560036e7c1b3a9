"""Promotions under load, by the script whose figures docs/models.md has."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs/measurements/reload_under_load.py"


def test_no_request_fails_and_no_answer_has_fields_of_two_models() -> None:
    """Each answer is byte for byte that of one model, and each promotion is taken up."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--promotions", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["promotions"] == 2
    assert found["requests"] > 50
    assert (found["failed"], found["mixed"], found["not_taken_up"]) == (0, 0, 0)
