"""Processes that poll a card end with their input, or are ended."""

import subprocess
import sys

import pytest
from reading import some

from advisor_power.sensor import polled

POLLS = (
    "import time\nfrom advisor_power.sensor.polled import is_over\n"
    "print('polls', flush=True)\nwhile not is_over(): time.sleep(0.01)\nraise SystemExit(5)"
)
HANGS = "import time\nprint('hangs', flush=True)\nwhile True: time.sleep(1)"


def started(code: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert some(process.stdout).readline()
    some(process.stdout).close()
    return process


def test_it_polls_until_its_input_is_closed() -> None:
    process = started(POLLS)
    assert process.poll() is None
    polled.end(process)
    assert process.returncode == 5


def test_one_that_does_not_look_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polled, "_END_S", 0.1)
    process = started(HANGS)
    polled.end(process)
    assert process.returncode == -9
