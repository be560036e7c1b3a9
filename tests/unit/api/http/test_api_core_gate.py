"""The gate around an application that is not ours: what every request and answer goes through."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from gated import behind_gate, run
from starlette.exceptions import HTTPException

from advisor_api.http.gate import Gate
from advisor_api.http.limits import QUESTION, Bodies
from advisor_api.http.options import ServeOptions
from advisor_api.service import Metrics

JSON = {"content-type": "application/json"}


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


@pytest.mark.parametrize("chunked", [False, True])
def test_a_long_body_counts_as_many_requests(*, chunked: bool) -> None:
    """One for each 2048 bytes, with a length or without, next to the request itself."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b" " * 60_000

    async def ask(client: httpx.AsyncClient) -> list[int]:
        bodies = [pieces() if chunked else b" " * 60_000 for _ in range(2)]
        answers = [await client.post("/length", content=body, headers=JSON) for body in bodies]
        return [answer.status_code for answer in (*answers, await client.get("/kept"))]

    for burst, statuses in ((61, [200, 200, 200]), (60, [200, 200, 429]), (59, [200, 429, 200])):
        assert run(behind_gate(requests_per_s=0.001, burst=burst)[0], ask) == statuses


def test_an_answer_keeps_its_own_headers_however_often_it_is_sent() -> None:
    """The gate adds its headers once, to each answer again, and replaces none of a route."""
    app, _ = behind_gate()

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.get("/kept") for _ in range(3)]

    for answer in run(app, ask):
        assert answer.headers.get_list("cache-control") == ["max-age=60"]
        assert len(answer.headers.get_list("x-request-id")) == 1
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        policy = answer.headers["content-security-policy"]
        assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy.split("; "))
        assert "unsafe" not in policy


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


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_has_a_line_for_each_request(
    log_format: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the moment in milliseconds, and how long it took; of a long path its beginning."""
    app, metrics = behind_gate(log_format=log_format)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)
    monkeypatch.setattr(time, "perf_counter", itertools.count(0.0, 0.5).__next__)
    answer = run(app, lambda client: client.get(f"/a%0a{'b' * 300}?token=adv_x"))
    known = {
        "time": "2023-11-14T22:13:20.250Z", "level": "info", "method": "GET",
        "path": "/a%0a" + "b" * 195, "status": 400, "duration_ms": 500.0, "caller": "-",
        "request_id": answer.headers["x-request-id"],
    }  # fmt: skip
    said = capsys.readouterr().err
    if log_format == "json":
        assert json.loads(said) == known
    else:
        known["level"], known["duration_ms"] = "INFO", "500.0 ms"
        assert said == " ".join(map(str, known.values())) + "\n"
    assert b'duration_seconds_sum{route="none"} 0.5' in metrics.text()


def test_the_log_is_not_filled_by_who_asks_too_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line a second of all that come too often; none at all at another level."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    async def ask(client: httpx.AsyncClient) -> list[int]:
        found: list[int] = []
        for _ in range(3):
            found += [(await client.get("/kept")).status_code for _ in range(3)]
            now[0] += 1
        return found

    app, metrics = behind_gate(requests_per_s=0.001, burst=1)
    assert run(app, ask) == [200] + [429] * 8
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[4] for line in said] == ["200", "429", "429", "429"]
    assert b'requests_total{method="GET",route="/kept",status="200"} 1.0' in metrics.text()
    assert b'requests_total{method="GET",route="none",status="429"} 8.0' in metrics.text()
    run(behind_gate(log_level="warning")[0], ask)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("keys", "status"), [(1000, 200), (1001, 422)])
def test_a_body_has_a_bounded_number_of_keys(keys: int, status: int) -> None:
    app, _ = behind_gate()
    content = b"{%b}" % b",".join(b'"a":1' for _ in range(keys))
    answer = run(app, lambda client: client.post("/length", content=content, headers=JSON))
    assert answer.status_code == status
    assert status == 200 or f"has about {keys} keys" in answer.json()["error"]["message"]


def test_a_body_keeps_its_room_while_it_is_answered() -> None:
    bodies = Bodies(ServeOptions(max_bodies_bytes=100))

    async def receive() -> Any:
        return {"type": "http.request", "body": b" " * 60, "more_body": False}

    def take() -> bytes:
        headers = {b"content-type": b'Application/JSON; charset="UTF-8"'}
        return asyncio.run(bodies.receive(headers, receive, QUESTION))

    with bodies.received(41):
        with pytest.raises(HTTPException, match="too many large bodies") as refused:
            take()
        assert refused.value.headers == {"Connection": "close", "Retry-After": "1"}
    with bodies.received(40):
        assert len(take()) == 60


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
