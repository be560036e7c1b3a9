"""An agent in a process of its own, which meets the fakes of `host.py`.

`kube_agent.py FOLDER API SERVICE`. Its pods have no control groups, so the variable
ADVISOR_POD_UID tells them apart.
"""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from host import UUID
from kubernetes.client import ApiClient, Configuration

from advisor.client import Client
from advisor.runtime.host.processes import environment_of
from advisor.settings import read_settings
from advisor_kubernetes.agent import agent
from advisor_kubernetes.agent.node_api import NodeApi
from advisor_kubernetes.cluster import Cluster
from advisor_node.metering import looking, overlaps

NODE = "node-1"

SETTLE_S = 1.0
"""Of the first seconds together, which are in no mean."""


def main() -> None:
    folder, api_url, service_url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    logging.basicConfig(level=logging.INFO)
    looking.LOOK_S, overlaps.SETTLE_S = 0.2, SETTLE_S
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    options = agent.AgentOptions(
        node=NODE,
        host="127.0.0.1",
        port=0,
        mps_folder=folder / "mps",
        pods_folder=folder / "pods",
        pipe_mount=str(folder / "mps" / UUID / "pipe"),
        pod_of=lambda pid: environment_of(pid).get("ADVISOR_POD_UID"),
    )
    configuration = Configuration()
    configuration.host = api_url
    token = os.environ.get("ADVISOR_TOKEN")
    with Client(service_url, token, timeout_s=5) as service:
        api = NodeApi(Cluster(ApiClient(configuration)), NODE)

        def tell(port: int) -> None:
            (folder / "port").write_text(str(port))

        agent.run_agent(options, read_settings(), api, service, stop, tell)


if __name__ == "__main__":
    main()
