"""A running job: gate, progress, limits in its environment, and its end in the safe order."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from launched import freezer

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job, ProgressSettings
from advisor.errors import InputError, JobError, LimitNotProvenError, PartitionError, SurvivorsError
from advisor.runtime.backend import Granted, Server
from advisor.runtime.job_process import adopting_orphans
from advisor.runtime.processes import owner_of, wait_until
from advisor.runtime.running_job import RunningJob, check_program, end_leftovers, prove
from advisor.settings import LIMIT_VARIABLES, read_settings

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
class Unlimited(Server):
    gpu: Gpu = GPU
    mode: str = "unlimited"
    max_clients: int = 10
    fails: dict[str, Exception] = field(default_factory=dict)
    released: list[tuple[set[int], str]] = field(default_factory=list)
    output: Callable[[], str] = lambda: ""

    def environment(self, share: Share) -> dict[str, str]:
        return {"LIMIT": str(share)}

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        return Granted(int(share.percent), mps=False)

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
    monkeypatch.setattr("advisor.runtime.progress_search.PATTERN_S", 0.5)
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
        with pytest.raises(JobError, match="nobody asks it"):
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

STUBBORN = "trap 'echo got TERM' TERM; echo step 1; while :; do sleep 0.05; done"


@pytest.mark.usefixtures("impatient")
def test_job_is_taken_off_the_gpu_before_any_signal(run: Launch, tmp_path: Path) -> None:
    """A client that is killed with work under way can hang its neighbours; then TERM, then KILL."""
    output = tmp_path / "output.log"
    backend = Unlimited(output=output.read_text)
    with run("sh", "-c", STUBBORN, backend=backend) as job:
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


def test_left_over_job_of_a_killed_advisor_is_ended(tmp_path: Path) -> None:
    backend = Unlimited()
    ours = {"ADVISOR_GPU": backend.gpu.uuid, "ADVISOR_RUNTIME_DIR": str(tmp_path)}
    others = [{**ours, "ADVISOR_GPU": "GPU-x"}, {**ours, "ADVISOR_RUNTIME_DIR": "/elsewhere"}]
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
