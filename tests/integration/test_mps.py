"""The MPS back-end against a control program and a libcuda that answer as the real ones do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from host import OTHER_UUID, UUID, FakeHost
from sleeper import sleeper

from advisor.core.gpu import Gpu, Share
from advisor.errors import LimitNotProvenError, PartitionError
from advisor.runtime.backend import Control, MpsBackend, Sight, look, open_mps, parse_pids

GPU = Gpu(uuid=UUID, model="Fake H200", units_total=132)
PER_CONTEXT = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"


@pytest.fixture
def backend(host: FakeHost) -> Iterator[MpsBackend]:
    yield open_mps(GPU, host.folder / "run", host.environment())
    host.control("quit")


def prove(backend: MpsBackend, host: FakeHost, share: float) -> int | None:
    wanted = Share(share)
    return backend.prove(wanted, host.environment(**backend.environment(wanted))).units


def test_every_share_is_read_back(backend: MpsBackend, host: FakeHost) -> None:
    granted = [prove(backend, host, percent) for percent in range(10, 101, 10)]
    assert granted == [12, 26, 38, 52, 66, 78, 92, 104, 118, 132]


def test_server_holds_what_a_process_says_otherwise(backend: MpsBackend, host: FakeHost) -> None:
    """A process may change its variables before its first call; the server's percentage stays."""
    backend.cap(70)
    assert backend.given_percent() == 70
    assert [prove(backend, host, share) for share in (30, 70)] == [38, 92]
    for changed in ("100", ""):
        environment = host.environment(**backend.environment(Share(30)))
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = changed
        assert [gpu.units for gpu in look(environment)] == [92]
    backend.control.ask("start_server -uid 0")
    assert backend.given_percent() == 70


def test_daemon_that_was_there_is_not_changed(backend: MpsBackend, host: FakeHost) -> None:
    attached = open_mps(GPU, host.folder / "other", host.environment(), host.pipe_dir)
    attached.cap(30)
    assert (attached.given_percent(), backend.given_percent()) == (None, 100)
    attached.close()
    assert host.control("get_server_list")
    backend.close()
    with pytest.raises(PartitionError, match="no MPS daemon answers"):
        backend.check_alive()


def test_who_computes_is_told_from_who_is_a_client(host: FakeHost) -> None:
    computing: list[int] = []
    backend = open_mps(
        GPU, host.folder / "run", host.environment(), computing=lambda: tuple(computing)
    )
    (server,) = backend.control.servers()
    computing += [server, os.getpid(), 1]
    (host.pipe_dir / "clients" / str(os.getpid())).touch()
    assert backend.sight() == Sight(frozenset({os.getpid(), 1}), frozenset({os.getpid()}))
    with pytest.raises(LimitNotProvenError, match=r"processes \[1\] of the job compute"):
        backend.check_clients(Share(30), lambda: [1, os.getpid()])
    backend.close()


def test_number_of_an_ended_process_may_be_a_strangers_by_now(
    backend: MpsBackend, host: FakeHost
) -> None:
    """The fakes list nobody else, as the driver; a launch with a stranger on both lists ends."""
    share = Share(30, memory_mib=4000)
    backend.prove(share, host.environment(**backend.environment(share)))
    for folder in (host.pipe_dir / "clients", host.folder / "nvml" / "gpu0" / "contexts"):
        (left,) = folder.iterdir()
        left.rename(folder / str(os.getpid()))
    assert backend.clients() == []
    script = (
        "import os; from pynvml import *; from ctypes import CDLL; nvmlInit(); "
        "gpu = nvmlDeviceGetHandleByIndex(0); cuda = CDLL('libcuda.so.1'); "
        "cuda.cuDevicePrimaryCtxRetain(bytes(8), 0); "
        "found = [one.pid for one in nvmlDeviceGetComputeRunningProcesses(gpu)]; "
        "assert found == [os.getpid()], found"
    )
    subprocess.run([sys.executable, "-c", script], env=host.environment(), timeout=60, check=True)


def test_daemon_of_a_killed_advisor_is_replaced(host: FakeHost) -> None:
    """Its server may be spoiled by the jobs that died with it: it goes, and its clients before."""
    left = open_mps(GPU, host.folder / "run", host.environment())
    (host.pipe_dir / "status").write_text("FAULT")
    (host.pipe_dir / "clients" / str(os.getpid())).touch()
    backend = open_mps(GPU, host.folder / "run", host.environment())
    assert left.control.pipe_dir == backend.control.pipe_dir
    assert not backend.spoiled()
    assert (host.pipe_dir / "clients" / f"{os.getpid()}.terminated").exists()
    assert prove(backend, host, 30) == 38
    backend.close()


def test_daemon_that_a_killed_launch_left_on_two_gpus_is_ended_on_each(host: FakeHost) -> None:
    """It would serve the second one beside that GPU's own; others of the host stay."""
    second, third = (replace(GPU, uuid=f"{UUID[:-12]}00000000000{n}") for n in (1, 2))
    run = host.folder / "run"
    stays = open_mps(third, run, host.environment())
    both = open_mps(replace(GPU, others=(second,)), run, host.environment())
    own = open_mps(second, run, host.environment())
    assert [one.control.answers() for one in (both, own, stays)] == [False, True, True]
    own.close()
    stays.close()


