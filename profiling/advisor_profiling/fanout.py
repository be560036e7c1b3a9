"""Parts of one command on several GPUs: of this host, or of a Slurm or Ray cluster.

A shard is the part for one GPU. In its folder are its log, its answer as JSON and, unless the store
is a database server, its points. All nodes see the folder. An engine places shards, and starts a
shard of a lost node again; the shard goes on behind its last point.
"""

import ctypes
import importlib
import json
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from advisor.core.wording import count_of
from advisor.errors import AdvisorError, BusyError, InputError, JobError, undone_by
from advisor.files import make_folder, open_home, replace_file, try_lock
from advisor.runtime.processes import physical_cores
from advisor.settings import Settings, python
from advisor_data import Store, open_store

OnWhat = Literal["here", "slurm", "ray"]
# Names of the shards that will not run again, each with an error or an empty text.
Ended = Callable[[], Mapping[str, str]]

Submit = Callable[[Sequence["Shard"]], Ended]
_ANSWER, _LOG, _OUTPUT, _POINTS = "answer.json", "log", "output", "points.db"
_DATABASE = "ADVISOR_DATABASE_URL"
# Variables in which Slurm and Ray name the GPU of a task, by index or UUID.
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

_POLL_S = 1.0
# A network file system may show an answer some seconds after its shard has ended.
_LATE_S = 20.0


_STOP_S, _CONNECT_S, _COMMAND_S = 90.0, 10.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """One command for several GPUs.

    Attributes:
        names: One for each shard, fit to be names of folders.
        run: Name of the folder of all shards.
        gpus: Those of this host, one for each shard; none: the engine chooses.
        part: Number, from 1, and count of the parts of the plan of which this command does one.
        options: Added to the command line of each shard.
        keep_answers: Do not repeat shards that ended well in an earlier command.
        fresh: Shards do not know the points of the store.
    """

    names: Sequence[str]
    on: OnWhat = "here"
    run: str = ""
    gpus: Sequence[str] = ()
    part: tuple[int, int] = (1, 1)
    options: tuple[str, ...] = ()
    keep_answers: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The part of a command for one GPU.

    Attributes:
        folder: Its own, the same on every node.
        arguments: Command line of `advisor` without the GPU.
        cwd: Where the command runs; relative paths in it mean this folder.
        environment: Variables that the command needs on every node; no secrets.
        cores: Logical cores of this host; empty: all.
    """

    name: str
    folder: Path
    arguments: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    cores: frozenset[int] = frozenset()

    def answer(self) -> tuple[int, dict[str, Any]] | None:
        """Exit code and JSON of its command; None while there is none."""
        # A network file system looks for new files when a folder is listed.
        with suppress(OSError):
            list(self.folder.iterdir())
        with suppress(FileNotFoundError):
            code, said = json.loads((self.folder / _ANSWER).read_bytes())
            return code, said
        return None

    def keep_answer(self, code: int) -> None:
        """Write the answer of a command that ended; a stopped one gave none."""
        with suppress(ValueError):
            said = json.loads((self.folder / _OUTPUT).read_bytes())
            replace_file(self.folder / _ANSWER, json.dumps([code, said]).encode())

    def start(self, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Its process; see `run`."""
        for folder in (self.folder, self.cwd):
            if not folder.is_dir():
                raise InputError(
                    f"{platform.node()} has no folder {folder}",
                    fix="run advisor in a folder that all nodes see, and set ADVISOR_HOME to one",
                )
        given = (environment.get(name, "").split(",")[0].strip() for name in _GPU_VARIABLES)
        if not (gpu := next(filter(None, given), "")):
            raise InputError(
                f"the shard was given no GPU on {platform.node()}",
                why=f"none of {', '.join(_GPU_VARIABLES)} names one",
                fix="see that Slurm or Ray counts the GPUs of the node",
            )

        def prepare() -> None:
            if self.cores:
                os.sched_setaffinity(0, self.cores)
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
            # Slurm sends it to all processes of a job that has to leave; that of submitit ends the
            # command.
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)

        with (self.folder / _LOG).open("ab", 0) as log, (self.folder / _OUTPUT).open("wb") as out:
            log.write(f"  on {platform.node()}, GPU {gpu}\n".encode())
            return subprocess.Popen(
                [python(), "-m", "advisor_cli", *self.arguments, "--gpu", gpu, "--json"],
                cwd=self.cwd,
                env={**environment, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                # A terminal's Ctrl-C reaches the command alone, which then ends its shards.
                process_group=0,
                preexec_fn=prepare,
            )

    def run(self, environment: Mapping[str, str] | None = None) -> None:
        """Run it on the GPU that the environment names, to its end, and write its answer.

        Without an environment it is that of this process.

        Raises:
            InputError: the node does not see the shard's folders, or there is no GPU for it.
        """
        child = self.start(os.environ if environment is None else environment)
        # Where the engine ends this process, the command ends first, in the safe order.
        with undone_by(lambda: _end([child])):
            # Ray's interrupt does not reach a process that waits in the kernel.
            while (code := child.poll()) is None:
                time.sleep(_POLL_S / 5)
        self.keep_answer(code)


def run_everywhere(
    wanted: FanOut, settings: Settings, store: Store, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], int]:
    """Run this process's command once for each shard, with `--shard 1/n` and so on.

    The store gets the points of all shards.

    Returns the JSON answers of the shards that gave one, and the largest exit code.

    Raises:
        AdvisorError: no shard gave an answer; the error of their exit code.
        InputError: the engine cannot be used.
    """
    with _folder(wanted, settings) as folder:
        shards = _shards(wanted, folder, settings)
        # Each has no shard of an earlier command when it opens, and stops all shards when an error
        # closes it.
        engines: dict[OnWhat, Callable[[], AbstractContextManager[Submit]]] = {
            "here": lambda: on_this_host(wanted.gpus),
            "slurm": lambda: on_slurm(folder),
            "ray": lambda: on_ray(settings.secrets()),
        }
        kept = {s.folder for s in shards if wanted.keep_answers and (s.answer() or (1,))[0] == 0}
        try:
            # Ray prints what happens to its nodes, where an answer as JSON goes.
            with redirect_stdout(sys.stderr), engines[wanted.on]() as submit:
                _take_points(folder, store)
                for path in {path for path in folder.iterdir() if path.is_dir()} - kept:
                    shutil.rmtree(path)
                for shard in shards:
                    make_folder(shard.folder)
                    if not wanted.fresh and (url := shard.environment.get(_DATABASE)):
                        with open_store(url, shard.folder) as points:
                            points.add([*store.solo_points(), *store.pair_points()])
                errors = hand_out(shards, submit, say)
        finally:
            _take_points(folder, store)
        answers, code = _together(shards, errors, say)
        if len(answers) == len(shards):
            shutil.rmtree(folder)
    return answers, code


