"""`advisor recommend`: how one GPU does the most for two to seven jobs."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.settings import read_settings
from advisor.wire.partners import Partners
from advisor.wire.recommendation import Recommendation
from advisor.wire.sets import SetAdvice
from advisor_advice.ask.recommend import PairAdvice, advise
from advisor_cli.advise import partners_text, recommend_text, set_screen
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import AdviceOptions, AsJson, Notes, ObjectiveOption, job_names
from advisor_cli.shared.power_bars import letters, print_parts
from advisor_cli.shared.say import as_json_text, say


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions(AdviceOptions):
    """What is asked of one to seven jobs."""

    objective: ObjectiveOption = DEFAULT_OBJECTIVE
    work: Annotated[
        list[str] | None,
        typer.Option(
            help="What is to be done, JOB=3h or 3h for both: time that it takes alone; of two jobs"
        ),
    ] = None
    fine: Annotated[bool, typer.Option("--fine", help="Every split in steps of two SMs")] = False
    components: Annotated[
        bool, typer.Option("--components", help="What the power of the chosen way goes to")
    ] = False


@grouped
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
    asked: RecommendOptions,
    how: Annotated[bool, typer.Option("--how", help="The lines to copy, to start by hand")] = False,
    why: Annotated[bool, typer.Option("--why", help="Why this way, and what others do")] = False,
    notes: Notes = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all candidates, and plot them")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """How do two to seven jobs share one GPU with the least energy for the same work?

    Says what to do, what it saves, what each job pays, how sure that is, and why. Exit code 10:
    nothing keeps every limit.

    Example: advisor recommend bert-serve-30 triad --min-speed triad=0.6
    """
    wanted = {"how": how, "why": why, "notes": notes, "all": show_all}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    found = advise(*jobs, **asdict(asked))
    told = found.told if isinstance(found, PairAdvice) else found
    if not isinstance(told, Partners) and asked.gpu_uuid is not None and told.card is None:
        say(f"nothing is known of what the card {asked.gpu_uuid} draws beside others", err=True)
    if as_json:
        say(as_json_text(told))
    elif isinstance(found, PairAdvice):
        recommend_text.show(found.given, details)
        if asked.components:
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
