"""Runs by itself: a Ray cluster of three nodes on loopback, the second and third with a GPU each.

It says its address on stdout as soon as it is up, takes lines `kill` on stdin (the second node is
lost, without a word) and ends with stdin.
"""

import importlib
import sys
from typing import Any

# 127.0.0.1 would be taken for the address of the network card.
HEAD = {"node_ip_address": "127.0.0.2", "num_cpus": 1, "include_dashboard": False}


def main() -> None:
    cluster: Any = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args=HEAD
    )
    first, _ = (
        cluster.add_node(
            node_ip_address=f"127.0.0.{3 + gpu}",
            num_cpus=1,
            num_gpus=1,
            env_vars={"CUDA_VISIBLE_DEVICES": str(gpu)},
        )
        for gpu in range(2)
    )
    print(cluster.address, flush=True)
    for _line in sys.stdin:
        cluster.remove_node(first, allow_graceful=False)
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
