"""`advisor report`: what measurements say together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from advisor.core.flags import DOUBTFUL
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.wording import count_of
from advisor.validity.degenerate import with_pair_flags, with_solo_flags
from advisor_cli.learn.measured import read_kind
from advisor_cli.learn.report_power import power
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.options import AsJson, PairPointsOption, SoloPointsOption
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_training.analysis.analysis import Analysis, ObjectiveReport, analyse, to_json
from advisor_training.analysis.gains import BASELINES, Gain
from advisor_training.dataset.pairs import LeftOut
from advisor_training.reports import dataset_sentences as sentences
from advisor_training.reports.dataset_report import write_report

app = typer.Typer(help="Pages made from measurements.", no_args_is_help=True)

app.command("power")(power)

_WIDTH = 120
_COLUMNS = ("objective", "noise ceiling", "uneven pays", *(f"over {name}" for name in BASELINES))


@app.callback()
def group() -> None:
    """Pages made from measurements."""


@app.command("dataset")
def dataset(
    out: Annotated[Path, typer.Option(help="Folder for the page and the image")] = Path("report"),
    pairs: PairPointsOption = None,
    solo: SoloPointsOption = None,
    flagged: Annotated[
        bool, typer.Option("--flagged", help="Use points that failed a cross-check too")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """When does an uneven split pay? Writes dataset.html and dataset.png."""
    points = read_kind(pairs, PairPoint) if pairs else bundled_pair_points()
    solos = with_solo_flags(read_kind(solo, SoloPoint) if solo else _bundled_alone())
    analysis = _analyse(with_pair_flags(points, solos), solos, flagged=flagged)
    files = write_report(analysis, out)
    if as_json:
        typer.echo(json.dumps({**to_json(analysis), "files": [str(path) for path in files]}))
        return
    console = plain_console()
    # Headings are never cut off: on a narrow terminal lines wrap.
    console.width = max(console.width, _WIDTH)
    for line in sentences.said(analysis):
        console.print(line, highlight=False)
    console.print("Gains of the best of nine splits, mean and median:", highlight=False)
    console.print(_table(analysis))
    for item in analysis.left_out:
        left_out = count_of(item.points, "point")
        console.print(f"{left_out} left out: {item.reason}")
    typer.echo(f"written: {', '.join(map(str, files))}")


def _bundled_alone() -> list[SoloPoint]:
    """Profiles, and the references of the same card and run as the bundled pairs."""
    return [*bundled_solo_points(), *bundled_reference_points()]


def _analyse(points: Sequence[PairPoint], solos: Sequence[SoloPoint], *, flagged: bool) -> Analysis:
    selection = select(points, flagged=flagged)
    trusted = [p for p in solos if flagged or not DOUBTFUL & set(p.flags)]
    left_out = [
        LeftOut(f"pair points flagged {flag}", count)
        for flag, count in sorted(selection.left_out.items())
    ]
    if len(trusted) < len(solos):
        left_out.append(LeftOut("solo points flagged as doubtful", len(solos) - len(trusted)))
    return analyse(selection.points, trusted, left_out)


def _table(analysis: Analysis) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        left = name == "objective"
        table.add_column(name, justify="left" if left else "right", no_wrap=left)
    for report in analysis.objectives.values():
        table.add_row(*map(Text, _cells(report, len(analysis.pairs))))
    return table


def _cells(report: ObjectiveReport, pairs: int) -> list[str]:
    ceiling = f"{report.ceiling.mean_percent:.2f} %" if report.ceiling else "-"
    gains = [_gain(gain) for gain in report.gains]
    return [report.name, ceiling, f"{report.uneven_pays_pairs} of {pairs}", *gains]


def _gain(gain: Gain) -> str:
    if gain.mean_percent is None or gain.median_percent is None:
        return "-"
    return f"{gain.mean_percent:+.1f}, {gain.median_percent:+.1f} %"
