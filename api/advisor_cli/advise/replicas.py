"""`advisor replicas`: how many copies of one job a GPU holds, and what ends their number."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from advisor.core.split import MOST_JOBS
from advisor.core.wording import less_or_more
from advisor.decide.reasons import percent
from advisor.wire.answers import Copies, Replicas
from advisor_advice.ask import replicas as ask
from advisor_advice.words.pair import basis
from advisor_cli.shared.console import plain_console, plain_table, print_table
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import AdviceOptions, AsJson, Notes, job_names
from advisor_cli.shared.say import as_json_text, say
from advisor_cli.shared.screen import MOST_WIDTH, print_folded, print_list


@grouped
def replicas(
    job: Annotated[
        str, typer.Argument(help="Name of a profiled job", metavar="JOB", autocompletion=job_names)
    ],
    asked: AdviceOptions,
    most: Annotated[
        int, typer.Option(help="Copies that are looked at; beyond 7 nothing was measured")
    ] = MOST_JOBS,
    notes: Notes = False,
    as_json: AsJson = False,
) -> None:
    """How many copies of a job run on one GPU, and what ends their number?

    Says the rate of all, the tail, watts and joules for each unit of progress. Exit code 10: not
    even one keeps its limits.

    Example: advisor replicas bert-serve-30 --max-p99 50ms
    """
    told = ask.replicas(job, most=most, **asdict(asked))
    say(as_json_text(told)) if as_json else _show(told, with_notes=notes)


def _show(told: Replicas, *, with_notes: bool) -> None:
    unit, best, alone = told.rate_unit, told.copies[-1], told.copies[0]
    console = plain_console(highlight=False, most=MOST_WIDTH)
    copies = "1 copy" if told.best == 1 else f"{told.best} copies"
    where = f"{told.job} on the {told.gpu_model}{_WAYS[told.sharing]}"
    print_folded(
        console, "", f"{where}: {copies}. {basis(best.measured, [told.job] * told.one_window)}"
    )
    if told.best > 1:
        off, idle = (less_or_more(x.value, 0) for x in (best.energy_saved, best.energy_saved_idle))
        times = f"{best.rate.value / alone.rate.value:.2f} times the rate of one"
        print_folded(
            console, "", f"{times}, {off} energy with freed GPUs off, {idle} with them idle"
        )
    headings = ("copies", f"{unit}/s", "each", "at worst", "p99 ms", "at worst", "W", "J each", "")
    print_table(plain_table(headings, _rows(told)))
    ended = f"ended by {told.ended_by}: " if told.ended_by else ""
    print_folded(console, "", f"{ended}{told.why}")
    print_folded(console, "", _FAULTS[told.sharing])
    if with_notes:
        print_list(console, "notes", "!", told.warnings)
    elif told.warnings:
        print_folded(console, "", f"what may be wrong with it: --notes ({len(told.warnings)})")


_WAYS = {"uncapped": "", "time-sliced": " in turns, without MPS"}

_FAULTS = {
    "uncapped": "a fault of one copy ends all, as MPS does not keep them apart: --isolate",
    "time-sliced": "a fault of one copy leaves the others running",
}


def _rows(told: Replicas) -> Iterator[tuple[str, ...]]:
    for copies in (*told.copies, *filter(None, [told.beyond])):
        is_measured = copies.measured is not None and copies.measured.at_choice > 0
        notes = ["too many"] * (copies is told.beyond) + ["measured"] * is_measured
        yield (*_cells(copies), ", ".join(notes))


def _cells(copies: Copies) -> tuple[str, ...]:
    p99 = copies.latency_p99_ms
    return (
        str(copies.number),
        f"{copies.rate.value:,.4g}",
        percent(min(copies.speed.value, 1.0)),
        percent(min(copies.speed.low, 1.0)),
        f"{p99.value:.3g}" if p99 else "-",
        f"{p99.high:.3g}" if p99 else "-",
        f"{copies.power_w.value:.0f}",
        f"{copies.joules.value:.3g}",
    )
