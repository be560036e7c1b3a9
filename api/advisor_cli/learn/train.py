"""`advisor train`, `retrain` and `evaluate`: what was measured to a model, and how good it is."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from advisor.core.wording import count_of, listed
from advisor.errors import InputError, ModelError, StoreError
from advisor.files import PUBLIC_FILE, replace_file
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor_advice.conditions import begun_store
from advisor_cli.console import (
    AsJson,
    Columns,
    WithBundled,
    WithLaunches,
    as_json_text,
    plain_console,
    plain_table,
    print_table,
    say,
    say_lines,
    table_of,
)
from advisor_cli.progress import leaving_out, progress
from advisor_models.registry import MANIFEST, Manifest, Registry, check_intervals, write_artefact
from advisor_training.evaluation import (
    COSTS,
    Evaluation,
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
from advisor_training.retrain import (
    KEPT_VERSIONS,
    OUTCOMES,
    REASONS,
    RetrainReport,
    collect,
    retrain as run,
)
from advisor_training.rows import (
    BUNDLED,
    MEASURED_HERE,
    PointSet,
    make_data,
    read_local,
    read_measured,
    with_launches,
)
from advisor_training.train import (
    SCORED,
    Trained,
    TrainingSet,
    fit_model,
    make_artefact,
    make_training_set,
    write_into,
)

NEWEST = "newest"

_WIDTH = 140


def train(
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="File of pair points (default: those measured here, else the bundled ones)"
        ),
    ] = None,
    solo: Annotated[
        Path | None, typer.Option(help="File of solo points (default: as for --pairs)")
    ] = None,
    with_bundled: WithBundled = False,
    launches: WithLaunches = True,
    out: Annotated[Path, typer.Option(help="Folder for the model")] = Path("model"),
    created_at: Annotated[
        str | None,
        typer.Option(
            help="Creation time of the model, ISO 8601, or `newest` for that of the newest"
            " point (default: now)"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn from measured pairs; writes its trees and manifest.json.

    Leaves out each job once, to measure the error for unseen jobs.

    Example: advisor train --out new-model
    """
    measured = _read(pairs, solo, with_bundled=with_bundled, launches=launches)
    if not as_json:
        say_lines(_source_lines(measured))
    made_from = make_training_set(
        measured.pairs, measured.profiled, measured.references, measured.left_out
    )
    moment = _moment(made_from.newest if created_at == NEWEST else created_at)
    with leaving_out() as on_stage:
        trained = fit_model(made_from.rows, on_stage("training"), made_from.blind)
    artefact = make_artefact(made_from, trained, moment)
    write_into(out, lambda folder: write_artefact(folder, artefact))
    manifest = artefact.manifest
    files = [str(out / name) for name in (*manifest.files, MANIFEST)]
    fault = None  # why the model will not be promoted
    try:
        check_intervals(manifest)
    except ModelError as error:
        fault = str(error)
    if as_json:
        held = trained.calibrated.held
        answer = {
            "version": manifest.version,
            "rows": len(made_from.rows),
            "pair_points": manifest.dataset.pair_points,
            "pairs": manifest.dataset.pairs,
            "jobs": len(manifest.dataset.jobs),
            "left_out": [{"reason": i.reason, "points": i.points} for i in made_from.left_out],
            "figures": dict(manifest.figures),
            "other_gpu": to_plain(manifest.other_gpu),
            "rate_coverage_percent_by_share": _percents(held["speed"].strata),
            "power_coverage_percent_by_kind": _percents(held["power"].strata),
            "fit_s": trained.fit_s,
            "total_s": trained.total_s,
            "sources": to_plain(measured.sources),
            "files": files,
            "fault": fault,
        }
        say(as_json_text(answer))
        return
    end = [f"it will not be promoted: {fault}" if fault else f"next: advisor models promote {out}"]
    say_lines((*_lines(made_from, trained, manifest), f"written: {', '.join(files)}", *end))


def _read(pairs: Path | None, solo: Path | None, *, with_bundled: bool, launches: bool) -> PointSet:
    """The points of the files and nothing else; without any, our own or else the bundled ones."""
    if pairs or solo:
        return read_measured(pairs, solo, with_bundled=with_bundled)
    settings = read_settings()
    local = read_local(settings, with_bundled=with_bundled)
    measured = local or read_measured(None, None, with_bundled=with_bundled)
    return with_launches(measured, settings) if launches else measured


def _source_lines(measured: PointSet) -> Iterator[str]:
    yield f"learning from {listed(measured.sources)}"
    names = [source.name for source in measured.sources]
    if MEASURED_HERE not in names and names[0] == BUNDLED:
        yield "no pairs were measured here; advisor colocate measures some"
    elif names[0] == MEASURED_HERE and not any(
        source.name == BUNDLED and source.pair_points for source in measured.sources
    ):
        yield "the bundled pairs are left out; --with-bundled takes them, too"


