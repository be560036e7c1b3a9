"""The processes of one job, held by a shim that outlives neither them nor its supervisor."""

import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from advisor.retention import output_bytes
from advisor.runtime.host.beats import beat
from advisor.runtime.host.bounds import ResourceBounds, met_bound
from advisor.runtime.host.cgroup import kill_cgroup, make_cgroup, members, remove_cgroup
from advisor.runtime.host.processes import descendants, is_stopped, marked_pids
from advisor.runtime.jobs.ending import end_until_none, known_children, orphans, signal_if
from advisor.settings import RUNTIME_DIR, python

_SHIM = Path(__file__).with_name("shim.py")
_START_S = 60
_KEPT = ("LD_LIBRARY_PATH", RUNTIME_DIR)
"""Variables of the shim, which carries no mark: it ends last, and by itself."""


class JobProcess:
    """All processes that came of one command.

    Args:
        command: What to run, found by the `PATH` of its own environment.
        folder: Where it runs; None: here.
        environment: All of its variables; `ADVISOR_OUTPUT_MIB` bounds what is kept of its output.
        output: File of what it writes.
        mark: Variables that no other job has; its processes are found by them where its shim was
            killed.
        group: How the name of its control group begins.
        bounds: What it may take of the host, where it has a control group.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        folder: Path | None,
        environment: Mapping[str, str],
        output: Path,
        mark: Mapping[str, str],
        group: str,
        bounds: ResourceBounds,
    ) -> None:
        self._mark, self._cgroup, self._bounds = mark, make_cgroup(group, bounds), bounds
        self._met_bound: str | None = None
        self._status: int | None = None
        self._said: dict[str, str] = {}
        self._line = b""
        # The main thread looks at a job while another thread ends it.
        self._lock = threading.RLock()
        self._is_over = self._is_lost = False
        self._shim = subprocess.Popen(
            [python(), "-I", "-S", str(_SHIM)],
            env={key: environment[key] for key in _KEPT if key in environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        known_children.add(self._shim.pid)
        assert self._shim.stdin is not None
        assert self._shim.stdout is not None
        self._orders, self._replies = self._shim.stdin.fileno(), self._shim.stdout.fileno()
        os.set_blocking(self._replies, False)
        self._start(
            {
                "command": list(command),
                "folder": folder and str(folder),
                "environment": dict(environment),
                "output": str(output),
                "output_bytes": output_bytes(environment),
                "cgroup": self._cgroup and str(self._cgroup),
            }
        )

    @property
    def status(self) -> int | None:
        """Exit code of the first process, negative for a signal; None while it runs."""
        self._listen()
        if self._is_lost and self._status is None:
            # The kernel ends it with its shim.
            self._status = -signal.SIGKILL
        return self._status

    @property
    def over(self) -> bool:
        """Whether nobody is left; from then on nobody is looked for."""
        self._listen()
        if self._is_lost and not self.pids():
            self._status, self._is_over, self._is_lost = self.status, True, False
        return self._is_over

    @property
    def met_bound(self) -> str | None:
        """Which bound of its control group it met, and what to do; None: none, or it has none."""
        if self._cgroup and self._met_bound is None:
            self._met_bound = met_bound(self._cgroup, self._bounds)
        return self._met_bound

    def pids(self) -> list[int]:
        """Living processes of the job."""
        self._listen()
        if self._is_over:
            return []
        if not self._is_lost:
            return descendants(self._shim.pid)
        inside = members(self._cgroup) if self._cgroup else []
        return sorted({*inside, *marked_pids(self._mark), *orphans()})

    def roots(self) -> list[int]:
        """Roots: every process of the job is one of these or a descendant."""
        self._listen()
        return self.pids() if self._is_over or self._is_lost else [self._shim.pid]

    def terminate(self) -> None:
        """Ask every process to end."""
        self._order(b"t")
        if self._is_lost:
            for pid in self.pids():
                signal_if(pid, signal.SIGTERM, self._has)

    def kill(self) -> None:
        """End every process, and those that are forked meanwhile."""
        self._order(b"k")
        if self._is_lost:
            if self._cgroup:
                kill_cgroup(self._cgroup)
            end_until_none(signal.SIGKILL, self.pids, self._has)

    def rouse(self) -> None:
        """Let a shim that somebody has stopped go on."""
        if not (self._is_over or self._is_lost):
            self._shim.send_signal(signal.SIGCONT)

    def kill_stopped(self) -> None:
        """End a shim that is stopped again and again, and then who is left without it."""
        if is_stopped(self._shim.pid):
            self._shim.kill()
            self._shim.wait()
            self.kill()

    def close(self) -> None:
        """Let go of the shim, which ends when nobody is left."""
        with self._lock:
            for file in (self._shim.stdin, self._shim.stdout):
                if file:
                    file.close()
        if self._is_over:
            self._shim.wait()
            known_children.discard(self._shim.pid)
        if self._cgroup:
            # Its counts go with it.
            self._met_bound = self.met_bound
            remove_cgroup(self._cgroup)

    def _start(self, order: dict[str, object]) -> None:
        with suppress(BrokenPipeError):
            os.write(self._orders, json.dumps(order).encode() + b"\n")
        deadline_s = time.monotonic() + _START_S
        while not (self._said or self._is_lost) and time.monotonic() < deadline_s:
            select.select([self._replies], [], [], 1)
            beat()
            self.rouse()
            self._listen()
        if "started" not in self._said:
            self._is_over = True
            self._shim.kill()
            self.close()
            raise OSError(self._said.get("failed", "its shim did not start"))

    def _listen(self) -> None:
        """Take what the shim said."""
        with self._lock:
            while not (self._is_over or self._is_lost):
                try:
                    data = os.read(self._replies, 4096)
                except BlockingIOError:
                    return
                self._take(data)

    def _take(self, data: bytes) -> None:
        if not data:
            self._is_over, self._is_lost = "empty" in self._said, "empty" not in self._said
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            key, _, value = line.decode(errors="replace").partition(" ")
            self._said[key] = value
        if "ended" in self._said:
            self._status = int(self._said["ended"])

    def _order(self, letter: bytes) -> None:
        self._listen()
        self.rouse()
        if not (self._is_over or self._is_lost):
            with suppress(BrokenPipeError):
                os.write(self._orders, letter)

    def _has(self, pid: int) -> bool:
        return pid in self.pids()
