"""The MPS control program: asked by root on the daemon of a user, and waited for."""

import os
from pathlib import Path

import pytest
from other_user import MALLORY, shared_folder

from advisor.runtime.beats import heard_by
from advisor.runtime.mps import BINARY, Control, run


@pytest.mark.parametrize(("user", "answer"), [(MALLORY, MALLORY), (0, 0), (None, 0)])
def test_the_program_runs_as_the_user_of_the_daemon(user: int | None, answer: int) -> None:
    """A folder that only he enters is his; root stays root for its own."""
    with shared_folder() as folder:
        program = folder / BINARY
        program.write_text("#!/bin/sh\nid -u; id -g; id -G\n")
        program.chmod(0o755)
        control = Control(Path("/nonexistent"), {"PATH": f"{folder}:/usr/bin:/bin"}, user)
        said = control.ask("anything").split()
    assert set(said[:2] if answer == 0 else said) == {str(answer)}


def test_the_protocol_is_2_whatever_the_environment_says() -> None:
    control = Control(Path("/nonexistent"), {"CUDA_MPS_PROTOCOL_VERSION": "3"})
    assert control.variables()["CUDA_MPS_PROTOCOL_VERSION"] == "2"


def test_who_waits_for_the_daemon_is_heard_meanwhile() -> None:
    """Else a daemon that hangs is told as a supervisor that was stopped."""
    heard: list[None] = []
    with heard_by(lambda: heard.append(None)):
        run(["sleep", "1"], os.environ)
    assert len(heard) > 1
