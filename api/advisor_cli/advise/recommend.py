"""`advisor recommend`: which split of one GPU does the most for two jobs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.records import SoloPoint
from advisor.decide.recommend import Request
from advisor.errors import InputError
from advisor.formats.wire import write
from advisor.settings import Settings, read_settings
from advisor.wire.recommendation import Recommendation
from advisor.wire.requests import MIN_GAIN, RecommendationRequest
from advisor_advice.answer import ModelAdvice, answer, request_of
from advisor_advice.components import known_power_of, with_components
from advisor_advice.partners import best_partners
from advisor_advice.recommendation_wire import to_wire
from advisor_advice.site.known_profiles import ProfileSet, find_profiles
from advisor_cli.advise import partners_text, recommend_text
from advisor_cli.advise.job_requests import job_requests, longest_p99_ms, min_speeds
from advisor_cli.advise.queue import read_works
from advisor_cli.shared.options import (
    AsJson,
    GpuModelOption,
    GpuUuidOption,
    MaxP99,
    MaxPower,
    Memory,
    MinGain,
    MinSpeed,
    ObjectiveOption,
    ProfilesOption,
)
from advisor_cli.shared.power_bars import letters, print_parts
from advisor_data.files.files import read_points


def recommend(
    job_a: Annotated[str, typer.Argument(help="Name of a profiled job", metavar="A")],
    job_b: Annotated[
        str | None,
        typer.Argument(
            help="The job that shares the GPU with it; may be the same. Without one: its best "
            "partners",
            metavar="B",
        ),
    ] = None,
    objective: ObjectiveOption = DEFAULT_OBJECTIVE,
    min_speed: MinSpeed = None,
    max_p99: MaxP99 = None,
    max_power: MaxPower = None,
    memory: Memory = None,
    min_gain: MinGain = MIN_GAIN,
    work: Annotated[
        list[str] | None,
        typer.Option(help="What is to be done, JOB=3h or 3h for both: time that it takes alone"),
    ] = None,
    gpu_model: GpuModelOption = None,
    gpu_uuid: GpuUuidOption = None,
    fine: Annotated[bool, typer.Option("--fine", help="Every split in steps of two SMs")] = False,
    how: Annotated[bool, typer.Option("--how", help="The lines to copy, to start by hand")] = False,
    why: Annotated[bool, typer.Option("--why", help="Why this way, and what others do")] = False,
    notes: Annotated[bool, typer.Option("--notes", help="What may be wrong with it")] = False,
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
    settings = read_settings()
    if job_b is None:
        _refuse_for_one({"--work": work, "--fine": fine, "--components": components})
        limits = Request(
            objective=objective,
            min_speed=min_speeds(min_speed or (), [job_a]),
            default_min_speed=settings.min_speed,
            max_power_w=max_power,
            memory_mib=memory,
            prices=settings.prices,
            min_gain=min_gain,
        )
        found = best_partners(job_a, settings, limits, gpu_model)
        typer.echo(write(found)) if as_json else partners_text.show(found)
        return
    names = (job_a, job_b)
    by_job_ms, for_all_ms = longest_p99_ms(max_p99 or (), names)
    works_s = read_works(work or (), names)
    asked = RecommendationRequest(
        jobs=job_requests(names, names, min_speed or (), by_job_ms, works_s),
        objective=objective,
        max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=memory,
        min_gain=min_gain,
        gpu_model=gpu_model,
        fine=fine,
        gpu_uuid=gpu_uuid,
        components=components,
    )
    wanted = {"how": how, "why": why, "notes": notes, "all": show_all}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    _answer(asked, settings, profiles, details, as_json=as_json)


def _refuse_for_one(options: Mapping[str, object]) -> None:
    """Options that say nothing of a job without a partner."""
    if given := [name for name, value in options.items() if value]:
        raise InputError(
            f"{given[0]} is of two jobs",
            why="the best partners of one were asked for",
            fix="name the other job, too",
        )


def _answer(
    asked: RecommendationRequest,
    settings: Settings,
    file: Path | None,
    details: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Find the way that is worth most, and tell it."""
    found = find_profiles([job.job for job in asked.jobs], settings, asked.gpu_model, file)
    given = answer(found, request_of(asked, settings), settings, asked.gpu_uuid)
    if asked.gpu_uuid is not None and given.card is None:
        typer.echo(
            f"nothing is known of what the card {asked.gpu_uuid} draws beside others", err=True
        )
    if not as_json:
        recommend_text.show(given, details)
    if asked.components:
        whole = _with_parts(given, found, settings, file)
        typer.echo(write(whole)) if as_json else _show_parts(whole)
    elif as_json:
        typer.echo(write(to_wire(given)))


def _with_parts(
    given: ModelAdvice, found: ProfileSet, settings: Settings, file: Path | None
) -> Recommendation:
    """The answer with the parts of its power, by weights fitted now, to points of `file` too."""
    more = [p for p in read_points(file) if isinstance(p, SoloPoint)] if file else []
    known = partial(known_power_of, found, settings, more)
    return with_components(to_wire(given), given.recommendation, known)


def _show_parts(told: Recommendation) -> None:
    found = told.components
    if found is None:
        typer.echo(f"what the power goes to is not known: {told.components_unknown}")
        return
    typer.echo(f"what the power at {found.split} goes to; ~ estimated, ? extrapolated")
    typer.echo(letters())
    print_parts("split", [(found.split, found.power)])
    typer.echo(found.jostling)
