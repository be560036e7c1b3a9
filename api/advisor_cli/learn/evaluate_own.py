"""`advisor evaluate --own`: the model in use on the pairs that were measured here."""

import json
from collections.abc import Iterator
from pathlib import Path

import typer

from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor_cli.learn.measured import read_measured, read_own
from advisor_models.registry import Registry
from advisor_training.dataset.data import make_data
from advisor_training.evaluation.own import OwnEvaluation, evaluate_own


def show_own(pairs: Path | None, solo: Path | None, *, as_json: bool) -> None:
    """Print how well the model in use predicts the pairs of files, else those of the store.

    Raises:
        InputError: no pairs were measured here, or none well enough.
    """
    settings = read_settings()
    measured = read_measured(pairs, solo) if pairs else read_own(settings)
    if measured is None:
        raise InputError(
            "no pairs were measured here",
            fix="measure some: advisor colocate; or give a file: --pairs FILE",
        )
    predictor = Registry(settings.home / "models").open_champion()
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    found = evaluate_own(predictor, data)
    for line in [json.dumps(to_plain(found))] if as_json else _lines(found):
        typer.echo(line)


def _lines(found: OwnEvaluation) -> Iterator[str]:
    yield (
        f"model {found.model} on {count_of(found.pairs, 'pair')} of "
        f"{count_of(found.jobs, 'job')}, {count_of(found.splits, 'split')}"
    )
    yield (
        f"  {found.objective}: {found.oracle_percent:.1f} % of the best measured split, "
        f"worst {found.oracle_worst_percent:.1f} %"
    )
    yield (
        f"  rates off by {found.rate_mean_error_percent:.1f} % "
        f"(median {found.rate_median_error_percent:.1f} %), "
        f"power by {found.power_mean_error_percent:.1f} %"
    )
    yield (
        f"  intervals for {found.coverage_percent:g} % hold {found.rate_coverage_percent:.1f} % "
        f"of the rates and {found.power_coverage_percent:.1f} % of the powers"
    )
    if found.known_jobs:
        yield f"it learned from jobs of these names: {listed(found.known_jobs)}"
    if found.new_gpu_models:
        yield f"it has not seen the {listed(found.new_gpu_models)}"
    for item in found.left_out:
        yield f"{count_of(item.points, 'point')} left out: {item.reason}"
