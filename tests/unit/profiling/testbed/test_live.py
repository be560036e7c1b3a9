"""Live GPUs: strangers, phases of a host, cores of processes and their speed."""

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from advisor.core.gpu import Gpu, Share
from advisor.errors import BusyError
from advisor.files import open_lock, try_lock
from advisor.runtime.backend import Granted
from advisor.runtime.processes import available_cores, plan_cores
from advisor.settings import Settings, read_settings
from advisor_profiling import testbed
from advisor_profiling.doctor import core_speeds
from advisor_profiling.testbed import LiveProcess, PhaseLock

GPU = Gpu(vendor="nvidia", index=0, uuid="GPU-1", model="NVIDIA H100", units_total=132)


def seen(looks: Iterable[list[int]], patch: pytest.MonkeyPatch) -> list[list[int]]:
    """NVML names these processes, look by look; returns the looks that were made."""
    turns, made = iter(looks), list[list[int]]()

    def compute_pids(_: str) -> list[int]:
        made.append(next(turns))
        return made[-1]

    patch.setattr(testbed.nvml, "compute_pids", compute_pids)
    patch.setattr(testbed, "_PASSING_S", 0)
    patch.setattr(testbed, "_ALONE_S", 0.1)
    return made


@pytest.mark.parametrize(
    ("looks", "made"),
    [
        # Jobs that start on other GPUs of the host show on this one while their driver starts.
        ([[1], [2]], [[1], [2]]),
        # Five seconds are waited.
        ([*[[7]] * 5, []], [*[[7]] * 5, []]),
    ],
)
def test_processes_that_pass_or_leave_are_nobody(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[int]], made: list[list[int]]
) -> None:
    found = seen(looks, monkeypatch)
    testbed.check_alone(GPU)
    assert found == made


def test_a_process_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where others pass by."""
    seen(([7, pid] for pid in itertools.count(8)), monkeypatch)
    with pytest.raises(BusyError, match=r"processes \[7, \d+\] use GPU GPU-1"):
        testbed.check_alone(GPU)


def test_later_strangers_are_those_that_were_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker and its helpers are there when it is asked first; one that ends is none."""
    looks = iter(([7, 8], [7, 8], [8, 9]))
    monkeypatch.setattr(testbed.nvml, "context_pids", lambda _: next(looks))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    later = testbed.later_strangers("GPU-1")
    assert (later(), later()) == (frozenset(), {9})


def test_no_window_is_open_beside_a_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other workers may start meanwhile."""
    asked: list[tuple[str, str | None]] = []

    @contextmanager
    def backend_of(_: Settings, name: str, mode: str | None) -> Generator[str]:
        asked.append((name, mode))
        yield "backend"

    monkeypatch.setattr(testbed, "live_backend", backend_of)
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_LOCK_DIR": str(tmp_path)})
    core = available_cores()[0]
    with (
        testbed.worker_backend(settings, "0", None) as backend,
        testbed.worker_backend(settings, "1", 66),
        open_lock(settings.lock_dir, f"starting-{core}.lock") as starts,
    ):
        assert backend == "backend"
        assert not try_lock(starts)
    assert asked == [("0", "uncapped"), ("1", "mps")]
    with open_lock(settings.lock_dir, f"starting-{core}.lock") as starts:
        assert try_lock(starts)


def test_starts_and_windows_never_overlap(tmp_path: Path) -> None:
    """Whatever the order, no job starts while a window is open, on any GPU with these cores."""
    inside, lock, clashes = Counter[str](), threading.Lock(), list[str]()

    def phase(kind: str, other: str) -> None:
        phase_lock = PhaseLock(tmp_path)
        for _ in range(15):
            with phase_lock.starting() if kind == "start" else phase_lock.measuring():
                with lock:
                    inside[kind] += 1
                    clashes.extend([kind] * inside[other])
                time.sleep(0.002)
                with lock:
                    inside[kind] -= 1

    with ThreadPoolExecutor(6) as pool:
        kinds = [("start", "window"), ("window", "start")] * 3
        for done in [pool.submit(phase, *kind) for kind in kinds]:
            done.result(timeout=50)
    assert clashes == []


def test_waiting_start_goes_before_the_next_window(tmp_path: Path) -> None:
    """Windows without a gap keep no start waiting; two of either kind may be open together."""
    order = list[str]()
    phase_lock = PhaseLock(tmp_path)
    with phase_lock.measuring(), PhaseLock(tmp_path).measuring():
        order.append("two windows")
    with phase_lock.starting(), PhaseLock(tmp_path).starting():
        order.append("two starts")

    def start() -> None:
        with PhaseLock(tmp_path).starting():
            order.append("start")
            time.sleep(0.1)

    with phase_lock.measuring():
        starter = threading.Thread(target=start)
        starter.start()
        time.sleep(0.1)
    with phase_lock.measuring():
        order.append("window")
    starter.join()
    assert order == ["two windows", "two starts", "start", "window"]


def test_who_is_waited_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A profile that was stopped by Ctrl-Z keeps all others of the host waiting, without end."""
    monkeypatch.setattr(testbed, "_SILENT_S", 0.05)
    with ThreadPoolExecutor(1) as pool:
        with PhaseLock(tmp_path).starting():
            waiting = pool.submit(PhaseLock(tmp_path).measuring().__enter__)
            while not caplog.records:
                assert not waiting.done()
                time.sleep(0.01)
        waiting.result(timeout=50)
    assert "which starts jobs or measures power on cores that" in caplog.text


