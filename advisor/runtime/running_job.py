"""A job under a proven share: its start, its progress, its gate, its limit, its end.

Variables say what a process was started with, not what it has: it may change them before its first
CUDA call, or start another process without them. So the driver is asked instead: NVML lists the
processes with a context on the GPU, and the MPS server its clients. A process that computes and is
no client has the whole GPU; one that is no part of a job disturbs both.
"""

import os
import shlex
import shutil
import signal
import struct
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from advisor.core.gpu import GROWTH, Share
from advisor.core.job import Job
from advisor.errors import AdvisorError, JobError, LimitBrokenError, LimitNotProvenError
from advisor.files import open_plain, read_end, writing_private
from advisor.progress import FILE_BYTES, GO, HOLD, QUIT, RUNNING, STARTING, WAITING
from advisor.runtime.backend import Backend, Granted, Proof
from advisor.runtime.counting import (
    ReportedOutput,
    open_counter,
    read_beats,
    read_bounds_ms,
    read_latencies,
    read_reported,
)
from advisor.runtime.job_process import (
    LEAVE_S,
    JobProcess,
    bounds_of,
    cgroup_prefix,
    check_none,
    end_cgroups,
    end_marked,
)
from advisor.runtime.processes import (
    MPS_SERVER,
    ancestors_of,
    carries,
    catches,
    cpu_s,
    has_memory,
    marked_pids,
    memory_bound_of,
    name_of,
    pin,
    wait_until,
)
from advisor.runtime.progress_search import counts_otherwise, patience_s
from advisor.settings import OUR_VARIABLES, RUNTIME_DIR, python

PROGRESS_MARK = "ADVISOR_PROGRESS_FILE"
"""Its value is unique for each started job, so it marks all processes of one."""


