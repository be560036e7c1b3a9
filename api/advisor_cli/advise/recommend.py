"""`advisor recommend`: how one GPU does the most for two to seven jobs."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.wording import less_or_more
from advisor.decide.reasons import percent
from advisor.settings import read_settings
from advisor.wire.answers import Partners, Recommendation, SetAdvice
from advisor_advice.ask.recommend import PairAdvice, advise
from advisor_cli.advise import recommend_text, set_screen
from advisor_cli.shared.console import plain_table, print_table
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
        _show_partners(found)


def _show_parts(told: Recommendation) -> None:
    found = told.components
    if found is None:
        say(f"what the power goes to is not known: {told.components_unknown}")
        return
    say(f"what the power at {found.split} goes to; ~ estimated, ? extrapolated")
    say(letters())
    print_parts("split", [(found.split, found.power)])
    say(found.jostling)


def _show_partners(found: Partners) -> None:
    """Print partners, the best size alone and how many copies there is memory for."""
    job, best = found.job, found.partners
    say(
        f"{job} on the {found.gpu_model}: {len(best)} best of {found.looked_at} jobs to share it "
        "with, predicted or measured; against one after the other"
    )
    priced = any(p.cost_saved for p in best)
    headings = ("partner", "", "split", "GPU time", "energy", *["price"] * priced, job, "partner's")
    rows = (
        (
            p.partner,
            p.verdict,
            p.split,
            *(
                less_or_more(saved.value, 0)
                for saved in (p.gpu_time_saved, p.energy_saved, p.cost_saved)
                if saved
            ),
            percent(min(p.speed.value, 1.0)),
            percent(min(p.partner_speed.value, 1.0)),
        )
        for p in best
    )
    print_table(plain_table(headings, rows))
    say(_alone(found))
    if best:
        say(f"next: advisor recommend {job} {best[0].partner}")


def _alone(found: Partners) -> str:
    """What it needs of the GPU without a partner, and the copies that memory has room for."""
    size = found.size
    p99 = f", p99 {size.latency_p99_ms:.3g} ms" if size and size.latency_p99_ms else ""
    alone = (
        f"alone: {size.share_percent:g} % of the SMs keep {percent(size.speed)} of its speed{p99}"
        if size
        else "alone: it needs the whole GPU"
    )
    copies = found.copies_by_memory
    return alone if copies is None else f"{alone}; memory has room for {copies} of it"
