import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from other_user import MALLORY, as_user, mallory_does, mallory_starts, shared_folder

from advisor.errors import BusyError, UnsafeFileError
from advisor.files import gpu_lock

ALICE, BOB, GROUP = 54321, 54322, 54323


HOLD = """
import sys, time
from pathlib import Path
from advisor.files import gpu_lock
with gpu_lock(Path(sys.argv[1]), "GPU-1"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
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
    with pytest.raises(RuntimeError), gpu_lock(tmp_path, "GPU-1"):
        raise RuntimeError
    (lock,) = tmp_path.iterdir()
    lock.write_text("4194304 from long ago")
    with gpu_lock(tmp_path, "GPU-1"):
        assert lock.read_text() == str(os.getpid())


def test_gpus_have_locks_of_their_own(tmp_path: Path) -> None:
    with gpu_lock(tmp_path, "GPU-1"), gpu_lock(tmp_path, "GPU-2"):
        assert len(list(tmp_path.iterdir())) == 2


def test_killed_holder_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert folder.stat().st_mode & 0o7777 == 0o700
        with pytest.raises(BusyError, match=f"by process {holder.pid}"), gpu_lock(folder, "GPU-1"):
            pytest.fail("both have it")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with gpu_lock(folder, "GPU-1"):
        pass


def test_a_launch_that_holds_a_gpu_is_named(tmp_path: Path) -> None:
    with (
        gpu_lock(tmp_path, "GPU-1", "20260131-000000-ab12"),
        pytest.raises(BusyError, match=r"has the launch 20260131.*launches stop 20260131-0"),
        gpu_lock(tmp_path, "GPU-1"),
    ):
        pass


# two users


def test_nobody_else_can_hold_a_lock() -> None:
    with shared_folder() as shared, gpu_lock(shared / "locks", "GPU-1"):
        lock = next((shared / "locks").iterdir())
        with mallory_starts("flock", "-s", "-n", lock, "true") as mallory:
            assert mallory.wait(20) != 0
        assert "PermissionError" in str(as_user(MALLORY, lambda: lock.open("rb")))


@pytest.mark.parametrize(("mode", "closed"), [(0o755, True), (0o775, True), (0o1777, False)])
def test_a_lock_folder_of_ours_is_closed_unless_it_was_for_all(
    tmp_path: Path, mode: int, closed: bool
) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/GPU-1.lock").touch()
    (tmp_path / "locks").chmod(mode)
    refused = nullcontext() if closed else pytest.raises(UnsafeFileError, match="chmod 0700")
    with refused, gpu_lock(tmp_path / "locks", "GPU-1"):
        assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("trap", ["ln -s", "ln"])
def test_a_lock_is_no_way_to_another_file(trap: str) -> None:
    with shared_folder() as shared:
        precious = shared / "notes.txt"
        precious.write_text("precious notes of the victim")
        precious.chmod(0o666)  # else Linux refuses the second name (fs.protected_hardlinks)
        mallory_does("mkdir", "-m", "1777", shared / "locks")
        mallory_does(*trap.split(), precious, shared / "locks" / "GPU-1.lock")
        with (
            pytest.raises(UnsafeFileError, match="another user"),
            gpu_lock(shared / "locks", "GPU-1"),
        ):
            pytest.fail("the trap was taken for a lock")
        shared.joinpath("ours").mkdir(mode=0o700)
        os.link(shared / "locks/GPU-1.lock", shared / "ours/GPU-1.lock", follow_symlinks=False)
        with (
            pytest.raises(UnsafeFileError, match="not a plain file"),
            gpu_lock(shared / "ours", "GPU-1"),
        ):
            pytest.fail("the trap was taken for a lock")
        assert precious.read_text() == "precious notes of the victim"


def test_the_members_of_a_group_share_the_locks_that_root_has_made() -> None:
    with shared_folder() as shared:
        folder = shared / "locks"
        folder.mkdir()
        os.chown(folder, 0, GROUP)
        folder.chmod(0o3770)

        def lock() -> str:
            with gpu_lock(folder, "GPU-1", "20260131-000000-ab12"):
                return "held"

        for user in (ALICE, BOB):
            assert as_user(user, lock, (GROUP,)) == "held"
            with gpu_lock(folder, "GPU-1", "20260131-000000-ab12"):
                assert "has the launch 20260131" in str(as_user(user, lock, (GROUP,)))
        assert "PermissionError" in str(as_user(MALLORY, lock))