class RunningJob:
    """A job that was started under a proven share.

    Attributes:
        granted: What was read back before the start.
        reported: Reads what the job says of its results so far.
        latencies: Reads the requests answered so far, by bucket of latency; zeros where the job
            tells none.
        latency_bounds_ms: Reads between which of these latencies are not told apart; empty: none is
            told.
        beats: Reads how often it said that it lives and has nothing to do, as an idle server.
        roots: Lists roots: every process of the job is one of these or a descendant.
        sight: Lists the processes on its GPU; None if unknown.
        output: File with everything the job wrote.
        last_pids: Its processes when they were looked for last, also once they have ended.
        uncounted: Why it was ready before its progress could be read; None: it could.
        keeps_files: Whether its files stay open after its end, for a last count, until `close`.
    """

    def __init__(
        self,
        job: Job,
        share: Share,
        backend: Backend,
        granted: Granted,
        folder: Path,
        process: JobProcess,
    ) -> None:
        self.job, self.share, self.granted = job, share, granted
        self.output = folder / "output.log"
        self._backend, self._process = backend, process
        self._progress_path = folder / "progress"
        self._gate = open_plain(folder / "gate", "r+b") if job.progress.gate else None
        self._counter = open_counter(job.progress, self._progress_path, self.output)
        self._reports, self.reported = None, partial(read_reported, self._progress_path)
        if job.results and job.results.pattern is not None:
            self._reports = ReportedOutput(self.output, job.results.pattern)
            self.reported = self._reports.read
        self.roots, self.sight = process.roots, backend.sight
        self.latencies = partial(read_latencies, self._progress_path)
        self.latency_bounds_ms = partial(read_bounds_ms, self._progress_path)
        self.beats = partial(read_beats, self._progress_path)
        self._started = time.monotonic()
        self._ended, self.last_pids = False, frozenset[int]()
        self.uncounted: AdvisorError | None = None
        self.keeps_files = False

    def count(self, *, last: bool = False) -> float:
        """Progress so far, in the job's unit; the last count takes an unfinished line, too.

        Raises:
            JobError: the progress cannot be read now; it may be at a later call.
        """
        return self._counter.read(last=last)

    def pids(self) -> list[int]:
        """Living processes of the job."""
        self.last_pids = frozenset(pids := self._process.pids()) or self.last_pids
        return pids

    def proof(self) -> Proof:
        """How far its limit is known."""
        return "server" if self._backend.holds(self.share.percent) else "set"

    def memory_bound(self) -> str | None:
        """What bounds the memory that its frameworks hold; None: they hold what they need."""
        return memory_bound_of(self.pids())

    def has_marked(self, pid: int) -> bool:
        """Whether a process was started with the variables of this job, by whomever."""
        return carries(pid, {PROGRESS_MARK: str(self._progress_path)})

    def cpu_s(self) -> float:
        """CPU time of the living processes, s."""
        return cpu_s(self.pids())

    def pin(self, cores: Collection[int]) -> None:
        """Keep the job on `cores`."""
        pin(self.pids(), cores)

    def go(self) -> None:
        """Open the gate; a job without one runs anyway."""
        self._want(GO)

    def hold(self, timeout_s: float | None = None) -> None:
        """Close the gate and wait until the job stands at it, for its start time-out by default.

        Raises:
            JobError: it did not come to rest.
        """
        self._want(HOLD)
        timeout_s = self.job.start_timeout_s if timeout_s is None else timeout_s
        if self._gate is not None and not wait_until(self._waiting, timeout_s):
            raise self._error("did not stop at its gate", "it calls Progress.add too rarely")

    def ready(self) -> bool:
        """Whether the warm-up is over: it waits at its gate, or has begun to count.

        Raises:
            JobError: the job ended, or made no progress within its start time-out.
            InputError: its progress is read in another way than it is reported.
        """
        self.check()
        age_s = time.monotonic() - self._started
        if self._waiting() if self._gate is not None else self.count() > 0:
            return age_s >= self.job.warm_up_s
        if (unread := self._unread(age_s)) is not None:
            raise unread
        return False

    def ready_to_launch(self) -> bool:
        """Whether it may run beside others: as `ready`, but progress that is not found is no error.

        A server that is idle is ready, too. Without a gate a job is ready once its patience is
        over; `uncounted` then says why its progress is not known.

        Raises:
            JobError: the job ended, or did not come to its gate within its start time-out.
        """
        if self._gate is not None:
            return self.ready()
        self.check()
        age_s = time.monotonic() - self._started
        try:
            begun, self.uncounted = self.count() > 0 or self.beats() > 0, None
        except JobError as error:
            begun, self.uncounted = True, error
        if not begun:
            self.uncounted = self._unread(age_s)
        return (begun or self.uncounted is not None) and age_s >= self.job.warm_up_s

    @property
    def over(self) -> bool:
        """Whether no process of it is left."""
        return self._process.over

    @property
    def exit_code(self) -> int | None:
        """Of the job's first process, negative for a signal; None while it runs."""
        return self._process.status

    def check(self) -> None:
        """Check that the job still runs.

        Raises:
            JobError: it ended; the message holds the end of its output.
        """
        if (status := self.exit_code) is not None:
            how, why = _explain(status, self.tail(), self._process.met_bound)
            # The files of a job that was stopped are closed.
            if status == 0 and (pattern := self.job.progress.pattern) and not self._ended:
                with suppress(JobError):
                    if not self.count():
                        why = f"no line of its output matched {pattern}, and {why}"
            raise self._error(how, why)

    def check_client(self) -> None:
        """Check that a job is itself under its limit, unless it has ended; may wait some seconds.

        Raises:
            LimitNotProvenError: it is not.
        """
        try:
            self._backend.check_clients(self.share, self.pids)
        except LimitNotProvenError:
            # A job that has ended is no client.
            if self.exit_code is None:
                raise

    def check_limit(self) -> None:
        """Check that the running job is itself under its limit; stops it when it is not.

        Raises:
            JobError: it has ended by itself meanwhile.
            LimitNotProvenError: it is not under its limit.
        """
        try:
            self.check_client()
            self.check()
        except BaseException:  # Ctrl-C too: a job whose limit is not proven does not run on
            self.stop()
            raise

    def check_variables(self) -> None:
        """Check that no process of the running job has lost or changed what limits it.

        Raises:
            LimitNotProvenError: one has.
        """
        if pids := self.pids():
            try:
                self._backend.check_variables(self.share, lambda: pids)
            except LimitNotProvenError:
                # Without its shim, an orphan of its neighbour is taken for one of its own.
                if self.exit_code is None:
                    raise

    def tail(self) -> str:
        """The last 600 characters of the output."""
        return read_end(self.output, 600).decode(errors="replace").strip()

    def leave(self) -> None:
        """Ask the job at its gate to end; returns at once."""
        if self._process.status is None:
            self._want(QUIT)

    def ask_to_end(self) -> bool:
        """Ask the job to end by itself, after a checkpoint if it writes one; returns at once.

        At its gate, else by SIGTERM those of its processes that have a handler: for others that is
        an end in the midst of their work, as for a command that is run again and again. Whether
        any process was asked.
        """
        self.leave()
        if self._state() in (WAITING, RUNNING):
            return True
        is_once = self.job.progress.kind != "runs"
        catching = [pid for pid in self.pids() if is_once and catches(pid, signal.SIGTERM)]
        self._process.terminate_some(catching)
        return bool(catching)

    def stop(self) -> None:
        """End the job: ask at the gate, take it off the GPU, then signals; again does nothing.

        Raises:
            PartitionError: what enforces the limit did not answer; the job has ended.
            SurvivorsError: a process of it does not end.
        """
        if self._ended:
            return
        self.leave()
        # A job that has not come to its gate yet does not look at it.
        if self._process.status is None and self._state() in (WAITING, RUNNING):
            wait_until(lambda: self._process.status is not None, LEAVE_S)
        try:
            if pids := self.pids():
                self._backend.release(pids)
        finally:
            # Also when the daemon is gone: no job may outlive its limit.
            self._end()

    def close(self) -> None:
        """Let go of its files; the job has ended, and is not counted any more."""
        for file in filter(None, (self._counter, self._reports, self._gate)):
            file.close()

    def _unread(self, age_s: float) -> AdvisorError | None:
        """Why no progress was found in so many seconds; None: it may still begin."""
        is_due = age_s > patience_s(self.job)
        wrong = counts_otherwise(self.job, self.tail().splitlines()) if is_due else None
        if wrong is not None or age_s <= self.job.start_timeout_s:
            return wrong
        return self._error(
            f"made no progress within {self.job.start_timeout_s:g} s",
            "it runs, but gets no requests"
            if self.beats()
            else "it hangs, or its progress is not read the way it reports it "
            f"(progress: {self.job.progress.kind})",
        )

    def _end(self) -> None:
        process = self._process
        for end in (process.terminate, process.kill, process.kill_stopped):
            if not self.over:
                end()
                wait_until(lambda: self.over, LEAVE_S)
        check_none(self.pids())
        self._ended = True
        self._process.close()
        if not self.keeps_files:
            self.close()

    def _want(self, word: int) -> None:
        if self._gate is not None:
            os.pwrite(self._gate.fileno(), struct.pack("<q", word), 0)

    def _waiting(self) -> bool:
        if self._gate is not None:
            self.check()
        return self._state() == WAITING

    def _state(self) -> int:
        state = self._gate and os.pread(self._gate.fileno(), 8, 8)
        return struct.unpack("<q", state)[0] if state else STARTING

    def _error(self, what: str, why: str = "") -> JobError:
        end = "\n".join(self.tail().splitlines()[-10:]) or "(nothing)"
        return JobError(
            f"{self.job.name} at {self.share} % {what}",
            why=why,
            fix=f"its output is in {self.output}; the end of it:\n{end}",
        )


