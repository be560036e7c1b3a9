"""The gate around an application that is not ours: what every request and answer goes through."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from advisor_api.http.errors import answer_errors
from advisor_api.http.gate import Gate
from advisor_api.http.limits import QUESTION
from advisor_api.http.options import ServeOptions
from advisor_api.service import Metrics

JSON = {"content-type": "application/json"}


def behind_gate(**options: Any) -> tuple[FastAPI, Metrics]:
    """An application with a gate, some routes, and the numbers that the gate counts."""
    metrics = Metrics()
    app = FastAPI()
    app.add_middleware(Gate, options=ServeOptions(**options), metrics=metrics)
    answer_errors(app)

    @app.post("/length")
    async def length(request: Request) -> int:  # pyright: ignore[reportUnusedFunction]
        return len(await request.body())

    @app.get("/fault")
    async def fault() -> None:  # pyright: ignore[reportUnusedFunction]
        raise ZeroDivisionError("a secret")

    @app.get("/half")
    async def half() -> StreamingResponse:  # pyright: ignore[reportUnusedFunction]
        async def pieces() -> AsyncIterator[bytes]:
            yield b"half"
            raise ZeroDivisionError("a secret")

        return StreamingResponse(pieces())

    @app.get("/slow")
    @app.get("/healthz")
    async def slow() -> str:  # pyright: ignore[reportUnusedFunction]
        await asyncio.sleep(0.3)
        return "done"

    kept = JSONResponse("kept", headers={"Cache-Control": "max-age=60"})

    @app.get("/kept")
    async def same_each_time() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return kept

    return app, metrics


def run(app: FastAPI, ask: Callable[[httpx.AsyncClient], Any]) -> Any:
    async def main() -> Any:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await ask(client)

    return asyncio.run(main())


def test_an_unforeseen_fault_has_a_code_and_an_id(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets `internal` and an id, the log the cause under that id."""
    app, _ = behind_gate()
    answer = run(app, lambda client: client.get("/fault"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert error["request_id"] == answer.headers["x-request-id"]
    assert error["request_id"] in caplog.text
    assert "a secret" in caplog.text


def test_a_fault_in_the_middle_of_an_answer_is_no_whole_answer() -> None:
    app, _ = behind_gate()
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    with pytest.raises((ZeroDivisionError, ExceptionGroup)):
        asyncio.run(app(scope("/half"), receive, kept_in(sent)))
    assert not any(m["type"] == "http.response.body" and not m.get("more_body") for m in sent)


def test_too_many_at_once_are_told_to_come_back() -> None:
    """Requests over the limit get 503 at once, those before them their answer; probes always."""
    app, metrics = behind_gate(max_in_flight=2)

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        paths = ["/slow"] * 5 + ["/healthz"]
        return await asyncio.gather(*(client.get(path) for path in paths))

    answers = run(app, ask)
    assert [a.status_code for a in answers] == [200, 200, 503, 503, 503, 200]
    assert answers[2].json()["error"]["code"] == "overloaded"
    assert answers[2].headers["retry-after"] == "1"
    assert run(app, lambda client: client.get("/slow")).status_code == 200
    assert b"advisor_requests_in_flight 0.0" in metrics.text()


def test_bodies_share_a_bounded_room() -> None:
    """Many large bodies at once cannot fill the memory, and their room is free again after them."""
    app, _ = behind_gate(max_bodies_bytes=1500)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"[" + b" " * 900
        await asyncio.sleep(0.2)
        yield b"]"

    async def ask(client: httpx.AsyncClient) -> list[int]:
        bodies = [client.post("/length", content=slowly(), headers=JSON) for _ in range(3)]
        first = [answer.status_code for answer in await asyncio.gather(*bodies)]
        after = await client.post("/length", content=slowly(), headers=JSON)
        return [*sorted(first), after.status_code]

    assert run(app, ask) == [200, 503, 503, 200]


@pytest.mark.parametrize("size", [2, QUESTION.bytes, QUESTION.bytes + 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_whole_or_refused(size: int, *, chunked: bool) -> None:
    """Up to the limit every byte arrives, with one more none does, with a length or without."""
    app, _ = behind_gate()
    body = b"[" + b" " * (size - 2) + b"]"

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, size, 30_000):
            yield body[start : start + 30_000]

    content = pieces() if chunked else body
    answer = run(app, lambda client: client.post("/length", content=content, headers=JSON))
    if size > QUESTION.bytes:
        assert answer.json()["error"]["code"] == "body-too-large"
    else:
        assert (answer.status_code, answer.text) == (200, str(size))


def test_a_long_body_counts_as_many_requests() -> None:
    app, _ = behind_gate(requests_per_s=1, burst=40)
    body = b"[" + b" " * 60_000 + b"]"

    async def ask(client: httpx.AsyncClient) -> list[int]:
        answers = [await client.post("/length", content=body, headers=JSON) for _ in range(2)]
        return [answer.status_code for answer in answers]

    assert run(app, ask) == [200, 429]


def test_an_answer_keeps_its_own_headers_however_often_it_is_sent() -> None:
    """The gate adds its headers once, to each answer again, and replaces none of a route."""
    app, _ = behind_gate()

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.get("/kept") for _ in range(3)]

    for answer in run(app, ask):
        assert answer.headers.get_list("cache-control") == ["max-age=60"]
        assert len(answer.headers.get_list("x-request-id")) == 1
        assert len(answer.headers.get_list("x-content-type-options")) == 1


def test_a_client_that_goes_away_is_no_fault(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a body and no client: one line in the access log, nothing to answer, no stack trace."""
    app, _ = behind_gate()
    messages = [
        {"type": "http.request", "body": b"[", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"9")]
    asyncio.run(app(scope("/length", "POST", headers), receive, kept_in(sent)))
    assert not sent
    assert not caplog.records
    assert " POST /length 499 " in capsys.readouterr().err


def test_who_waits_when_the_service_ends_is_told() -> None:
    """The server cancels what it has not answered by then: 503, and come back; no fault."""
    sent: list[Any] = []

    async def ended() -> None:
        begun = asyncio.Event()

        async def never(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        gate = Gate(never, options=ServeOptions(), metrics=Metrics())
        answered = asyncio.create_task(gate(scope("/slow"), asyncio.Queue().get, kept_in(sent)))
        await begun.wait()
        answered.cancel()
        await answered

    asyncio.run(ended())
    start, body = sent
    assert start["status"] == 503
    assert "ask again when it has started" in json.loads(body["body"])["error"]["message"]


def test_no_line_of_the_log_can_be_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A path is logged as it came; what it would be decoded, and the query, are not."""
    app, _ = behind_gate()
    run(app, lambda client: client.get("/a%0a2026%20INFO%20made-up?token=adv_x"))
    (line,) = capsys.readouterr().err.splitlines()
    assert "/a%0a2026%20INFO%20made-up 400" in line
    assert "adv_" not in line


def test_the_log_can_be_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    app, _ = behind_gate(log_format="json")
    run(app, lambda client: client.get("/a%0a?token=adv_x"))
    said = json.loads(capsys.readouterr().err)
    assert list(said) == [
        "time", "level", "method", "path", "status", "duration_ms", "caller", "request_id",
    ]  # fmt: skip
    assert (said["path"], said["status"]) == ("/a%0a", 400)


def kept_in(sent: list[Any]) -> Callable[[Any], Any]:
    async def send(message: Any) -> None:
        sent.append(message)

    return send


def scope(
    path: str, method: str = "GET", headers: list[tuple[bytes, bytes]] | None = None
) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), *(headers or [])],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
