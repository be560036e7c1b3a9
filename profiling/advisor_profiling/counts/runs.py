"""Runs one command to its end at each of many numbers of SMs, several at a time."""

import time
from collections import deque
from collections.abc import Collection, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import MEMORY_PART, Gpu, Share, percent_for_units
from advisor.core.job import Job
from advisor.errors import AdvisorError
from advisor.runtime.backend import Backend
from advisor.runtime.running_job import RunningJob, prove

AT_ONCE = 8
"""Most processes at a time."""

LONGEST_S = 180
"""A process that takes longer is ended."""

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that was run at a number of SMs.

    Attributes:
        output: All that it wrote, if it ended well.
        fault: Why there is nothing to believe; empty where it ended well.
    """

    units: int
    output: str = ""
    fault: str = ""


def processes_at_once(backend: Backend, memory_mib: int) -> int:
    """How many processes that need so much GPU memory each may run at a time."""
    room = MEMORY_PART * (backend.gpu.memory_mib or memory_mib) // memory_mib
    return max(1, min(AT_ONCE, backend.max_clients, int(room)))


def run_at_counts(
    job: Job,
    counts: Collection[int],
    backend: Backend,
    base: Mapping[str, str],
    folder: Path,
    at_once: int,
) -> Generator[Ended]:
    """Each count as its process ends; what still runs when the generator is closed is ended.

    The command ends by itself. Each limit is proven before a start; `base` has none.

    Raises:
        PartitionError: what enforces the limits is gone.
    """
    waiting, running = deque(counts), dict[int, _Process]()
    try:
        while waiting or running:
            if waiting and len(running) < at_once:
                units = waiting.popleft()
                try:
                    running[units] = _start(job, units, backend, base, folder)
                except AdvisorError as error:
                    backend.check_alive()
                    yield Ended(units, fault=str(error))
            for units in [units for units, process in running.items() if process.over()]:
                yield running.pop(units).end(units)
            time.sleep(_POLL_S)
    finally:
        # All of them, also when one cannot be ended in the safe order.
        with ExitStack() as stops:
            for process in running.values():
                stops.callback(process.job.stop)


class _Process:
    """A process that was started, and when."""

    def __init__(self, job: RunningJob) -> None:
        self.job, self._started = job, time.monotonic()

    def over(self) -> bool:
        """Whether it has ended, or had its time."""
        late = time.monotonic() - self._started > LONGEST_S
        return late or self.job.exit_code is not None

    def end(self, units: int) -> Ended:
        """Stop it; what it wrote, or the last line of that where it failed or was too slow."""
        code = self.job.exit_code
        self.job.stop()
        if code == 0:
            return Ended(units, output=self.job.output.read_text(errors="replace"))
        last = self.job.tail().rpartition("\n")[2] or "it wrote nothing"
        if code is None:
            return Ended(units, fault=f"did not end within {LONGEST_S} s: {last}")
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return Ended(units, fault=f"ended with {how}: {last}")


def _start(
    job: Job, units: int, backend: Backend, base: Mapping[str, str], folder: Path
) -> _Process:
    share = Share(percent_for_units(units, _total(backend.gpu)))
    # A second try must not find the output of the first.
    own = folder / f"{units}-{time.monotonic_ns()}"
    own.mkdir(parents=True)
    return _Process(prove(job, share, backend, base, own).start())


def _total(gpu: Gpu) -> int:
    assert gpu.units_total is not None  # known before a back-end is opened
    return gpu.units_total
