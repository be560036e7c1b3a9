"""A job ends until nobody is left, however it tries to get away, and whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from launched import freezer, groups_are_bounded

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job, ProgressSettings
from advisor.errors import InputError, JobError, LimitNotProvenError, PartitionError, SurvivorsError
from advisor.runtime import job_process, shim
from advisor.runtime.backend import Backend, Granted, UncappedBackend
from advisor.runtime.job_process import (
    JobProcess,
    ResourceBounds,
    adopting_orphans,
    check_none,
    end_cgroups,
    left_cgroups,
)
from advisor.runtime.processes import (
    control_group,
    is_frozen,
    is_stopped,
    marked_pids,
    owner_of,
    session_of,
    wait_until,
)
from advisor.runtime.running_job import Proven, RunningJob, check_program, end_leftovers, prove
from advisor.settings import LIMIT_VARIABLES, read_settings

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
        monkeypatch.setattr(job_process, "_place", lambda: None)
    elif (probe := job_process.make_cgroup(GROUP, BOUNDS)) is None:
        pytest.skip("no control group may be made here")
    else:
        job_process.remove_cgroup(probe)
    started: list[JobProcess] = []

    def start(*command: str) -> JobProcess:
        process = JobProcess(
            command,
            None,
            {**os.environ, "TOKEN": str(tmp_path), "MARK": str(tmp_path)},
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
    assert (alive(tmp_path), process.status) == ([], -signal.SIGKILL)


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


def test_end_of_a_job_that_stopped_its_shim_is_seen_at_once(start: Start) -> None:
    """Before it was ready, too, when nobody looks at its limit yet."""
    process = start("sh", "-c", "sleep 0.3; kill -STOP $PPID; exit 3")
    assert wait_until(lambda: process.status == 3, 15)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a control group here")
@pytest.mark.parametrize("kind", ["", "freezer"])
def test_what_stands_still_is_known(kind: str) -> None:
    """Whether by a signal, or by the freezer of either version of control groups."""
    own = control_group("self", kind)
    if own is None or not os.access(own, os.W_OK):
        pytest.skip("this host has no such control groups")
    group = own / f"advisor-test-{os.getpid()}"
    name, on, off = ("freezer.state", "FROZEN", "THAWED") if kind else ("cgroup.freeze", "1", "0")
    with subprocess.Popen(["sleep", "60"]) as job:
        assert (is_stopped(job.pid), is_frozen(job.pid)) == (False, False)
        job.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: is_stopped(job.pid), 10)
        job.send_signal(signal.SIGCONT)
        group.mkdir()
        try:
            (group / "cgroup.procs").write_text(str(job.pid))
            (group / name).write_text(on)
            assert wait_until(lambda: is_frozen(job.pid), 10)
            (group / name).write_text(off)
            assert wait_until(lambda: not is_frozen(job.pid), 10)
        finally:
            (group / name).write_text(off)
            job.kill()
            job.wait()
            group.rmdir()


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
        assert (process.status, alive(tmp_path)) == (-signal.SIGKILL, [])


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
    process = start("sh", "-c", f"echo $$ > {tmp_path}/number; setsid sleep 60 & sleep 0.2; exit 0")
    assert wait_until(lambda: process.status == 0, 10)
    with stranger_with(int((tmp_path / "number").read_text())) as stranger:
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
        proven = Proven(job, share, backend, Granted(1), {**os.environ, **dict(job.env)}, tmp_path)
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


OUTPUT = ProgressSettings(kind="output", pattern=r"step (\d+)")
GATED = """
import time
from advisor.progress import Progress
progress = Progress()
progress.ready()
while True:
    time.sleep(0.001)
    progress.add()