def _explain(status: int, tail: str, met_bound: str | None) -> tuple[str, str]:
    how = f"was ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
    if met_bound and status:
        return how, met_bound
    lower = tail.lower()
    if "out of memory" in lower:
        return how, "the GPU or the host ran out of memory; use a smaller batch"
    if "mps client has been terminated" in lower or "mpsclientterminated" in lower:
        return how, "its MPS client was terminated from outside"
    if status == -signal.SIGKILL:
        return how, "killed from outside, perhaps by the kernel for lack of memory"
    if status:
        return how, ""
    return how, (
        "a job must run until it is stopped: give it more steps, or let it be started again and "
        "again (progress runs)"
    )


_SCRAPE = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module('advisor.scrape', run_name='__main__', alter_sys=True)",
    # Where advisor is: found also in a user's own installation, and nothing of the job's.
    str(Path(__file__).parents[2]),
)

# Every job carries the UUIDs of the GPUs of its launch, so that left-over ones are found on each.
_GPU_MARKS = ("ADVISOR_GPU", "ADVISOR_GPU_BESIDE")


@dataclass(frozen=True, slots=True)
class Proven:
    """A job whose share is in force in the environment in which it will start.

    Attributes:
        granted: What was read back.
        environment: All variables of the job.
        folder: For its counter, gate and output.
    """

    job: Job
    share: Share
    backend: Backend
    granted: Granted
    environment: Mapping[str, str]
    folder: Path

    def start(self) -> RunningJob:
        """Start the job; returns before it is ready.

        Raises:
            JobError: the command cannot be started.
        """
        closed = struct.pack("<qq", HOLD, 0)
        for name, content in {
            "progress": bytes(FILE_BYTES),
            "gate": closed,
            "output.log": b"",
        }.items():
            with writing_private(self.folder / name) as file:
                file.write(content)
        try:
            process = JobProcess(
                (*_counted_by(self.job), *self.job.command),
                self.job.workdir,
                self.environment,
                self.folder / "output.log",
                {PROGRESS_MARK: str(self.folder / "progress")},
                cgroup_prefix(self.backend.gpu.uuid, self.environment.get(RUNTIME_DIR, "")),
                bounds_of(self.job),
            )
        except OSError as error:
            raise JobError(
                f"{self.job.name} cannot be started: {error}", fix="check its command and workdir"
            ) from error
        return RunningJob(self.job, self.share, self.backend, self.granted, self.folder, process)


