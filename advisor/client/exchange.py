"""What is asked of the service, when it is asked again, and when not: the same for both clients.

A `Flow` says what to do next and is sent the result; it opens no connection and never waits.
So the client that blocks and the one that does not share all of it.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

from advisor.client.errors import AnswerError, broken, refused, retry_after_s
from advisor.errors import InputError
from advisor.formats.wire import read_tolerant

T = TypeVar("T")

REPEATS = 3
"""How often a request is sent again at most."""

FIRST_PAUSE_S = 0.2
"""Before a connection is tried again; each time twice as long, so 1.4 s in all."""

LONGEST_PAUSE_S = 10.0
"""A service that wants to be asked later than this has its error passed on."""

_BUSY = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request.

    Attributes:
        path: From the service's address on, such as `/v1/jobs`.
        query: Parameters; those that are None are left out.
        body: A request of `advisor.wire`, which goes out as JSON; None: no body.
        repeatable: Asking twice does no more than asking once.
        patience_s: How much longer than usual the answer may take, since so much was asked for.
    """

    method: str
    path: str
    query: Mapping[str, str | int | None] = field(default_factory=dict[str, "str | int | None"])
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = True
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next step."""

    duration_s: float


AskResult: TypeAlias = httpx.Response | httpx.TransportError | None
"""How a step went: an answer, none, or (after a pause) nothing to tell."""

Flow: TypeAlias = Generator[Ask | Pause, AskResult, T]
"""Steps that end in a T."""


def exchange(ask: Ask, kind: type[T]) -> Flow[T]:
    """Ask, again where that helps and does no harm, and read the answer.

    A newer service may say more than this version knows, so keys that are unknown are left out.

    Raises:
        ClientError: there is no answer, or none that can be used.
    """
    response = yield from _answered(ask)
    try:
        return read_tolerant(kind, response.content, name="the whole")
    except InputError as error:
        raise AnswerError(
            f"the answer to {ask.method} {ask.path} is not what it should be: {error.what}",
            why="the service is of another version, or something else listens there",
            fix="use the same version of sm-advisor on both sides, and check the address",
        ) from error


def confirm(ask: Ask) -> Flow[None]:
    """As `exchange`, of whose answer only matters that it is one."""
    yield from _answered(ask)


def quoted(name: str) -> str:
    """A name as one part of a path; whether it is a good one the service says."""
    return quote(name, safe="")


def _answered(ask: Ask) -> Flow[httpx.Response]:
    for repeat in range(REPEATS + 1):
        result = yield ask
        if isinstance(result, httpx.Response) and result.is_success:
            return result
        last = repeat == REPEATS or not ask.repeatable
        pause_s = None if last else _pause_s(result, repeat)
        if pause_s is None:
            raise _error(result)
        yield Pause(pause_s)
    raise AssertionError("the last repeat ends above")


def _pause_s(result: AskResult, repeat: int) -> float | None:
    """How long to wait before asking again; None: it would not help."""
    if isinstance(result, httpx.Response):
        after_s = retry_after_s(result) if result.status_code in _BUSY else None
        return after_s if after_s is not None and after_s <= LONGEST_PAUSE_S else None
    # Anyone who set a time limit does not want to wait for several of them.
    return None if isinstance(result, httpx.TimeoutException) else FIRST_PAUSE_S * 2**repeat


def _error(result: AskResult) -> Exception:
    if isinstance(result, httpx.Response):
        return refused(result)
    assert result is not None, "an Ask always has a result"
    error = broken(result, result.request.url)
    error.__cause__ = result
    return error
