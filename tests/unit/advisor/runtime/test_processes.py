"""Which processes carry the variables of a limit."""

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sleeper import sleeper

from advisor.runtime import processes
from advisor.runtime.processes import (
    awaited,
    beat,
    beating,
    catches,
    heard_by,
    in_thread,
    lacking,
    loaded_libraries,
    memory_bound_of,
    physical_cores,
    plan_cores,
)

LIMIT = {"LIMIT": "10"}


def test_process_in_exec_is_not_taken_for_one_without_limit() -> None:
    """/proc shows no variables in the middle of exec; about one look in four falls there."""
    for _ in range(100):
        with sleeper(LIMIT) as pid:
            assert lacking([pid], LIMIT) == []


def test_process_with_another_limit_or_no_variables_is_named() -> None:
    with sleeper(LIMIT) as held, sleeper({"LIMIT": "20"}) as other, sleeper({}) as cleared:
        assert lacking([held, other, cleared], LIMIT) == sorted([other, cleared])


def single(count: int) -> list[frozenset[int]]:
    return [frozenset([core]) for core in range(count)]


@pytest.mark.parametrize(("jobs", "each"), [(2, 7), (3, 4), (7, 2)])
def test_job_alone_has_as_many_cores_as_beside_others(jobs: int, each: int) -> None:
    """Rates alone and in sets are compared, so both come from the same number of cores."""
    plan = plan_cores(single(16), jobs)
    assert (plan.supervisor, [len(slot) for slot in plan.slots]) == ({0}, [each] * jobs)
    owners = (plan.supervisor, *plan.slots, plan.waiting)
    assert len(frozenset[int]().union(*owners)) == sum(map(len, owners))


def test_two_jobs_take_cores_in_turns() -> None:
    """On a host with two sockets neither of them has the one that is farther from the GPU."""
    assert plan_cores(single(8)).slots == ({1, 3, 5}, {2, 4, 6})


@pytest.mark.parametrize("jobs", [2, 7])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_small_hosts_share_what_they_have(count: int, jobs: int) -> None:
    plan = plan_cores(single(count), jobs)
    assert plan.supervisor
    assert len(plan.slots) == jobs
    assert all(plan.slots)
    assert plan.jobs <= set(range(count))


def test_hyperthreads_of_one_core_have_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "available_cores", lambda: list(range(8)))
    for core in range(8):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    plan = plan_cores(physical_cores(tmp_path))
    assert (plan.supervisor, *plan.slots) == ({0, 4}, {1, 5}, {2, 6})


def test_without_topology_each_core_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "available_cores", lambda: [2, 3])
    assert physical_cores(tmp_path) == [{2}, {3}]


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def load(stack: ExitStack, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"library")
    opened = stack.enter_context(file.open("rb"))
    stack.enter_context(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def test_a_library_of_the_system_has_its_version_in_its_name(
    tmp_path: Path, mapped: ExitStack
) -> None:
    load(mapped, tmp_path / "lib/libcublas.so.13.1.0.3")
    assert loaded_libraries([os.getpid()]) == "cublas 130100"


def test_libraries_of_wheels_have_theirs_in_the_metadata(tmp_path: Path, mapped: ExitStack) -> None:
    """Of PyTorch in its own file, which knows the build; by name, whatever was loaded first."""
    packages = tmp_path / "venv/lib/python3.12/site-packages"
    (packages / "nvidia_cudnn_cu13-9.15.1.9.dist-info").mkdir(parents=True)
    (packages / "nvidia_cublas-13.1.0.3.dist-info").mkdir()
    load(mapped, packages / "torch/lib/libtorch.so")
    (packages / "torch/version.py").write_text("__version__ = '2.11.0+cu130'\ndebug = False\n")
    load(mapped, packages / "nvidia/cudnn/lib/libcudnn.so.9")
    load(mapped, packages / "nvidia/cu13/lib/libcublas.so.13")
    assert loaded_libraries([os.getpid()]) == "cublas 130100, cudnn 91501, torch 2.11.0+cu130"


def test_what_cannot_be_read_is_not_known(tmp_path: Path, mapped: ExitStack) -> None:
    load(mapped, tmp_path / "site-packages/torch/lib/libtorch.so")
    load(mapped, tmp_path / "lib/libcublas.so.13")
    load(mapped, tmp_path / "lib/libcublasLt.so.13.1.0.3")
    assert loaded_libraries([os.getpid()]) is loaded_libraries([2**22 + 1]) is None
    assert loaded_libraries([]) is None


@pytest.mark.parametrize(
    ("package", "words", "bound"),
    [
        ("jaxlib", (), "XLA_PYTHON_CLIENT_MEM_FRACTION=.3 XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ("jax_plugins/xla_cuda12", ("--gpu-memory-utilization", "0.4"), "XLA_PYTHON_CLIENT_MEM"),
        ("vllm", ("--gpu_memory_utilization=0.4",), "--gpu-memory-utilization 0.4"),
        ("vllm", ("serve",), "--gpu-memory-utilization"),
        ("sgl_kernel", ("--mem-fraction-static", "0.5"), "--mem-fraction-static 0.5"),
        ("tensorflow", (), None),
        ("torch", ("--gpu-memory-utilization", "0.4"), None),
    ],
)
def test_memory_is_bounded_by_what_the_loaded_framework_reads(
    tmp_path: Path, package: str, words: tuple[str, ...], bound: str | None
) -> None:
    """A variable that is not set bounds nothing, nor does an option of another program."""
    library = tmp_path / "lib/python3.12/site-packages" / package / "_C.abi3.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"library")
    script = (
        "import mmap, sys; f = open(sys.argv[1], 'rb')\n"
        "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(library), *words],
        env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        found = memory_bound_of([process.pid, 2**22 + 1])
        process.communicate()
    assert found == bound or (bound and found and found.startswith(bound))


def test_only_the_main_thread_beats() -> None:
    heard: list[str] = []
    with heard_by(lambda: heard.append("main")):
        assert awaited(in_thread(lambda: beating(lambda: beat() or 7))) == 7
        assert heard == []
        beat()
    assert heard == ["main"]


def test_who_has_a_handler_for_a_signal_catches_it() -> None:
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    try:
        assert catches(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert not catches(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not catches(2**31 - 1, signal.SIGUSR1), "there is no such process"
