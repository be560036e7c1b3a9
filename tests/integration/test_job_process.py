"""A job ends until nobody is left, however it tries to get away, and whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launched import groups_are_bounded

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job
from advisor.errors import JobError, SurvivorsError
from advisor.runtime import cgroup, job_process, shim
from advisor.runtime.backend import Granted, UncappedBackend
from advisor.runtime.cgroup import ResourceBounds, left_cgroups
from advisor.runtime.job_process import JobProcess, adopting_orphans, check_none, end_cgroups
from advisor.runtime.processes import is_stopped, marked_pids, session_of, wait_until
from advisor.runtime.running_job import Proven, RunningJob

Start = Callable[..., JobProcess]

GROUP = f"advisor-test-{os.getpid()}-"
BOUNDS = ResourceBounds(tasks=500, memory_mib=500)

CHAIN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.0005)
time.sleep(60)
"""
STUBBORN = "trap '' TERM INT HUP; while :; do sleep 0.05; done"
ESCAPE = f'setsid env -i TOKEN="$TOKEN" sh -c "{STUBBORN}" & exit 0'
"""What it starts has no variable of its job, a session of its own, and init for a parent."""


@pytest.fixture(params=["cgroup", "no cgroup"])
def start(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    if request.param == "no cgroup":
        monkeypatch.setattr(cgroup, "_place", lambda: None)
    elif (probe := job_process.make_cgroup(GROUP, BOUNDS)) is None:
        pytest.skip("no control group may be made here")
    else:
        job_process.remove_cgroup(probe)
    started: list[JobProcess] = []

    def start(*command: str) -> JobProcess:
        environment = {**os.environ, "TOKEN": str(tmp_path), "MARK": str(tmp_path)}
        process = JobProcess(
            command,
            None,
            environment,
            tmp_path / "output.log",
            {"MARK": str(tmp_path)},
            GROUP,
            BOUNDS,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        assert wait_until(lambda process=process: process.over, 10)
        process.close()
    assert alive(tmp_path) == []


WITHOUT = pytest.mark.parametrize("start", ["no cgroup"], indirect=True)
"""Where a control group changes nothing."""


def alive(folder: Path) -> list[int]:
    return marked_pids({"TOKEN": str(folder)})


def ended(process: JobProcess) -> bool:
    process.kill()
    return wait_until(lambda: process.over, 10)


def test_chain_of_forks_is_outrun(start: Start, tmp_path: Path) -> None:
    process = start(sys.executable, "-c", CHAIN)
    assert wait_until(lambda: len(alive(tmp_path)) > 2, 10)
    process.terminate()
    time.sleep(0.1)
    assert not process.over
    assert ended(process)
    assert alive(tmp_path) == []
    assert process.status == -signal.SIGKILL


@WITHOUT
def test_children_are_found_without_the_kernels_list(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel without CONFIG_PROC_CHILDREN still names the parent of each process."""
    other = tmp_path / "shim.py"
    text = Path(shim.__file__).read_text()
    known = text.index("_KERNEL_LISTS_CHILDREN = ")
    other.write_text(f"{text[:known]}_KERNEL_LISTS_CHILDREN = False and {text[known + 25 :]}")
    monkeypatch.setattr(job_process, "_SHIM", other)
    process = start("sh", "-c", f"{STUBBORN} & wait")
    assert wait_until(lambda: len(process.pids()) >= 2, 10)
    assert ended(process)
    assert alive(tmp_path) == []


def test_process_without_variables_in_its_own_session_is_ended(
    start: Start, tmp_path: Path
) -> None:
    """It is an orphan that nothing ties to its job but the shim below which it stays."""
    process = start("sh", "-c", ESCAPE)
    assert wait_until(lambda: process.status == 0, 10)
    assert wait_until(lambda: bool(alive(tmp_path)), 10)
    assert process.pids()
    assert not process.over
    assert ended(process)
    assert alive(tmp_path) == []


def test_polite_request_reaches_every_process(start: Start, tmp_path: Path) -> None:
    waiting = f"touch {tmp_path}/ready; while :; do sleep 0.02; done"
    inner = f"trap 'touch {tmp_path}/asked; exit' TERM; {waiting}"
    process = start("sh", "-c", f'sh -c "sh -c \\"{inner}\\" & wait" & wait')
    assert wait_until((tmp_path / "ready").exists, 10)
    process.terminate()
    assert wait_until(lambda: process.over, 10)
    assert (tmp_path / "asked").exists()


def test_job_whose_shim_is_killed_is_ended(start: Start, tmp_path: Path) -> None:
    with adopting_orphans():
        process = start("sh", "-c", f"{ESCAPE.replace('exit 0', 'sleep 0.3')}; kill -9 $PPID")
        assert wait_until(lambda: process.status == -signal.SIGKILL, 10)
        assert alive(tmp_path)
        assert not process.over
        assert process.pids()
        assert ended(process)
        assert alive(tmp_path) == []


def test_shim_that_was_stopped_is_continued(start: Start, tmp_path: Path) -> None:
    process = start("sh", "-c", f"sleep 0.5; kill -STOP $PPID; {STUBBORN}")
    assert wait_until(lambda: is_stopped(process.roots()[0]), 10)
    assert ended(process)
    assert alive(tmp_path) == []


def test_shim_that_is_stopped_again_and_again_is_killed(start: Start, tmp_path: Path) -> None:
    """Then its job is found by mark, control group and parent, as that of one that was killed."""
    with adopting_orphans():
        again = "sleep 0.5; while :; do kill -STOP $PPID; done"
        process = start("sh", "-c", f"trap '' TERM; ({again}) & {STUBBORN}")
        (shim_pid,) = process.roots()
        assert wait_until(lambda: is_stopped(shim_pid), 10)
        os.kill(shim_pid, signal.SIGSTOP)
        process.kill_stopped()
        assert wait_until(lambda: process.over, 10)
        assert process.status == -signal.SIGKILL
        assert alive(tmp_path) == []


def test_zombie_is_no_survivor() -> None:
    with subprocess.Popen(["true"]) as child:
        assert wait_until(lambda: session_of(child.pid) is None, 10)
        check_none([child.pid])
    with pytest.raises(SurvivorsError):
        check_none([os.getpid()])


@WITHOUT
def test_a_number_that_a_stranger_has_by_now_is_not_the_jobs(start: Start, tmp_path: Path) -> None:
    """The kernel gives numbers of ended processes away; who has one is no part of the job."""
    # Who stays is in another session, whose number would else be kept.
    script = f"echo $$ > {tmp_path}/number; setsid sleep 60 & sleep 0.2; exit 0"
    process = start("sh", "-c", script)
    assert wait_until(lambda: process.status == 0, 10)
    number = int((tmp_path / "number").read_text())
    with stranger_with(number) as stranger:
        process.terminate()
        assert ended(process)
        assert stranger.poll() is None


@contextmanager
def stranger_with(number: int) -> Generator["subprocess.Popen[bytes]"]:
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(50):
        try:
            before = last.read_text()
            last.write_text(str(number - 1))
        except OSError:
            break
        with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
            # The numbers that follow are those of other tests, some of which look for theirs.
            last.write_text(before)
            try:
                if stranger.pid == number:
                    yield stranger
                    return
            finally:
                stranger.kill()
    pytest.skip("numbers of processes cannot be chosen here, or others start too many")


def test_groups_of_a_killed_advisor_are_ended() -> None:
    if (group := job_process.make_cgroup(GROUP, BOUNDS)) is None:
        pytest.skip("no control group may be made here")
    with subprocess.Popen(["sleep", "60"]) as left:
        (group / "cgroup.procs").write_text(str(left.pid))
        end_cgroups(GROUP)
        assert left.wait(10) == -signal.SIGKILL
    assert left_cgroups(GROUP) == []


# bounds


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Callable[[str], RunningJob]]:
    if not groups_are_bounded():
        pytest.skip("control groups get no bounds here")
    started: list[RunningJob] = []

    def start(code: str) -> RunningJob:
        job = Job(
            name="greedy",
            command=(sys.executable, "-c", code),
            env=(("TOKEN", str(tmp_path)),),
            max_tasks=50,
            host_memory_mib=100,
        )
        share, backend = Share(50), UncappedBackend(Gpu(uuid="GPU-bounds-test", model="none"))
        proven = Proven(
            job, share, backend, Granted(1, mps=False), {**os.environ, **dict(job.env)}, tmp_path
        )
        started.append(proven.start())
        return started[-1]

    yield start
    for running in started:
        running.stop()
    assert alive(tmp_path) == []


def why(running: RunningJob) -> str:
    with pytest.raises(JobError) as told:
        running.check()
    return told.value.why


def test_job_that_takes_too_much_memory_is_ended_and_the_reason_is_known(
    bounded: Callable[[str], RunningJob],
) -> None:
    worker = "a = []\nwhile True: a.append(bytearray(b'x' * 2**20))"
    running = bounded(
        f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {worker!r}])\n"
        "time.sleep(600)"
    )
    assert wait_until(lambda: running.exit_code is not None and running.over, 60)
    assert running.exit_code == -signal.SIGKILL
    assert "more than its 100 MiB" in why(running)
    running.stop()
    assert "more than its 100 MiB" in why(running)


def test_fork_bomb_stays_in_its_bound(bounded: Callable[[str], RunningJob], tmp_path: Path) -> None:
    running = bounded(
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError: pass"
    )
    assert wait_until(lambda: len(running.pids()) >= 50, 60)
    assert len(alive(tmp_path)) == 50
    subprocess.run(["true"], check=True)
    running.stop()
    assert alive(tmp_path) == []


# output


FLOOD = "import sys\nfor n in range(1000):\n    sys.stdout.write(('%07d' % n) * 1000 + '\\n')\n"


@WITHOUT
def test_output_is_bounded(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 MB in two files of 1 MB and a head: the beginning and the newest of it are kept."""
    monkeypatch.setenv("ADVISOR_OUTPUT_MIB", "2")
    process = start(sys.executable, "-c", FLOOD)
    assert wait_until(lambda: process.over, 20)
    sizes = [(tmp_path / name).stat().st_size for name in ("output.log", "output.log.1")]
    assert all(0 < size <= 1024 * 1024 for size in sizes)
    assert (tmp_path / "output.log").read_text().endswith("0000999\n")
    head = (tmp_path / "output.log.head").read_text()
    assert len(head) == shim.HEAD_BYTES
    assert head.startswith("0000000" * 1000 + "\n0000001")
