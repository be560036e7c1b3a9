"""Recorded jobs and what limited them, in the place of those that a launch starts and watches."""

from pathlib import Path
from typing import cast

from advisor.core.results import Reported
from advisor.runtime.backends.backend import Backend, Proof, Sight
from advisor.runtime.jobs.running_job import RunningJob
from advisor_profiling.testbed.replay import ReplayProcess


class RecordedJob:
    """A recorded job; it runs until somebody ends it."""

    def __init__(self, process: ReplayProcess, folder: Path) -> None:
        self._process = process
        self.job, self.share, self.granted = process.job, process.share, process.granted
        self.output = folder / "output.log"
        self.exit_code: int | None = None

    def as_running(self) -> RunningJob:
        """What a monitor asks of a job is all here."""
        return cast("RunningJob", self)

    def count(self) -> float:
        return self._process.count()

    def latencies(self) -> tuple[int, ...]:
        return self._process.latencies()

    def latency_bounds_ms(self) -> tuple[float, ...]:
        """Two percentiles of a record are known, and no buckets."""
        return ()

    def beats(self) -> int:
        """It tells none: it always computes."""
        return 0

    def reported(self) -> Reported:
        return self._process.reported()

    def proof(self) -> Proof:
        """Its limit was proven when it was recorded."""
        return "server"

    def go(self) -> None:
        self._process.go()

    def leave(self) -> None:
        self._process.leave()

    def stop(self) -> None:
        self._process.stop()

    def check(self) -> None:
        """A record has no errors."""

    def check_limit(self) -> None:
        """Its limit was proven when it was recorded."""

    def check_variables(self) -> None:
        """It has none."""

    def sight(self) -> Sight | None:
        """No driver names a record."""
        return None

    def pids(self) -> list[int]:
        return []

    def roots(self) -> list[int]:
        return []

    def tail(self) -> str:
        return ""


class RecordedBackend:
    """What limited the recorded jobs; it cannot break any more."""

    mode = "mps"

    def as_backend(self) -> Backend:
        """What a monitor asks of a back-end is all here."""
        return cast("Backend", self)

    def spoiled(self) -> bool:
        return False

    def given_percent(self) -> float | None:
        return None