def hand_out(
    shards: Sequence[Shard], submit: Submit, say: Callable[[str], None]
) -> Mapping[str, str]:
    """Have an engine run the shards without an answer, pass on their logs, and wait for all.

    Returns:
        The engine's errors of the shards that ended.
    """
    if not (left := [shard for shard in shards if shard.answer() is None]):
        return {}
    now_ended, said = submit(left), dict.fromkeys((shard.name for shard in shards), 0)
    late_s = time.monotonic() + _LATE_S
    while True:
        ended, before = now_ended(), len(left)
        left = [shard for shard in left if shard.answer() is None]
        for shard in shards:
            said[shard.name] = _pass_on(shard, said[shard.name], say)
        if len(left) < before:
            say(f"{len(shards) - len(left)} of {count_of(len(shards), 'shard')} done")
        if any(shard.name not in ended for shard in left):
            late_s = time.monotonic() + _LATE_S
        elif all(ended[shard.name] for shard in left) or time.monotonic() >= late_s:
            return ended
        time.sleep(_POLL_S)


@contextmanager
def on_this_host(gpus: Sequence[str]) -> Generator[Submit]:
    """Each shard on a GPU of this host, with its own part of the cores."""
    children: dict[str, subprocess.Popen[bytes]] = {}

    def submit(shards: Sequence[Shard]) -> Ended:
        for shard, gpu in zip(shards, gpus, strict=True):
            children[shard.name] = shard.start({**os.environ, _GPU_VARIABLES[0]: gpu})

        def ended() -> Mapping[str, str]:
            over = {n: code for n, of in children.items() if (code := of.poll()) is not None}
            for shard in shards:
                if shard.name in over and shard.answer() is None:
                    shard.keep_answer(over[shard.name])
            return {name: f"it ended with exit code {code}" for name, code in over.items()}

        return ended

    with undone_by(lambda: _end([*children.values()])):
        yield submit


