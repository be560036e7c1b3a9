"""Keeps what the jobs of a set do together, while they run: a kill costs the last seconds."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from advisor.core.gpu import Gpu
from advisor.core.observations import Observation
from advisor.errors import AdvisorError
from advisor.launch.monitor.set_monitor import SetMonitor
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.observed import DRAFT, append_observation, draft_observations
from advisor.launch.records.status import State
from advisor.launch.supervisor.observe import observe
from advisor.runtime.host.beats import beating

DRAFT_S = 5.0
"""What is not known for good is written so often."""

SURE_S = 30.0
"""What computes beside its limit is found in less: until then a stretch that is over may turn out
to be of no use."""


class Keeper:
    """The observations of jobs whose gates opened at `started_at` (ISO 8601, UTC).

    A stretch is kept for good soon after its end. The first one, which says what came after it, and
    the one that lasts are a draft until the end of all.

    Args:
        remember: Keeps an observation where others find it; may fail without harm.
        warn: Takes what could not be kept.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        monitor: SetMonitor,
        gpu: Gpu,
        started_at: str,
        remember: Callable[[Observation], None],
        warn: Callable[[str], None],
    ) -> None:
        self._folder, self._monitor, self._gpu = folder, monitor, gpu
        self._started_at, self._remember, self._warn = started_at, remember, warn
        self._running = monitor.running_numbers()
        self._drafted_s = time.monotonic()
        self._kept: list[Observation] = []

    def look(self) -> None:
        """Write what is due: at each end or join, and every few seconds."""
        now_s, running = time.monotonic(), self._monitor.running_numbers()
        changed = running != self._running
        if not changed and now_s - self._drafted_s < DRAFT_S:
            return
        self._running, self._drafted_s = running, now_s
        # Read only where the supervisor is killed, and the jobs with it.
        failed = any(one.code for one in self._monitor.jobs)
        found = self._observe("failed" if failed else "stopped")
        # On a full disk all wait: the room that was reserved is for the end.
        with suppress(OSError):
            for one in found:
                if one.stretch and self._is_sure(one, now_s):
                    append_observation(self._folder.path, one)
                    self._kept.append(one)
            rest = [one for one in found if one not in self._kept]
            draft_observations(self._folder.path, rest, durable=changed)

    def close(self, state: State) -> None:
        """Keep all that is not kept yet; the jobs are over."""
        found = self._observe(state)
        try:
            for one in found:
                self._append(one)
            (self._folder.path / DRAFT).unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"the observation could not be written: {error.strerror}")
        # Only now: while jobs run, who watches them waits for no database.
        for one in (*self._kept, *found):
            try:
                beating(partial(self._remember, one))
            except (AdvisorError, OSError) as error:
                # It is in the folder, from where it can be brought in.
                self._warn(f"the observation is not in the store: {error}")

    def _observe(self, state: State) -> tuple[Observation, ...]:
        return observe(
            self._monitor,
            self._gpu,
            launch_id=self._folder.launch_id,
            started_at=self._started_at,
            state=state,
            without={one.stretch for one in self._kept},
        )

    def _is_sure(self, seen: Observation, now_s: float) -> bool:
        return now_s - self._monitor.account.stretches[seen.stretch].seen_s >= SURE_S

    def _append(self, seen: Observation) -> None:
        try:
            append_observation(self._folder.path, seen)
        except OSError:
            # A disk that is full: hours of running are worth the room that was kept for this.
            self._folder.free_reserve()
            append_observation(self._folder.path, seen)
