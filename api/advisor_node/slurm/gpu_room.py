"""One GPU of the node and one user's jobs on it: what they do, and what they did together."""

import logging
from collections.abc import Mapping, Sequence

from advisor.core.gpu import PERCENTAGE, Gpu, Share
from advisor.core.observations import Observation
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError
from advisor.launch.monitor.account import Energy
from advisor.runtime.backends.backend import ComputingPids, Sight
from advisor.runtime.backends.limit import check_granted, look
from advisor.runtime.backends.mps import PIPE_DIRECTORY, MpsBackend
from advisor.runtime.backends.mps_control import Control
from advisor.runtime.host.processes import environment_of, owner_of
from advisor_node.metering.meters import TenantMeter
from advisor_node.metering.overlaps import Overlaps
from advisor_node.metering.progress_files import read_progress
from advisor_node.metering.proof import GpuUsers, prove, strangers, users_by_tenant
from advisor_node.metering.references import References
from advisor_node.slurm.jobs import GpuFolder, SlurmJob, ended

LOG = logging.getLogger("advisor.node")

_ONLY_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
"""What the TaskProlog sets: each daemon has one GPU and calls it 0."""


class GpuRoom:
    """One GPU, while a user has jobs on it.

    Args:
        gpu: Its `units_total` must be known.
        folder: Of the user's jobs there.
        source: Its telemetry; None: there is none.
        node: Name of the host.
        environment: Of probes and of the control program, without limits.
        computing: Lists the processes with a context on the GPU.
        references: What is known of jobs alone.
    """

    def __init__(
        self,
        gpu: Gpu,
        folder: GpuFolder,
        source: TelemetrySource | None,
        *,
        node: str,
        environment: Mapping[str, str],
        computing: ComputingPids,
        references: References,
    ) -> None:
        self.source = source
        self._gpu, self._folder, self._environment = gpu, folder, environment
        control = Control(folder.pipe_dir, environment, folder.user)
        self._backend = MpsBackend(gpu, control, owned=False, computing=computing)
        self._references = references
        self._energy = None if source is None else Energy(source)
        self._meters: dict[str, TenantMeter[SlurmJob]] = {}
        self._overlaps = Overlaps[SlurmJob](gpu, node, "slurm")
        self._strangers = frozenset[int]()
        self._trouble = ""

    @property
    def is_empty(self) -> bool:
        """Whether no job is there, and nothing of one is to be reported."""
        return not self._meters

    @property
    def running(self) -> Mapping[str, SlurmJob]:
        """The jobs that ran at the last look, by their uids."""
        return {meter.tenant.uid: meter.tenant for meter in self._living()}

    def look(self, now_s: float, jobs: Sequence[SlurmJob]) -> list[Observation]:
        """Look at everything once.

        Args:
            now_s: Monotonic.
            jobs: Those that run on the GPU now.

        Returns:
            What has come to its end.
        """
        present = frozenset(job.uid for job in jobs)
        for job in jobs:
            self._meters.setdefault(job.uid, TenantMeter(job)).tenant = job
        self._note_ends(present)
        if (sight := self._sight()) is not None:
            self._look_at_jobs(now_s, sight)
            self._look_for_strangers(sight, present)
        total_j = self._energy and self._energy.read(now_s)
        meters = tuple(self._meters.values())
        observed = list(self._overlaps.follow(now_s, meters, present, total_j))
        self._forget(present)
        return observed

    def _note_ends(self, present: frozenset[str]) -> None:
        for uid, meter in self._meters.items():
            if uid not in present and not meter.tenant.over:
                meter.tenant = ended(meter.tenant, self._folder)
                meter.working = False

    def _sight(self) -> Sight | None:
        """Who uses the GPU; None: nobody of ours, or the daemon or the driver does not say."""
        if not self._living():
            return None
        try:
            sight, trouble = self._backend.sight(), ""
        except AdvisorError as error:
            sight, trouble = None, str(error)
        if trouble and trouble != self._trouble:
            LOG.warning("GPU %d: %s", self._folder.index, trouble)
        self._trouble = trouble
        return sight

    def _look_at_jobs(self, now_s: float, sight: Sight) -> None:
        users = users_by_tenant(sight, self._job_of)
        for meter in self._living():
            job = meter.tenant
            own = users.get(job.uid, GpuUsers())
            meter.reference = self._references.of(job.job, self._gpu.model)
            meter.look(now_s, read_progress(job.progress_file), own)
            wanted = {
                PIPE_DIRECTORY: str(self._folder.pipe_dir),
                PERCENTAGE: job.share_text,
                **_ONLY_GPU,
            }
            if meter.take_proof(prove(job.share, wanted, own, self._probe, meter.proof)):
                LOG.warning("job %s (%s): %s", job.uid, job.job, meter.proof.why)

    def _look_for_strangers(self, sight: Sight, present: frozenset[str]) -> None:
        """Doubt the limits of all while somebody else computes there, whom Slurm may have sent."""
        found = strangers(sight, self._job_of, present)
        # A process that starts on one GPU shows on all GPUs of the host for a moment.
        staying = sorted(found & self._strangers)
        self._strangers = found
        fresh = [meter for meter in self._living() if staying and not meter.limit_broken]
        for meter in fresh:
            meter.limit_broken = True
        if fresh:
            why = "which are of no job that names itself: nothing will be learned of those beside"
            LOG.warning("GPU %d: processes %s compute, %s", self._folder.index, staying, why)

    def _job_of(self, pid: int) -> str | None:
        """The job of a process; it says so itself, but only its user's jobs are to be had."""
        if owner_of(pid) != self._folder.user:
            return None
        return environment_of(pid).get("SLURM_JOB_ID")

    def _probe(self, share: Share, user: int | None) -> int | None:
        """The SMs that the driver gives to a process under `share` on this daemon."""
        variables = {**self._environment, **self._backend.environment(share), **_ONLY_GPU}
        seen = next((one for one in look(variables, user) if one.uuid == self._gpu.uuid), None)
        return check_granted(self._gpu, share, seen, self._folder.pipe_dir).units

    def _living(self) -> list[TenantMeter[SlurmJob]]:
        return [meter for meter in self._meters.values() if not meter.tenant.over]

    def _forget(self, present: frozenset[str]) -> None:
        """Jobs that have ended, once nothing of them is still to be reported."""
        for uid in self._meters.keys() - present - self._overlaps.uids:
            meter = self._meters.pop(uid)
            if not meter.steps:
                why = "it reported no progress (docs/progress.md), so nothing could be observed"
                LOG.info("job %s (%s): %s", uid, meter.tenant.job, why)