"""


GPU = Gpu(uuid="GPU-launcher-test", model="None")


@dataclass(frozen=True, slots=True)
class Unlimited(Backend):
    gpu: Gpu = GPU
    mode: str = "unlimited"
    fails: dict[str, Exception] = field(default_factory=dict)
    released: list[tuple[set[int], str]] = field(default_factory=list)
    output: Callable[[], str] = lambda: ""

    def environment(self, share: Share) -> dict[str, str]:
        return {"LIMIT": str(share)}

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        return Granted(int(share.percent))

    def sight(self) -> None:
        pass

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        self._fail("check_clients")

    def release(self, pids: Collection[int]) -> None:
        self.released.append((set(pids), self.output()))
        self._fail("release")

    def _fail(self, where: str) -> None:
        if where in self.fails:
            raise self.fails[where]


Launch = Callable[..., AbstractContextManager[RunningJob]]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.runtime.running_job.LEAVE_S", 1)


@pytest.fixture
def run(tmp_path: Path) -> Launch:
    @contextmanager
    def start(
        *command: str,
        progress: ProgressSettings = OUTPUT,
        backend: Unlimited | None = None,
        base: Mapping[str, str] = os.environ,
        **fields: object,
    ) -> Generator[RunningJob]:
        job = replace(Job(name="j", command=command, progress=progress), **fields)
        running = prove(job, Share(30), backend or Unlimited(), base, tmp_path).start()
        try:
            yield running
        finally:
            running.stop()

    return start


def ready(job: RunningJob) -> None:
    assert wait_until(job.ready, 10)


PRINTS = (
    "import itertools, time\n"
    "for n in itertools.count(): print(f'step {n}/9', flush=True); time.sleep(0.01)"
)


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "patience_s"), [("images=(.*)", 180.0), ("images=(.*)", 60.0)])
def test_a_pattern_that_fits_nothing_is_not_waited_for(
    run: Launch, monkeypatch: pytest.MonkeyPatch, pattern: str, patience_s: float
) -> None:
    monkeypatch.setattr("advisor.runtime.progress_search._PATTERN_S", 0.5)
    progress = replace(OUTPUT, pattern=pattern)
    command = (sys.executable, "-u", "-c", PRINTS)
    with run(*command, progress=progress, start_timeout_s=patience_s) as job:
        said(job, "step 60/9")
        if patience_s != 180:
            assert not job.ready()
            return
        with pytest.raises(InputError, match=r"matches its pattern images=.*counts otherwise"):
            wait_until(job.ready, 10)
        # Beside others it runs, and the reason is shown instead of its rate.
        assert job.ready_to_launch()
        assert "counts otherwise" in str(job.uncounted)


def test_a_server_that_nobody_asks_is_there(run: Launch) -> None:
    code = (
        "import time; from advisor.progress import Progress; p = Progress()\n"
        "while True: p.add(0); time.sleep(0.01)"
    )
    command = (sys.executable, "-c", code)
    with run(*command, progress=ProgressSettings(), start_timeout_s=1) as job:
        assert wait_until(job.ready_to_launch, 10)
        assert job.count() == 0
        with pytest.raises(JobError, match="gets no requests"):
            wait_until(job.ready, 10)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("cd", "x", "&&", "python", "a b.py"), "write workdir: x and command: python 'a b.py'"),
        (("python", "a.py", "|", "tee", "x"), "write bash -c 'python a.py | tee x'"),
        (("true",), "its workdir /nosuch does not exist"),
    ],
)
def test_what_cannot_start_is_said_before_it_is_started(
    command: tuple[str, ...], said: str
) -> None:
    folder = Path("/nosuch") if command == ("true",) else None
    with pytest.raises(JobError) as raised:
        check_program(Job(name="j", command=command, progress=OUTPUT, workdir=folder), os.environ)
    assert said in str(raised.value)


def said(job: RunningJob, text: str) -> None:
    assert wait_until(lambda: text in job.tail(), 10), job.tail()


# gate


def test_gate_holds_and_lets_go(run: Launch) -> None:
    with run(sys.executable, "-c", GATED, progress=ProgressSettings(gate=True)) as job:
        ready(job)
        before = 0.0
        for _ in range(2):
            time.sleep(0.05)
            assert job.count() == before
            job.go()
            assert wait_until(lambda seen=before: job.count() > seen + 20, 10)
            job.hold()
            before = job.count()


def test_gated_job_is_asked_to_leave(run: Launch) -> None:
    """A job at its gate ends by itself: no call to the driver, no signal."""
    backend = Unlimited()
    with run(
        sys.executable, "-c", GATED, progress=ProgressSettings(gate=True), backend=backend
    ) as job:
        ready(job)
        job.stop()
        job.stop()  # as a sweep does with a job that failed
        with pytest.raises(JobError, match="ended with exit code 0"):
            job.check()
    assert backend.released == []


SAVES = """
import itertools, signal, sys, time
signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("saved"))
for n in itertools.count():
    print(f"step {n}/9", flush=True)
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("command", "progress", "is_asked"),
    [
        ((sys.executable, "-c", GATED), ProgressSettings(gate=True), True),
        (("sh", "-c", f"{sys.executable} -c '{SAVES}'; exit 3"), OUTPUT, True),
        ((sys.executable, "-c", PRINTS), OUTPUT, False),
        (("sleep", "0.02"), ProgressSettings(kind="runs"), False),
    ],
)
def test_who_may_write_a_checkpoint_is_asked_to_end(
    run: Launch,
    tmp_path: Path,
    command: tuple[str, ...],
    progress: ProgressSettings,
    is_asked: bool,
) -> None:
    """By no signal where one ends the work that is under way; a shell goes on to its own end."""
    with run(*command, progress=progress) as job:
        ready(job)
        assert job.ask_to_end() == is_asked
        assert wait_until(lambda: job.over, 10 if is_asked else 0.2) == is_asked
        assert (job.exit_code == 3) == ("saved" in (tmp_path / "output.log").read_text())


