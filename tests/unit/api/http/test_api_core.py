"""What the service decides without a server: errors, limits, bodies, tokens, readiness, audit."""

import asyncio
import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from gated import behind_gate, clients, run
from hypothesis import given, strategies as st
from starlette.exceptions import HTTPException

from advisor import errors
from advisor.errors import AdvisorError, InputError, StoreError, UnsafeFileError
from advisor.formats.wire import read
from advisor.wire.requests import BatchRequest
from advisor_api import service as service_module
from advisor_api.http.access import (
    ANONYMOUS_READER,
    QUESTION,
    Bodies,
    Buckets,
    Caller,
    Hosts,
    Peer,
    ServeOptions,
    TokenCache,
    caller_of,
    caller_of_peer,
    check_options,
)
from advisor_api.http.routing import Gate, error_body, fault_of, log_fault
from advisor_api.service import Metrics, NotReadyError, RequestAudit, ServiceReadiness
from advisor_api.worker_process import worked
from advisor_data.state import AuditEntry, ServiceState, Token

pytestmark = pytest.mark.anyio

# errors

_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


@pytest.mark.parametrize("kind", [kind for kind in _KINDS if issubclass(kind, AdvisorError)])
def test_each_of_our_errors_has_a_status(kind: type[AdvisorError]) -> None:
    """A new kind of error is never told as a fault of the server by oversight."""
    if kind is not AdvisorError:
        assert fault_of(kind("what")).status in (409, 422, 503)


@pytest.mark.parametrize(
    ("error", "status", "code", "said"),
    [
        (HTTPException(404, "gone", {"A": "b"}), 404, "not-found", "gone"),
        (HTTPException(418, "tea"), 418, "http-418", "tea"),
        (OSError("/var/x"), 503, "disk", "the server cannot read or write its files. Try again"),
        (UnsafeFileError("/var/x"), 503, "unsafe-file", "files of the server are open to other"),
        (AdvisorError("what"), 500, "error", "what"),
        (InputError("what"), 422, "bad-input", "what"),
        (HTTPException(503, "what"), 503, "overloaded", "what"),
        (ZeroDivisionError("/var/x"), 500, "internal", "the server has a fault of its own. Try"),
    ],
)
def test_a_fault_has_a_status_and_a_code(
    error: Exception, status: int, code: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a caller may not see is in the log, under the id of the request."""
    fault = fault_of(error)
    log_fault(error, fault, "id-7")
    assert (fault.status, fault.code, dict(fault.headers)) == (
        status, code, {"A": "b"} if status == 404 else {}
    )  # fmt: skip
    assert fault.message.startswith(said)
    is_ours = status >= 500 and code != "overloaded"
    assert ("/var/x" in caplog.text or "what" in caplog.text) == is_ours
    assert [one.levelname for one in caplog.records] == ["ERROR"] * is_ours
    assert ("id-7" in caplog.text) == is_ours


def test_a_fault_of_the_database_tells_nothing_about_it() -> None:
    fault = fault_of(StoreError("postgresql://user@db.internal did not answer", why="/var/x"))
    assert (fault.status, fault.code) == (503, "store")
    assert "db.internal" not in fault.message
    assert "/var" not in fault_of(PermissionError(13, "denied", "/var/x")).message


def test_faults_of_a_body_are_named_and_few() -> None:
    """What is wrong and where, for the first few; of a long value its beginning comes back."""
    loc, more = ("body", "points"), {"msg": "Input should be a number", "input": "y" * 50_000}
    faults = [
        {"type": "float_type", "loc": (*loc, number, "x" * 500), **more} for number in range(900)
    ]
    fault = fault_of(RequestValidationError(faults))
    assert (fault.status, fault.code) == (422, "bad-input")
    assert all(part in fault.message for part in ("body.points.3.x", "and 895 more"))
    assert len(fault.message) < 1000
    assert 'it should be a number, not "yyy' in fault.message


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_told(text: str) -> None:
    """Half characters, which a JSON body may hold, cannot break the answer that refuses them."""
    fault = fault_of(HTTPException(422, text))
    assert json.loads(error_body(fault, "id"))["error"]["message"] == text


# limits


@given(
    st.floats(0.5, 1000), st.integers(1, 50), st.lists(st.floats(0, 5), min_size=1, max_size=200)
)
def test_a_rate_holds_over_any_time(per_s: float, burst: int, gaps_s: list[float]) -> None:
    """However requests come, never more pass than the burst and the rate allow."""
    clock = [0.0]
    buckets = Buckets(per_s, burst, lambda: clock[0])
    passed = 0
    for gap_s in gaps_s:
        clock[0] += gap_s
        with contextlib.suppress(HTTPException):
            buckets.take("caller")
            passed += 1
    assert passed <= burst + per_s * clock[0] + 1e-6


@pytest.mark.parametrize("per_s", [0.5, 0.7, 0.9, 3.0])
def test_after_the_time_it_says_a_caller_may_ask_again(per_s: float) -> None:
    """Retry-After is enough, in whole seconds, and one caller's rate is none of another's."""
    clock = [0.0]
    buckets = Buckets(per_s, 1, lambda: clock[0])
    buckets.take("a")
    buckets.take("b")
    # Of work that is counted when it is done, a burst at most is owed.
    for owed in (0.0, 1000.0):
        buckets.charge("a", owed)
        with pytest.raises(HTTPException) as refused:
            buckets.take("a")
        clock[0] += int(cast("Mapping[str, str]", refused.value.headers)["Retry-After"])
        buckets.take("a")


def test_pieces_of_work_wait_for_those_of_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time of each; what they took counts against the rate of that caller alone."""
    app, _ = behind_gate(ms_per_s=0.0001, burst_ms=100)
    begun, go, ticks = list[str](), threading.Event(), itertools.count(0, 0.03)
    monkeypatch.setattr(time, "thread_time", ticks.__next__)

    @app.get("/piece")
    async def work(request: Request) -> bool:  # pyright: ignore[reportUnusedFunction]
        name = cast("Any", request.client).host
        return await worked(lambda: bool([begun.append(name), go.wait(20)]))

    async def ask(*peers: str) -> list[int]:
        asked = [asyncio.create_task(client.get("/piece")) for client in clients(app, *peers)]
        while len(begun) < 3:
            await asyncio.sleep(0.01)
        assert sorted(begun[:3]) == ["a", "a", "b"] or go.is_set()
        go.set()
        return [(await one).status_code for one in asked]

    assert (asyncio.run(ask(*"aaaab")), asyncio.run(ask(*"ac"))) == ([200] * 5, [429, 200])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("10.1.2.4", 421),
        ("", 400),
        (":80", 400),
        ("localhost:http", 400),
        ("localhost:80:80", 400),
        ("[::1", 400),
        ("[::1]x", 400),
        ("[::1]80", 400),
        ("[]", 400),
        ("[::2]:80", 421),
        ("localhost:\xb2", 400),
    ],
)
def test_only_our_own_names_are_hosts(host: str, status: int) -> None:
    """A page whose name leads to us cannot speak to us: its name is in the header."""
    hosts = Hosts(ServeOptions(allowed_hosts=("gpu.example",)))
    ours = (b"LocalHost:8765", b"127.0.0.1:1", b"[::1]:8765", b"gpu.example:", b"10.1.2.3:8765")
    for name in ours * 2:  # what was found good is remembered
        hosts.check(name, "10.1.2.3")
    with pytest.raises(HTTPException) as refused:
        hosts.check(host.encode("latin-1"), "10.1.2.3")
    assert refused.value.status_code == status


