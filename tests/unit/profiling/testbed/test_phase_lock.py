import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor_profiling.testbed import live as phase_lock_module
from advisor_profiling.testbed.live import PhaseLock


def test_starts_and_windows_never_overlap(tmp_path: Path) -> None:
    """Whatever the order, no job starts while a window is open, on any GPU of the host."""
    inside, lock, clashes = {"start": 0, "window": 0}, threading.Lock(), list[str]()

    def phase(kind: str, other: str) -> None:
        phase_lock = PhaseLock(tmp_path)
        for _ in range(15):
            with phase_lock.starting() if kind == "start" else phase_lock.measuring():
                with lock:
                    inside[kind] += 1
                    if inside[other]:
                        clashes.append(kind)
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
    monkeypatch.setattr(phase_lock_module, "_SILENT_S", 0.05)
    with ThreadPoolExecutor(1) as pool, PhaseLock(tmp_path).starting():

        def measure() -> None:
            with PhaseLock(tmp_path).measuring():
                pass

        waiting = pool.submit(measure)
        while not caplog.records:
            assert not waiting.done()
            time.sleep(0.01)
        (told,) = caplog.messages
    assert "which starts jobs or measures power on another GPU" in told
    waiting.result(timeout=50)
