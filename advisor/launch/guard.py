"""Ends the jobs of a launch when its supervisor is killed or hangs: a process of its own.

The shim of a job ends all that came of it when its supervisor is gone, but not in the safe order,
and it does not notice one that hangs. The supervisor writes a byte now and then; when the pipe
closes without a farewell, or nothing comes for half a minute, this process ends whatever carries
the mark of the launch. It answers each byte, so that its supervisor notices a guard that hangs.

Run as `python -P -m advisor.launch.guard SUPERVISOR_PID FOLDER GPU_UUID _SILENCE_S
[PIPE_DIRECTORY [DAEMON_PID]]`; a daemon whose number is given is the launch's own, and ends with
it.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.errors import PartitionError, SurvivorsError
from advisor.files import writing_private
from advisor.launch.folder import LaunchFolder
from advisor.launch.spec import SILENT_S, LaunchStatus
from advisor.runtime.backend import Backend, Control, MpsBackend, UncappedBackend, daemon_pid
from advisor.runtime.job_process import end_marked, helper_children
from advisor.settings import SECRETS, Settings, python

LAUNCH_MARK = "ADVISOR_LAUNCH"
"""Every job of a launch carries the folder of its launch in this variable, so that it is found."""

# A supervisor beats several times a second, also while it waits (advisor.runtime.processes).
_SILENCE_S = 25.0

# One that was stopped is continued then, and has so long to be heard; so it has on a host that
# stood still itself.
CONTINUE_S = 5.0

# A guard that has not answered for so long is replaced; it has nothing else to do.
ANSWER_S = 20.0

_FAREWELL = b"q"

_PR_SET_PDEATHSIG = 1


class ProcessGuard:
    """The supervisor's end of the pipe.

    Args:
        folder: Of the launch; its jobs carry it in `ADVISOR_LAUNCH`.
        environment: For the guard, without secrets and without the mark.
        silence_s: After this time without a beat the supervisor is taken to hang.
        answer_s: After this time without an answer the guard is taken to hang.
    """

    def __init__(
        self,
        folder: Path,
        backend: Backend,
        environment: Mapping[str, str],
        silence_s: float = _SILENCE_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._arguments = [str(os.getpid()), str(folder), backend.gpu.uuid, str(silence_s)]
        if isinstance(backend, MpsBackend):
            pipe_dir = backend.control.pipe_dir
            self._arguments.append(str(pipe_dir))
            if backend.owned and (pid := daemon_pid(pipe_dir)):
                self._arguments.append(str(pid))
        self._environment, self._answer_s = dict(environment), answer_s
        self._request_s: float | None = None
        self._process = self._start()

    def beat(self) -> bool:
        """Say that the supervisor lives; whether the guard was gone, and another one watches."""
        assert self._process.stdout is not None
        with suppress(BlockingIOError):
            if os.read(self._process.stdout.fileno(), 65536):
                self._request_s = None
        waited_s = time.monotonic() - self._request_s if self._request_s else 0.0
        gone = self._process.poll() is not None or waited_s > self._answer_s
        if gone:
            self._process.kill()
            self._process.communicate()
            helper_children.discard(self._process.pid)
            self._request_s, self._process = None, self._start()
        self._write(b".")
        # The first one without an answer: a supervisor that was busy itself asks again here.
        self._request_s = self._request_s or time.monotonic()
        return gone

    def close(self) -> None:
        """The jobs are over: nothing is left to do for the guard."""
        self._write(_FAREWELL)
        with suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=5)
        self._process.kill()
        self._process.wait()
        helper_children.discard(self._process.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [python(), "-P", "-m", "advisor.launch.guard", *self._arguments],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        helper_children.add(process.pid)
        # A guard that was stopped must not stop its supervisor.
        for file in (process.stdin, process.stdout):
            assert file is not None
            os.set_blocking(file.fileno(), False)
        return process

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._process.stdin.fileno(), data)


def main(
    supervisor_pid: str,
    folder: str,
    gpu_uuid: str,
    silence_s: str,
    pipe_dir: str | None = None,
    private_daemon: str | None = None,
) -> None:
    """Wait for the end of the supervisor, which is this process's parent.

    One that was killed before this began is found by its number: the process that adopted this one,
    such as a user's systemd, must not be ended in its place.
    """
    # Where both are stopped, and the supervisor is then killed, this one goes on.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    supervisor = int(supervisor_pid)
    if _farewell(supervisor, float(silence_s)):
        return
    if os.getppid() == supervisor:
        os.kill(supervisor, signal.SIGKILL)
    gpu = Gpu(uuid=gpu_uuid, model="")
    backend: Backend = (
        UncappedBackend(gpu)
        if pipe_dir is None
        else MpsBackend(gpu, Control(Path(pipe_dir), os.environ), owned=False)
    )
    # The next launch on the GPU finds processes that do not end.
    with suppress(SurvivorsError):
        end_marked(backend, {LAUNCH_MARK: folder})
    # The driver's library is not one of this folder.
    put_back = [python(), "-P", "-m", "advisor_profiling.telemetry.nvml", gpu_uuid]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(put_back, check=False, timeout=60)
    # Where its number is another one, a next launch has replaced it.
    if pipe_dir is not None and private_daemon == str(daemon_pid(Path(pipe_dir))):
        with suppress(PartitionError):
            replace(backend, owned=True).close()


def _farewell(supervisor: int, silence_s: float) -> bool:
    """Whether the supervisor ended well; False when it is gone, or silent for too long."""
    while _heard(silence_s) or (_continue(supervisor) and _heard(CONTINUE_S)):
        data = os.read(0, 4096)
        if _FAREWELL in data:
            return True
        if not data:
            return False
        # A supervisor that was killed does not hear it.
        with suppress(BrokenPipeError):
            os.write(1, b".")
    return False


def _heard(within_s: float) -> bool:
    return bool(select.select([0], [], [], within_s)[0])


def _continue(supervisor: int) -> bool:
    """Let a supervisor that was stopped go on; False where it is gone."""
    if os.getppid() != supervisor:
        return False
    os.kill(supervisor, signal.SIGCONT)
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])

LOG = "supervisor.log"


def spawn_supervisor(
    folder: LaunchFolder, settings: Settings, program: str
) -> subprocess.Popen[bytes]:
    """Start the supervisor for a folder, in a session of its own; returns at once.

    A second one for the same folder ends without doing anything.

    Args:
        folder: Of the launch.
        settings: Handed on, secrets by a pipe.
        program: The module that supervises; it knows drivers and stores, which launches do not.

    Raises:
        OSError: it cannot be started.
    """
    with writing_private(folder.path / LOG, "ab") as log:
        process = subprocess.Popen(
            # -P: the current folder may have a module of any name.
            [python(), "-P", "-m", program, str(folder.path)],
            env={k: v for k, v in settings.environment.items() if k not in SECRETS},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    # What is in the environment stays to be read for as long as the process lives.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(settings.secrets()).encode())
    # Where the caller lives longer, nothing stays in the table of processes.
    threading.Thread(target=process.wait, daemon=True).start()
    return process


# How long a supervisor may take from the request to the end, where it is not heard of.
_STOP_S = 30.0


class Stopping:
    """A launch that was asked to stop, from now on."""

    def __init__(self, folder: LaunchFolder) -> None:
        self._folder, self._since_s = folder, time.monotonic()
        self._written_at, self._written_s = "", self._since_s

    def look(self, status: LaunchStatus) -> str | None:
        """End a supervisor that was silent for too long; the message for the log then.

        By a monotonic clock, so a clock that jumps ends no supervisor.

        Raises:
            SurvivorsError: it cannot be reached from here.
        """
        now_s = time.monotonic()
        if status.updated_at != self._written_at:
            self._written_at, self._written_s = status.updated_at, now_s
        if status.over or now_s - self._since_s < _STOP_S or now_s - self._written_s < SILENT_S:
            return None
        pid = end_supervisor(self._folder, status.supervisor_pid)
        return (
            f"the supervisor of {self._folder.launch_id}, process {pid}, did not heed the stop and "
            f"has not been heard of since {self._written_at}: it was killed, and its jobs with it"
        )


def end_supervisor(folder: LaunchFolder, pid: int | None) -> int:
    """Kill the supervisor; the kernel lets its guard and the shims of its jobs go on.

    Raises:
        SurvivorsError: it cannot be reached from here.
    """
    alive = folder.path / "alive"
    with suppress(OSError), os.fdopen(os.pidfd_open(pid or 0), "rb", buffering=0) as supervisor:
        # Looked at when it is pinned: the number may be another process's by now.
        files, alive = Path(f"/proc/{pid or 0}/fd").iterdir(), folder.path / "alive"
        if any(file.exists() and file.samefile(alive) for file in files):
            signal.pidfd_send_signal(supervisor.fileno(), signal.SIGKILL)
            return pid or 0
    raise SurvivorsError(
        f"the supervisor of {folder.launch_id} ({pid}) does not answer and cannot be ended from "
        "here",
        why="it is of another user, or of a container with process numbers of its own",
        fix="end it there with kill -9",
    )
