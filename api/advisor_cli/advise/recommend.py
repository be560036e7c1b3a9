"""`advisor recommend`: how one GPU does the most for two to seven jobs."""

from typing import Annotated

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.settings import read_settings
from advisor.wire.partners import Partners
from advisor.wire.recommendation import Recommendation
from advisor.wire.requests import MIN_GAIN
from advisor.wire.sets import SetAdvice
from advisor_advice.ask.recommend import PairAdvice, advise
from advisor_cli.advise import partners_text, recommend_text, set_screen
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
from advisor_cli.shared.say import as_json_text, say


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
    wanted = {"how": how, "why": why, "notes": notes, "all": show_all}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    found = advise(
        *jobs,
        objective=objective,
        min_speed=min_speed,
        max_p99=max_p99,
        max_power=max_power,
        memory=memory,
        min_gain=min_gain,
        isolate=isolate,
        cores=cores,
        work=work,
        gpu_model=gpu_model,
        gpu_uuid=gpu_uuid,
        fine=fine,
        components=components,
        profiles=profiles,
    )
    told = found.told if isinstance(found, PairAdvice) else found
    if not isinstance(told, Partners) and gpu_uuid is not None and told.card is None:
        say(f"nothing is known of what the card {gpu_uuid} draws beside others", err=True)
    if as_json:
        say(as_json_text(told))
    elif isinstance(found, PairAdvice):
        recommend_text.show(found.given, details)
        if components:
            _show_parts(found.told)
    elif isinstance(found, SetAdvice):
        set_screen.show(found, read_settings().prices, details)
    else:
        partners_text.show(found)


def _show_parts(told: Recommendation) -> None:
    found = told.components
    if found is None:
        say(f"what the power goes to is not known: {told.components_unknown}")
        return
    say(f"what the power at {found.split} goes to; ~ estimated, ? extrapolated")
    say(letters())
    print_parts("split", [(found.split, found.power)])
    say(found.jostling)
