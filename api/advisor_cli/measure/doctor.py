"""`advisor doctor`: what was found on this host, what is missing, and the fix."""

import os
import shutil
from pathlib import Path

import typer
from rich.text import Text

from advisor.errors import AdvisorError
from advisor.settings import read_settings
from advisor_cli.console import (
    AsJson,
    Columns,
    as_json_text,
    print_table,
    say,
    table_of,
    with_places,
)
from advisor_node.slurm.site import ask, book_faults
from advisor_profiling.doctor import Finding, examine
from advisor_profiling.testbed import list_gpus

# Where distributions, Slurm's own installation and a node without a file of its own have it.
_SLURM_CONF = tuple(
    map(Path, ("/etc/slurm/slurm.conf", "/usr/local/etc/slurm.conf", "/run/slurm/conf/slurm.conf"))
)

_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}

_COLUMNS: Columns[Finding] = (
    ("check", lambda finding: finding.check),
    ("", lambda finding: Text(finding.verdict, style=_STYLES[finding.verdict])),
    ("found", lambda finding: finding.found),
    ("fix", lambda finding: with_places(finding.fix)),
)


def doctor(as_json: AsJson = False) -> None:
    """Check everything that measuring needs; changes nothing. Exit code 1: something is missing.

    Example: advisor doctor
    """
    findings = [*examine(read_settings(), list_gpus), *_of_slurm()]
    answer = {"findings": findings}
    say(as_json_text(answer)) if as_json else print_table(table_of(_COLUMNS, findings))
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(1)


def _of_slurm() -> list[Finding]:
    """Whether Slurm, where it is, sees in its books what jobs hold that share."""
    # Without a configuration of this host Slurm's commands would ask the network for a controller.
    configured = "SLURM_CONF" in os.environ or any(map(Path.exists, _SLURM_CONF))
    if shutil.which("scontrol") is None or not configured:
        return []
    try:
        faults = [*book_faults(ask)]
    except AdvisorError as error:
        return [Finding("slurm", "warning", error.what, error.fix)]
    text = "gres/mps is counted as gres/gpu is, or there is no slurmdbd"
    if not faults:
        return [Finding("slurm books", "ok", text)]
    split = (fault.partition(": ") for fault in faults)
    return [Finding("slurm books", "warning", what, fix) for what, _, fix in split]
