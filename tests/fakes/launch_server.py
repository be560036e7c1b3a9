"""A real `advisor serve` on a fake host, asked for launches as other programs do."""

import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from forked import Forked, start_forked
from host import FakeHost
from raw_server import Answer, ask
from waiting import eventually

from advisor_data.state import Scope, ServiceState


@dataclass(frozen=True)
class LaunchServer:
    """A running server; `tokens` has a secret for each scope."""

    process: Forked
    port: int
    tokens: Mapping[str, str]

    def ask(
        self, method: str, path: str, body: Any = None, scope: str | None = None, **headers: str
    ) -> Answer:
        """One request, with the token of a scope; the words of a header's name by underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if scope:
            sent["Authorization"] = f"Bearer {self.tokens[scope]}"
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        if text is not None:
            sent["Content-Type"] = "application/json"
        return ask(self.port, method, path, None if text is None else text.encode(), sent)

    def launch(self, a: str, b: str, **wanted: Any) -> Answer:
        """Ask for a launch, at 26/50 unless something else is said."""
        body = {"jobs": [{"job": a}, {"job": b}], "split": "26/50", **wanted}
        return self.ask("POST", "/v1/launches", body, "launch")

    def launched(self, a: str, b: str, **wanted: Any) -> str:
        """The id of a launch that was accepted."""
        reply = self.launch(a, b, **wanted)
        assert reply.status == 202, reply.text
        return reply.json["launch_id"]

    def status(self, launch_id: str, scope: str | None = "launch") -> dict[str, Any]:
        reply = self.ask("GET", f"/v1/launches/{launch_id}", scope=scope)
        assert reply.status == 200, reply.text
        return reply.json

    def await_state(
        self, launch_id: str, *states: str, scope: str | None = "launch"
    ) -> dict[str, Any]:
        return self.await_status(launch_id, lambda status: status["state"] in states, scope)

    def await_status(
        self, launch_id: str, holds: Callable[[dict[str, Any]], Any], scope: str | None = "launch"
    ) -> dict[str, Any]:

        def found() -> dict[str, Any] | None:
            status = self.status(launch_id, scope)
            return status if holds(status) else None

        return eventually(found, lambda: self.status(launch_id, scope))

    def stop_launch(self, launch_id: str) -> dict[str, Any]:
        reply = self.ask("DELETE", f"/v1/launches/{launch_id}", scope="launch")
        assert reply.status == 202, reply.text
        return self.await_state(launch_id, "stopped", "finished", "failed")


def state_of(host: FakeHost, url: str | None = None) -> ServiceState:
    """The tokens, launches and audit log of a host's services."""
    return ServiceState(url, host.folder / "home")


def make_tokens(host: FakeHost, name: str, url: str | None = None) -> dict[str, str]:
    """The secret of a token of each scope, by the scope; who launches also reads."""
    scopes: tuple[Scope, ...] = ("read", "write", "launch", "admin")
    with state_of(host, url) as state:
        return {scope: state.make_token(f"{name}-{scope}", ("read", scope))[1] for scope in scopes}


@contextmanager
def launch_server(
    host: FakeHost, tokens: Mapping[str, str], *options: str, **more: str
) -> Generator[LaunchServer]:
    """`advisor serve` on a host, on a free port; killed at the end, its launches are not."""
    words = ("serve", "--port", "0", *options)
    with (
        (host.folder / "serve.log").open("a") as log,
        start_forked(words, host.environment(**more), errors=log) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"listens on http://\S+:(\d+)$", process.stdout.readline().strip())
            assert found, (host.folder / "serve.log").read_text()
            yield LaunchServer(process, int(found[1]), tokens)
        finally:
            process.kill()
