"""What `advisor launch --dry-run` shows: shares, variables, memory and the forecast."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.core.wording import as_asked, counted, less_or_more
from advisor.launch.overview import LaunchPlan, PlannedJob, PlannedMemory, PlannedPair
from advisor.launch.spec import LaunchSpec
from advisor.launch.start import plan_of
from advisor.settings import Settings


def whole_plan(spec: LaunchSpec, gpu: Gpu | None, settings: Settings) -> LaunchPlan:
    """The plan with what the job files say."""
    plan = plan_of(spec, gpu, settings)
    pairs = (
        replace(planned, jobs=tuple(map(_with_file, planned.jobs, pair.jobs)))
        for planned, pair in zip(plan.pairs, spec.pairs, strict=True)
    )
    return replace(plan, pairs=tuple(pairs))


def plan_lines(plan: LaunchPlan) -> Iterator[str]:
    """The same for a person."""
    yield f"nothing is started; on GPU {plan.gpu} ({plan.gpu_model or 'not seen'}):"
    for pair in plan.pairs:
        yield f"{as_asked(job.job for job in pair.jobs)} at {pair.split}"
        for job, alike in groupby(pair.jobs):
            yield from _job_lines(job, len([*alike]))
        yield f"  memory: {_memory_text(pair.memory)}"
        if pair.forecast:
            yield "  expected: " + ", ".join(_expected(pair))
            yield from dict.fromkeys(_rests(pair)) if plan.when_one_ends == "keep" else ()
    for note in plan.notes:
        yield f"! {note}"


def _with_file(planned: PlannedJob, job: Job) -> PlannedJob:
    return replace(
        planned,
        command=job.command,
        workdir=str(job.workdir) if job.workdir else None,
        environment={**dict(job.env), **planned.environment},
    )


def _job_lines(job: PlannedJob, copies: int) -> Iterator[str]:
    units = f", {job.units} units" if job.units is not None else ""
    yield f"  {as_asked([job.job] * copies)}: {job.share_percent:g} %{units}"
    yield f"    {' '.join(job.command or ())}"
    for name, value in job.environment.items():
        yield f"    {name}={value}"


def _memory_text(memory: PlannedMemory) -> str:
    needs = " + ".join("?" if need is None else f"{need:g}" for need in memory.needs_mib)
    if memory.most_mib is None:
        return f"{needs} MiB"
    fits = {True: "fits", False: "DOES NOT FIT", None: "not known whether it fits"}
    return f"{needs} of {memory.most_mib:.0f} MiB: {fits[memory.fits]}"


def _expected(pair: PlannedPair) -> Iterator[str]:
    forecast = pair.forecast
    assert forecast is not None
    yield counted(
        f"{job.job} {expected.rate.value:.4g} {job.rate_unit}/s"
        for job, expected in zip(pair.jobs, forecast.jobs, strict=True)
    )
    yield f"{forecast.power_w.value:.0f} W"
    if saved := forecast.energy_saved:
        yield f"{less_or_more(saved.value)} energy for the same work than one after the other"


def _rests(pair: PlannedPair) -> Iterator[str]:
    """What it costs that a limit stays when the other jobs have ended."""
    assert pair.forecast is not None
    names = [job.job for job in pair.jobs]
    for n in reversed(range(len(names))):
        if saved := pair.forecast.jobs[n].rest_energy_saved:
            ended = (*names[:n], *names[n + 1 :])
            yield (
                f"  once {counted(ended)} {'have' if len(ended) > 1 else 'has'} ended, {names[n]} "
                f"goes on under its limit: {less_or_more(saved)} energy than its work takes on the "
                "whole GPU"
            )
