"""What `advisor evaluate` works out, writes and prints."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor_cli.console import (
    Columns,
    as_json_text,
    plain_console,
    plain_table,
    print_table,
    say,
    say_lines,
    table_of,
)
from advisor_cli.progress import progress
from advisor_models.registry import Registry
from advisor_training.evaluation import (
    COSTS,
    Evaluation,
    LocalEvaluation,
    OnProgress,
    bundled_figures,
    check,
    checked_figures,
    evaluate_local,
    planned_fits,
    run_evaluation,
    to_json,
)
from advisor_training.public import SHIPPED, TABLES, Off, PublicFigures, evaluate_public
from advisor_training.reports import printed_tables, said, write_evaluation
from advisor_training.rows import make_data, read_local, read_measured
from advisor_training.train import write_into

_WIDTH = 140


def show(
    out: Path,
    pairs: Path | None,
    solo: Path | None,
    *,
    with_bundled: bool,
    quick: bool,
    against: bool,
    as_json: bool,
) -> None:
    """Evaluate the model on what was measured, write both files, and print what was found.

    Raises:
        InputError: the folder cannot be made, or too little was measured.
        ModelError: `against` the bundled figures, one is worse.
    """
    write_into(out)
    measured = read_measured(pairs, solo, with_bundled=with_bundled)
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    plan = {step: n * COSTS[step[1]] for step, n in planned_fits(data, quick=quick).items()}
    with _watching(plan) as watch:
        evaluation = run_evaluation(data, quick=quick, watch=watch)
    files = write_evaluation(evaluation, out)
    if not as_json:
        _print(evaluation, files)
    if against:
        check(checked_figures(evaluation), bundled_figures())
    if as_json:
        say(to_json(evaluation))
    elif against:
        say("check: no figure is worse than the bundled ones")


def _print(evaluation: Evaluation, files: tuple[Path, ...]) -> None:
    console = plain_console(least=_WIDTH)
    for line in said(evaluation):
        console.print(line, highlight=False)
    for table in printed_tables(evaluation):
        console.print(f"\n{table.title}", highlight=False)
        console.print(plain_table(table.headings, table.rows, whole=table.headings[:1]))
    for item in evaluation.basis["left_out"]:
        console.print(f"{count_of(item.points, 'point')} left out: {item.reason}")
    say(f"written: {', '.join(map(str, files))}")


@contextmanager
def _watching(plan: Mapping[tuple[str, str], float]) -> Generator[OnProgress]:
    """A bar with the time left on a terminal; elsewhere a line for each step that begins.

    `plan` has the cost of each step, a protocol and a method.
    """
    with progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=sum(plan.values()))
        begun = set[tuple[str, str]]()

        def watch(protocol: str, method: str) -> None:
            bar.update(task, description=f"{protocol}: {method}", advance=COSTS[method])
            if bar.disable and (protocol, method) not in begun:
                begun.add((protocol, method))
                left = bar.tasks[0].time_remaining
                until = "" if left is None else f", about {left:.0f} s left"
                say(f"{protocol}: {method}{until}", err=True)

        yield watch


def show_public(names: Sequence[str], clones: Path | None, *, as_json: bool) -> None:
    """Print how near shipped answers come to published tables, beside rules of one line.

    Raises:
        InputError: a table is not known or not there, or a file is another one.
    """
    figures = [*evaluate_public(names, clones)]
    lacks = {name: TABLES[name].lacks for name in dict.fromkeys(row.table for row in figures)}
    if as_json:
        say(as_json_text({"figures": to_plain(figures), "lacks": lacks}))
        return
    print_table(table_of(_PUBLIC, figures, whole=("table", "GPU", "judged")))
    say("\nMean errors in %, bias in brackets; of p99s the factor. !: a rule that is nearer.")
    say_lines(f"{name} lacks {what}" for name, what in lacks.items())


_PUBLIC: Columns[PublicFigures] = [
    ("table", lambda row: row.table),
    ("GPU", lambda row: row.gpu),
    ("judged", lambda row: row.what),
    ("values", lambda row: row.values),
    (SHIPPED, lambda row: _error(row.off.get(SHIPPED))),
    ("rules of one line", lambda row: _rules(row)),
    ("learned on half", lambda row: _error(row.learned)),
    ("bar", lambda row: row.bar_percent),
]


def _error(off: Off | None) -> str:
    return f"{off.percent:.1f} ({off.bias_percent:+.1f})" if off else "-"


def _rules(row: PublicFigures) -> str:
    answer = row.off[SHIPPED].percent - 0.05 if SHIPPED in row.off else 0.0
    rules = sorted((of.percent, who) for who, of in row.off.items() if who != SHIPPED)
    return ", ".join(f"{'! ' if of < answer else ''}{who} {of:.1f}" for of, who in rules)


def show_local(pairs: Path | None, solo: Path | None, *, as_json: bool) -> None:
    """Print how well the model in use predicts the pairs of files, else those of the store.

    Raises:
        InputError: no pairs were measured here, or none well enough.
    """
    settings = read_settings()
    measured = read_measured(pairs, solo) if pairs else read_local(settings)
    if measured is None:
        raise InputError(
            "no pairs were measured here",
            fix="measure some: advisor colocate; or give a file: --pairs FILE",
        )
    predictor = Registry(settings.home / "models").open_champion()
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    evaluation = evaluate_local(predictor, data)
    say_lines([as_json_text(to_plain(evaluation))] if as_json else _lines(evaluation))


def _lines(evaluation: LocalEvaluation) -> Iterator[str]:
    yield (
        f"model {evaluation.model} on {count_of(evaluation.pairs, 'pair')} of "
        f"{count_of(evaluation.jobs, 'job')}, {count_of(evaluation.splits, 'split')}"
    )
    yield (
        f"  {evaluation.objective}: {evaluation.oracle_percent:.1f} % of the best measured split, "
        f"worst {evaluation.oracle_worst_percent:.1f} %"
    )
    yield (
        f"  rates off by {evaluation.rate_mean_error_percent:.1f} % "
        f"(median {evaluation.rate_median_error_percent:.1f} %), "
        f"power by {evaluation.power_mean_error_percent:.1f} %"
    )
    yield (
        f"  intervals for {evaluation.coverage_percent:g} % hold "
        f"{evaluation.rate_coverage_percent:.1f} % "
        f"of the rates and {evaluation.power_coverage_percent:.1f} % of the powers"
    )
    if evaluation.known_jobs:
        yield f"it learned from jobs of these names: {listed(evaluation.known_jobs)}"
    if evaluation.new_gpu_models:
        yield f"it has not seen the {listed(evaluation.new_gpu_models)}"
    yield from (
        f"{count_of(item.points, 'point')} left out: {item.reason}" for item in evaluation.left_out
    )
