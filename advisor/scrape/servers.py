"""The servers whose Prometheus page is known: docs/progress.md has the source of each name."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """A server, and how its work is counted.

    Attributes:
        word: What its command line has, whatever starts it.
        option: Of that command line, which names the port of the page.
        port: Where it is if that option is not there.
        unit: What the counter counts.
        histogram: Of the time to an answer.
    """

    word: str
    option: str
    port: int
    counter: str
    unit: str
    histogram: str | None


SERVERS = (
    KnownServer(
        word="vllm",
        option="--port",
        port=8000,
        counter="vllm:generation_tokens_total",
        unit="tokens",
        histogram="vllm:e2e_request_latency_seconds",
    ),
    KnownServer(
        word="sglang",
        option="--port",
        port=30000,
        counter="sglang:generation_tokens_total",
        unit="tokens",
        histogram="sglang:e2e_request_latency_seconds",
    ),
    KnownServer(
        word="tritonserver",
        option="--metrics-port",
        port=8002,
        counter="nv_inference_count",
        unit="inferences",
        histogram=None,
    ),
    KnownServer(
        word="text-generation-",
        option="--port",
        port=3000,
        counter="tgi_request_generated_tokens_sum",
        unit="tokens",
        histogram="tgi_request_duration",
    ),
)


def server_of(command: Sequence[str]) -> tuple[KnownServer, str] | None:
    """The server that a command line starts, and the URL of its page; None: none that is known."""
    for server in SERVERS:
        if any(server.word in word for word in command):
            port = _option(command, server.option) or str(server.port)
            return server, f"http://127.0.0.1:{port}/metrics"
    return None


def _option(command: Sequence[str], name: str) -> str | None:
    """The value of an option, behind it or after `=`."""
    for n, word in enumerate(command):
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
        if word == name and n + 1 < len(command):
            return command[n + 1]
    return None
