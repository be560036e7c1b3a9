"""Whether anybody else computes on a GPU."""

import itertools
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import pytest

from advisor.core.gpu import Gpu
from advisor.errors import BusyError
from advisor.files import try_lock
from advisor.runtime.lock import open_lock
from advisor.settings import Settings, read_settings
from advisor_profiling.testbed import live

GPU = Gpu(vendor="nvidia", index=0, uuid="GPU-1", model="NVIDIA H100", units_total=132)


def seen(looks: Iterable[list[int]], patch: pytest.MonkeyPatch) -> list[list[int]]:
    """NVML names these processes, look by look; those that were made."""
    turns, made = iter(looks), list[list[int]]()

    def compute_pids(_: str) -> list[int]:
        made.append(next(turns))
        return made[-1]

    def name_of(_: int) -> str:
        return "python3"

    patch.setattr(live.nvml, "compute_pids", compute_pids)
    patch.setattr(live, "name_of", name_of)
    patch.setattr(live, "_PASSING_S", 0)
    patch.setattr(live, "_ALONE_S", 0.1)
    return made


def test_processes_that_only_pass_are_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that start on other GPUs of the host show on this one while their driver starts."""
    made = seen(([pid] for pid in itertools.count(1)), monkeypatch)
    live.check_alone(GPU)
    assert made == [[1], [2]]


def test_a_process_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where others pass by."""
    seen(([7, pid] for pid in itertools.count(8)), monkeypatch)
    with pytest.raises(BusyError, match=r"processes \[7, \d+\] use GPU GPU-1"):
        live.check_alone(GPU)


def test_a_process_that_leaves_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within five seconds."""
    made = seen(itertools.chain([[7]] * 5, itertools.repeat([])), monkeypatch)
    live.check_alone(GPU)
    assert made == [*[[7]] * 5, []]


def test_later_strangers_are_those_that_were_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker and its helpers are there when it is asked first; one that ends is none."""
    there = [7, 8]

    def context_pids(_: str) -> list[int]:
        return list(there)

    monkeypatch.setattr(live.nvml, "context_pids", context_pids)
    later = live.later_strangers("GPU-1")
    assert later() == frozenset()
    there[:] = [8, 9]
    assert later() == {9}


def test_no_window_is_open_beside_a_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other workers may start meanwhile."""
    asked: list[tuple[str, str | None]] = []

    @contextmanager
    def backend_of(_: Settings, name: str, mode: str | None) -> Generator[str]:
        asked.append((name, mode))
        yield "backend"

    monkeypatch.setattr(live, "live_backend", backend_of)
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_LOCK_DIR": str(tmp_path)})
    with (
        live.worker_backend(settings, "0", None) as backend,
        live.worker_backend(settings, "1", 66),
        open_lock(settings.lock_dir, "starting.lock") as starts,
    ):
        assert backend == "backend"
        assert not try_lock(starts)
    assert asked == [("0", "uncapped"), ("1", "mps")]
    with open_lock(settings.lock_dir, "starting.lock") as starts:
        assert try_lock(starts)
