"""`advisor doctor`: what was found on this host, what is missing, and the fix."""

import json
from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from advisor.settings import read_settings
from advisor_cli.shared.console import print_table
from advisor_cli.shared.options import AsJson
from advisor_profiling.reports.doctor import examine
from advisor_profiling.reports.finding import Finding
from advisor_profiling.testbed.live import list_gpus

_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}


def doctor(
    as_json: AsJson = False,
) -> None:
    """Check everything that measuring needs; changes nothing. Exit code 1: something is missing."""
    findings = examine(read_settings(), list_gpus)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        _print(findings)
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "", "found", "fix"):
        table.add_column(name)
    for finding in findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        table.add_row(finding.check, verdict, Text(finding.found), Text(finding.fix))
    print_table(table)
