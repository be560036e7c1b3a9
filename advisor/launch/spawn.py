"""Starts the supervisor of a launch, which outlives whoever asked for it."""

import subprocess
import threading

from advisor.launch.folder import LaunchFolder
from advisor.settings import Settings, python

LOG = "supervisor.log"


def spawn_supervisor(folder: LaunchFolder, settings: Settings) -> subprocess.Popen[bytes]:
    """Start the supervisor for a folder, in a session of its own; returns at once.

    A second one for the same folder ends without doing anything.

    Raises:
        OSError: it cannot be started.
    """
    with (folder.path / LOG).open("ab") as log:
        process = subprocess.Popen(
            [python(), "-m", "advisor.cli.supervise", str(folder.path)],
            env=dict(settings.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    # Where whoever asked lives longer, nothing stays in the table of processes.
    threading.Thread(target=process.wait, daemon=True).start()
    return process
