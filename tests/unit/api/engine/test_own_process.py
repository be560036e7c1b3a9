"""Work in processes of their own: what it gives, and what is left when one is killed or closed."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.errors import NoSplitError
from advisor.runtime.processes import descendants
from advisor.settings import read_settings
from advisor_api import own_process
from advisor_api.own_process import OwnProcesses, ProcessEndedError

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnProcesses]:
    # Pickled functions are found by their module, as those of the package are.
    here = {"ADVISOR_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    processes = OwnProcesses(read_settings({**os.environ, **here}), 2)
    yield processes
    processes.close()


def pid_there() -> bytes:
    return str(os.getpid()).encode()


def niceness_there() -> bytes:
    return str(os.getpriority(os.PRIO_PROCESS, 0)).encode()


def slow(seconds: float) -> bytes:
    time.sleep(seconds)
    return b"done"


def large(mib: int) -> bytes:
    return str(len(b"x" * (mib * 2**20))).encode()  # zeros would take none


def refused() -> bytes:
    raise NoSplitError("nothing fits", why="it is too much", fix="ask for less")


def broken() -> bytes:
    raise ZeroDivisionError("in here")


async def test_answer_is_that_of_a_process_that_gives_way(own: OwnProcesses) -> None:
    """It is another process, the same one each time, and takes the core after the service."""
    first, second = [int(await own.work(pid_there)) for _ in range(2)]
    assert first == second != os.getpid()
    assert int(await own.work(niceness_there)) > min(os.getpriority(os.PRIO_PROCESS, 0), 18)


async def test_memory_of_the_service_does_not_count(own: OwnProcesses) -> None:
    assert large(own_process.MOST_KIB // 1024 + 16)
    assert await own.work(pid_there) == await own.work(pid_there)


async def test_errors_arrive_whole(own: OwnProcesses) -> None:
    """What, why and what to do next, and of a fault of our own where it was."""
    with pytest.raises(NoSplitError) as told:
        await own.work(refused)
    assert (told.value.what, told.value.fix) == ("nothing fits", "ask for less")
    assert str(told.value) == "nothing fits. it is too much. ask for less."
    with pytest.raises(ZeroDivisionError) as fault:
        await own.work(broken)
    assert "in broken" in fault.value.__notes__[0]


async def test_a_killed_process_is_told_and_replaced(own: OwnProcesses) -> None:
    """In the middle of work or after it: one request fails at most, and the next one does not."""
    pid = int(await own.work(pid_there))
    asked = asyncio.create_task(own.work(slow, 30.0))
    await asyncio.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessEndedError, match="ask again"):
        await asked
    other = int(await own.work(pid_there))
    assert other != pid
    os.kill(other, signal.SIGKILL)
    os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
    assert int(await own.work(pid_there)) not in (pid, other)


async def test_at_most_so_many_work_at_once(own: OwnProcesses) -> None:
    pids = {await one for one in [own.work(pid_there) for _ in range(6)]}
    assert len(pids) == 1
    assert (await asyncio.gather(*(own.work(slow, 0.2) for _ in range(5)))) == [b"done"] * 5
    assert len(descendants(os.getpid())) >= 2
    pids = set(await asyncio.gather(*(own.work(pid_there) for _ in range(9))))
    assert len(pids) <= 2


async def test_a_process_that_has_grown_is_replaced(
    own: OwnProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a queue of many jobs does not keep its memory for good."""
    pid = int(await own.work(pid_there))
    size = own_process.MOST_KIB // 1024 + 16
    assert await own.work(large, size) == str(size * 2**20).encode()
    assert not _runs(pid)
    assert int(await own.work(pid_there)) != pid


async def test_closing_ends_all_and_whoever_waits(own: OwnProcesses) -> None:
    """Nothing lives on, although something was worked out and something waited for its turn."""
    pid = int(await own.work(pid_there))
    waiting = [asyncio.create_task(own.work(slow, 30.0)) for _ in range(3)]
    await asyncio.sleep(0.2)
    await asyncio.to_thread(own.close)
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(e, ProcessEndedError | asyncio.CancelledError) for e in found)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