def _moment(text: str | None) -> datetime:
    """The time in UTC; now where none is given."""
    if text is None:
        return datetime.now(UTC)
    with InputError.instead_of(
        ValueError,
        f"{text} is not a time",
        why="",
        fix="give one such as 2026-11-21T16:08:03Z, or newest",
    ):
        moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _percents(parts: dict[str, float]) -> dict[str, float]:
    return {name: round(100 * part, 1) for name, part in parts.items()}


def _lines(made_from: TrainingSet, trained: Trained, manifest: Manifest) -> Iterator[str]:
    facts, figure = manifest.dataset, manifest.figures
    yield (
        f"{count_of(facts.pair_points, 'point')} of {count_of(facts.pairs, 'pair')} of "
        f"{count_of(len(facts.jobs), 'job')} on {count_of(facts.cards, 'card')}"
    )
    yield from (
        f"{count_of(item.points, 'point')} left out: {item.reason}" for item in made_from.left_out
    )
    yield "For jobs that were left out of training, at the nine splits:"
    for name in SCORED:
        word = f"oracle_{name.replace('-', '_')}"
        yield (
            f"  {name}: {figure[f'{word}_percent']:.1f} % of the best measured split, "
            f"worst {figure[f'{word}_worst_percent']:.1f} %"
        )
    yield (
        f"  rates off by {figure['rate_mean_error_percent']:.1f} % "
        f"(median {figure['rate_median_error_percent']:.1f} %), "
        f"power by {figure['power_mean_error_percent']:.1f} %"
    )
    coverage = f"{manifest.coverage:.0%}"
    yield (
        f"  intervals for {coverage} hold {figure['rate_coverage_percent']:.1f} % of the rates "
        f"and {figure['power_coverage_percent']:.1f} % of the powers of jobs in other runs"
    )
    widening = [f"{w:g} times for {name}" for name, w in manifest.other_gpu.widening.items()]
    yield (
        f"  for a GPU model that is not among {', '.join(manifest.gpu_models)}, they are wider: "
        f"{listed(widening)}"
    )
    yield f"fitted in {trained.fit_s:.1f} s; {trained.total_s:.1f} s with leaving jobs out"
    yield f"model {manifest.version}"


