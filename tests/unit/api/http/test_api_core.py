"""What the service decides without a server: errors, limits, bodies, tokens, readiness, audit."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from advisor import errors
from advisor.errors import AdvisorError, InputError, StoreError, UnsafeFileError
from advisor.formats.wire import read
from advisor.wire.requests import BatchRequest
from advisor_api import service as service_module
from advisor_api.http.access import (
    ANONYMOUS_READER,
    Caller,
    Peer,
    TokenCache,
    caller_of,
    caller_of_peer,
)
from advisor_api.http.errors import error_body, fault_of, log_fault
from advisor_api.http.limits import Buckets, Hosts
from advisor_api.http.options import ServeOptions, check_options
from advisor_api.service import NotReadyError, RequestAudit, ServiceReadiness
from advisor_data.state import AuditEntry, ServiceState, Token

pytestmark = pytest.mark.anyio

# errors

_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]
_ERRORS = [kind for kind in _KINDS if issubclass(kind, AdvisorError)]


@pytest.mark.parametrize("kind", _ERRORS)
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
    assert "body.points.3.x" in fault.message
    assert "and 895 more" in fault.message
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
    with pytest.raises(HTTPException) as refused:
        buckets.take("a")
    buckets.take("b")
    clock[0] += int(cast("Mapping[str, str]", refused.value.headers)["Retry-After"])
    buckets.take("a")


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
            "no TLS. nobody can listen in on it. give --socket or --tls-certificate",
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
