"""Charts on the screen: left out where its encoding has no characters to draw them with."""

import sys

import typer


def show_chart(chart: str) -> None:
    """Print a chart, or say why there is none."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        chart.encode(encoding)
    except UnicodeEncodeError:
        chart = f"the chart is left out: {encoding} has no characters for it; UTF-8 has"
    typer.echo(chart)