def test_half_of_tls_and_open_addresses_are_refused() -> None:
    file = Path("a.pem")
    for refused, said in (
        (ServeOptions(tls_certificate=file), "give --tls-certificate FILE and --tls-key FILE"),
        (ServeOptions(tls_key=file), "give --tls-certificate FILE and --tls-key FILE"),
        (
            ServeOptions(socket=Path("s"), tls_certificate=file, tls_key=file),
            "no TLS. its traffic does not leave the host. give --socket or --tls-certificate",
        ),
        (ServeOptions(host="0.0.0.0"), "no TLS. tokens would cross .*; or --insecure"),
        (ServeOptions(socket_group=0), "--socket PATH"),
    ):
        with pytest.raises(InputError, match=said):
            check_options(refused)
    for good in (
        ServeOptions(host="0.0.0.0", insecure=True),
        ServeOptions(host="0.0.0.0", tls_certificate=file, tls_key=file),
        ServeOptions(host="0.0.0.0", socket=Path("s"), socket_group=1),
        ServeOptions(),
    ):
        check_options(good)
    for options, url in (
        ({}, "http://127.0.0.1:8765"), ({"host": "::1", "port": 1}, "http://[::1]:1"),
        ({"tls_certificate": file}, "https://127.0.0.1:8765"), ({"socket": file}, "unix:a.pem"),
    ):  # fmt: skip
        assert ServeOptions(**cast("Any", options)).url == url
    # Without a word about it, only callers on this host read without a token.
    for options, reads in (
        ({}, True), ({"host": "::1"}, True), ({"host": "0.0.0.0"}, False),
        ({"host": "gpu.example"}, False), ({"anonymous_read": False}, False),
        ({"socket": file}, False), ({"socket": file, "anonymous_read": True}, True),
    ):  # fmt: skip
        assert ServeOptions(**cast("Any", options)).anonymous == reads


