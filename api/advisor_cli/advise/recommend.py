"""`advisor recommend`: how one GPU does the most for two to seven jobs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.records import SoloPoint
from advisor.core.split import ADVISED_JOBS
from advisor.decide.recommend import Request
from advisor.decide.ways import check_set
from advisor.errors import InputError
from advisor.formats.wire import write
from advisor.settings import Settings, read_settings
from advisor.wire.recommendation import Recommendation
from advisor.wire.requests import MIN_GAIN, RecommendationRequest, SetRequest
from advisor_advice.answer import ModelAdvice, answer, request_of, set_request_of
from advisor_advice.components import known_power_of, with_components
from advisor_advice.partners import best_partners
from advisor_advice.recommendation_wire import to_wire
from advisor_advice.set_advice import advise_set
from advisor_advice.site.known_profiles import ProfileSet, find_profiles
from advisor_cli.advise import partners_text, recommend_text, set_screen
from advisor_cli.advise.job_requests import every_job, job_requests, longest_p99_ms, min_speeds
from advisor_cli.advise.queue import read_works
from advisor_cli.shared.options import (
    AsJson,
    Cores,
    GpuModelOption,
    GpuUuidOption,
    Isolate,
    MaxP99,
    MaxPower,
    Memory,
    MinGain,
    MinSpeed,
    Notes,
    ObjectiveOption,
    ProfilesOption,
    job_names,
)
from advisor_cli.shared.power_bars import letters, print_parts
from advisor_cli.shared.say import say
from advisor_data.files.files import read_points


def recommend(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of one to seven profiled jobs, A*3 for three of A. Of one: its best "
            "partners",
            metavar="A [B ...]",
            autocompletion=job_names,
        ),
    ],
    objective: ObjectiveOption = DEFAULT_OBJECTIVE,
    min_speed: MinSpeed = None,
    max_p99: MaxP99 = None,
    max_power: MaxPower = None,
    memory: Memory = None,
    min_gain: MinGain = MIN_GAIN,
    isolate: Isolate = False,
    cores: Cores = None,
    work: Annotated[
        list[str] | None,
        typer.Option(
            help="What is to be done, JOB=3h or 3h for both: time that it takes alone; of two jobs"
        ),
    ] = None,
    gpu_model: GpuModelOption = None,
    gpu_uuid: GpuUuidOption = None,
    fine: Annotated[bool, typer.Option("--fine", help="Every split in steps of two SMs")] = False,
    how: Annotated[bool, typer.Option("--how", help="The lines to copy, to start by hand")] = False,
    why: Annotated[bool, typer.Option("--why", help="Why this way, and what others do")] = False,
    notes: Notes = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all candidates, and plot them")
    ] = False,
    components: Annotated[
        bool, typer.Option("--components", help="What the power of the chosen way goes to")
    ] = False,
    profiles: ProfilesOption = None,
    as_json: AsJson = False,
) -> None:
    """How do two to seven jobs share one GPU with the least energy for the same work?

    Says what to do, what it saves, what each job pays, how sure that is, and why. Exit code 10:
    nothing keeps every limit.

    Example: advisor recommend bert-serve-30 triad --min-speed triad=0.6
    """
    settings = read_settings()
    names = every_job(jobs)
    by_job_ms, for_all_ms = longest_p99_ms(max_p99 or (), names)
    wanted = {"how": how, "why": why, "notes": notes, "all": show_all}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    of_pairs: dict[str, object] = {"--fine": fine, "--components": components}
    if len(names) == 1:
        _refuse(
            {"--work": work, "--isolate": isolate, "--cores": cores} | of_pairs,
            "1 job",
            why="the best partners of one were asked for",
            fix="name the other job, too",
        )
        limits = Request(
            objective=objective,
            min_speed=min_speeds(min_speed or (), names),
            default_min_speed=settings.min_speed,
            max_power_w=max_power,
            memory_mib=memory,
            prices=settings.prices,
            min_gain=min_gain,
        )
        partners = best_partners(names[0], settings, limits, gpu_model)
        say(write(partners)) if as_json else partners_text.show(partners)
        return
    works_s = read_works(work or (), names)
    of_any: dict[str, Any] = {
        "jobs": job_requests(names, names, min_speed or (), by_job_ms, works_s),
        "objective": objective,
        "max_p99_ms": for_all_ms,
        "max_power_w": max_power,
        "memory_mib": memory,
        "min_gain": min_gain,
        "gpu_model": gpu_model,
        "gpu_uuid": gpu_uuid,
        "isolate": isolate,
        "host_cores": cores,
    }
    if len(names) == ADVISED_JOBS:
        asked = RecommendationRequest(**of_any, fine=fine, components=components)
        _answer(asked, settings, profiles, details, as_json=as_json)
        return
    check_set(len(names))
    _refuse(
        of_pairs,
        "three jobs and more",
        why="they are predicted by physics that does not know it",
        fix="name two jobs, or leave it out",
    )
    request = set_request_of(SetRequest(**of_any), settings)
    given = advise_set(
        find_profiles(names, settings, gpu_model, profiles), request, settings, gpu_uuid
    )
    if as_json:
        say(write(given))
        return
    _say_unknown_card(gpu_uuid, given.card)
    set_screen.show(given, settings.prices, details)


def _refuse(options: Mapping[str, object], of: str, *, why: str, fix: str) -> None:
    """Options that say nothing of so many jobs."""
    if given := [name for name, value in options.items() if value]:
        raise InputError(f"{given[0]} says nothing of {of}", why=why, fix=fix)


def _say_unknown_card(gpu_uuid: str | None, card: object) -> None:
    if gpu_uuid is not None and card is None:
        say(f"nothing is known of what the card {gpu_uuid} draws beside others", err=True)


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
    _say_unknown_card(asked.gpu_uuid, given.card)
    if not as_json:
        recommend_text.show(given, details)
    if asked.components:
        whole = _with_parts(given, found, settings, file)
        say(write(whole)) if as_json else _show_parts(whole)
    elif as_json:
        say(write(to_wire(given)))


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
        say(f"what the power goes to is not known: {told.components_unknown}")
        return
    say(f"what the power at {found.split} goes to; ~ estimated, ? extrapolated")
    say(letters())
    print_parts("split", [(found.split, found.power)])
    say(found.jostling)
