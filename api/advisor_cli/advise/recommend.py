"""`advisor recommend`: which split of one GPU does the most for two jobs."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.formats.wire import write
from advisor.settings import Settings, read_settings
from advisor.wire.requests import RecommendationRequest
from advisor_advice.answer import answer, request_of
from advisor_advice.recommendation_wire import to_wire
from advisor_advice.site.known_profiles import find_profiles
from advisor_cli.advise import recommend_components, recommend_text
from advisor_cli.advise.job_requests import job_requests, longest_p99_ms
from advisor_cli.advise.queue import read_works
from advisor_cli.shared.options import (
    AsJson,
    GpuModelOption,
    GpuUuidOption,
    MaxP99,
    MaxPower,
    Memory,
    MinSpeed,
    ObjectiveOption,
    ProfilesOption,
)


def recommend(
    job_a: Annotated[str, typer.Argument(help="Name of a profiled job", metavar="A")],
    job_b: Annotated[
        str,
        typer.Argument(help="The job that shares the GPU with it; may be the same", metavar="B"),
    ],
    objective: ObjectiveOption = DEFAULT_OBJECTIVE,
    min_speed: MinSpeed = None,
    max_p99: MaxP99 = None,
    max_power: MaxPower = None,
    memory: Memory = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help="What is to be done, JOB=3h or 3h for both: time that it takes alone"),
    ] = None,
    gpu_model: GpuModelOption = None,
    gpu_uuid: GpuUuidOption = None,
    fine: Annotated[bool, typer.Option("--fine", help="Every split in steps of two SMs")] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all candidates, and plot them")
    ] = False,
    components: Annotated[
        bool, typer.Option("--components", help="What the power of the chosen way goes to")
    ] = False,
    profiles: ProfilesOption = None,
    as_json: AsJson = False,
) -> None:
    """Which split of one GPU does the same work of two jobs with the least energy?

    Says what to do, what it saves, what each job pays, how sure that is, and why. Exit code 10:
    nothing keeps every limit.
    """
    names = (job_a, job_b)
    by_job_ms, for_all_ms = longest_p99_ms(max_p99 or (), names)
    works_s = read_works(work or (), names)
    asked = RecommendationRequest(
        jobs=job_requests(names, names, min_speed or (), by_job_ms, works_s),
        objective=objective,
        max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=memory,
        gpu_model=gpu_model,
        fine=fine,
        gpu_uuid=gpu_uuid,
        components=components,
    )
    _answer(asked, read_settings(), profiles, everything=show_all, as_json=as_json)


def _answer(
    asked: RecommendationRequest,
    settings: Settings,
    file: Path | None,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    """Find the way that is worth most, and tell it."""
    found = find_profiles([job.job for job in asked.jobs], settings, asked.gpu_model, file)
    given = answer(found, request_of(asked, settings.min_speed), settings, asked.gpu_uuid)
    if asked.gpu_uuid is not None and given.card is None:
        typer.echo(
            f"nothing is known of what the card {asked.gpu_uuid} draws beside others", err=True
        )
    if not as_json:
        recommend_text.show(given, everything=everything)
    if asked.components:
        whole = recommend_components.told(given, found, settings, file)
        typer.echo(write(whole)) if as_json else recommend_components.show(whole)
    elif as_json:
        typer.echo(write(to_wire(given)))