# bodies


@pytest.mark.parametrize(
    "value",
    [
        b"1" + b"0" * 5000, b"\xff", b'"\xed\xa0\x80"', b'"\\ud800"', b'"a\0"',
        b"[" * 500 + b"]" * 500, b'{"a":' * 500 + b"1" + b"}" * 500, b"1]\0",
    ],
)  # fmt: skip
def test_what_json_does_not_know_is_refused(value: bytes) -> None:
    """What Python reads and others do not, or trips over, stops at the door."""
    with pytest.raises(InputError, match="the body"):
        read(BatchRequest, b'{"requests": [{"a": ' + value + b"}]}", name="the body")
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        with pytest.raises(InputError):
            read(BatchRequest, '{"requests": [{}]}'.encode(encoding))


# tokens


class _Tokens:
    """A database of tokens that counts how often it is asked."""

    def __init__(self) -> None:
        self.good: set[str] = set()
        self.asked = 0

    def find(self, secrets: Collection[str]) -> dict[str, Token]:
        self.asked += 1
        time.sleep(0.01)
        token = Token(name="t", scopes=("read",), created_at="2026-01-01T00:00:00+00:00")
        return dict.fromkeys(self.good.intersection(secrets), token)


SECRET = "adv_" + "a" * 43


async def test_a_revoked_token_is_forgotten_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is never older than a second, good or not."""
    tokens, now = _Tokens(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    cache = TokenCache(tokens.find)
    assert await cache.find(SECRET, "::1") is None
    tokens.good.add(SECRET)
    now[0] += 1.0
    assert await cache.find(SECRET, "::1") is not None
    tokens.good.clear()
    now[0] += 0.9
    assert await cache.find(SECRET, "::1") is not None
    now[0] += 0.1
    assert await cache.find(SECRET, "::1") is None


@pytest.mark.slow
async def test_guesses_starve_no_holder_of_a_good_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good token works at once next to any number of guesses from its own address."""
    tokens, now = _Tokens(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    good = [f"adv_{n:040}good" for n in range(100)]
    tokens.good.update(good)
    cache = TokenCache(tokens.find)
    for turn in range(3):
        guesses = [cache.find(f"adv_{turn}{n:040}", "::1") for n in range(5000)]
        holders = [cache.find(secret, "::1") for secret in good]
        guessed = asyncio.gather(*guesses, return_exceptions=True)
        assert all(await asyncio.gather(*holders))
        await guessed
        now[0] += 5
    assert tokens.asked <= 3 * (5000 + 100) // 500 + 6


async def test_wrong_tokens_of_an_address_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a hundred at once an address is told to wait; others are told that theirs is wrong."""
    tokens = _Tokens()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    cache = TokenCache(tokens.find)
    wrong = [f"adv_{n:040}" for n in range(50)] + [f"no token {n}" for n in range(50)]
    assert await asyncio.gather(*(cache.find(one, "::1") for one in wrong)) == [None] * 100
    asked = tokens.asked
    with pytest.raises(HTTPException) as refused:
        await cache.find(wrong[0], "::1")
    assert (refused.value.status_code, tokens.asked) == (429, asked)
    assert await cache.find(wrong[0], "::2") is None


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"Bearer " + SECRET.encode(), ""),
        (b"bearer  " + SECRET.encode() + b" ", ""),
        (b"Bearer adv_" + b"x" * 43, "the token is wrong, expired or revoked"),
        (b"Bearer ", "the token is wrong"),
        (b"Bearer \xff", "the token is wrong"),
        (b"Basic dXNlcjpwYXNz", "only bearer tokens are known here"),
        (SECRET.encode(), "only bearer tokens are known here"),
    ],
)
async def test_a_caller_is_known_by_a_good_token_alone(header: bytes, said: str) -> None:
    tokens = _Tokens()
    tokens.good.add(SECRET)
    cache = TokenCache(tokens.find)
    if not said:
        found = await caller_of(header, "::1", cache)
        assert found == Caller(name="t", scopes=frozenset({"read"}))
        return
    with pytest.raises(HTTPException, match=said) as refused:
        await caller_of(header, "::1", cache)
    challenge = (refused.value.headers or {})["WWW-Authenticate"]
    assert refused.value.status_code == 401
    assert challenge.startswith('Bearer realm="advisor"')
    assert ('error="invalid_token"' in challenge) == ("wrong" in said)


def test_scopes_by_user_and_group() -> None:
    """Root and this user everything, the group all but what admin may, others nothing."""
    member = Peer(54321, frozenset({7, 8}))
    found = [
        (caller := caller_of_peer(peer, group)) and (caller.name, caller.scopes)
        for peer, group in ((Peer(os.geteuid(), frozenset()), None), (Peer(0, frozenset()), None),
                            (member, 8), (member, 9), (member, None))
    ]  # fmt: skip
    everything = {"read", "write", "launch", "admin"}
    group = ("uid:54321", everything - {"admin"})
    assert found == [(f"uid:{os.geteuid()}", everything), ("uid:0", everything), group, None, None]


async def test_a_database_that_fails_is_told_to_all_that_wait() -> None:
    def fail(secrets: Collection[str]) -> dict[str, Token]:
        raise StoreError("gone")

    cache = TokenCache(fail)
    for _ in range(2):
        found = [cache.find(SECRET, "::1") for _ in range(5)]
        results = await asyncio.gather(*found, return_exceptions=True)
        assert [type(error) for error in results] == [StoreError] * 5


# readiness


async def test_parts_that_hang_or_fail_are_named_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anyone may ask, and has an answer in time; a part that hangs is asked only once."""
    monkeypatch.setattr(service_module, "_PATIENCE_S", 0.01)
    asked: list[int] = []

    async def hang() -> None:
        asked.append(1)
        await asyncio.sleep(60)

    async def fail() -> None:
        raise StoreError("the database postgresql://user@db.internal is gone")

    readiness = ServiceReadiness(database=fail, model=hang)
    for _ in range(2):
        with pytest.raises(NotReadyError, match=r"database \(store\), model \(too-slow\)") as told:
            await readiness.check()
        assert "internal" not in str(told.value)
    assert len(asked) == 1


# audit


class _Log:
    """An audit log that stops working after so many entries."""

    def __init__(self, works: int) -> None:
        self.entries: list[AuditEntry] = []
        self._works = works

    def audit(self, entry: AuditEntry) -> None:
        if len(self.entries) >= self._works:
            raise StoreError("the disk is full")
        self.entries.append(entry)


WRITER = Caller(name="ann", scopes=frozenset({"read", "write"}))


def _audit(log: _Log, caller: Caller = WRITER) -> RequestAudit:
    return RequestAudit(cast("ServiceState", log), caller, "id-1", "127.0.0.1")


def test_how_it_ended_is_recorded_as_well() -> None:
    """Both ends of an action are in the log, the second with its outcome.

    Nothing is done that cannot be recorded; where only its end cannot be, it is told as done.
    """
    done: list[str] = []
    with pytest.raises(StoreError), _audit(_Log(0)).of("profile.replace", "triad"):
        done.append("it")
    assert not done
    with _audit(_Log(1)).of("profile.replace", "triad"):
        pass
    log = _Log(9)
    with _audit(log).of("profile.replace", "triad"):
        pass
    with pytest.raises(InputError), _audit(log, ANONYMOUS_READER).of("profile.delete", "gemm"):
        raise InputError("no")
    assert [(e.who, e.action, e.subject, e.outcome) for e in log.entries] == [
        ("ann", "profile.replace", "triad", "begun"),
        ("ann", "profile.replace", "triad", "done"),
        ("anonymous", "profile.delete", "gemm", "begun"),
        ("anonymous", "profile.delete", "gemm", "bad-input"),
    ]


# The gate around an application that is not ours: what every request and answer goes through.


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
    """One caller has half of the places; over the limit come 429 and 503 at once, probes always."""
    app, metrics = behind_gate(max_in_flight=4)

    async def ask(*peers: str) -> list[httpx.Response]:
        paths = ["/slow"] * (len(peers) - 1) + ["/healthz"]
        return await asyncio.gather(*map(httpx.AsyncClient.get, clients(app, *peers), paths))

    answers = asyncio.run(ask(*"aaaabbc", "a"))
    assert [a.status_code for a in answers] == [200, 200, 429, 429, 200, 200, 503, 200]
    assert answers[6].json()["error"]["code"] == "overloaded"
    assert {answers[n].headers["retry-after"] for n in (2, 6)} == {"1"}
    assert asyncio.run(ask("a", "a"))[0].status_code == 200
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
    """A tenth of a millisecond for each 2048 bytes, next to the request itself."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b" " * 60_000

    async def ask(client: httpx.AsyncClient) -> list[int]:
        bodies = [pieces() if chunked else b" " * 60_000 for _ in range(2)]
        answers = [await client.post("/length", content=body, headers=JSON) for body in bodies]
        return [answer.status_code for answer in (*answers, await client.get("/kept"))]

    for ms, statuses in ((6.15, [200, 200, 200]), (6.05, [200, 200, 429]), (5.95, [200, 429, 200])):
        assert run(behind_gate(ms_per_s=0.0001, burst_ms=ms)[0], ask) == statuses


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

    app, metrics = behind_gate(ms_per_s=0.0001, burst_ms=0.1)
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
