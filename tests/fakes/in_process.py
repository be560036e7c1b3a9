"""The service in this process, asked through its whole application but without a socket."""

import contextlib
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from reading import answer_of
from waiting import PATIENCE_S

from advisor.settings import read_settings
from advisor_api.app import create_app
from advisor_api.http.access import ServeOptions
from advisor_api.service import Service


class Api:
    """Asks a service that is open; every call waits for the answer."""

    def __init__(self, portal: BlockingPortal, client: httpx.AsyncClient, service: Service) -> None:
        self._portal, self._client, self.service = portal, client, service

    def ask(self, method: str, path: str, token: str = "", **sent: Any) -> httpx.Response:
        """The answer to a request; with `json`, `content` or `params` as httpx takes them."""
        headers = {"Content-Type": "application/json"} if "content" in sent else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        return self._portal.call(
            partial(self._client.request, method, path, headers=headers, **sent)
        )

    def get(self, path: str, token: str = "", **params: Any) -> Any:
        return _good(self.ask("GET", path, token, params=params))

    def post(self, path: str, body: Any, token: str = "") -> Any:
        return _good(self.ask("POST", path, token, json=body))

    def token(self, *scopes: Any) -> str:
        return self.service.state.make_token("-".join(scopes), scopes)[1]


@contextlib.contextmanager
def running(
    home: Path, jobs: Path | None = None, *, otel: bool = False, **environment: str
) -> Generator[Api]:
    """A service with its own event loop, in a thread of its own; without jobs it has none."""
    variables = {"ADVISOR_HOME": str(home), "ADVISOR_JOBS": str(jobs or home / "none")}
    app = create_app(read_settings({**variables, **environment}), ServeOptions(otel=otel))
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    with start_blocking_portal() as portal:
        lifespan = portal.wrap_async_context_manager(app.router.lifespan_context(app))
        client = httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE_S
        )
        with lifespan, portal.wrap_async_context_manager(client):
            yield Api(portal, client, app.state.service)


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, code and message of an answer that is no success."""
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    return answer.status_code, error["code"], error["message"]


def _good(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer_of(answer.content)