def retrain(
    with_bundled: Annotated[
        bool,
        typer.Option(
            "--with-bundled/--own-only", help="Train on bundled points as well as your own"
        ),
    ] = True,
    launches: WithLaunches = True,
    keep: Annotated[
        int, typer.Option(min=1, help="Number of retrained versions to keep on disk")
    ] = KEPT_VERSIONS,
    metrics: Annotated[
        Path | None,
        typer.Option(help="File for metrics, for the textfile collector of node_exporter"),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing if nothing changed")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from new measurements, and use the new model unless it is worse; for cron.

    Points are checked first; those left out stay in the store. docs/retrain.md has the rules.

    Example: advisor retrain
    """
    settings = read_settings()
    with begun_store(settings) as store:
        home = settings.home
        collected = collect(store, home, with_bundled=with_bundled, with_launches=launches)
    with leaving_out() as on_stage:
        report = run(collected, home / "models", datetime.now(UTC), keep=keep, on_stage=on_stage)
    if metrics is not None:
        write_metrics(metrics, report)
    is_silent = quiet and report.outcome == "nothing-new" and not report.left_out
    lines = () if is_silent else _run_lines(report)
    say_lines([as_json_text({**to_plain(report), "summary": report.summary})] if as_json else lines)


def write_metrics(path: Path, report: RetrainReport) -> None:
    """Write metrics of a run there; StoreError where that fails, with the old file as it was."""
    with StoreError.instead_of(
        OSError,
        f"the metrics cannot be written to {path}",
        fix="give another file with --metrics; the run itself came to its end",
    ):
        registry = CollectorRegistry()
        by_reason = dict.fromkeys(REASONS, 0) | {
            left.reason: left.points for left in report.left_out
        }
        for name, text, labels, values in (
            (
                "last_success_timestamp_seconds",
                "When it last came to its end",
                (),
                {(): datetime.fromisoformat(report.at).timestamp()},
            ),
            (
                "outcome",
                "1 for how it ended",
                ("outcome",),
                {(name,): name == report.outcome for name in OUTCOMES},
            ),
            ("champion_info", "1 for the model in use", ("version",), {(report.champion,): 1}),
            ("new_points", "Points not learned yet", (), {(): report.new_points}),
            (
                "left_out_points",
                "New points that were left out",
                ("reason",),
                {(name,): count for name, count in by_reason.items()},
            ),
            (
                "left_out_launches",
                "Launches that teach nothing",
                ("reason",),
                {(left.reason,): left.points for left in report.launches_left_out},
            ),
            *(
                (f"{figure}_percent", f"Mean {figure}, jobs unseen", ("group", "model"), values)
                for figure in ("error", "regret")
                if (values := _of(report, figure))
            ),
        ):
            gauge = Gauge(f"advisor_retrain_{name}", text, labels, registry=registry)
            for words, value in values.items():
                (gauge.labels(*words) if words else gauge).set(value)
        # At once, since a collector may read it at any moment.
        replace_file(path, generate_latest(registry), PUBLIC_FILE)


def _of(report: RetrainReport, figure: str) -> dict[tuple[str, ...], float]:
    return {
        (figure_compared.group, model): value
        for figure_compared in report.compared
        if figure_compared.figure == figure
        for model, value in (
            ("champion", figure_compared.champion_percent),
            ("challenger", figure_compared.challenger_percent),
        )
    }


def _run_lines(report: RetrainReport) -> Iterator[str]:
    """The summary first, then what explains it."""
    yield report.summary
    yield from (
        f"  {count_of(left.points, 'point')} left out as {left.reason}, such as {left.example}"
        for left in report.left_out
    )
    yield from (f"  {left.points} left out: {left.reason}" for left in report.launches_left_out)
    yield from (
        f"  {figure.figure}, {figure.group}: {figure.champion_percent:.2f} % -> "
        f"{figure.challenger_percent:.2f} %, gain {figure.gain_percent:.2f} "
        f"[{figure.low_percent:.2f} {figure.high_percent:.2f}] ({count_of(figure.jobs, 'job')})"
        for figure in report.compared
        if figure.decides
    )
    if report.removed:
        yield f"  deleted: {', '.join(report.removed)}"


def evaluate(
    tables: Annotated[
        list[str] | None, typer.Argument(help="With --public: only these tables", metavar="TABLE")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and the JSON")] = Path("report"),
    pairs: Annotated[
        Path | None, typer.Option(help="File of pair points (default: the bundled ones)")
    ] = None,
    solo: Annotated[
        Path | None, typer.Option(help="File of solo points (default: the bundled ones)")
    ] = None,
    with_bundled: WithBundled = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The model, physics and the paper's method, by workload")
    ] = False,
    against: Annotated[
        bool,
        typer.Option(
            "--check", help="As --quick, and fail if a figure is worse than the bundled ones"
        ),
    ] = False,
    local: Annotated[
        bool,
        typer.Option("--own", help="The model in use, on the pairs measured here; writes nothing"),
    ] = False,
    public: Annotated[
        bool,
        typer.Option("--public", help="Evaluate the bundled answers on public measurements"),
    ] = False,
    clones: Annotated[
        Path | None,
        typer.Option("--from", help="Folder of cloned tables that cannot be redistributed"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how good the model is. Writes evaluation.html and evaluation.json.

    Every pair is predicted by learners that were fitted without it, or without its jobs.

    Example: advisor evaluate --quick
    """
    if (tables or clones) and not public:
        raise InputError("tables and --from go with --public only", fix="add --public")
    if local + public + (quick or against or with_bundled) > 1:
        raise InputError(
            "--own and --public each answer another question",
            fix="--own goes with --pairs and --solo, --public with tables and --from",
        )
    if public:
        _show_public(tables or (), clones, as_json=as_json)
        return
    if local:
        _show_local(pairs, solo, as_json=as_json)
        return
    quick = quick or against
    write_into(out)
    measured = read_measured(pairs, solo, with_bundled=with_bundled)
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    plan = {step: n * COSTS[step[1]] for step, n in planned_fits(data, quick=quick).items()}
    with _watching(plan) as watch:
        evaluation = run_evaluation(data, quick=quick, watch=watch)
    files = write_evaluation(evaluation, out)
    if not as_json:
        _print_evaluation(evaluation, files)
    if against:
        check(checked_figures(evaluation), bundled_figures())
    if as_json:
        say(to_json(evaluation))
    elif against:
        say("check: no figure is worse than the bundled ones")


def _print_evaluation(evaluation: Evaluation, files: tuple[Path, ...]) -> None:
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


def _show_public(names: Sequence[str], clones: Path | None, *, as_json: bool) -> None:
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


def _show_local(pairs: Path | None, solo: Path | None, *, as_json: bool) -> None:
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
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    evaluation = evaluate_local(Registry(settings.home / "models").open_champion(), data)
    say_lines([as_json_text(to_plain(evaluation))] if as_json else _local_lines(evaluation))


def _local_lines(own: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"model {own['model']} on {count_of(own['pairs'], 'pair')} of "
        f"{count_of(own['jobs'], 'job')}, {count_of(own['splits'], 'split')}"
    )
    yield (
        f"  {own['objective']}: {own['oracle_percent']:.1f} % of the best measured split, "
        f"worst {own['oracle_worst_percent']:.1f} %"
    )
    yield (
        f"  rates off by {own['rate_mean_error_percent']:.1f} % "
        f"(median {own['rate_median_error_percent']:.1f} %), "
        f"power by {own['power_mean_error_percent']:.1f} %"
    )
    yield (
        f"  intervals for {own['coverage_percent']:g} % hold "
        f"{own['rate_coverage_percent']:.1f} % "
        f"of the rates and {own['power_coverage_percent']:.1f} % of the powers"
    )
    if own["known_jobs"]:
        yield f"it learned from jobs of these names: {listed(own['known_jobs'])}"
    if own["new_gpu_models"]:
        yield f"it has not seen the {listed(own['new_gpu_models'])}"
    yield from (
        f"{count_of(item.points, 'point')} left out: {item.reason}" for item in own["left_out"]
    )
