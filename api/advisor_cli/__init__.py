"""The command line."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line as its process."""
    # What is imported stays: Python looks for garbage at every 700 objects, a fifth of the time of
    # a short command, and once more in all that there is when it ends.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    try:
        from advisor_cli import app

        app.main()
    except KeyboardInterrupt:  # also while modules are imported, which is most of a short command
        from advisor.errors import STOPPED

        sys.exit(STOPPED)


__all__ = ["main"]
