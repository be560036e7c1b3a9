"""The guard of a launch, and who ends a supervisor: on a clock of its own, without a process."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL
from typing import Any
from unittest.mock import Mock

import pytest
from ended_launches import PAIR
from scripted_jobs import GPU, Clock

from advisor.core.gpu import Gpu
from advisor.errors import AdvisorError, PartitionError, SurvivorsError
from advisor.launch import guard
from advisor.launch.folder import LaunchFolder, create_folder
from advisor.launch.guard import ANSWER_S, CONTINUE_S, LAUNCH_MARK, ProcessGuard, Stopping
from advisor.launch.spec import LaunchSpec, LaunchStatus
from advisor.runtime.backend import Control, MpsBackend, UncappedBackend
from advisor.runtime.job_process import known_children

SUPERVISOR, DAEMON = 41, 77

Watching = Callable[..., tuple[Mock, Mock]]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    """Run a guard that hears this, one after the other; None: a silence for as long as it listens.

    Returns:
        What it asked of the system, and what it ended.
    """

    def run(
        *hears: bytes | None,
        parent: int = SUPERVISOR,
        arguments: tuple[str, ...] = (),
        is_heard: bool = True,
        survives: AdvisorError | None = None,
    ) -> tuple[Mock, Mock]:
        system, ended = Mock(environ={}), Mock(side_effect=survives)
        system.getppid.return_value = parent
        system.select.side_effect = [([] if heard is None else [0], [], []) for heard in hears]
        system.read.side_effect = [heard for heard in hears if heard is not None]
        system.write.side_effect = None if is_heard else BrokenPipeError
        for name in ("os", "select", "ctypes"):
            monkeypatch.setattr(guard, name, system)
        monkeypatch.setattr(guard, "end_marked", ended)
        guard.main(str(SUPERVISOR), "/launches/l", "GPU-1", "25", *arguments)
        return system, ended

    return run


CONTINUED, KILLED = (SUPERVISOR, SIGCONT), (SUPERVISOR, SIGKILL)


@pytest.mark.parametrize(
    ("hears", "host", "signals", "answers", "are_ended"),
    [
        ((b".", b"..", b"q"), {}, [], 2, False),
        ((b".q",), {}, [], 0, False),
        # It is gone without a farewell.
        ((b".", b""), {}, [KILLED], 1, True),
        ((b".", b""), {"is_heard": False}, [KILLED], 1, True),
        # It hangs; or it was stopped, and goes on once it is told to.
        ((b".", None, None), {}, [CONTINUED, KILLED], 1, True),
        ((b".", None, b".", b"q"), {}, [CONTINUED], 2, False),
        # Another process has adopted the guard, such as a user's systemd, which lives on.
        ((b"",), {"parent": 1}, [], 0, True),
        ((None,), {"parent": 1}, [], 0, True),
    ],
)
def test_jobs_are_ended_where_their_supervisor_is_gone_or_hangs_and_only_then(
    watching: Watching,
    hears: tuple[bytes | None, ...],
    host: dict[str, Any],
    signals: list[tuple[int, int]],
    answers: int,
    are_ended: bool,
) -> None:
    system, ended = watching(*hears, **host)
    assert [call.args for call in system.kill.call_args_list] == signals
    assert [call.args for call in system.write.call_args_list] == [(1, b".")] * answers
    listened_s = {call.args[-1] for call in system.select.call_args_list}
    assert listened_s == ({25.0, CONTINUE_S} if CONTINUED in signals else {25.0})
    # Where both are stopped and the supervisor is killed, the guard goes on.
    assert system.CDLL(None).prctl.call_args.args == (1, SIGCONT)
    of_launch = UncappedBackend(Gpu(uuid="GPU-1", model="")), {LAUNCH_MARK: "/launches/l"}
    assert [call.args for call in ended.call_args_list] == [of_launch] * are_ended


@pytest.mark.parametrize("survives", [None, SurvivorsError("one does not end")])
@pytest.mark.parametrize(
    ("number", "is_own"), [([str(DAEMON)], True), ([str(DAEMON + 1)], False), ([], False)]
)
def test_the_daemon_of_the_launch_ends_with_its_jobs_and_no_other(
    watching: Watching,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    number: list[str],
    is_own: bool,
    survives: AdvisorError | None,
) -> None:
    """Also where a job does not end, and where the daemon does not answer."""
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(str(DAEMON))
    closed: list[bool] = []

    def close(backend: MpsBackend) -> None:
        closed.append(backend.owned)
        raise PartitionError("nobody answers")

    monkeypatch.setattr(MpsBackend, "close", close)
    _, ended = watching(b"", arguments=(str(tmp_path), *number), survives=survives)
    backend, _ = ended.call_args.args
    assert (backend.mode, backend.control.pipe_dir, backend.owned) == ("mps", tmp_path, False)
    assert closed == [True] * is_own


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(guard, "time", found)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """In the place of `Popen`: a guard that answers, as its supervisor has it."""
    system = Mock(wraps=os, read=Mock(return_value=b"."), set_blocking=Mock(), write=Mock())
    guards = [Mock(pid=10_000_000 + n) for n in range(5)]
    start = Mock(side_effect=guards, guards=guards, system=system)
    parts = Mock(Popen=start, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(guard, "os", system)
    monkeypatch.setattr(guard, "subprocess", parts)
    return start


@pytest.mark.parametrize(
    ("owned", "more"), [(None, []), (True, ["{}", str(DAEMON)]), (False, ["{}"])]
)
def test_a_guard_knows_whom_it_watches_and_which_daemon_is_theirs(
    owned: bool | None, more: list[str], started: Mock, tmp_path: Path
) -> None:
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(str(DAEMON))
    mps = MpsBackend(GPU, Control(tmp_path, {}), owned=bool(owned))
    backend = UncappedBackend(GPU) if owned is None else mps
    own = ProcessGuard(Path("/launches/l"), backend, {"PATH": "/bin"}, silence_s=9.0)
    (command,), options = started.call_args
    told = [str(os.getpid()), "/launches/l", "GPU-1", "9.0", *(w.format(tmp_path) for w in more)]
    assert command[1:] == ["-P", "-m", guard.__name__, *told]
    assert (options["env"], options["start_new_session"]) == ({"PATH": "/bin"}, True)
    # A guard that was stopped must not stop its supervisor.
    assert [call.args[1] for call in started.system.set_blocking.call_args_list] == [False, False]
    assert 10_000_000 in known_children
    own.close()
    assert 10_000_000 not in known_children


@pytest.mark.parametrize(
    ("looks", "replaced"),
    [
        # Seconds since the look before, and what its guard does meanwhile.
        ([(ANSWER_S + 1, "answers")] * 5, [False] * 5),
        ([(0, "is silent"), (ANSWER_S + 0.1, "is silent")] * 2, [False, True] * 2),
        ([(0, "answers"), (0.1, "is gone"), (0.1, "answers")], [False, True, False]),
        # A supervisor that was busy itself has not asked meanwhile.
        ([(0, "answers"), (0, "answers"), (3 * ANSWER_S, "answers")], [False] * 3),
        ([(3 * ANSWER_S, "is silent"), (ANSWER_S, "is silent")], [False, False]),
    ],
)
def test_a_guard_that_is_gone_or_hangs_is_replaced_and_no_other(
    clock: Clock, started: Mock, looks: list[tuple[float, str]], replaced: list[bool]
) -> None:
    own, found = ProcessGuard(Path("/launches/l"), UncappedBackend(GPU), {}), list[bool]()
    for passed_s, does in looks:
        clock.sleep(passed_s)
        now = started.guards[started.call_count - 1]
        now.poll.return_value = -9 if does == "is gone" else None
        started.system.read.side_effect = BlockingIOError if does == "is silent" else None
        found.append(own.beat())
    assert found == replaced
    *before, last = started.guards[: started.call_count]
    assert [one.kill.called for one in (*before, last)] == [True] * sum(replaced) + [False]
    assert started.system.write.call_count == len(looks)
    assert {call.args[1] for call in started.system.write.call_args_list} == {b"."}
    # One that does not heed its farewell, or that nobody reads, is killed.
    started.system.write.side_effect = BrokenPipeError
    last.communicate.side_effect = subprocess.TimeoutExpired("guard", 5)
    own.close()
    assert started.system.write.call_args.args[1] == b"q"
    assert (last.kill.called, last.wait.called) == (True, True)
    assert known_children.isdisjoint(one.pid for one in started.guards)


@pytest.fixture
def folder(tmp_path: Path) -> LaunchFolder:
    spec = LaunchSpec(launch_id="20260131-120000-3f2a91", gpu="0", pairs=(PAIR,))
    return create_folder(tmp_path / "launches", spec)


@pytest.mark.parametrize(
    ("state", "heard_until_s", "killed_s"),
    [
        ("running", 0, 30),
        # It is heard of: its jobs take their time to end.
        ("running", 25, 35),
        ("running", 100, None),
        ("stopped", 0, None),
    ],
)
def test_a_supervisor_that_heeds_no_stop_is_ended_where_nobody_hears_of_it(
    folder: LaunchFolder,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    state: Any,
    heard_until_s: int,
    killed_s: int | None,
) -> None:
    monkeypatch.setattr(guard, "end_supervisor", Mock(return_value=SUPERVISOR))
    status = LaunchStatus(launch_id="l", state=state, updated_at="", supervisor_pid=SUPERVISOR)
    stopping, said = Stopping(folder), dict[int, str | None]()
    for passed_s in range(60):
        heard_s = min(passed_s, heard_until_s)
        said[passed_s] = stopping.look(replace(status, updated_at=f"{heard_s}"))
        clock.sleep(1)
    assert next((second for second, text in said.items() if text), None) == killed_s
    if killed_s is not None:
        assert f"process {SUPERVISOR}, did not heed the stop" in str(said[killed_s])
        assert f"heard of since {heard_until_s}: it was killed" in str(said[killed_s])


def test_nobody_but_the_supervisor_is_killed(
    folder: LaunchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be that of another process by now; whoever has its lock open is it."""
    signals = Mock(SIGKILL=SIGKILL)
    monkeypatch.setattr(guard, "signal", signals)
    with folder.supervising():
        assert guard.end_supervisor(folder, os.getpid()) == os.getpid()
    assert signals.pidfd_send_signal.call_args.args[1] == SIGKILL
    for pid in (os.getpid(), None):
        with pytest.raises(SurvivorsError, match="does not answer and cannot be ended from here"):
            guard.end_supervisor(folder, pid)
    assert signals.pidfd_send_signal.call_count == 1
