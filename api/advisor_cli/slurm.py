"""`advisor slurm`: batch jobs that share a GPU."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated

import typer

from advisor.settings import read_settings
from advisor_cli.console import LogFormat, ServiceAddress, ServiceCa
from advisor_cli.node_agent import client_of, ended_by_signals, log_lines
from advisor_node.slurm.agent import run_agent
from advisor_node.slurm.matching import run_match
from advisor_node.slurm.site import SiteSettings

app = typer.Typer(
    help="Batch jobs that share a GPU: which jobs run together, and the agent of each node.",
    no_args_is_help=True,
)


@app.command()
def agent(
    folder: Annotated[
        Path, typer.Option(help="Folder in which Prolog and Epilog record jobs")
    ] = Path("/run/advisor-mps"),
    service: ServiceAddress = "http://127.0.0.1:8765",
    service_ca: ServiceCa = None,
) -> None:
    """Meter the jobs that share a GPU of this node, and report what they did together.

    Ends by itself when there was no job for ten minutes. It owns nothing that a job needs. Writes
    agent.log in the folder. docs/slurm.md says what is reported.

    Example: advisor slurm agent
    """
    log = RotatingFileHandler(folder / "agent.log", maxBytes=2**20, backupCount=1)
    log_lines(log, form="%(asctime)s %(levelname)s %(message)s")
    settings = read_settings()
    stop = ended_by_signals()
    with client_of(service, service_ca, settings) as client:
        run_agent(folder, settings, client, stop)


@app.command()
def match(
    settings_file: Annotated[
        Path, typer.Option("--settings", help="advisor.conf of the site")
    ] = Path("/etc/slurm/advisor/advisor.conf"),
    service_ca: ServiceCa = None,
    log_format: LogFormat = "text",
) -> None:
    """Let waiting jobs that name themselves share GPUs, on the controller, as SlurmUser or root.

    Remembers nothing: what was decided stands in the jobs. While it does not run, jobs stay as they
    were submitted, and those that wait begin alone. docs/slurm.md says how it decides.

    Example: advisor slurm match
    """
    log_lines(logging.StreamHandler(), log_format)
    site = SiteSettings.read(settings_file)
    stop = ended_by_signals()
    settings = read_settings()
    with client_of(site.address, service_ca, settings) as client:
        run_match(site, client, stop, settings.jobs_dir)