def test_a_client_without_work_is_not_waited_for_long(
    backend: MpsBackend, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server keeps it on its list until it ends, and it may sleep for hours."""
    (host.pipe_dir / "clients" / "4242").touch()
    waited_s: list[float] = []

    def listed(_control: Control, _server: int) -> list[int]:
        return [4242]

    def waited(_until: object, most_s: float) -> None:
        waited_s.append(most_s)

    monkeypatch.setattr(Control, "clients", listed)
    monkeypatch.setattr("advisor.runtime.backend.wait_until", waited)
    backend.release({4242})
    assert (host.pipe_dir / "clients" / "4242.terminated").exists()
    assert waited_s == [1]


def test_wrong_pipe_directory_is_refused(host: FakeHost, tmp_path: Path) -> None:
    """The driver would run the job on the whole GPU; the advisor runs nothing."""
    with pytest.raises(PartitionError, match="no MPS daemon answers"):
        open_mps(GPU, host.folder, host.environment(), tmp_path)


def test_job_without_its_limit_is_refused(backend: MpsBackend, host: FakeHost) -> None:
    share, kept = Share(30), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    for changed, message in (
        ({"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}, r"MPS is not in force.*saw all 132 SMs"),
        ({kept: "0"}, "is 38, but a process saw 132"),
        ({kept: "abc"}, "is 38, but a process saw 132"),
        ({"FAKE_CUDA_UUIDS": OTHER_UUID, "CUDA_VISIBLE_DEVICES": OTHER_UUID}, "not see GPU"),
        ({"FAKE_CUDA_ERROR": "808"}, "all the clients it can take"),
    ):
        environment = host.environment(**backend.environment(share)) | changed
        with pytest.raises(LimitNotProvenError, match=message):
            backend.prove(share, environment)


@pytest.mark.parametrize(
    ("does", "message"),
    [
        # It would make a chosen 80 % a 50 % without a word.
        ("default", "gives its clients 50 % at most"),
        ("refuse", "did not start: Failed to start: permission denied"),
    ],
)
def test_daemon_that_is_of_no_use_is_refused(host: FakeHost, does: str, message: str) -> None:
    host.pipe_dir.mkdir(parents=True)
    (host.pipe_dir / does).write_text("50.0")
    with pytest.raises(PartitionError, match=message):
        open_mps(GPU, host.folder / "run", host.environment())
    host.control("quit")


def test_faulty_server_is_refused(
    backend: MpsBackend, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a client's crash nothing is started until the server has recovered."""
    monkeypatch.setattr("advisor.runtime.backend._CLIENT_S", 0.2)
    assert not backend.spoiled()
    (host.pipe_dir / "status").write_text("FAULT")
    assert backend.spoiled()
    with pytest.raises(PartitionError, match="is in a fault"):
        prove(backend, host, 30)


def test_server_of_another_user_with_clients_is_refused(
    host: FakeHost, backend: MpsBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients would make ours wait in silence."""
    (host.pipe_dir / "clients" / str(os.getpid())).touch()
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(PartitionError, match=r"serves user .* and has clients; we are 4242"):
        open_mps(GPU, host.folder / "run", host.environment(), host.pipe_dir)


def test_hanging_daemon_is_told_from_a_missing_one(
    backend: MpsBackend, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.runtime.backend._TIMEOUT_S", 0.5)
    (host.pipe_dir / "hang").touch()
    with pytest.raises(PartitionError, match="did not answer 'get_server_list' within"):
        backend.check_alive()
    (host.pipe_dir / "hang").unlink()


def test_process_that_is_no_client_is_refused(
    backend: MpsBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.runtime.backend._CLIENT_S", 0.1)
    with pytest.raises(LimitNotProvenError, match="is a client of the MPS server"):
        backend.check_clients(Share(30), lambda: [os.getpid()])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "90"}, "do not carry the variables of its share"),
        ({PER_CONTEXT: "1"}, f"carry {PER_CONTEXT}, which can lift its share of 30 %"),
    ],
)
def test_client_with_other_variables_is_refused(
    backend: MpsBackend, host: FakeHost, changed: dict[str, str], message: str
) -> None:
    with sleeper({**backend.environment(Share(30)), **changed}) as pid:
        (host.pipe_dir / "clients" / str(pid)).touch()
        with pytest.raises(LimitNotProvenError, match=message):
            backend.check_clients(Share(30), lambda: [pid])


@pytest.mark.parametrize("is_low", [False, True])
def test_priority_is_looked_for_in_the_environment_of_the_process(
    backend: MpsBackend, host: FakeHost, is_low: bool
) -> None:
    """The server does not tell the priority of a client; what it was started with can be read."""
    share = Share(30, below_normal=is_low)
    with sleeper(backend.environment(share)) as pid:
        (host.pipe_dir / "clients" / str(pid)).touch()
        backend.check_clients(share, lambda: [pid])
        with pytest.raises(LimitNotProvenError, match="CUDA_MPS_CLIENT_PRIORITY"):
            backend.check_clients(replace(share, below_normal=not is_low), lambda: [pid])


@pytest.mark.parametrize("reply", ["Server 12 not found", "12 x", "-1"])
def test_reply_that_is_no_list_of_processes_is_refused(reply: str) -> None:
    with pytest.raises(PartitionError, match="where process numbers were due"):
        parse_pids(reply)


def test_probe_that_cannot_run_as_the_user_is_no_proof(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(*_: object, **more: object) -> None:
        asked.append(more.get("user"))
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("advisor.runtime.backend.subprocess.run", refuse)
    for user in (12345, os.geteuid(), None):
        with pytest.raises(LimitNotProvenError, match="could not be started"):
            look(host.environment(), user)
    assert asked == [12345, None, None]
