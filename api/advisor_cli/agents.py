"""`advisor kubernetes` and `advisor slurm`: pods and batch jobs that share a GPU."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Literal

import typer

from advisor.settings import read_settings
from advisor_cli.console import LogFormat, LogLevel, ServiceAddress, ServiceCa, say
from advisor_cli.node_agent import client_of, ended_by_signals, log_lines
from advisor_node.slurm.agent import run_agent as run_slurm_agent
from advisor_node.slurm.matching import run_match
from advisor_node.slurm.site import SiteSettings

kubernetes = typer.Typer(
    help="Pods that share a GPU: the service of the cluster, and the agent of each node.",
    no_args_is_help=True,
)


@kubernetes.command("agent")
def _kubernetes_agent(
    node: Annotated[str, typer.Option(help="Name of this node in Kubernetes")],
    service: ServiceAddress = "http://127.0.0.1:8765",
    service_ca: ServiceCa = None,
    host: Annotated[str, typer.Option(help="Address to serve metrics on")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Its port; 0: any", min=0, max=65535)] = 9401,
    log_format: LogFormat = "text",
) -> None:
    """Own the MPS daemons of a node, prove the limits of its pods, meter them and report.

    docs/kubernetes.md says what it does with each, and what it needs.

    Example: advisor kubernetes agent --node gpu-1 --service http://advisor:8765
    """
    # The client of Kubernetes takes a second that no other command should wait.
    from advisor_kubernetes.agent import AgentOptions, NodeApi, run_agent
    from advisor_kubernetes.cluster import connect

    log_lines(logging.StreamHandler(), log_format)
    settings = read_settings()
    stop = ended_by_signals()
    with client_of(service, service_ca, settings) as client:
        run_agent(
            AgentOptions(node=node, host=host, port=port),
            settings,
            NodeApi(connect(), node),
            client,
            stop,
            lambda at: say(f"advisor's agent of {node} serves metrics on port {at}"),
        )


@kubernetes.command("serve")
def _serve(
    tls_certificate: Annotated[
        Path, typer.Option(help="PEM file with the certificate and its signers")
    ],
    tls_key: Annotated[Path, typer.Option(help="PEM file with its key")],
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="PEM file of the authority that signs the API server's client certificate"
        ),
    ] = None,
    service: ServiceAddress = "http://127.0.0.1:8765",
    service_ca: ServiceCa = None,
    namespace: Annotated[
        str, typer.Option(help="Namespace of the leader election Lease")
    ] = "advisor",
    without_advice: Annotated[
        Literal["pass", "hold"],
        typer.Option(
            help="What to do with pods that waited too long for advice: run alone, or wait"
        ),
    ] = "pass",
    host_path: Annotated[
        list[str] | None,
        typer.Option(help="Folder of a node that pods sharing a GPU may mount; repeatable"),
    ] = None,
    mixed_nodes: Annotated[
        bool,
        typer.Option(help="Let pods of several namespaces share a node and its shared memory"),
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="TCP port; 0: any", min=0, max=65535)] = 8443,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Admit pods that share a GPU, find each a partner, and send both to the node.

    docs/kubernetes.md says what it changes, and which rights it needs.

    Example: advisor kubernetes serve --tls-certificate tls.crt --tls-key tls.key
    """
    # The client of Kubernetes takes a second that no other command should wait.
    from advisor_api.http.access import ServeOptions
    from advisor_api.server import serve_app
    from advisor_kubernetes.cluster import connect
    from advisor_kubernetes.serve import PATIENCE_S, Choosing, adviser, create_app

    settings = read_settings()
    options = ServeOptions(
        host=host,
        port=port,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        client_ca=client_ca,
        # Of each address; a pod is some 0.4 ms by its length. An API server sends a hundred pods a
        # second at most, within the 2 s that it waits; who sends megabytes is kept out after eight.
        ms_per_s=50.0,
        burst_ms=400.0,
        body_s=2.0,
        log_level=log_level,
        log_format=log_format,
    )
    with (
        client_of(service, service_ca, settings) as client,
        client_of(service, service_ca, settings, PATIENCE_S) as quick,
    ):
        choosing = Choosing(
            connect(), client, namespace, without_advice=without_advice, mixed_nodes=mixed_nodes
        )
        serve_app(
            lambda real: create_app(real, choosing, adviser(quick), host_path or ()),
            options,
            lambda real: say(f"advisor answers the cluster on {real.url}"),
            settings.environment,
        )


slurm = typer.Typer(
    help="Batch jobs that share a GPU: which jobs run together, and the agent of each node.",
    no_args_is_help=True,
)


@slurm.command("agent")
def _slurm_agent(
    folder: Annotated[
        Path, typer.Option(help="Folder in which Prolog and Epilog record jobs")
    ] = Path("/run/advisor-mps"),
    service: ServiceAddress = "http://127.0.0.1:8765",
    service_ca: ServiceCa = None,
) -> None:
    """Meter the jobs that share a GPU of this node, and report what they did together.

    Ends after ten minutes without a job. Jobs do not depend on it. Writes agent.log in the folder.
    docs/slurm.md lists what it reports.

    Example: advisor slurm agent
    """
    log_lines(
        RotatingFileHandler(folder / "agent.log", maxBytes=2**20, backupCount=1),
        form="%(asctime)s %(levelname)s %(message)s",
    )
    settings = read_settings()
    stop = ended_by_signals()
    with client_of(service, service_ca, settings) as client:
        run_slurm_agent(folder, settings, client, stop)


@slurm.command("match")
def _match(
    settings_file: Annotated[
        Path, typer.Option("--settings", help="advisor.conf of the site")
    ] = Path("/etc/slurm/advisor/advisor.conf"),
    service_ca: ServiceCa = None,
    log_format: LogFormat = "text",
) -> None:
    """Let waiting jobs with a profile share GPUs; run it on the controller as SlurmUser or root.

    Has no state: decisions are stored in the jobs. While it does not run, jobs stay as submitted,
    and waiting jobs start alone. docs/slurm.md explains the decisions.

    Example: advisor slurm match
    """
    log_lines(logging.StreamHandler(), log_format)
    site = SiteSettings.read(settings_file)
    stop = ended_by_signals()
    settings = read_settings()
    with client_of(site.address, service_ca, settings) as client:
        run_match(site, client, stop, settings.jobs_dir)
