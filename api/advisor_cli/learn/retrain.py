"""`advisor retrain`: learn from what is new, and use the new model unless it is worse."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from advisor.core.wording import count_of
from advisor.errors import StoreError
from advisor.files import PUBLIC_FILE, replace_file
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor_advice.profiles import begun_store
from advisor_cli.console import AsJson, WithLaunches, as_json_text, say_lines
from advisor_cli.progress import progress
from advisor_training.learners import OnFold
from advisor_training.retrain import (
    KEPT_VERSIONS,
    OUTCOMES,
    REASONS,
    OnStage,
    RetrainReport,
    collect,
)
from advisor_training.retrain import retrain as run


def retrain(
    with_bundled: Annotated[
        bool,
        typer.Option(
            "--with-bundled/--own-only", help="Train on bundled points as well as your own"
        ),
    ] = True,
    launches: WithLaunches = True,
    keep: Annotated[
        int, typer.Option(min=1, help="So many versions of retraining stay on disk")
    ] = KEPT_VERSIONS,
    metrics: Annotated[
        Path | None,
        typer.Option(help="Write metrics there, for node_exporter's textfile collector"),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Say nothing where nothing happened")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from what is new, and use the new model unless it is worse; fit for cron.

    Points are checked first; those left out stay in the store. docs/retrain.md has the rules.

    Example: advisor retrain
    """
    settings = read_settings()
    with begun_store(settings) as store:
        home = settings.home
        collected = collect(store, home, with_bundled=with_bundled, with_launches=launches)
    with _progress() as on_stage:
        report = run(collected, home / "models", datetime.now(UTC), keep=keep, on_stage=on_stage)
    if metrics is not None:
        write_metrics(metrics, report)
    told = () if quiet and report.is_silent else _lines(report)
    say_lines([as_json_text(_to_json(report))] if as_json else told)


def write_metrics(path: Path, report: RetrainReport) -> None:
    """Write metrics of a run there; StoreError where that fails, with the old file as it was."""
    with StoreError.instead_of(
        OSError,
        f"the metrics cannot be written to {path}",
        fix="give another file with --metrics; the run itself came to its end",
    ):
        # At once, since a collector may read it at any moment.
        replace_file(path, generate_latest(_metrics(report)), PUBLIC_FILE)


def _metrics(report: RetrainReport) -> CollectorRegistry:
    registry = CollectorRegistry()
    by_reason = dict.fromkeys(REASONS, 0) | {one.reason: one.points for one in report.left_out}
    families: tuple[tuple[str, str, tuple[str, ...], Mapping[tuple[str, ...], float]], ...] = (
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
            {(one.reason,): one.points for one in report.launches_left_out},
        ),
        *(
            (f"{figure}_percent", f"Mean {figure}, jobs unseen", ("group", "model"), values)
            for figure in ("error", "regret")
            if (values := _of(report, figure))
        ),
    )
    for name, text, labels, values in families:
        gauge = Gauge(f"advisor_retrain_{name}", text, labels, registry=registry)
        for words, value in values.items():
            (gauge.labels(*words) if words else gauge).set(value)
    return registry


def _of(report: RetrainReport, figure: str) -> dict[tuple[str, ...], float]:
    return {
        (one.group, model): value
        for one in report.compared
        if one.figure == figure
        for model, value in (
            ("champion", one.champion_percent),
            ("challenger", one.challenger_percent),
        )
    }


def _to_json(report: RetrainReport) -> dict[str, object]:
    return {**to_plain(report), "summary": report.summary}


def _lines(report: RetrainReport) -> Iterator[str]:
    """The summary first, then what explains it."""
    yield report.summary
    yield from (
        f"  {count_of(one.points, 'point')} left out as {one.reason}, such as {one.example}"
        for one in report.left_out
    )
    yield from (f"  {one.points} left out: {one.reason}" for one in report.launches_left_out)
    yield from (
        f"  {one.figure}, {one.group}: {one.champion_percent:.2f} % -> "
        f"{one.challenger_percent:.2f} %, gain {one.gain_percent:.2f} "
        f"[{one.low_percent:.2f} {one.high_percent:.2f}] ({count_of(one.jobs, 'job')})"
        for one in report.compared
        if one.decides
    )
    if report.removed:
        yield f"  deleted: {', '.join(report.removed)}"


@contextmanager
def _progress() -> Generator[OnStage]:
    """A bar with the time left on a terminal, nothing elsewhere."""
    text = TextColumn("{task.description}", markup=False)
    with progress(text, BarColumn(), TimeRemainingColumn()) as bar:

        def on_stage(name: str) -> OnFold:
            task = bar.add_task(name, total=None)
            return lambda left_out, done, total: bar.update(
                task, description=f"{name}, without {left_out}", completed=done, total=total
            )

        yield on_stage
