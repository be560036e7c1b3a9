import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.errors import BusyError
from advisor.runtime.lock import gpu_lock

HOLD = """
import sys, time
from pathlib import Path
from advisor.runtime.lock import gpu_lock
with gpu_lock(Path(sys.argv[1]), "GPU-1"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    """Two advisors on one GPU would measure each other."""
    with gpu_lock(tmp_path, "GPU-1"):
        with (
            pytest.raises(BusyError, match=f"GPU-1 is being measured by process {os.getpid()}"),
            gpu_lock(tmp_path, "GPU-1"),
        ):
            pytest.fail("both have it")
        # The refused one must not have let go of the first one's lock.
        with pytest.raises(BusyError), gpu_lock(tmp_path, "GPU-1"):
            pytest.fail("both have it")


def test_gpu_is_free_afterwards(tmp_path: Path) -> None:
    """The end of a measurement, good or bad, frees the GPU; old text in the file does no harm."""
    with pytest.raises(RuntimeError), gpu_lock(tmp_path, "GPU-1"):
        raise RuntimeError
    (lock,) = tmp_path.iterdir()
    lock.write_text("4194304 from long ago")
    with gpu_lock(tmp_path, "GPU-1"):
        assert lock.read_text() == str(os.getpid())


def test_gpus_have_locks_of_their_own(tmp_path: Path) -> None:
    """Two GPUs of one host are measured at the same time."""
    with gpu_lock(tmp_path, "GPU-1"), gpu_lock(tmp_path, "GPU-2"):
        assert len(list(tmp_path.iterdir())) == 2


def test_killed_holder_lets_go(tmp_path: Path) -> None:
    """After kill -9 nobody has to clean up, and a folder that is missing is made for all."""
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert folder.stat().st_mode & 0o7777 == 0o1777
        with pytest.raises(BusyError, match=f"by process {holder.pid}"), gpu_lock(folder, "GPU-1"):
            pytest.fail("both have it")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with gpu_lock(folder, "GPU-1"):
        pass


def test_a_launch_that_holds_a_gpu_is_named(tmp_path: Path) -> None:
    """Whoever wants the GPU can look at it, and stop it, by its id."""
    with (
        gpu_lock(tmp_path, "GPU-1", "20260131-000000-ab12"),
        pytest.raises(BusyError, match=r"has the launch 20260131.*launches stop 20260131-0"),
        gpu_lock(tmp_path, "GPU-1"),
    ):
        pass
