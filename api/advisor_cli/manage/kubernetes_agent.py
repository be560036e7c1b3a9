"""`advisor kubernetes agent`: the DaemonSet's part of pods that share GPUs."""

import logging
from typing import Annotated

import typer

from advisor.settings import read_settings
from advisor_cli.manage.node_agent import client_of, ended_by_signals
from advisor_cli.shared.options import ServiceAddress, ServiceCa


def agent(
    node: Annotated[str, typer.Option(help="Name of this node in Kubernetes")],
    service: ServiceAddress = "http://127.0.0.1:8765",
    service_ca: ServiceCa = None,
    host: Annotated[str, typer.Option(help="Address that metrics are served on")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Its port; 0: any", min=0, max=65535)] = 9401,
) -> None:
    """Own the MPS daemons of a node, prove the limits of its pods, meter them and report.

    docs/kubernetes.md says what it does with each, and what it needs.
    """
    # The client of Kubernetes takes a second that no other command should wait.
    from advisor_kubernetes.agent.agent import AgentOptions, run_agent
    from advisor_kubernetes.agent.node_api import NodeApi
    from advisor_kubernetes.cluster import connect

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    settings = read_settings()
    stop = ended_by_signals()
    with client_of(service, service_ca, settings) as client:
        run_agent(
            AgentOptions(node=node, host=host, port=port),
            settings,
            NodeApi(connect(), node),
            client,
            stop,
            lambda at: typer.echo(f"advisor's agent of {node} serves metrics on port {at}"),
        )