def prove(
    job: Job, share: Share, backend: Backend, base: Mapping[str, str], folder: Path
) -> Proven:
    """Prove the limit in the environment in which the job will start.

    The variables of the job and of its limit go on top of `base`, which has no limits. In `folder`,
    which is empty, the job gets its counter, gate and output.

    Raises:
        LimitNotProvenError: the share is not in force.
        PartitionError: it cannot be set.
    """
    # Job files that set one of ours are refused; a launch that waits may be older than that.
    environment = {
        **GROWTH,
        **base,
        **dict(job.env),
        **{name: value for name, value in base.items() if name.startswith(OUR_VARIABLES)},
        "PYTHONUNBUFFERED": "1",
        PROGRESS_MARK: str(folder / "progress"),
        **({"ADVISOR_GATE_FILE": str(folder / "gate")} if job.progress.gate else {}),
        **dict(zip(_GPU_MARKS, [gpu.uuid for gpu in backend.gpu.each], strict=False)),
        **backend.environment(share),
    }
    return Proven(job, share, backend, backend.prove(share, environment), environment, folder)


def leftovers(gpu_uuid: str, runtime_dir: Path) -> list[int]:
    """Processes of jobs that an advisor with this runtime directory started on the GPU."""
    return [pid for mark in _marks(gpu_uuid, runtime_dir) for pid in marked_pids(mark)]


def _marks(gpu_uuid: str, runtime_dir: Path) -> list[dict[str, str]]:
    return [{name: gpu_uuid, RUNTIME_DIR: str(runtime_dir)} for name in _GPU_MARKS]


def end_leftovers(backend: Backend, runtime_dir: Path) -> None:
    """End jobs that a killed advisor left behind; the caller holds the lock of the GPU.

    Raises:
        SurvivorsError: one of them does not end.
    """
    for gpu in backend.gpu.each:
        for mark in _marks(gpu.uuid, runtime_dir):
            end_marked(backend, mark)
        end_cgroups(cgroup_prefix(gpu.uuid, str(runtime_dir)))


def _counted_by(job: Job) -> tuple[str, ...]:
    """The program that runs the command and counts it, where it does not count itself."""
    progress = job.progress
    if progress.kind == "runs":
        return python(), "-I", "-S", str(Path(__file__).with_name("repeat.py"))
    if progress.kind != "metrics":
        return ()
    values = {"url": progress.url, "counter": progress.counter, "histogram": progress.histogram}
    values["promised-ms"] = None if job.max_p99_ms is None else str(job.max_p99_ms)
    options = (f"--{name}={value}" for name, value in values.items() if value is not None)
    return (python(), "-I", "-c", *_SCRAPE, *options, "--")


# Words that only a shell understands; quoted ones stand in longer words.
_SHELL = frozenset({"&&", "||", "|", ";", ">", "<"})


def check_program(job: Job, base: Mapping[str, str]) -> None:
    """Whether the program of a job is there, before it is tried at every share.

    Raises:
        JobError: it is not.
    """
    program, folder = job.command[0], job.workdir or Path.cwd()
    if program == "cd" or not _SHELL.isdisjoint(job.command):
        word = next(word for word in job.command if word == "cd" or word in _SHELL)
        fix = f"write bash -c {shlex.quote(' '.join(job.command))}"
        if program == "cd" and len(job.command) > 3 and job.command[2] == "&&":
            there, rest = job.command[1], shlex.join(job.command[3:])
            fix = f"write workdir: {there} and command: {rest} in a job file (or stand there)"
        raise JobError(
            f"{job.name} cannot be started: its command has {word}, and no shell reads it", fix=fix
        )
    if not folder.is_dir():
        raise JobError(
            f"{job.name} cannot be started: its workdir {folder} does not exist",
            fix="make it, or correct workdir in its job file",
        )
    here = (
        (folder / program).exists()
        if "/" in program
        else shutil.which(program, path={**base, **dict(job.env)}.get("PATH", os.defpath))
    )
    if not here:
        raise JobError(
            f"{job.name} cannot be started: there is no program {program}",
            fix="check its command and workdir",
        )