@contextmanager
def on_slurm(folder: Path) -> Generator[Submit]:
    """An array job. sbatch reads the site's options (partition, account) from its variables.

    Raises:
        InputError: Slurm's commands are not here, or Slurm refuses the job.
    """
    submitit: Any = importlib.import_module("submitit")
    logs = folder / "slurm"
    name = f"advisor-{folder.name}-{zlib.crc32(str(logs).encode()):08x}"
    ours = (f"--name={name}", f"--user={os.getuid()}")

    def queued() -> frozenset[str] | None:
        """Numbers of our jobs that run or wait; None where Slurm does not answer."""
        said = _slurm("squeue", "--noheader", "--array", "--format=%i", *ours)
        return None if said is None else frozenset(said.split())

    def stop() -> None:
        _slurm("scancel", *ours)
        deadline_s = time.monotonic() + _STOP_S
        # Each shard first ends its jobs and its MPS daemon.
        while queued() and time.monotonic() < deadline_s:
            time.sleep(0.5)

    def submit(shards: Sequence[Shard]) -> Ended:
        jobs = _array_job(submitit, logs, name, shards)
        names = {job.job_id: shard.name for job, shard in zip(jobs, shards, strict=True)}

        def ended() -> Mapping[str, str]:
            # submitit's own `done` asks sacct, which not every site has.
            now = queued()
            return {n: "" for job, n in names.items() if now is not None and job not in now}

        return ended

    stop()
    with undone_by(stop):
        yield submit


def _array_job(submitit: Any, logs: Path, name: str, shards: Sequence[Shard]) -> Any:
    # It would win over our name, by which the jobs are found again.
    os.environ.pop("SBATCH_JOB_NAME", None)
    tasks = [submitit.helpers.FunctionSequence() for _ in shards]
    for task, shard in zip(tasks, shards, strict=True):
        # As a sequence it has a checkpoint, so it is queued again at its time limit.
        task.add(shard.run)
    refusals = (RuntimeError, OSError, submitit.core.utils.FailedJobError)
    fix = "try `sbatch --wrap true` here; SBATCH_PARTITION and others are heeded"
    with InputError.instead_of(refusals, "Slurm did not take the shards", fix=fix):
        executor = submitit.SlurmExecutor(logs, max_num_timeout=100)
        executor.update_parameters(
            job_name=name,
            # Minutes, unless SBATCH_TIMELIMIT is set: short jobs start sooner, and a shard that
            # needs longer is queued again.
            time=60,
            array_parallelism=len(shards),
            gpus_per_node=1,
            additional_parameters={"requeue": True},
        )
        return executor.submit_array(tasks)


def _slurm(*command: str) -> str | None:
    """The output of a command of Slurm; None where it failed or hung."""
    with suppress(subprocess.TimeoutExpired):
        with InputError.instead_of(
            FileNotFoundError,
            f"there is no {command[0]} here",
            fix="run this where Slurm's commands are",
        ):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_COMMAND_S, check=False
            )
        return done.stdout if done.returncode == 0 else None
    return None


