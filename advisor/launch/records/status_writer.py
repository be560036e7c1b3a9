"""Where a launch stands, kept by its supervisor and written for everybody else."""

import os
import time
from dataclasses import replace
from typing import Any

from advisor.core.gpu import Gpu
from advisor.errors import BusyError
from advisor.formats.moments import now
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import JobStatus, LaunchStatus, State
from advisor.runtime.host.processes import wait_until

_WRITE_S = 1.0
_LAST_WORD_S = 5.0
"""How long the last status is tried: a disk that is full may get free again."""

MOST_WARNINGS = 50

_OF_LAUNCH = [
    "code", "cause", "gpu_uuid", "gpu_model", "units_total", "power_limit_w", "ledger",
    "whole_energy_j", "starts_energy_j", "unwatched_s", "started_at", "supervisor_pid", "warnings",
]  # fmt: skip
"""What stays when another set is started."""


class StatusWriter:
    """The status of a launch.

    A status that cannot be written, as on a full disk, stops nobody: jobs are watched all the same,
    and the next one is tried.

    Attributes:
        status: As it is now, written or not.
    """

    def __init__(self, folder: LaunchFolder, spec: LaunchSpec) -> None:
        self._folder, self._spec = folder, spec
        self._written_s = -_WRITE_S
        self._lost = False
        self.status = replace(first_status(spec, now()), supervisor_pid=os.getpid())

    def begin_pair(self, number: int) -> None:
        """A set is started; what the one before did is in its observation."""
        kept = {name: getattr(self.status, name) for name in _OF_LAUNCH}
        self.status = replace(first_status(self._spec, now(), number=number), **kept)
        self.enter("starting")

    def enter(self, state: State, **changes: Any) -> None:
        """Change the state; everybody sees it at once."""
        self.status = replace(self.status, state=state, **changes)
        self._write()

    def update(self, **changes: Any) -> None:
        """Change values; written about once a second."""
        self.status = replace(self.status, **changes)
        if time.monotonic() - self._written_s >= _WRITE_S:
            self._write()

    def warn(self, *texts: str) -> None:
        """Add warnings."""
        more = (*self.status.warnings, *texts)[:MOST_WARNINGS]
        self.status = replace(self.status, warnings=more)

    def blame(self, code: str, cause: str) -> None:
        """Keep what went wrong first."""
        if self.status.code is None:
            self.status = replace(self.status, code=code, cause=cause)

    def close(self, state: State) -> None:
        """The last word."""
        self.status = replace(self.status, state=state, ended_at=now())
        self._folder.free_reserve()
        wait_until(self._write, _LAST_WORD_S, poll_s=0.5)

    def _write(self) -> bool:
        self._written_s = time.monotonic()
        self.status = replace(self.status, updated_at=now())
        try:
            self._folder.write_status(self.status)
        except OSError as error:
            if not self._lost:
                self._lost = True
                self.warn(f"the status could not be written for a while: {error.strerror}")
            return False
        return True


def close_unclaimed(folder: LaunchFolder) -> None:
    """End a launch whose supervisor never began, so that none begins any more."""
    if folder.claimed():
        return
    try:
        with folder.supervising():
            StatusWriter(folder, folder.read_spec()).close("stopped")
    except BusyError:
        # One has begun just now: it sees the request to stop.
        return


def first_status(
    spec: LaunchSpec, updated_at: str, gpu: Gpu | None = None, number: int = 0
) -> LaunchStatus:
    """Where a launch stands before anything of its set `number` has begun."""
    pair = spec.pairs[number]
    forecast = pair.forecast
    expected = forecast.jobs if forecast else (None,) * len(pair.parts)
    return LaunchStatus(
        launch_id=spec.launch_id,
        state="accepted",
        updated_at=updated_at,
        gpu_uuid=gpu and gpu.uuid,
        gpu_model=gpu and gpu.model,
        units_total=gpu and gpu.units_total,
        power_limit_w=gpu and gpu.power_limit_w,
        pair_number=number,
        pairs=len(spec.pairs),
        sharing=pair.split.sharing,
        jobs=tuple(
            JobStatus(
                job=job.name,
                rate_unit=job.progress.unit,
                share_percent=share,
                predicted_rate=known and known.rate,
            )
            for job, share, known in zip(pair.jobs, pair.split.shares, expected, strict=True)
        ),
        forecast=forecast,
        predicted_power_w=forecast and forecast.power_w,
        warnings=spec.notes,
    )
