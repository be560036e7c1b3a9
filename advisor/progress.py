"""The job's side of progress and gate: two lines in a Python job.

    progress = Progress()
    ...
    progress.add(batch_size)        # after each finished step

`ADVISOR_PROGRESS_FILE` names a file of at least 8 bytes: the count so far, a little-endian signed
integer. `ADVISOR_GATE_FILE`, where it is set, names a file of 16 bytes: what the advisor wants
(0 hold, 1 go, 2 quit) and what the job does (0 starting, 1 waiting, 2 running), each 8 bytes,
little-endian. docs/progress.md has the same for C and shell. Without the variables nothing
happens, so a job runs unchanged outside the advisor.

Only the standard library is used: copy this file next to a job whose Python has no advisor.
"""

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

HOLD, GO, QUIT = 0, 1, 2
STARTING, WAITING, RUNNING = 0, 1, 2
_POLL_S = 0.005


class Progress:
    """Counts finished steps where the advisor can read them, and waits at its gate.

    Args:
        on_pause: Called before waiting, to finish work that is still under way on the GPU.
    """

    def __init__(self, on_pause: Callable[[], object] | None = None) -> None:
        self._on_pause = on_pause
        self._count = 0
        self._progress = _map("ADVISOR_PROGRESS_FILE", 8)
        self._gate = _map("ADVISOR_GATE_FILE", 16)

    def ready(self) -> None:
        """Say that the warm-up is over; returns when the advisor opens the gate."""
        self._pass_gate()

    def add(self, steps: int = 1) -> None:
        """Count `steps` more finished steps; waits here while the gate is closed."""
        self._count += steps
        if self._progress is not None:
            struct.pack_into("<q", self._progress, 0, self._count)
        if self._gate is not None and struct.unpack_from("<q", self._gate)[0] != GO:
            self._pass_gate()

    def _pass_gate(self) -> None:
        if self._gate is None:
            return
        if self._on_pause is not None:
            self._on_pause()
        struct.pack_into("<q", self._gate, 8, WAITING)
        while (wanted := struct.unpack_from("<q", self._gate)[0]) == HOLD:
            time.sleep(_POLL_S)
        if wanted == QUIT:
            sys.exit(0)
        struct.pack_into("<q", self._gate, 8, RUNNING)


def _map(variable: str, size: int) -> mmap.mmap | None:
    name = os.environ.get(variable)
    if not name:
        return None
    with Path(name).open("r+b") as file:
        return mmap.mmap(file.fileno(), size)
