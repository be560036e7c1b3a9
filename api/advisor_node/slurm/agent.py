"""The agent of a Slurm node: looks at jobs that share a GPU until none is left.

It owns nothing: MPS daemons and limits are the Prolog's, so its end, by whatever, hurts no job. The
Prolog starts it again with the next job.
"""

import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.client import Client
from advisor.core.gpu import PERCENTAGE, Gpu, Share
from advisor.errors import AdvisorError, InputError
from advisor.files import read_plain
from advisor.formats.job_file import AUTO
from advisor.launch.spec import State
from advisor.runtime.backend import ComputingPids, Control, MpsBackend, Sight
from advisor.runtime.processes import environment_of, owner_of
from advisor.settings import Settings
from advisor_node.room import (
    LOG,
    ObservationQueue,
    ReferenceCache,
    Room,
    Tenancy,
    Tenant,
    granted_units,
    keep_looking,
    power_source,
)
from advisor_node.slurm.site import Named
from advisor_profiling.telemetry import nvml
from advisor_profiling.testbed import with_units

_MOST_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFolder:
    """Where the jobs of one user on one GPU are.

    Attributes:
        index: Of the GPU, as Slurm and the driver count them.
        user: Number of the user.
    """

    path: Path
    index: int
    user: int

    @property
    def pipe_dir(self) -> Path:
        """Where the MPS daemon of that user on that GPU listens."""
        return self.path / "pipe"

    @classmethod
    def all_in(cls, root: Path) -> "Iterator[GpuFolder]":
        """The folders of all GPUs and users that had jobs since the node was started."""
        yield from (
            cls(path=path, index=int(match[1]), user=int(match[2]))
            for path in sorted(root.glob("gpu*-*"))
            if (match := re.fullmatch("gpu([0-9]{1,3})-([0-9]{1,10})", path.name))
        )

    def job_folders(self) -> list[Path]:
        """The folders of the jobs that run there now."""
        return sorted(
            path for path in self.path.glob("jobs/*") if re.fullmatch("[1-9][0-9]{0,9}", path.name)
        )

    def ended(self, job: "SlurmJob") -> "SlurmJob":
        """A job after its Epilog, which leaves its exit status for us to take away."""
        file = self.path / "ended" / job.uid
        status = read_plain(file, _MOST_BYTES)
        file.unlink(missing_ok=True)
        return replace(job, state=parse_status((status or b"").decode(errors="replace")))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob(Tenant):
    """A batch job that has part of a GPU; `uid` is its number, `folder` has what is known of it.

    While its folder is in `jobs` it runs.
    """

    folder: Path

    @property
    def progress_file(self) -> Path:
        """Where it counts."""
        return self.folder / "progress"

    @classmethod
    def read(cls, folder: Path) -> "SlurmJob | None":
        """The job of a folder; None where it is none of ours or unnamed, or not all is written yet.

        Raises:
            InputError: its comment names no job.
        """
        root = None
        with suppress(OSError):
            root = folder.stat().st_uid
        comment, share, memory = (
            (read_plain(folder / name, _MOST_BYTES, root) or b"").decode(errors="replace")
            for name in ("comment", "share", "memory")
        )
        named = Named.read(comment)
        if named is None or named.job == AUTO or not share:
            return None
        return cls(
            uid=folder.name,
            job=named.job,
            share_text=share,
            memory_mib=int(memory) if memory else None,
            folder=folder,
        )


def parse_status(text: str) -> State:
    """How a job ended, by its wait status (man 2 wait); one whose status is not known was stopped.

    `scancel` and the time limit send SIGTERM, then SIGKILL.
    """
    if not re.fullmatch(r"[0-9]{1,5}", text):
        return "stopped"
    if int(text) == 0:
        return "finished"
    return "stopped" if int(text) & 0x7F in (signal.SIGTERM, signal.SIGKILL) else "failed"


# What the TaskProlog sets: each daemon has one GPU and calls it 0.
_ONLY_GPU = {"CUDA_VISIBLE_DEVICES": "0"}


class UserDaemon:
    """The daemon of a user.

    Args:
        gpu: Its `units_total` must be known.
        folder: Of the user's jobs there.
        environment: Of probes and of the control program, without limits.
        computing: Lists the processes with a context on the GPU.
    """

    def __init__(
        self, gpu: Gpu, folder: GpuFolder, environment: Mapping[str, str], computing: ComputingPids
    ) -> None:
        self.gpu = gpu
        self._folder, self._environment = folder, environment
        control = Control(folder.pipe_dir, environment, folder.user)
        self._backend = MpsBackend(gpu, control, owned=False, computing=computing)
        self._said = dict[str, object]()

    def sight(self, *, used: bool) -> Sight | None:
        """The processes on the GPU; None: none of ours, or daemon or driver do not answer."""
        if not used:
            return None
        try:
            sight, trouble = self._backend.sight(), ""
        except AdvisorError as error:
            sight, trouble = None, str(error)
        self._say_once("trouble", trouble, trouble)
        return sight

    def prove(self, share: Share, user: int | None) -> int | None:
        """The SMs that the driver gives to a process under `share` on this daemon."""
        variables = {**self._environment, **self._backend.environment(share), **_ONLY_GPU}
        return granted_units(self._backend, share, variables, user)

    def meet_strangers(self, pids: Sequence[int]) -> bool:
        """Doubt all limits while another process computes there, perhaps a job of Slurm."""
        why = "which are of no job that names itself: nothing will be learned of those beside"
        self._say_once("strangers", pids, f"processes {pids} compute, {why}")
        return True

    def job_of(self, pid: int) -> str | None:
        """The job of a process, by its own variable, but only among its user's jobs."""
        number = environment_of(pid).get("SLURM_JOB_ID", "")
        return number if number and owner_of(pid) == self._user_of(number) else None

    def _user_of(self, number: str) -> int | None:
        """Where one daemon of root's serves several users, the owner of the job's count."""
        if self._folder.user or not number.isdecimal():
            return self._folder.user or None
        try:
            return (self._folder.path / "jobs" / number / "progress").stat().st_uid
        except OSError:
            return 0

    def wanted(self, job: SlurmJob) -> Mapping[str, str]:
        """Variables of a job's limit."""
        return {**self._backend.environment(job.share), PERCENTAGE: job.share_text, **_ONLY_GPU}

    def _say_once(self, matter: str, state: object, text: str) -> None:
        if state and state != self._said.get(matter):
            LOG.warning("GPU %d: %s", self._folder.index, text)
        self._said[matter] = state

    def tenancy(self) -> Tenancy[SlurmJob]:
        """What is known of the jobs of one user on one GPU."""
        return Tenancy(
            scheduler="slurm",
            node=socket.gethostname(),
            tenant_of=self.job_of,
            progress_file=lambda job: job.progress_file,
            wanted=self.wanted,
            gone=self._folder.ended,
            warn=lambda job, _, text: LOG.warning("job %s (%s): %s", job.uid, job.job, text),
        )


