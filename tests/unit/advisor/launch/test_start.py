"""Gates that open together, and what is set before a job or a supervisor starts."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest
from ended_launches import PAIR
from hypothesis import given, strategies as st
from scripted_jobs import GPU, Clock

from advisor.core.gpu import HOLDERS, TIME_SLICED, Gpu, Split
from advisor.core.job import Job
from advisor.core.records import SETTLE_S
from advisor.errors import AdvisorError, NoSplitError, PartitionError, SurvivorsError
from advisor.launch import guard, set_monitor
from advisor.launch.folder import LaunchFolder, create_folder
from advisor.launch.guard import ANSWER_S, CONTINUE_S, LAUNCH_MARK, ProcessGuard, Stopping
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec, LaunchStatus
from advisor.runtime import processes
from advisor.runtime.backend import Control, MpsBackend, UncappedBackend
from advisor.runtime.job_process import helper_children
from advisor.settings import read_settings

SETS = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.floats(1e-4, 1e4)), min_size=1, max_size=7
)


def opened(jobs: list[tuple[str, float | None]]) -> list[float]:
    clock, at_s = Clock(0.0), [-1.0] * len(jobs)

    def job(n: int, name: str) -> Any:
        def go() -> None:
            at_s[n] = clock.now_s

        return SimpleNamespace(job=SimpleNamespace(name=name), go=go)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_monitor, "time", clock)
        all_of = [job(n, name) for n, (name, _) in enumerate(jobs)]
        set_monitor.open_gates(cast("Any", all_of), [rate for _, rate in jobs])
    return at_s


@given(SETS)
def test_no_two_copies_begin_together_and_all_do_soon(jobs: list[tuple[str, float | None]]) -> None:
    at_s = opened(jobs)
    for name in "ab":
        own = [moment for (job, _), moment in zip(jobs, at_s, strict=True) if job == name]
        assert len({*own}) == len(own)
        assert own[:1] in ([], [0.0])
    assert 0 <= max(at_s) < SETTLE_S


def test_copies_are_a_part_of_a_step_apart() -> None:
    assert opened([("a", 1.5), ("a", 1.5), ("b", None)]) == pytest.approx([0, 1 / 3, 0])


LIMITED, ALONE = Split((30.0, 70.0)), {"CUDA_VISIBLE_DEVICES": "GPU-1"}
LOW = Split((100.0, 100.0), "uncapped", below_normal=(0,))
AMD = Gpu(uuid="GPU-1", model="MI300X", vendor="amd", units_total=304, index=3)


@pytest.mark.parametrize(
    ("gpu", "split", "variables", "expected"),
    [
        (None, LIMITED, {}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}),
        (None, LOW, {}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
            "CUDA_MPS_CLIENT_PRIORITY": "1"}),
        (GPU, LOW, {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"}, {
            **ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/pipes",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "CUDA_MPS_CLIENT_PRIORITY": "1",
        }),
        (None, TIME_SLICED, {}, {}),
        (GPU, TIME_SLICED, {}, {**ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}),
        (GPU, LIMITED, {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"}, {
            **ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/pipes", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        }),
        (GPU, LIMITED, {"ADVISOR_RUNTIME_DIR": "/run/me"}, {
            **ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/run/me/GPU-1/mps",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        }),
        (AMD, Split((10.0, 90.0)), {}, {
            "ROCR_VISIBLE_DEVICES": "3", "HSA_CU_MASK": "0:0-31",
            "ROC_GLOBAL_CU_MASK": "0xffffffff",
        }),
    ],
)  # fmt: skip
def test_what_limits_a_job_is_shown_before_it_starts(
    gpu: Gpu | None, split: Split, variables: dict[str, str], expected: dict[str, str]
) -> None:
    settings = read_settings({"HOME": "/home/me", **variables})
    jobs = (LaunchPart(job=Job(name=name, command=("true",))) for name in "ab")
    pair = LaunchSet(split=split, parts=tuple(jobs))
    assert set_monitor.limit_environment(pair, pair.shares(None)[0], gpu, settings) == expected


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_supervisor_is_told_secrets_by_a_pipe_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """What is in its environment stays to be read for as long as it lives."""
    secret = {"ADVISOR_DATABASE_URL": "postgresql://me:geheim@db/x"}
    settings = read_settings({"HOME": str(tmp_path), "KEPT": "1", **secret})
    folder = create_folder(tmp_path / "launches", LaunchSpec(launch_id="l", gpu="0", pairs=(PAIR,)))
    supervisor = MagicMock()
    supervisor.stdin.write.side_effect = BrokenPipeError if is_gone else None
    popen = Mock(return_value=supervisor)
    monkeypatch.setattr(guard, "subprocess", Mock(Popen=popen))
    assert guard.spawn_supervisor(folder, settings, "program") is supervisor
    (command,), options = popen.call_args
    assert command[1:] == ["-P", "-m", "program", str(folder.path)]
    assert (options["env"], options["start_new_session"]) == (
        {"HOME": str(tmp_path), "KEPT": "1"}, True
    )  # fmt: skip
    assert json.loads(supervisor.stdin.write.call_args.args[0]) == settings.secrets()
    assert (folder.path / guard.LOG).exists()
    # Where the caller lives longer, nothing stays in the table of processes.
    assert processes.wait_until(lambda: supervisor.wait.called, 5)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("vllm", "serve", "m"), ("vllm",)),
        (("python", "-m", "vllm.entrypoints.openai.api_server"), ("vllm",)),
        (("/opt/conda/envs/vllm/bin/python", "jax_train.py"), ("jax",)),
        (("python3", "train.py"), ("jax", "tensorflow", "vllm", "sgl")),
    ],
)
def test_how_to_hold_less_memory_is_told_by_the_command(
    command: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """A folder of that name says nothing; a command that says nothing may run on any."""
    jobs = [Job(name=name, command=command, memory_mib=750) for name in "ab"]
    with pytest.raises(NoSplitError) as refused:
        set_monitor.check_memory(jobs, replace(GPU, memory_mib=1000))
    assert tuple(name for name, (way, *_) in HOLDERS.items() if way in refused.value.fix) == names


# The guard of a launch, and who ends a supervisor: on a clock of its own, without a process.


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
    assert 10_000_000 in helper_children
    own.close()
    assert 10_000_000 not in helper_children


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
    assert helper_children.isdisjoint(one.pid for one in started.guards)


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