@pytest.mark.usefixtures("impatient")
def test_job_that_does_not_look_at_its_gate_is_told(run: Launch) -> None:
    """A held job that still runs would disturb the next window."""
    rude = GATED.replace("    progress.add()", "")
    gated = ProgressSettings(gate=True)
    with run(sys.executable, "-c", rude, progress=gated, start_timeout_s=0.5) as job:
        assert wait_until(lambda: _starts(job), 10)
        job.go()
        time.sleep(0.1)
        with pytest.raises(JobError, match="did not stop at its gate"):
            job.hold()


def _starts(job: RunningJob) -> bool:
    """Ready, with more patience than the job's own time-out gives a slow interpreter."""
    try:
        return job.ready()
    except JobError:
        return False


# progress


def test_silent_job_is_given_up(run: Launch) -> None:
    with run("sh", "-c", "echo hello; sleep 60", start_timeout_s=0.2) as job:
        with pytest.raises(JobError, match=r"made no progress within 0.2 s.*progress: output"):
            wait_until(job.ready, 10)
        said(job, "hello")


def test_warm_up_is_waited_for(run: Launch) -> None:
    begun = time.monotonic()
    with run("sh", "-c", "echo step 5; sleep 60", warm_up_s=0.4) as job:
        assert wait_until(lambda: job.count() == 5, 10)
        assert time.monotonic() - begun > 0.4 or not job.ready()
        ready(job)
    assert time.monotonic() - begun >= 0.4


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("kill -9 $$", "signal 9.*perhaps by the kernel for lack of memory"),
        ("echo CUDA Out of memory; exit 1", "exit code 1.*use a smaller batch.*CUDA Out of memory"),
        ("exit 0", "must run until it is stopped"),
    ],
)
def test_end_is_explained(run: Launch, end: str, said: str) -> None:
    with run("sh", "-c", end) as job:
        with pytest.raises(JobError, match=f"(?s){said}") as caught:
            wait_until(job.ready, 10)
        assert str(job.output) in caught.value.fix


def test_completed_runs_are_counted_until_one_fails(run: Launch, tmp_path: Path) -> None:
    runs = ProgressSettings(kind="runs", per_run=20)
    bad = tmp_path / "bad"
    with run("sh", "-c", f"test -e {bad} && exit 9; sleep 0.02", progress=runs) as job:
        ready(job)
        assert wait_until(lambda: job.count() >= 60, 10)
        assert job.count() % 20 == 0
        bad.touch()
        with pytest.raises(JobError, match="ended with exit code 9"):
            wait_until(lambda: bool(job.check()), 10)


# limits


def test_variables_of_the_caller_that_limit_do_not_reach_the_job(run: Launch) -> None:
    caller = {**os.environ, "KEPT": "1", **dict.fromkeys(LIMIT_VARIABLES, "caller")}
    base = read_settings(caller).job_environment()
    own = (("MINE", "2"), ("LIMIT", "job"))
    with run("sh", "-c", "env; echo step 1; sleep 60", base=base, env=own) as job:
        said(job, "step 1")
        lines = job.output.read_text().splitlines()
    assert {"KEPT=1", "MINE=2", "LIMIT=30", "ADVISOR_GPU=GPU-launcher-test"} <= set(lines)
    assert [line for line in lines if line.endswith("=caller")] == []
    assert not any(line.startswith("ADVISOR_GATE_FILE") for line in lines)


