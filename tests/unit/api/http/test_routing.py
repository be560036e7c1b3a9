"""Routes of a small service behind the gate: bodies, parameters, and who may ask."""

import re
import threading
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi.responses import Response
from fastapi.routing import APIRoute
from gated import behind_gate, run
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from advisor_api.http import routing
from advisor_api.http.access import (
    BATCH,
    LONG_BYTES,
    QUESTION,
    ROWS,
    Admin,
    Reader,
    TokenCache,
    Writer,
    most_of,
)
from advisor_api.http.routing import (
    DirectRoute,
    add_routes,
    answer,
    codes_of,
    family,
    long_answer,
    may_refuse,
    v1_router,
)
from advisor_data.state import SCOPES, Scope, Token

TOKENS = {
    f"adv_{scope * 20}"[:60]: Token(name=f"of {scope}", scopes=(scope,), created_at="2026-01-01")
    for scope in SCOPES
}
BY_SCOPE = {token.scopes[0]: {"Authorization": f"Bearer {key}"} for key, token in TOKENS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    text: str
    count: int = 1


def service(route_class: type[APIRoute] | None = None, **options: Any) -> Any:
    """A service with a route that reads, one that writes and one for administrators."""
    app, _ = behind_gate(**options)
    router = v1_router("small", *([route_class] if route_class else []))

    @router.post("/told")
    async def tell(told: Told, caller: Reader) -> Response:  # pyright: ignore[reportUnusedFunction]
        return answer({"caller": caller.name, "text": told.text * told.count}, 201, {"X-A": "b"})

    @router.put("/told")
    async def keep(told: Told, _: Writer) -> Response:  # pyright: ignore[reportUnusedFunction]
        return await long_answer(lambda: {"length": len(told.text)})

    others = v1_router("others")

    @others.get("/all")
    async def every(_: Admin, limit: int = 9) -> Response:  # pyright: ignore[reportUnusedFunction]
        return answer({"limit": limit})

    def find(secrets: Collection[str]) -> dict[str, Token]:
        return {secret: TOKENS[secret] for secret in secrets if secret in TOKENS}

    add_routes(app, [router, others])
    app.state.service = SimpleNamespace(tokens=TokenCache(find))
    return app


def ask(app: Any, method: str, path: str, scope: Scope | None = None, **sent: Any) -> Any:
    headers = BY_SCOPE[scope] if scope else {}
    if "content" in sent:
        headers = {**headers, "Content-Type": "application/json"}

    async def once(client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(method, path, headers=headers, **sent)

    return run(app, once)


def test_no_request_waits_for_ever_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a disk of the network is gone; the thread itself cannot be ended."""
    monkeypatch.setattr(routing, "_MOST_S", 0.1)
    app, router, let_go = service(), v1_router("hanging"), threading.Event()

    @router.get("/hangs")
    def hang() -> Response:  # pyright: ignore[reportUnusedFunction]
        let_go.wait(20)
        return answer({})

    add_routes(app, [router])
    said = ask(app, "GET", "/v1/hangs")
    let_go.set()
    assert (said.status_code, said.json()["error"]["code"]) == (503, "disk")


EACH_ROUTE = pytest.mark.parametrize("route_class", [None, DirectRoute])


@EACH_ROUTE
@pytest.mark.parametrize("length", [1, 600, LONG_BYTES + 1])
def test_a_body_is_read_however_long(route_class: type[APIRoute] | None, length: int) -> None:
    """Twice, as what was read before may be given again; never what other bytes said."""
    app = service(route_class)
    for text in ("a", "a", "b"):
        said = ask(app, "POST", "/v1/told", "read", json={"text": text * length, "count": 2})
        assert (said.status_code, said.headers["x-a"]) == (201, "b")
        assert said.headers["content-type"] == "application/json"
        found = said.json()
        assert (found["caller"], found["text"]) == ("of read", text * length * 2)
    assert ask(app, "PUT", "/v1/told", "write", json={"text": "abc"}).json()["length"] == 3


@EACH_ROUTE
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "body"),
        ({"content": ""}, "body"),
        ({"content": "{}"}, "text"),
        ({"content": '{"text": "a", "count": "two"}'}, "count"),
        ({"content": "[" * 99}, "body"),
        ({"content": '{"text": "a", "of": 1}'}, "of"),
    ],
)
def test_a_fault_of_a_body_is_told_to_who_may_ask(
    route_class: type[APIRoute] | None, sent: dict[str, Any], said: str
) -> None:
    """Others learn that they may not ask, and nothing about the body."""
    app = service(route_class, anonymous_read=False)
    refused = ask(app, "POST", "/v1/told", "read", **sent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad-input")
    assert said in refused.json()["error"]["message"]
    assert ask(app, "POST", "/v1/told", **sent).status_code == 401


@EACH_ROUTE
@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("POST", "/v1/told?limit=1", 422, "there is no query parameter 'limit'. There is none."),
        ("GET", "/v1/all?b=1&a=2", 422, "there is no query parameter 'a'. There is limit."),
        ("GET", "/v1/all?limit=1&limit=1", 422, "the query parameter limit is there twice."),
        ("GET", "/v1/told", 405, "there is no GET '/v1/told' here. GET /openapi.json says"),
        ("GET", "/v1/nowhere", 404, "there is no GET '/v1/nowhere' here."),
    ],
)
def test_what_no_route_has_is_named(
    route_class: type[APIRoute] | None, method: str, path: str, status: int, said: str
) -> None:
    sent: dict[str, Any] = {"json": {"text": "a"}} if method == "POST" else {}
    refused = ask(service(route_class), method, path, "admin", **sent)
    assert refused.status_code == status
    assert refused.json()["error"]["message"].startswith(said)
    assert refused.headers.get("allow") == ("POST, PUT" if status == 405 else None)


@EACH_ROUTE
@pytest.mark.parametrize(
    ("method", "path", "may"),
    [
        ("POST", "/v1/told", {"read", "write", "launch", "admin"}),
        ("PUT", "/v1/told", {"write", "admin"}),
        ("GET", "/v1/all?limit=3", {"admin"}),
    ],
)
def test_a_token_may_do_what_its_scope_implies(
    route_class: type[APIRoute] | None, method: str, path: str, may: set[str]
) -> None:
    """Without one, this host may read; the refusal names the scope that is needed."""
    app = service(route_class)
    sent: dict[str, Any] = {"json": {"text": "a"}} if method != "GET" else {}
    for scope in SCOPES:
        told = ask(app, method, path, scope, **sent)
        assert told.is_success == (scope in may), scope
        if scope not in may:
            assert told.status_code == 403
            assert f"the token of {scope} has not the scope" in told.json()["error"]["message"]
    told = ask(app, method, path, **sent)
    assert told.status_code == (201 if "read" in may else 401)
    if "read" not in may:
        needed = "write" if "write" in may else "admin"
        assert f"--scope {needed}, and send it" in told.json()["error"]["message"]
        assert told.headers["www-authenticate"] == 'Bearer realm="advisor"'


def test_a_wrong_token_is_refused_where_none_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """Anyone who sends a token learns that it is no good; the log has names and never secrets."""
    app, metrics = behind_gate()
    app.state.service = SimpleNamespace(tokens=TokenCache(lambda _: TOKENS))
    sent: list[dict[str, str]] = [{}, {"Authorization": f"Bearer adv_{'x' * 43}"}, BY_SCOPE["read"]]
    asked = [partial(httpx.AsyncClient.get, url="/seen", headers=headers) for headers in sent]
    assert [run(app, one).status_code for one in asked] == [200, 401, 200]
    assert b"advisor_tokens_refused_total 1.0" in metrics.text()
    said = capsys.readouterr().err
    assert re.findall(r"ms (.*) \S+\n", said) == ["anonymous", "-", "of read"]
    assert "adv_" not in said


def test_the_description_says_which_token_a_route_asks_for() -> None:
    """Routes that read may be asked without one; programs call each by its function's name."""
    paths = service().openapi()["paths"]
    told, every = paths["/v1/told"], paths["/v1/all"]["get"]
    assert {} in told["post"]["security"]
    assert told["put"]["security"] == every["security"] == [{"token": []}]
    assert (told["put"]["operationId"], every["tags"]) == ("keep", ["others"])
    assert "default" in every["responses"]


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v1/recommendations", QUESTION),
        ("/v1/recommendations/batch", BATCH),
        ("/v1/points", ROWS),
        ("/v1/profiles/a", ROWS),
        ("/v1/profiles", QUESTION),
    ],
)
def test_a_body_may_be_as_long_as_its_route_needs(path: str, most: Any) -> None:
    assert most_of(path) == most


def test_the_codes_of_a_status_are_listed() -> None:
    assert codes_of(409) == [
        "busy", "conflict", "disputed", "idempotency-conflict", "job", "limit-broken",
        "limit-not-proven", "other-host", "survivors",
    ]  # fmt: skip
    assert (codes_of(404), list(may_refuse(401, 404))) == (["not-found"], [401, 404])
    assert "There is none of that name" in may_refuse(404)[404].values()


@pytest.mark.parametrize("kind", [GaugeMetricFamily, CounterMetricFamily])
def test_a_metric_shows_what_is_known(kind: Any) -> None:
    values: Any = [(("a", "b"), 2), (("a", None), 3.0), (("c", "d"), None)]
    found = family(kind, "jobs", "Jobs", ("x", "y"), values)
    assert [(one.labels, one.value) for one in found.samples] == [({"x": "a", "y": "b"}, 2.0)]
    assert found.name == "advisor_jobs"
