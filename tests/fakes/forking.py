"""A program that forks a process for each command, from one that has imported what they import.

Python and advisor take longer to start than most commands take to run, and tests start hundreds.
Its descriptor of the socket is the first argument, modules to import are the rest. A request is
the command's words, environment, folder and umask; with it come its standard output and error, and
where its number and exit code are to be written.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
import time
from typing import Any

REQUEST_BYTES = 150_000
"""The most that one message of a socket holds."""

STATUS = struct.Struct("i")

code: int | None = None
"""What a command ends with; None: in an exception that is not for its end."""


@atexit.register
def end() -> None:
    """The last thing that Python does at its end, but for freeing what all the modules hold.

    That takes a third of the time of a short command.
    """
    if code is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve until nobody asks any more; returns in each new process, as the command."""
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    # Ctrl-C is for the tests; who waits for a command ends by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    asked = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            asked.close()
            return _waited_for(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _waited_for(request: dict[str, Any], output: int, errors: int, status: int) -> None:
    """The process that waits and says how it ended, and the command, in which this returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        os.close(output)
        os.close(errors)
        os.write(status, STATUS.pack(child))
        _, ended = os.waitpid(child, 0)
        os.write(status, STATUS.pack(os.waitstatus_to_exitcode(ended)))
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, place in ((output, 1), (errors, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    # As Python opens them for what they are: a file, a pipe or a terminal.
    sys.stdout, sys.stderr = (
        open(place, "w", buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        for place, buffering, old in ((1, -1, sys.stdout), (2, 1, sys.stderr))
    )
    os.close(status)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv[:] = ["advisor", *request["words"]]
    sys.path[0] = request["folder"]


if __name__ == "__main__":
    main()
    from advisor_cli import main as command

    try:
        command()
        code = 0
    except SystemExit as ended:
        code = 0 if ended.code is None else ended.code if isinstance(ended.code, int) else None
        raise
