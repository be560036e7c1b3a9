"""Starts the supervisor of a launch, which outlives the caller."""

import json
import subprocess
import threading
from contextlib import suppress

from advisor.files import writing_private
from advisor.launch.records.folder import LaunchFolder
from advisor.settings import SECRETS, Settings, python

LOG = "supervisor.log"


def spawn_supervisor(
    folder: LaunchFolder, settings: Settings, program: str
) -> subprocess.Popen[bytes]:
    """Start the supervisor for a folder, in a session of its own; returns at once.

    A second one for the same folder ends without doing anything.

    Args:
        folder: Of the launch.
        settings: Handed on, secrets by a pipe.
        program: The module that supervises; it knows drivers and stores, which launches do not.

    Raises:
        OSError: it cannot be started.
    """
    with writing_private(folder.path / LOG, "ab") as log:
        process = subprocess.Popen(
            # -P: a folder in which somebody stands may have a module of any name.
            [python(), "-P", "-m", program, str(folder.path)],
            env={k: v for k, v in settings.environment.items() if k not in SECRETS},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    # What is in the environment stays to be read for as long as the process lives.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(settings.secrets()).encode())
    # Where the caller lives longer, nothing stays in the table of processes.
    threading.Thread(target=process.wait, daemon=True).start()
    return process
