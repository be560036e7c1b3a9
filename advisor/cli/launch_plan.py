"""What `advisor launch --dry-run` shows: shares, variables, memory and the forecast."""

from collections.abc import Iterator
from typing import Any

from advisor.gpu import Gpu, Share
from advisor.launch.plan import limit_environment, memory_fit, units_of
from advisor.launch.spec import LaunchSpec, Pair
from advisor.settings import Settings
from advisor.typed_json import to_plain


def plan_json(spec: LaunchSpec, gpu: Gpu | None, settings: Settings) -> dict[str, Any]:
    """Keys that stay; docs/launch.md explains them."""
    return {
        "dry_run": True,
        "gpu": spec.gpu,
        "gpu_uuid": gpu and gpu.uuid,
        "gpu_model": gpu and gpu.model,
        "when_one_ends": spec.when_one_ends,
        "duration_s": spec.duration_s,
        "hang_s": spec.hang_s,
        "pairs": [_pair(pair, gpu, settings) for pair in spec.pairs],
        "notes": list(spec.notes),
    }


def plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    """The same for a person."""
    yield f"nothing is started; on GPU {plan['gpu']} ({plan['gpu_model'] or 'not seen'}):"
    for pair in plan["pairs"]:
        yield f"{pair['jobs'][0]['job']} + {pair['jobs'][1]['job']} at {pair['split']}"
        for job in pair["jobs"]:
            units = f", {job['units']} units" if job["units"] is not None else ""
            yield f"  {job['job']}: {job['share_percent']:g} %{units}"
            yield f"    {' '.join(job['command'])}"
            for name, value in job["environment"].items():
                yield f"    {name}={value}"
        yield f"  memory: {_memory_text(pair['memory'])}"
        if forecast := pair["forecast"]:
            yield "  expected: " + ", ".join(_expected(forecast, pair["jobs"]))
    for note in plan["notes"]:
        yield f"! {note}"


def _pair(pair: Pair, gpu: Gpu | None, settings: Settings) -> dict[str, Any]:
    return {
        "split": pair.name,
        "way": pair.way,
        "jobs": [_job(pair, number, gpu, settings) for number in (0, 1)],
        "memory": memory_fit(pair, gpu),
        "forecast": to_plain(pair.forecast),
    }


def _job(pair: Pair, number: int, gpu: Gpu | None, settings: Settings) -> dict[str, Any]:
    job, share = pair.jobs[number], Share(pair.shares_percent[number])
    return {
        "job": job.name,
        "rate_unit": job.progress.unit,
        "share_percent": share.percent,
        "units": units_of(share, gpu),
        "command": list(job.command),
        "workdir": str(job.workdir) if job.workdir else None,
        "environment": {**dict(job.env), **limit_environment(pair, share, gpu, settings)},
    }


def _memory_text(memory: dict[str, Any]) -> str:
    needs = " + ".join("?" if need is None else f"{need}" for need in memory["needs_mib"])
    if memory["most_mib"] is None:
        return f"{needs} MiB"
    fits = {True: "fits", False: "DOES NOT FIT", None: "not known whether it fits"}
    return f"{needs} of {memory['most_mib']:.0f} MiB: {fits[memory['fits']]}"


def _expected(forecast: dict[str, Any], jobs: list[dict[str, Any]]) -> Iterator[str]:
    for job, name in zip(jobs, ("rate_a", "rate_b"), strict=True):
        yield f"{job['job']} {forecast[name]['value']:.4g} {job['rate_unit']}/s"
    yield f"{forecast['power_w']['value']:.0f} W"
    yield f"{1000 * forecast['work_per_joule']['value']:.3g} work per kJ"
