"""The MPS daemon of one user on one GPU, which the Prolog has started: looked at, never touched."""

import logging
from collections.abc import Mapping, Sequence

from advisor.core.gpu import PERCENTAGE, Gpu, Share
from advisor.errors import AdvisorError
from advisor.runtime.backend import ComputingPids, Sight
from advisor.runtime.mps import Control, MpsBackend
from advisor.runtime.processes import environment_of, owner_of
from advisor_node.metering.proof import granted_units
from advisor_node.slurm.jobs import GpuFolder, SlurmJob

LOG = logging.getLogger("advisor.node")

_ONLY_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
"""What the TaskProlog sets: each daemon has one GPU and calls it 0."""


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
        """Who uses the GPU; None: nobody of ours, or the daemon or the driver does not say."""
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
        """Doubt the limits of all while somebody else computes there, whom Slurm may have sent."""
        why = "which are of no job that names itself: nothing will be learned of those beside"
        self._say_once("strangers", pids, f"processes {pids} compute, {why}")
        return True

    def job_of(self, pid: int) -> str | None:
        """The job of a process; it says so itself, but only its user's jobs are to be had."""
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
        limit = self._backend.environment(job.share) | {PERCENTAGE: job.share_text}
        return {**limit, **_ONLY_GPU}

    def _say_once(self, matter: str, state: object, text: str) -> None:
        if state and state != self._said.get(matter):
            LOG.warning("GPU %d: %s", self._folder.index, text)
        self._said[matter] = state