@pytest.mark.parametrize(("other", "waits"), [((2, 3), False), ((1, 2), True)])
def test_starts_on_other_cores_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: tuple[int, int], waits: bool
) -> None:
    locks = list[PhaseLock]()
    for cores in ((0, 1), other):
        groups = [frozenset({core, core + 64}) for core in cores]
        monkeypatch.setattr(testbed, "physical_cores", partial(list[frozenset[int]], groups))
        locks.append(PhaseLock(tmp_path))
    window, started = locks[0].measuring(), threading.Event()

    def start() -> None:
        with locks[1].starting():
            started.set()

    starter = threading.Thread(target=start)
    with window:
        starter.start()
        assert started.wait(0.2 if waits else 50) is not waits
    starter.join(50)
    assert started.is_set()


class Job:
    """A running job that writes down what is asked of it."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.share, self.granted = Share(50), Granted(66)
        self.is_ready = False
        self.count = self.check = self.check_limit = self.leave = self.stop = lambda: None
        self.reported = self.latencies = self.cpu_s = lambda: None

    def ready(self) -> bool:
        return self.is_ready

    def pin(self, cores: frozenset[int]) -> None:
        self.log.append(cores)

    def go(self) -> None:
        self.log.append("go")

    def hold(self) -> None:
        self.log.append("hold")


def test_waiting_clients_stay_off_the_cores_of_measured_jobs() -> None:
    """From the moment that a process is ready, and again after its window."""
    cores = plan_cores([frozenset([core]) for core in range(8)])
    job = Job()
    process = LiveProcess(cast("Any", job), cast("Any", SimpleNamespace(cores=cores)))
    assert not process.ready()
    assert job.log == []
    job.is_ready = True
    assert process.ready()
    process.go(1)
    process.hold()
    assert job.log == [cores.waiting, cores.slots[1], "go", "hold", cores.waiting]


def test_jobs_of_a_second_testbed_have_cores_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first keeps the process to one core, and gives the others back when it ends."""
    own = [frozenset(range(8))]

    def keep(_: int, cores: Iterable[int]) -> None:
        own.append(frozenset(cores))

    def kept(_: int) -> frozenset[int]:
        return own[-1]

    monkeypatch.setattr(os, "sched_setaffinity", keep)
    monkeypatch.setattr(os, "sched_getaffinity", kept)
    backend = Mock(gpu=GPU, max_clients=48)
    monkeypatch.setattr(testbed, "live_backend", Mock(return_value=nullcontext(backend)))
    monkeypatch.setattr(testbed, "open_source", Mock())
    settings = read_settings({"ADVISOR_HOME": str(tmp_path / "home")})
    plans = list[tuple[frozenset[int], ...]]()
    for _ in range(2):
        with testbed.live_testbed(settings, "0", None, None, "run") as live:
            plans.append(live.cores.slots)
            assert own[-1] == live.cores.supervisor
    assert plans[0] == plans[1]
    assert not plans[0][0] & plans[0][1]


def test_every_core_is_looked_at_and_the_thread_goes_back() -> None:
    before = os.sched_getaffinity(0)
    speeds = core_speeds(before, seconds=0.001)
    assert speeds.keys() == before
    assert min(speeds.values()) > 0
    assert os.sched_getaffinity(0) == before


def test_a_core_that_takes_twice_as_long_is_half_as_fast() -> None:
    """By a clock that goes on by a step each time it is read."""
    core = min(os.sched_getaffinity(0))
    fast, slow = (
        core_speeds([core], 1.0, itertools.count(0, step_s).__next__)[core]
        for step_s in (0.001, 0.002)
    )
    assert slow == pytest.approx(fast / 2, rel=0.01)
