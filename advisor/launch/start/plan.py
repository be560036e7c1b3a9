"""What a launch would do, before anything is started: units, variables of the limits, memory."""

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job
from advisor.core.units import share_environment, units_for_share
from advisor.launch.records.answers import LaunchPlan, PlannedJob, PlannedMemory, PlannedPair
from advisor.launch.records.spec import LaunchSet, LaunchSpec
from advisor.runtime.backends.cu_mask_backend import CuMaskBackend
from advisor.runtime.backends.mps import MpsBackend, own_pipe_dir
from advisor.runtime.backends.mps_control import Control
from advisor.runtime.backends.uncapped import UncappedBackend
from advisor.settings import Settings


def plan_of(spec: LaunchSpec, gpu: Gpu | None, settings: Settings) -> LaunchPlan:
    """What a launch would run, without what only the job files say; docs/launch.md has the keys."""
    return LaunchPlan(
        gpu=spec.gpu,
        gpu_uuid=gpu and gpu.uuid,
        gpu_model=gpu and gpu.model,
        when_one_ends=spec.when_one_ends,
        duration_s=spec.duration_s,
        hang_s=spec.hang_s,
        pairs=tuple(_pair(pair, gpu, settings) for pair in spec.pairs),
        notes=spec.notes,
    )


def _limit_environment(
    pair: LaunchSet, share: Share, gpu: Gpu | None, settings: Settings
) -> dict[str, str]:
    """The variables of the limit, as the back-end will set them."""
    if gpu is None:
        # Which GPU it will be is not known: as MPS takes it.
        return share_environment(share, None, "nvidia") if pair.split.is_limited else {}
    if pair.split.sharing == "time-sliced":
        return UncappedBackend(gpu).environment(share)
    if gpu.vendor == "amd":
        return CuMaskBackend(gpu).environment(share)
    pipe_dir = settings.mps_pipe_dir or own_pipe_dir(gpu, settings.runtime_dir)
    return MpsBackend(gpu, Control(pipe_dir, {}), owned=False).environment(share)


def _pair(pair: LaunchSet, gpu: Gpu | None, settings: Settings) -> PlannedPair:
    memory = pair.memory(gpu and gpu.memory_mib)
    return PlannedPair(
        split=str(pair.split),
        sharing=pair.split.sharing,
        jobs=tuple(
            _job(pair, job, share, gpu, settings)
            for job, share in zip(pair.jobs, pair.shares(memory.card_mib), strict=True)
        ),
        memory=PlannedMemory(
            needs_mib=memory.needs_mib, most_mib=memory.most_mib, fits=memory.fits
        ),
        forecast=pair.forecast,
    )


def _job(
    pair: LaunchSet, job: Job, share: Share, gpu: Gpu | None, settings: Settings
) -> PlannedJob:
    total = gpu and gpu.units_total
    return PlannedJob(
        job=job.name,
        rate_unit=job.progress.unit,
        share_percent=share.percent,
        units=units_for_share(share.percent, total, gpu.vendor) if gpu and total else None,
        environment=_limit_environment(pair, share, gpu, settings),
    )
