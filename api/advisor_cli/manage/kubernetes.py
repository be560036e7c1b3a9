"""`advisor kubernetes`: pods that share a GPU."""

import typer

from advisor_cli.manage.kubernetes_agent import agent
from advisor_cli.manage.kubernetes_serve import serve

app = typer.Typer(
    help="Pods that share a GPU: the service of the cluster, and the agent of each node.",
    no_args_is_help=True,
)
app.command("agent")(agent)
app.command("serve")(serve)