# A process that starts or ends may be on one list only for a moment; one that starts on another GPU
# of the host was for up to 0.7 s (H100).
_CONFIRM_S = 1.0


@dataclass(frozen=True, slots=True)
class _Breach:
    """A process that is not under the limit it should be under.

    Attributes:
        job: Its job; None: it is of none.
        why: In words, without its number.
        is_stranger: It seems to belong to no job here, and is no client of our server.
    """

    pid: int
    job: RunningJob | None
    why: str
    is_stranger: bool = False


def check_limits(
    jobs: Sequence[RunningJob], *, strict: bool = True, former: Collection[int] = ()
) -> tuple[int, ...]:
    """Check that only these jobs compute on their GPU, each under its limit.

    Args:
        jobs: Of one GPU.
        strict: Strangers are as bad as a job that leaves its limit.
        former: Strangers that were found before, which need no second look.

    Returns:
        Strangers that compute there, where not `strict`.

    Raises:
        LimitBrokenError: another process does; its `jobs` are the owners of such processes.
        PartitionError: the MPS server cannot be asked.
    """
    breaches = _breaches(jobs)
    if not all(breach.is_stranger and breach.pid in former for breach in breaches):
        time.sleep(_CONFIRM_S)
        before = {breach.pid for breach in breaches}
        breaches = [b for b in _breaches(jobs) if b.pid in before and has_memory(b.pid)]
    broken = [breach for breach in breaches if strict or not breach.is_stranger]
    if broken:
        raise LimitBrokenError(
            "; ".join(f"process {b.pid} ({name_of(b.pid)}) {b.why}" for b in broken),
            why="it has no part of the GPU to itself, and its neighbour has less than its part",
            fix="let each job compute in processes that it starts, and leave the variables of its "
            "limit alone",
            jobs=frozenset(b.job.job.name for b in broken if b.job),
        )
    return tuple(breach.pid for breach in breaches)


def is_listed(jobs: Sequence[RunningJob]) -> bool:
    """Whether NVML names processes of these jobs; in some containers it names none."""
    sight = jobs[0].sight() if jobs else None
    return sight is None or any(_owners(sight.computing, jobs).values())


def clients_of(jobs: Sequence[RunningJob]) -> list[int]:
    """How many clients of MPS each job has on a GPU; 0 where there is no MPS.

    Raises:
        PartitionError: the MPS server cannot be asked.
    """
    sight = jobs[0].sight() if jobs else None
    owners = _owners((sight and sight.clients) or (), jobs)
    return [sum(owner is job for owner in owners.values()) // job.job.gpus for job in jobs]


def _breaches(jobs: Sequence[RunningJob]) -> list[_Breach]:
    if not jobs or (sight := jobs[0].sight()) is None:
        return []
    # The jobs after the lists: what was started meanwhile is found below its job.
    owners = _owners(sight.computing | (sight.clients or frozenset()), jobs)
    # Numbers of another namespace say nothing of our processes.
    computing = sight.computing if any(owners[pid] for pid in sight.computing) else frozenset[int]()
    breaches = [
        _Breach(
            pid,
            None,
            "computes on the GPU and is of no job",
            is_stranger=pid not in (sight.clients or ()),
        )
        for pid in computing
        # The server of another daemon only serves others.
        if owners[pid] is None and not name_of(pid).startswith(MPS_SERVER)
    ]
    if sight.clients is not None:
        breaches += [
            _Breach(pid, job, f"of {job.job.name} computes without MPS, on the whole GPU")
            for pid in computing - sight.clients
            if (job := owners[pid])
        ]
        breaches += [
            _Breach(pid, None, "is a client of the MPS server and of no job")
            for pid in sight.clients - computing
            if owners[pid] is None
        ]
    return sorted(breaches, key=lambda breach: breach.pid)


def _owners(pids: Collection[int], jobs: Sequence[RunningJob]) -> dict[int, RunningJob | None]:
    """The job of each process; None where it is of none."""
    roots = {root: job for job in jobs for root in job.roots()}
    return {
        pid: next((roots[above] for above in (pid, *ancestors_of(pid)) if above in roots), None)
        # One that another process was asked to start.
        or next((job for job in jobs if job.has_marked(pid)), None)
        for pid in pids
    }
