"""What the service tells systemd, on a real datagram socket as systemd has one."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raw_server import environment
from waiting import PATIENCE_S

from advisor.runtime.processes import wait_until
from advisor.settings import read_settings
from advisor_api.server import Systemd

WATCHDOG_S = 0.8

SERVICE = """
import signal, time
from advisor_cli.app import app

# Python runs it in the thread of the event loop; all others go on.
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3))
app(["serve", "--port", "0"])
"""


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


@contextmanager
def service(folder: Path, address: str) -> Generator[subprocess.Popen[bytes]]:
    more = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(int(1e6 * WATCHDOG_S))}
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(folder / "home") | more,
        cwd=folder,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_service_says_ready_and_pings_until_it_stops(
    manager: socket.socket, tmp_path: Path
) -> None:
    """READY once it listens, more pings than systemd needs, and STOPPING at once.

    While its event loop stands still its other threads do not speak for it.
    """
    # An address that is no file; the tests below have files.
    name = f"advisor-test-{os.getpid()}"
    manager.bind(f"\0{name}")
    with service(tmp_path, f"@{name}") as process:
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=listens on http://127.0.0.1:")
        assert {manager.recv(4096) for _ in range(6)} == {b"WATCHDOG=1"}
        process.send_signal(signal.SIGUSR1)
        manager.settimeout(1.5)
        with pytest.raises(TimeoutError):
            assert not [manager.recv(4096) for _ in range(100)]
        manager.settimeout(PATIENCE_S)
        assert manager.recv(4096) == b"WATCHDOG=1"
        process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: manager.recv(4096).startswith(b"STOPPING=1"), PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0


def test_a_ping_for_another_process_is_not_sent(manager: socket.socket, tmp_path: Path) -> None:
    """WATCHDOG_PID names whom systemd watches; without a watchdog nobody pings at all."""
    manager.bind(str(tmp_path / "notify"))
    base = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000"}
    Systemd({**base, "WATCHDOG_PID": "1"}).turn()
    Systemd({"NOTIFY_SOCKET": base["NOTIFY_SOCKET"]}).turn()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
    Systemd({**base, "WATCHDOG_PID": str(os.getpid())}).turn()
    assert manager.recv(4096) == b"WATCHDOG=1"


def test_where_nobody_listens_nothing_happens(tmp_path: Path) -> None:
    for address in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        told = Systemd({**address, "WATCHDOG_USEC": "1000"})
        told.ready("listens")
        told.turn()
        told.stopping()
    assert not list(tmp_path.iterdir())


def test_jobs_do_not_speak_for_the_service() -> None:
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    settings = read_settings(dict.fromkeys(names, "1") | {"HOME": "/home/someone"})
    assert not {*names} & {*settings.job_environment()}