@contextmanager
def on_ray(secrets: Mapping[str, str]) -> Generator[Submit]:
    """Tasks on the cluster of RAY_ADDRESS; Ray ends the tasks of a command that has ended.

    Raises:
        InputError: there is no such cluster, or Ray cannot be loaded.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        host, _, port = address.rpartition(":")
        # Ray itself tries for minutes where nothing listens.
        if "://" not in address and port.isdecimal():
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray: Any = importlib.import_module("ray")
        ray.init(
            address="auto", log_to_driver=False, logging_level=logging.ERROR,
            ignore_reinit_error=True,
        )  # fmt: skip
    except OSError as error:  # Ray's ConnectionError is one, too
        raise InputError(
            "there is no Ray cluster here",
            why=f"RAY_ADDRESS is {address!r}: {str(error).splitlines()[0]}",
            fix="set RAY_ADDRESS=HOST:6379, or start one: ray start --head",
        ) from error
    except KeyError as error:
        raise InputError(
            f"ray cannot be loaded: {error}",
            why="it loads the package amdsmi, which does not find its library libamd_smi.so",
            fix="pip uninstall amdsmi, or install amd-smi-lib",
        ) from error
    tasks: dict[Any, str] = {}

    def ready(timeout_s: float) -> list[Any]:
        return ray.wait([*tasks], num_returns=len(tasks), timeout=timeout_s)[0] if tasks else []

    def error_of(task: Any) -> str:
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            return str(error).strip().splitlines()[-1]
        return ""

    def stop() -> None:
        for task in tasks:
            ray.cancel(task)
        ready(_STOP_S)

    def run(shard: Shard) -> None:
        # Ray sets OMP_NUM_THREADS to the CPUs of the task, which would change a measured job.
        kept = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
        shard.run({**kept, **secrets})

    def submit(shards: Sequence[Shard]) -> Ended:
        for shard in shards:
            task = ray.remote(run).options(num_cpus=1, num_gpus=1, max_retries=3, name=shard.name)
            tasks[task.remote(shard)] = shard.name
        return lambda: {tasks[task]: error_of(task) for task in ready(0)}

    with undone_by(stop):
        yield submit


@contextmanager
def _folder(wanted: FanOut, settings: Settings) -> Generator[Path]:
    """The folder of all shards, for one command at a time; on this host a temporary one."""
    if wanted.on == "here":
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    folder = open_home(settings.home, "fanout", wanted.run)
    with (folder / "lock").open("a") as file:
        if not try_lock(file):
            raise BusyError(
                f"another command measures the shards in {folder}",
                fix="wait for it, or give this one another --run",
            )
        yield folder


def _shards(wanted: FanOut, folder: Path, settings: Settings) -> list[Shard]:
    index, count = wanted.part
    first, total = (index - 1) * len(wanted.names) + 1, count * len(wanted.names)
    options: tuple[str, ...] = (*sys.argv[1:], *wanted.options)
    variables, groups = dict[str, str](), physical_cores()
    size = len(groups) // len(wanted.names)
    if wanted.on != "here":
        options, groups = (*options, "--on", "here"), list[frozenset[int]]()
        home, jobs = str(settings.home), str(settings.jobs_dir.absolute())
        variables = {"ADVISOR_HOME": home, "ADVISOR_JOBS": jobs}
    # All nodes can write into a server's database; SQLite is for one host.
    server = (settings.database_url or "").startswith("postgresql")
    separate_points = wanted.on != "here" and (wanted.fresh or not server)
    shards = list[Shard]()
    for number, name in enumerate(wanted.names):
        place = folder / name
        # Physical cores in equal parts; with fewer cores than parts, all share all.
        own_cores = groups[number * size : (number + 1) * size] or groups
        database = (
            {_DATABASE: f"sqlite:///{place / _POINTS}"} if separate_points else dict[str, str]()
        )
        shards.append(
            Shard(
                name=name,
                folder=place,
                arguments=(*options, "--shard", f"{first + number}/{total}"),
                cwd=Path.cwd(),
                environment=variables | database,
                cores=frozenset[int]().union(*own_cores),
            )
        )
    return shards


def _take_points(folder: Path, store: Store) -> None:
    """Add the points of all shards to the store, each once."""
    for file in folder.glob(f"*/{_POINTS}"):
        with open_store(f"sqlite:///{file}", file.parent) as points:
            alone = points.solo_points()
            # Older points that a shard added kernels to; others are copies of what is there.
            store.add([p for p in alone if p.kernels_per_unit is not None], renew=True)
            store.add([*alone, *points.pair_points()])


def _together(
    shards: Sequence[Shard], errors: Mapping[str, str], say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], int]:
    """The answers, and the largest exit code; names each shard without an answer."""
    answers, codes = list[dict[str, Any]](), list[int]()
    for shard in shards:
        code, said = shard.answer() or (JobError.exit_code, {})
        codes.append(code)
        if said and "error" not in said:
            # A part of the answer of all has no number of its own.
            answers.append({key: value for key, value in said.items() if key != "schema"})
            continue
        why = (
            said["error"]["message"].rstrip(".")
            if said
            else f"it gave no answer: {errors.get(shard.name) or 'it ended'} (see {shard.folder})"
        )
        say(f"{shard.name}: {why}: its finished points are kept, the same command goes on")
    if not answers:
        same = codes[0] if len({*codes}) == 1 else JobError.exit_code
        kinds = {error.exit_code: error for error in AdvisorError.__subclasses__()}
        raise kinds.get(same, JobError)("no GPU finished its part", fix="see the messages above")
    return answers, max(codes)


def _pass_on(shard: Shard, start: int, say: Callable[[str], None]) -> int:
    """Say the whole lines of a shard's log from there on; where they end."""
    with suppress(FileNotFoundError):
        log = (shard.folder / _LOG).read_bytes()
        end = log.rfind(b"\n") + 1
        for line in log[start:end].decode(errors="replace").splitlines():
            say(f"{shard.name} |{line}")
        return end
    return start


def _end(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    for child in children:
        # Not SIGINT, which a job of a shell in the background ignores.
        child.terminate()
    for child in children:
        child.wait()
