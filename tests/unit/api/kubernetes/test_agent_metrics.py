"""What the agent's port holds out."""

import socket
import threading
from contextlib import ExitStack

from raw_server import ask

from advisor_kubernetes.agent import MOST_CONNECTIONS, AgentMetrics, MetricsServer


def test_silent_connections_take_neither_threads_nor_places() -> None:
    """Any pod may open them; the kubelet would take an agent that does not answer for dead."""
    server, before = MetricsServer(AgentMetrics(), "127.0.0.1", 0), threading.active_count()
    try:
        with ExitStack() as open_ones:
            for _ in range(2 * MOST_CONNECTIONS):
                client = socket.create_connection(("127.0.0.1", server.port), timeout=20)
                open_ones.enter_context(client)
            assert ask(server.port, "GET", "/metrics").status == 200
            assert threading.active_count() < before + MOST_CONNECTIONS + 20
    finally:
        server.close()
