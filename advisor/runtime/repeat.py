"""Runs a short command again and again and counts its completed runs in the progress file.

Run as `python -I -S repeat.py COMMAND...`: folder and variables are those of the job, which may
have a module of any name. It ends with the command's own exit code at the first run that fails, so
a broken job is not taken for a fast one.
"""

import signal
import subprocess
import sys
from pathlib import Path


def main(command: list[str]) -> int:
    """Run `command` until it fails or a signal ends this process."""
    # Behind the standard library, so that it hides nothing of it.
    sys.path.append(str(Path(__file__).parents[2]))
    from advisor.progress import Progress

    # SystemExit lets subprocess.run end the command that is under way.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    progress = Progress()
    while True:
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status if status > 0 else 128 - status
        progress.add()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
