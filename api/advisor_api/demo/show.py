"""One launch of a demonstration, from its folder to its observation, as a supervisor does."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from advisor.core.gpu import Share
from advisor.errors import AdvisorError
from advisor.formats.moments import now, to_exact_text, to_text
from advisor.launch.folder import MOST_WARNINGS, append_observation, create_folder, first_status
from advisor.launch.observe import ForecastCheck, observe, shown
from advisor.launch.overview import HistoryKeeper, write_history
from advisor.launch.set_monitor import SetMonitor
from advisor.launch.spec import LaunchSpec
from advisor.launch.status import LaunchStatus, State
from advisor.runtime.backend import Backend, Proof, Sight
from advisor.runtime.beats import at_once
from advisor.runtime.running_job import RunningJob
from advisor_profiling.testbed.replay import ReplayProcess, ReplayTestbed

WRITE_S = 1.0
"""As a supervisor: real seconds."""

STEP_S = 60.0
"""Of its history, virtual seconds."""


class RecordedJob:
    """A recorded job; it runs until somebody ends it."""

    def __init__(self, process: ReplayProcess, folder: Path) -> None:
        self.job, self.share, self.granted = process.job, process.share, process.granted
        self.output = folder / "output.log"
        self.exit_code: int | None = None
        self.seen_pids = frozenset[int]()
        self.uncounted: AdvisorError | None = None
        self.keeps_files = False
        # What was recorded the record says itself.
        self._count, self.latencies = process.count, process.latencies
        self.reported = process.reported
        self.go, self.leave, self.stop = process.go, process.leave, process.stop

    def as_running(self) -> RunningJob:
        """What a monitor asks of a job is all here."""
        return cast("RunningJob", self)

    def count(self, *, last: bool = False) -> float:
        """Progress so far; a record has no unfinished line."""
        return self._count()

    def latency_bounds_ms(self) -> tuple[float, ...]:
        """Two percentiles of a record are known, and no buckets."""
        return ()

    def beats(self) -> int:
        """It tells none: it always computes."""
        return 0

    def proof(self) -> Proof:
        """Its limit was proven when it was recorded."""
        return "server"

    def check(self) -> None:
        """A record has no errors."""

    def check_client(self) -> None:
        """Its limit was proven when it was recorded."""

    def check_variables(self) -> None:
        """It has none."""

    def sight(self) -> Sight | None:
        """No driver names a record."""
        return None

    def pids(self) -> list[int]:
        """No process: it plays."""
        return []

    def roots(self) -> list[int]:
        """As `pids`."""
        return []

    def close(self) -> None:
        """It has no files."""

    def tail(self) -> str:
        """A record has no output."""
        return ""


class RecordedBackend:
    """What limited the recorded jobs; it cannot break any more."""

    mode = "mps"

    def as_backend(self) -> Backend:
        """What a monitor asks of a back-end is all here."""
        return cast("Backend", self)

    def spoiled(self) -> bool:
        """Never: who failed when it was recorded is not on record."""
        return False

    def given_percent(self) -> float | None:
        """No server is there to give one."""
        return None


class Show:
    """A launch that plays on a testbed, whose clock it goes by.

    Args:
        root: Folder of all launches.
        spec: What is launched; its windows are on record.
        testbed: Of its GPU.
        moment: The moment of the day that plays now.
    """

    def __init__(
        self, root: Path, spec: LaunchSpec, testbed: ReplayTestbed, moment: Callable[[], datetime]
    ) -> None:
        self._testbed, self._moment = testbed, moment
        self._pair = spec.pairs[0]
        self._folder = create_folder(root, spec)
        self._held = ExitStack()
        self._held.enter_context(self._folder.supervising())
        self._begun_s, self._written_s = testbed.clock.now_s(), 0.0
        self._begun_at = moment()
        self._stretches_at = [self._begun_at]
        self._ended_at: dict[int, str] = {}
        self.jobs = [self._job(n) for n in range(len(self._pair.jobs))]
        self._monitor = SetMonitor(
            self._pair,
            [job.as_running() for job in self.jobs],
            RecordedBackend().as_backend(),
            testbed.source,
            spec,
            testbed.clock.now_s,
            at_once,
        )
        self._check = ForecastCheck(self._pair)
        self._history = HistoryKeeper(to_exact_text(self._begun_at), STEP_S)
        self._status = replace(
            first_status(spec, now(), testbed.gpu), started_at=to_text(self._begun_at)
        )
        self._enter("running")
        # What runs has a speed with its first look: it is not to be shown for long without one.
        self._written_s = 0.0

    def look(self) -> None:
        """One look at everything, as a supervisor's."""
        monitor = self._monitor
        monitor.look()
        more = len(monitor.account.stretches) - len(self._stretches_at)
        self._stretches_at += [self._moment()] * more
        warnings = (*self._status.warnings, *monitor.alarms(), *self._check.warnings(monitor))
        self._status = self._filled(warnings=warnings[:MOST_WARNINGS])
        if self._history.add(self._testbed.clock.now_s() - self._begun_s, self._status):
            write_history(self._folder, self._history.history)
        if time.monotonic() - self._written_s >= WRITE_S:
            self._write()

    def end(self) -> None:
        """All jobs that still run are stopped, as when their time is up."""
        self._monitor.stop()
        state: State = "stopped"
        self._status = self._filled(ended_at=to_text(self._moment()))
        for one in observe(
            self._monitor,
            self._testbed.gpu,
            launch_id=self._folder.launch_id,
            started_at=to_exact_text(self._begun_at),
            state=state,
        ):
            at = to_exact_text(self._stretches_at[one.stretch])
            append_observation(self._folder.path, replace(one, started_at=at))
        self._enter(state)
        self.close()

    def close(self) -> None:
        """Let go of the folder; as it stands is how it is found."""
        self._held.close()

    def _job(self, n: int) -> RecordedJob:
        place = self._folder.path / self._pair.places(0)[n]
        process = self._testbed.start(self._pair.jobs[n], Share(self._pair.split.shares[n]))
        assert isinstance(process, ReplayProcess)
        return RecordedJob(process, place)

    def _filled(self, **more: Any) -> LaunchStatus:
        fields = shown(self._monitor)
        for n, job in enumerate(fields["jobs"]):
            if job.ended_at:
                self._ended_at.setdefault(n, to_text(self._moment()))
        fields["jobs"] = tuple(
            replace(job, ended_at=self._ended_at.get(n)) for n, job in enumerate(fields["jobs"])
        )
        return replace(self._status, **fields, **more)

    def _enter(self, state: State) -> None:
        self._status = replace(self._filled(), state=state)
        self._write()

    def _write(self) -> None:
        # Of this moment, not of the one that plays: who reads it asks whether it is old.
        self._status = replace(self._status, updated_at=now())
        self._folder.write_status(self._status)
        self._written_s = time.monotonic()