def test_orphan_of_a_neighbour_is_no_broken_limit(run: Launch) -> None:
    """Where the shims of both jobs were killed, that is what the launch has to say."""
    with adopting_orphans(), run("sh", "-c", "echo step $PPID; sleep 60") as job:
        said(job, "step")
        neighbour = "setsid env LIMIT=70 sleep 60 > /dev/null & echo $!"
        orphan = int(subprocess.check_output(["sh", "-c", neighbour]))
        assert orphan not in job.pids()
        os.kill(int(job.count()), signal.SIGKILL)
        assert wait_until(lambda: orphan in job.pids(), 10)
        job.check_variables()
        assert job.exit_code == -signal.SIGKILL


# end

TELLS_TERM = "trap 'echo got TERM' TERM; echo step 1; while :; do sleep 0.05; done"


@pytest.mark.usefixtures("impatient")
def test_job_is_taken_off_the_gpu_before_any_signal(run: Launch, tmp_path: Path) -> None:
    """A client that is killed with work under way can hang its neighbours; then TERM, then KILL."""
    output = tmp_path / "output.log"
    backend = Unlimited(output=output.read_text)
    with run("sh", "-c", TELLS_TERM, backend=backend) as job:
        ready(job)
        (shell, *_) = job.pids()
        job.stop()
        with pytest.raises(JobError, match=f"ended by signal {signal.SIGKILL:d}"):
            job.check()
    ((pids, before),) = backend.released
    assert shell in pids
    assert "TERM" not in before
    assert "got TERM" in output.read_text()


@pytest.mark.parametrize(
    ("where", "error", "act"),
    [
        ("check_clients", LimitNotProvenError("is no client"), RunningJob.check_limit),
        ("release", PartitionError("no MPS daemon answers"), RunningJob.stop),
    ],
)
def test_job_that_may_have_the_whole_gpu_is_ended(
    run: Launch, where: str, error: Exception, act: Callable[[RunningJob], None]
) -> None:
    with run("sleep", "60", backend=Unlimited(fails={where: error})) as job:
        pids = job.pids()
        with pytest.raises(type(error)):
            act(job)
        assert pids
        assert set(map(owner_of, pids)) == {None}


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_process_that_does_not_end_is_told(
    run: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen process takes no signal; who stops it says so, and so does the next on its GPU."""
    monkeypatch.setattr("advisor.runtime.job_process.LEAVE_S", 0.2)
    base = {**os.environ, "ADVISOR_RUNTIME_DIR": str(tmp_path)}
    with freezer() as group, ExitStack() as thawed:
        inner = f"sh -c 'echo step $$; echo $$ > {group}/tasks; sleep 99' & wait"
        job = thawed.enter_context(run("sh", "-c", inner, base=base))
        assert wait_until(lambda: bool((group / "tasks").read_text()), 10)
        (left,) = (int(line) for line in (group / "tasks").read_text().split())
        for stop in (job.stop, lambda: end_leftovers(Unlimited(), tmp_path)):
            with pytest.raises(SurvivorsError, match=rf"processes \[{left}\] of a job do not end"):
                stop()
        held = thawed.pop_all()
    held.close()


@pytest.mark.parametrize("mark", ["ADVISOR_GPU", "ADVISOR_GPU_BESIDE"])
def test_left_over_job_of_a_killed_advisor_is_ended(tmp_path: Path, mark: str) -> None:
    """One of a launch on two GPUs is found on each of them."""
    backend = Unlimited()
    first = {"ADVISOR_GPU": "GPU-x", mark: backend.gpu.uuid}
    ours = {**first, "ADVISOR_RUNTIME_DIR": str(tmp_path)}
    others = [{**ours, mark: "GPU-x"}, {**ours, "ADVISOR_RUNTIME_DIR": "/elsewhere"}]
    left, *stay = [
        subprocess.Popen(["sleep", "60"], env={**os.environ, **env}) for env in (ours, *others)
    ]
    try:
        end_leftovers(backend, tmp_path)
        assert left.wait(5) == -signal.SIGTERM
        assert [process.poll() for process in stay] == [None, None]
        assert [pids for pids, _ in backend.released] == [{left.pid}]
    finally:
        for process in (left, *stay):
            process.kill()
            process.wait()
