"""The agent of a Slurm node: looks at jobs that share a GPU until none is left.

It owns nothing: MPS daemons and limits are the Prolog's, so its end, by whatever, hurts no job. The
Prolog starts it again with the next job.
"""

import logging
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from advisor.client import Client
from advisor.core.gpu import Gpu
from advisor.errors import AdvisorError, InputError
from advisor.settings import Settings
from advisor_node.metering.looking import keep_looking, power_source, references_of
from advisor_node.metering.reports import ObservationQueue
from advisor_node.metering.room import Room, Tenancy
from advisor_node.slurm.daemon import UserDaemon
from advisor_node.slurm.jobs import GpuFolder, SlurmJob, ended, gpu_folders, job_folders, read_job
from advisor_profiling.telemetry import nvml
from advisor_profiling.testbed.live import with_units

LOG = logging.getLogger("advisor.node")

IDLE_S = 600.0
"""Without a job, and with nothing that waits for the service, it ends after this time."""


def run_agent(folder: Path, settings: Settings, service: Client, stop: threading.Event) -> None:
    """Look at the node until `stop` is set, or there has been nothing to do for a while.

    Args:
        folder: Where Prolog, TaskProlog and Epilog write down jobs.
        settings: Of its environment.
        service: Knows jobs alone, and takes observations.
        stop: Set by somebody else.
    """
    agent = SlurmAgent(folder, settings, service)
    busy_s = time.monotonic()
    for _ in keep_looking(agent.look, stop):
        now_s = time.monotonic()
        busy_s = now_s if agent.is_busy else busy_s
        if now_s - busy_s > IDLE_S:
            LOG.info("no job for %.0f s: the next Prolog starts another agent", IDLE_S)
            break
    agent.close()


class SlurmAgent:
    """Everything that is looked at, once each look."""

    def __init__(self, folder: Path, settings: Settings, service: Client) -> None:
        self._folder, self._settings = folder, settings
        self._gpus: dict[int, Gpu] = {}
        self._reports = ObservationQueue(service.observe)
        self._references = references_of(service)
        self._rooms: dict[Path, Room[SlurmJob]] = {}
        self._said: Mapping[Path, str] = {}

    @property
    def is_busy(self) -> bool:
        """Whether there are jobs, or the service does not have all observations yet."""
        return bool(self._rooms or self._reports.waiting)

    def look(self) -> None:
        """Look at every GPU and its jobs once, and send what has come to its end."""
        wrong: dict[Path, str] = {}
        for gpu in gpu_folders(self._folder):
            room = self._rooms.get(gpu.path)
            jobs = _read_jobs(gpu, room, wrong)
            if not jobs and not room:
                continue
            if gpu.path in self._said and not room:
                wrong[gpu.path] = self._said[gpu.path]  # not tried again with these jobs
                continue
            try:
                self._look_at(gpu, jobs)
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

    def _look_at(self, gpu: GpuFolder, jobs: list[SlurmJob]) -> None:
        room = self._rooms.get(gpu.path) or self._open(gpu)
        for seen in room.look(jobs):
            self._reports.add(seen)
        if not room.meters:
            self._rooms.pop(gpu.path).close()

    def _open(self, folder: GpuFolder) -> Room[SlurmJob]:
        gpu = self._gpu(folder.index)
        environment = self._settings.job_environment()
        daemon = UserDaemon(gpu, folder, environment, lambda: nvml.context_pids(gpu.uuid))
        source = power_source(gpu, self._settings)
        self._rooms[folder.path] = Room(daemon, source, tenancy(daemon, folder), self._references)
        return self._rooms[folder.path]

    def _gpu(self, index: int) -> Gpu:
        # Where no driver answers these jobs are left out, as others are; it may when the next come.
        self._gpus = self._gpus or {gpu.index: gpu for gpu in nvml.list_gpus()}
        if (found := self._gpus.get(index)) is None:
            raise InputError(
                f"there is no GPU {index}",
                why=f"the driver counts {len(self._gpus)} GPUs",
                fix="list them in gres.conf as the driver does, /dev/nvidia0 first",
            )
        self._gpus[index] = with_units(found, self._settings)
        return self._gpus[index]


def tenancy(daemon: UserDaemon, folder: GpuFolder) -> Tenancy[SlurmJob]:
    """What is known of the jobs of one user on one GPU."""

    def warn(job: SlurmJob, _reason: str, message: str) -> None:
        LOG.warning("job %s (%s): %s", job.uid, job.job, message)

    return Tenancy(
        scheduler="slurm",
        node=socket.gethostname(),
        tenant_of=daemon.job_of,
        progress_file=lambda job: job.progress_file,
        wanted=daemon.wanted,
        gone=lambda job: ended(job, folder),
        warn=warn,
    )


def _read_jobs(
    gpu: GpuFolder, room: Room[SlurmJob] | None, wrong: dict[Path, str]
) -> list[SlurmJob]:
    """The jobs that can be metered; why others cannot goes into `wrong`.

    What was read of a job once stands: its user may change what is his.
    """
    running = {m.tenant.uid: m.tenant for m in room.living} if room else {}
    jobs: list[SlurmJob] = []
    for folder in job_folders(gpu):
        try:
            job = running.get(folder.name) or read_job(folder)
        except InputError as error:
            wrong[folder] = str(error)
            continue
        if job is not None:
            jobs.append(job)
    return jobs
