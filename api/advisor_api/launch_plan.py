"""What a request for a launch would run; everything here may block."""

from typing import Any

from advisor.gpu import Gpu, Share
from advisor.launch.plan import limit_environment, memory_fit, units_of
from advisor.launch.spec import LaunchSpec, Pair
from advisor.settings import Settings
from advisor.typed_json import to_plain


def plan_of(spec: LaunchSpec, gpu: Gpu, settings: Settings) -> dict[str, Any]:
    """Keys as in `advisor launch --dry-run --json`, but for what only the job files say."""
    return {
        "dry_run": True,
        "gpu": spec.gpu,
        "gpu_uuid": gpu.uuid,
        "gpu_model": gpu.model,
        "when_one_ends": spec.when_one_ends,
        "duration_s": spec.duration_s,
        "hang_s": spec.hang_s,
        "pairs": [_pair(pair, gpu, settings) for pair in spec.pairs],
        "notes": list(spec.notes),
    }


def _pair(pair: Pair, gpu: Gpu, settings: Settings) -> dict[str, Any]:
    return {
        "split": pair.name,
        "way": pair.way,
        "jobs": [_job(pair, number, gpu, settings) for number in (0, 1)],
        "memory": memory_fit(pair, gpu),
        "forecast": to_plain(pair.forecast),
    }


def _job(pair: Pair, number: int, gpu: Gpu, settings: Settings) -> dict[str, Any]:
    """Without the command and the variables of the job file, which are none of a request's."""
    job, share = pair.jobs[number], Share(pair.shares_percent[number])
    return {
        "job": job.name,
        "rate_unit": job.progress.unit,
        "share_percent": share.percent,
        "units": units_of(share, gpu),
        "environment": limit_environment(pair, share, gpu, settings),
    }
