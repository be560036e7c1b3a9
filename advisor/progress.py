"""The job's side of progress, results and gate: two lines in a Python job.

    progress = Progress()
    ...
    progress.add(batch_size, value=loss)        # after each finished step

`ADVISOR_PROGRESS_FILE` names a file, which is made where only its folder is there. Its first 8
bytes are the count so far, a little-endian signed integer; results
and latencies follow, if the job reports them (docs/job-file.md has the layout).
`ADVISOR_GATE_FILE`, where it is set, names a file of 16 bytes: what the advisor wants (0 hold, 1
go, 2 quit) and what the job does (0 starting, 1 waiting, 2 running), each 8 bytes, little-endian.
Without the variables nothing happens, so a job runs unchanged outside the advisor.

Only the standard library is used: copy this file next to a job whose Python has no advisor.
"""

import math
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HOLD, GO, QUIT = 0, 1, 2
STARTING, WAITING, RUNNING = 0, 1, 2
_POLL_S = 0.005

FILE_BYTES = 4096
"""Size of the progress file. An earlier advisor made it 8 bytes: then only the count is kept."""

VALUES_AT, FIRST_AT, FIRST_VALUES = 8, 40, 8
"""Where the results begin: how many values, how many of them not finite, the count at the last one
and the last one; then the first values, each with the count at it."""

BEATS_AT, FAULT_AT, FAULT_BYTES = 168, 176, 320
"""Where it is counted how often the job said that it lives and has nothing to do; and why the count
stands still although the job may work: UTF-8 text up to a zero byte; empty while it is counted."""

# Where the histogram of latencies is: how many requests took about as long as each bucket.
LATENCIES_AT = 512
LATENCY_BUCKETS = 320

LATENCY_LEAST_S, LATENCY_STEP = 1e-5, 1.05
"""Bucket n holds latencies from 10 us * 1.05^n on: 5 % apart, up to 60 s."""

# Where the bounds of a server's own buckets are, which may be wider: how many, then each, s.
BOUNDS_AT = 3072
MOST_BOUNDS = 127


class Progress:
    """Counts finished steps where the advisor can read them, and waits at its gate.

    Args:
        on_pause: Called before waiting, to finish work that is still under way on the GPU.
    """

    def __init__(self, on_pause: Callable[[], object] | None = None) -> None:
        self._on_pause = on_pause
        self._count = 0
        self._values, self._not_finite, self._beats = 0, 0, 0
        self._progress = _map("ADVISOR_PROGRESS_FILE", FILE_BYTES)
        self._gate = _map("ADVISOR_GATE_FILE")

    def ready(self) -> None:
        """Say that the warm-up is over; returns when the advisor opens the gate."""
        self._pass_gate()

    def add(
        self, steps: int = 1, value: float | None = None, latency_s: float | None = None
    ) -> None:
        """Count `steps` more finished steps; waits here while the gate is closed.

        Args:
            steps: Finished since the last call. Calls with 0 now and then show that an idle server
                does not hang.
            value: What tells whether the work is right: a loss, a checksum, an error norm. It must
                be the same for the same seed and count, but for rounding.
            latency_s: How long each of these steps took from its arrival to its answer, s.
        """
        if latency_s is not None:
            self.took(latency_s, steps)
        self.report(value, steps)
        if self._gate is not None and struct.unpack_from("<q", self._gate)[0] != GO:
            self._pass_gate()

    def answered(self, latencies_s: Sequence[float]) -> None:
        """Count one request for each latency, s: as `add`, for requests answered together."""
        for latency_s in latencies_s:
            self.took(latency_s)
        self.add(len(latencies_s))

    def took(self, latency_s: float, requests: int = 1) -> None:
        """Note how long requests took, s, without counting them: where tokens are counted."""
        if self._progress is None or len(self._progress) < FILE_BYTES:
            return
        place = LATENCIES_AT + 8 * latency_bucket(latency_s)
        (counted,) = struct.unpack_from("<q", self._progress, place)
        struct.pack_into("<q", self._progress, place, counted + requests)

    def bounded(self, bounds_s: Sequence[float]) -> None:
        """Say between which bounds, s and rising, latencies were not told apart before `took`."""
        if self._progress is None or len(self._progress) < FILE_BYTES:
            return
        kept = bounds_s[:MOST_BOUNDS]
        struct.pack_into(f"<q{len(kept)}d", self._progress, BOUNDS_AT, len(kept), *kept)

    def uncounted(self, reason: str) -> None:
        """Say why the count cannot be kept up now; an empty reason says that it can again.

        Args:
            reason: Cut to `FAULT_BYTES - 1` bytes of UTF-8.
        """
        if self._progress is None or len(self._progress) < FILE_BYTES:
            return
        kept = reason.encode()[: FAULT_BYTES - 1].decode(errors="ignore").encode()
        if self._progress[FAULT_AT : FAULT_AT + len(kept) + 1] == kept + b"\0":
            return
        # The first byte goes last: until then a reader finds no reason rather than half of one.
        self._progress[FAULT_AT] = 0
        rest = kept[1:].ljust(FAULT_BYTES - 1, b"\0")
        self._progress[FAULT_AT + 1 : FAULT_AT + FAULT_BYTES] = rest
        self._progress[FAULT_AT] = kept[0] if kept else 0

    def report(self, value: float | None, steps: int = 0) -> None:
        """As `add`, without stopping at the gate: for what the warm-up computes."""
        self._count += steps
        if self._progress is None:
            return
        if len(self._progress) >= FILE_BYTES:
            if value is not None:
                if self._values < FIRST_VALUES:
                    place = FIRST_AT + 16 * self._values
                    struct.pack_into("<qd", self._progress, place, self._count, value)
                self._values += 1
                self._not_finite += not math.isfinite(value)
                values = self._not_finite, self._count, value
                struct.pack_into("<qqd", self._progress, VALUES_AT + 8, *values)
                # Last, so that a reader never finds fewer values than it says.
                struct.pack_into("<q", self._progress, VALUES_AT, self._values)
            elif not steps:
                self._beats += 1
                struct.pack_into("<q", self._progress, BEATS_AT, self._beats)
        struct.pack_into("<q", self._progress, 0, self._count)

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


def latency_bucket(latency_s: float) -> int:
    """The bucket of a latency; the first and the last hold everything beyond."""
    if not latency_s > LATENCY_LEAST_S:
        return 0
    return min(LATENCY_BUCKETS - 1, int(math.log(latency_s / LATENCY_LEAST_S, LATENCY_STEP)))


def _map(variable: str, made_bytes: int = 0) -> mmap.mmap | None:
    name = os.environ.get(variable)
    if not name:
        return None
    if made_bytes and not Path(name).exists():
        # Whole at once: another process of the job may begin at the same moment.
        made = Path(f"{name}.{os.getpid()}")
        made.write_bytes(bytes(made_bytes))
        try:
            os.link(made, name)
        except FileExistsError:
            pass
        finally:
            made.unlink()
    with Path(name).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
