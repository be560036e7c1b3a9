"""Reads what a running job says of its results and its latencies."""

import math
import struct
from collections.abc import Sequence
from pathlib import Path

from advisor.core.job import ResultsSettings
from advisor.core.results import Reported
from advisor.progress import (
    BEATS_AT,
    BOUNDS_AT,
    FAULT_AT,
    FAULT_BYTES,
    FILE_BYTES,
    FIRST_AT,
    FIRST_VALUES,
    LATENCIES_AT,
    LATENCY_BUCKETS,
    LATENCY_LEAST_S,
    LATENCY_STEP,
    MOST_BOUNDS,
    VALUES_AT,
)
from advisor.runtime.jobs.matching import OutputMatches
from advisor.runtime.jobs.output import number_of


class ReportFile:
    """The values in `ADVISOR_PROGRESS_FILE`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)

    def read(self) -> Reported:
        """All that the job reported since it started."""
        self._file.seek(0)
        return parse_reported(self._file.read(LATENCIES_AT))

    def close(self) -> None:
        """Let go of the file, into which the job may go on writing."""
        self._file.close()


class ReportedOutput:
    """A pattern matched against each line of the job's output; the n-th match counts as n."""

    def __init__(self, path: Path, pattern: str) -> None:
        self._matches = OutputMatches(path, pattern)
        self._reported = Reported()

    def read(self) -> Reported:
        """All that the job reported since it started."""
        for match in self._matches.read():
            value, known = number_of(match.group(match.re.groups)), self._reported
            first = (*known.first, (known.count + 1, value))[:FIRST_VALUES]
            wrong = known.not_finite + (not math.isfinite(value))
            self._reported = Reported(first, known.count + 1, wrong, value)
        return self._reported

    def close(self) -> None:
        """Let go of the output; values behind the last `read` stay unknown."""
        self._matches.close()


def parse_reported(data: bytes) -> Reported:
    """The values in the beginning of a progress file; none where it is too short for them."""
    if len(data) < LATENCIES_AT:  # an emptied file is the counter's fault to name
        return Reported()
    count, not_finite, _, last = struct.unpack_from("<qqqd", data, VALUES_AT)
    kept = range(min(max(count, 0), FIRST_VALUES))
    first = tuple(struct.unpack_from("<qd", data, FIRST_AT + 16 * n) for n in kept)
    return Reported(first, count, not_finite, last if count else None)


def open_reports(
    results: ResultsSettings, progress_path: Path, output_path: Path
) -> ReportFile | ReportedOutput:
    """Where the values of a job are read; both files must exist."""
    if results.pattern is not None:
        return ReportedOutput(output_path, results.pattern)
    return ReportFile(progress_path)


def read_latencies(progress_path: Path) -> tuple[int, ...]:
    """How many requests fell into each bucket so far; empty where the file holds none."""
    data = progress_path.read_bytes()
    if len(data) < FILE_BYTES:
        return ()
    return struct.unpack_from(f"<{LATENCY_BUCKETS}q", data, LATENCIES_AT)


def read_bounds_ms(progress_path: Path) -> tuple[float, ...]:
    """Bounds of the buckets that latencies came in, ms; empty where these are as fine as ours."""
    data = progress_path.read_bytes()
    if len(data) < FILE_BYTES:
        return ()
    (count,) = struct.unpack_from("<q", data, BOUNDS_AT)
    kept = min(max(count, 0), MOST_BOUNDS)
    return tuple(1000 * bound for bound in struct.unpack_from(f"<{kept}d", data, BOUNDS_AT + 8))


def read_beats(progress_path: Path) -> int:
    """How often the job said that it lives and has nothing to do; 0 where it never did."""
    with progress_path.open("rb", buffering=0) as file:
        file.seek(BEATS_AT)
        data = file.read(8)
    return struct.unpack("<q", data)[0] if len(data) == 8 else 0


def read_fault(progress_path: Path) -> str:
    """Why the job is not counted now; empty while it is, and for a file of 8 bytes."""
    with progress_path.open("rb", buffering=0) as file:
        return parse_fault(file.read(FAULT_AT + FAULT_BYTES))


def parse_fault(data: bytes) -> str:
    """The same in the beginning of a progress file."""
    text = data[FAULT_AT : FAULT_AT + FAULT_BYTES]
    return text.partition(b"\0")[0].decode(errors="replace")


def percentile_ms(before: tuple[int, ...], after: tuple[int, ...], percent: float) -> float | None:
    """Latency that `percent` of the requests between two readings did not exceed, ms.

    The middle of the bucket it falls into, so within 2.5 %; None without requests.
    """
    counts = [now - then for then, now in zip(before, after, strict=False)]
    total, seen = sum(counts), 0
    if total <= 0:
        return None
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= total * percent / 100:
            return 1000 * LATENCY_LEAST_S * LATENCY_STEP ** (bucket + 0.5)
    return None


def range_ms(percentile: float, bounds_ms: Sequence[float]) -> tuple[float, float]:
    """Between which latencies a percentile lies: the bounds of the bucket that it fell into.

    Of a bucket that is as narrow as ours, or of which nothing is told, those of ours.
    """
    low, high = percentile / LATENCY_STEP**0.5, percentile * LATENCY_STEP**0.5
    if not bounds_ms:
        return low, high
    # Which of two buckets it fell into is not known where ours lies across their bound.
    least = max((bound for bound in bounds_ms if bound <= low), default=0.0)
    return min(low, least), max(high, min(bound for bound in bounds_ms if bound >= high))
