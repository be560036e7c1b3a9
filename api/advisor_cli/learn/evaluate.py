"""`advisor evaluate`: how good the model is for jobs that it has not seen."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor_cli.learn.evaluate_own import show_own
from advisor_cli.learn.measured import read_measured
from advisor_cli.shared.console import plain_console, plain_table
from advisor_cli.shared.options import AsJson, PairPointsOption, SoloPointsOption, WithBundled
from advisor_training.dataset.data import make_data
from advisor_training.evaluation.check import bundled_figures, check, checked_figures
from advisor_training.evaluation.disturbed import make_all_data
from advisor_training.evaluation.evaluate import OnProgress, planned_fits, run_evaluation
from advisor_training.evaluation.methods import methods
from advisor_training.evaluation.values import Evaluation, to_json
from advisor_training.reports.document import make_folder
from advisor_training.reports.evaluation_gpu_tables import gpu_tables
from advisor_training.reports.evaluation_report import write_evaluation
from advisor_training.reports.evaluation_sentences import said
from advisor_training.reports.evaluation_tables import printed_tables

_WIDTH = 140


def evaluate(
    out: Annotated[Path, typer.Option(help="Folder for page and JSON")] = Path("report"),
    pairs: PairPointsOption = None,
    solo: SoloPointsOption = None,
    with_bundled: WithBundled = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The model and physics only, by workload")
    ] = False,
    against: Annotated[
        bool,
        typer.Option(
            "--check", help="As --quick; fails where a figure is worse than the bundled ones"
        ),
    ] = False,
    own: Annotated[
        bool,
        typer.Option("--own", help="The model in use, on the pairs measured here; writes nothing"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """How good is the model? Writes evaluation.html and evaluation.json.

    Every pair is predicted by learners that were fitted without it, or without its jobs.
    """
    if own:
        if quick or against or with_bundled:
            raise InputError("--own goes with --pairs and --solo only", fix="leave the rest away")
        show_own(pairs, solo, as_json=as_json)
        return
    make_folder(out)
    quick = quick or against
    measured = read_measured(pairs, solo, with_bundled=with_bundled)
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    every = None if quick else make_all_data(measured.pairs, measured.profiled, measured.references)
    costs = {name: method.cost for name, method in methods(data).items()}
    fits = planned_fits(data, quick=quick, every=every)
    plan = {step: n * costs[step[1]] for step, n in fits.items()}
    with _watching(plan, costs) as watch:
        evaluation = run_evaluation(data, quick=quick, watch=watch, every=every)
    files = write_evaluation(evaluation, out)
    if not as_json:
        _print(evaluation, files)
    if against:
        check(checked_figures(evaluation), bundled_figures())
    if as_json:
        typer.echo(to_json(evaluation))
    elif against:
        typer.echo("check: no figure is worse than the bundled ones")


def _print(evaluation: Evaluation, files: tuple[Path, ...]) -> None:
    console = plain_console(least=_WIDTH)
    for line in said(evaluation):
        console.print(line, highlight=False)
    for table in (*printed_tables(evaluation), *gpu_tables(evaluation)):
        console.print(f"\n{table.title}", highlight=False)
        console.print(plain_table(table.headings, table.rows, whole=table.headings[:1]))
    for item in evaluation.basis.left_out:
        console.print(f"{count_of(item.points, 'point')} left out: {item.reason}")
    typer.echo(f"written: {', '.join(map(str, files))}")


@contextmanager
def _watching(
    plan: Mapping[tuple[str, str], float], costs: Mapping[str, float]
) -> Generator[OnProgress]:
    """A bar with the time left on a terminal; elsewhere a line for each step that begins.

    Args:
        plan: Cost of each step, a protocol and a method.
        costs: Of one fit, by method.
    """
    console = plain_console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=sum(plan.values()))
        begun = set[tuple[str, str]]()

        def watch(protocol: str, method: str) -> None:
            bar.update(task, description=f"{protocol}: {method}", advance=costs[method])
            if quiet and (protocol, method) not in begun:
                begun.add((protocol, method))
                left = bar.tasks[0].time_remaining
                until = "" if left is None else f", about {left:.0f} s left"
                typer.echo(f"{protocol}: {method}{until}", err=True)

        yield watch
