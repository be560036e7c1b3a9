"""An agent in a process of its own, which meets the fakes of `host.py`.

`kube_agent.py FOLDER API SERVICE`. Its pods have no control groups, so the variable
ADVISOR_POD_UID tells them apart.
"""

import logging
import sys
from pathlib import Path

from host import UUID
from kube_api import cluster_at

from advisor.runtime.processes import environment_of
from advisor.settings import read_settings
from advisor_cli.node_agent import client_of, ended_by_signals
from advisor_kubernetes import agent
from advisor_kubernetes.agent import NodeApi
from advisor_node import room
from advisor_profiling import attached

NODE = "node-1"

SETTLE_S = 1.0
"""Of the first seconds together, which are in no mean."""


def main() -> None:
    folder, api_url, service_url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    logging.basicConfig(level=logging.INFO)
    room.LOOK_S, room.SETTLE_S, attached.KEPT_S = 0.2, SETTLE_S, 2.0
    stop = ended_by_signals()
    options = agent.AgentOptions(
        node=NODE,
        host="127.0.0.1",
        port=0,
        mps_folder=folder / "mps",
        pods_folder=folder / "pods",
        pipe_mount=str(folder / "mps" / UUID / "pipe"),
        pod_of=lambda pid: environment_of(pid).get("ADVISOR_POD_UID"),
    )
    settings = read_settings()
    with client_of(service_url, None, settings) as service:
        agent.run_agent(
            options, settings, NodeApi(cluster_at(api_url), NODE), service, stop,
            lambda port: (folder / "port").write_text(str(port)),
        )  # fmt: skip


if __name__ == "__main__":
    main()
