"""What `advisor launch --dry-run` shows: shares, variables, memory and the forecast."""

from collections.abc import Iterator
from typing import Any

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.core.wording import less_or_more
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.start.plan import plan_of
from advisor.settings import Settings


def plan_json(spec: LaunchSpec, gpu: Gpu | None, settings: Settings) -> dict[str, Any]:
    """Keys that stay, with what the job files say; docs/launch.md explains them."""
    plan = plan_of(spec, gpu, settings)
    for told, pair in zip(plan["pairs"], spec.pairs, strict=True):
        told["jobs"] = [_with_file(*both) for both in zip(told["jobs"], pair.jobs, strict=True)]
    return plan


def plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    """The same for a person."""
    yield f"nothing is started; on GPU {plan['gpu']} ({plan['gpu_model'] or 'not seen'}):"
    for pair in plan["pairs"]:
        yield f"{' + '.join(job['job'] for job in pair['jobs'])} at {pair['split']}"
        for job in pair["jobs"]:
            units = f", {job['units']} units" if job["units"] is not None else ""
            yield f"  {job['job']}: {job['share_percent']:g} %{units}"
            yield f"    {' '.join(job['command'])}"
            for name, value in job["environment"].items():
                yield f"    {name}={value}"
        yield f"  memory: {_memory_text(pair['memory'])}"
        if forecast := pair["forecast"]:
            yield "  expected: " + ", ".join(_expected(forecast, pair["jobs"]))
            yield from _rests(forecast, pair["jobs"]) if plan["when_one_ends"] == "keep" else ()
    for note in plan["notes"]:
        yield f"! {note}"


def _with_file(told: dict[str, Any], job: Job) -> dict[str, Any]:
    return {
        **told,
        "command": list(job.command),
        "workdir": str(job.workdir) if job.workdir else None,
        "environment": {**dict(job.env), **told["environment"]},
    }


def _memory_text(memory: dict[str, Any]) -> str:
    needs = " + ".join("?" if need is None else f"{need}" for need in memory["needs_mib"])
    if memory["most_mib"] is None:
        return f"{needs} MiB"
    fits = {True: "fits", False: "DOES NOT FIT", None: "not known whether it fits"}
    return f"{needs} of {memory['most_mib']:.0f} MiB: {fits[memory['fits']]}"


def _expected(forecast: dict[str, Any], jobs: list[dict[str, Any]]) -> Iterator[str]:
    for job, expected in zip(jobs, forecast["jobs"], strict=True):
        yield f"{job['job']} {expected['rate']['value']:.4g} {job['rate_unit']}/s"
    yield f"{forecast['power_w']['value']:.0f} W"
    if saved := forecast["energy_saved"]:
        yield f"{less_or_more(saved['value'])} energy for the same work than one after the other"


def _rests(forecast: dict[str, Any], jobs: list[dict[str, Any]]) -> Iterator[str]:
    """What it costs that a limit stays when the other job has ended."""
    names = [job["job"] for job in jobs]
    for n in reversed(range(len(names))):
        if saved := forecast["jobs"][n]["rest_energy_saved"]:
            stays, ends = names[n], " and ".join((*names[:n], *names[n + 1 :]))
            yield (
                f"  when {ends} ends first, {stays} goes on under its limit: {less_or_more(saved)} "
                "energy than its work takes on the whole GPU"
            )