# Without a job, and with nothing that waits for the service, it ends after this time.
_IDLE_S = 600.0


def run_agent(folder: Path, settings: Settings, service: Client, stop: threading.Event) -> None:
    """Look at the node until `stop` is set, or there has been nothing to do for a while.

    Args:
        folder: Where Prolog, TaskProlog and Epilog write down jobs.
        settings: Of its environment.
        service: Knows jobs alone, and takes observations.
        stop: Set by another thread.
    """
    agent = SlurmAgent(folder, settings, service)
    busy_s = time.monotonic()
    for _ in keep_looking(agent.look, stop):
        now_s = time.monotonic()
        busy_s = now_s if agent.is_busy else busy_s
        if now_s - busy_s > _IDLE_S:
            LOG.info("no job for %.0f s: the next Prolog starts another agent", _IDLE_S)
            break
    agent.close()


class SlurmAgent:
    """Everything that is looked at, once each look."""

    def __init__(self, folder: Path, settings: Settings, service: Client) -> None:
        self._folder, self._settings = folder, settings
        self._gpus: dict[int, Gpu] = {}
        self._reports = ObservationQueue(service)
        self._references = ReferenceCache(lambda job, model: service.profile(job, gpu_model=model))
        self._rooms: dict[Path, Room[SlurmJob]] = {}
        self._said: Mapping[Path, str] = {}

    @property
    def is_busy(self) -> bool:
        """Whether there are jobs, or the service does not have all observations yet."""
        return bool(self._rooms or self._reports.waiting)

    def look(self) -> None:
        """Look at every GPU and its jobs once, and send what has come to its end."""
        wrong: dict[Path, str] = {}
        for gpu in GpuFolder.all_in(self._folder):
            room = self._rooms.get(gpu.path)
            jobs = _read_jobs(gpu, room, wrong)
            if not jobs and not room:
                continue
            if gpu.path in self._said and not room:
                wrong[gpu.path] = self._said[gpu.path]  # not tried again with these jobs
                continue
            try:
                room = self._rooms.get(gpu.path) or self._open(gpu)
                self._reports.add(*room.look(jobs))
                if not room.meters:
                    self._rooms.pop(gpu.path).close()
            except AdvisorError as error:
                wrong[gpu.path] = str(error)
        for path in wrong.keys() - self._said.keys():
            LOG.warning("%s is left out: %s", path, wrong[path])
        self._said = wrong
        self._reports.flush()

    def close(self) -> None:
        """Let go of the driver."""
        for room in self._rooms.values():
            room.close()

    def _open(self, folder: GpuFolder) -> Room[SlurmJob]:
        # Where no driver answers these jobs are left out, as others are; it may when the next come.
        self._gpus = self._gpus or {gpu.index: gpu for gpu in nvml.list_gpus()}
        if (listed_gpu := self._gpus.get(folder.index)) is None:
            raise InputError(
                f"there is no GPU {folder.index}",
                why=f"the driver counts {len(self._gpus)} GPUs",
                fix="list them in gres.conf as the driver does, /dev/nvidia0 first",
            )
        gpu = self._gpus[folder.index] = with_units(listed_gpu, self._settings)
        daemon = UserDaemon(
            gpu, folder, self._settings.job_environment(), lambda: nvml.context_pids(gpu.uuid)
        )
        self._rooms[folder.path] = Room(
            daemon, power_source(gpu, self._settings), daemon.tenancy(), self._references
        )
        return self._rooms[folder.path]


def _read_jobs(
    gpu: GpuFolder, room: Room[SlurmJob] | None, wrong: dict[Path, str]
) -> list[SlurmJob]:
    """The jobs that can be metered; why others cannot goes into `wrong`.

    What was read of a job once stands: its user may change what is his.
    """
    running = {m.tenant.uid: m.tenant for m in room.living} if room else {}
    jobs: list[SlurmJob] = []
    for folder in gpu.job_folders():
        try:
            job = running.get(folder.name) or SlurmJob.read(folder)
        except InputError as error:
            wrong[folder] = str(error)
            continue
        if job is not None:
            jobs.append(job)
    return jobs
