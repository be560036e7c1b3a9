"""What is asked of the service, when it is asked again, and when not."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from advisor.client.connection import TIMEOUT_S, Verify, connection
from advisor.client.errors import AnswerError, ClientError, broken, refused, retry_after_s
from advisor.errors import InputError
from advisor.formats.wire import read_tolerant, write

T = TypeVar("T")

REPEATS = 3
"""How often a request is sent again at most."""

FIRST_PAUSE_S = 0.2
"""Before a connection is tried again; each time twice as long, so 1.4 s in all."""

LONGEST_PAUSE_S = 10.0
"""A service that wants to be asked later than this has its error passed on."""

_LARGEST_BYTES = 256 * 2**20
"""Of one answer; the largest, a placement of many jobs, has some tens of millions."""

_BUSY = (429, 503)

_JSON = {"Content-Type": "application/json"}


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


class Exchange:
    """A connection to a service, and how it is asked; made with what `Client` is made with."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        verify: Verify = True,
    ) -> None:
        self._timeout_s = timeout_s
        self._http = connection(url, token, timeout_s, verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def _get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        return self._ask(Ask(method="GET", path=path, query=query), kind)

    def _ask(self, ask: Ask, kind: type[T]) -> T:
        """Ask, again where that helps and does no harm, and read the answer.

        A newer service may say more than this version knows, so keys that are unknown are left out.

        Raises:
            ClientError: there is no answer, or none that can be used.
        """
        response = self._answered(ask)
        try:
            return read_tolerant(kind, response.content, name="the whole")
        except InputError as error:
            raise AnswerError(
                f"the answer to {ask.method} {ask.path} is not what it should be: {error.what}",
                why="the service is of another version, or something else listens there",
                fix="use the same version of advisor on both sides, and check the address",
            ) from error

    def _answered(self, ask: Ask) -> httpx.Response:
        """The first answer that is a success."""
        repeat = 0
        while True:
            result = self._result(ask)
            if isinstance(result, httpx.Response) and result.is_success:
                return result
            last = repeat == REPEATS or not ask.repeatable
            pause_s = None if last else _pause_s(result, repeat)
            if pause_s is None:
                raise _error(result)
            time.sleep(pause_s)
            repeat += 1

    def _result(self, ask: Ask) -> httpx.Response | httpx.RequestError:
        timeout_s = self._timeout_s + ask.patience_s
        ends_s = time.monotonic() + timeout_s
        try:
            with self._http.stream(
                ask.method,
                ask.path,
                params={name: value for name, value in ask.query.items() if value is not None},
                content=None if ask.body is None else write(ask.body),
                headers={**ask.headers, **({} if ask.body is None else _JSON)},
                timeout=timeout_s,
            ) as response:
                return _whole(response, ends_s)
        except httpx.RequestError as error:
            return error


def quoted(name: str) -> str:
    """A name as one part of a path; whether it is a good one the service says."""
    return quote(name, safe="")


def _whole(response: httpx.Response, ends_s: float) -> httpx.Response:
    """The answer with its body; time limits of httpx are for each read of the socket."""
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if time.monotonic() > ends_s:
            raise httpx.ReadTimeout("", request=response.request)
        if len(body) > _LARGEST_BYTES:
            raise httpx.DecodingError(f"more than {_LARGEST_BYTES} bytes", request=response.request)
    after = {name: value for name, value in response.headers.items() if name == "retry-after"}
    return httpx.Response(response.status_code, headers=after, content=bytes(body))


def _pause_s(result: httpx.Response | httpx.RequestError, repeat: int) -> float | None:
    """How long to wait before asking again; None: it would not help."""
    if isinstance(result, httpx.Response):
        after_s = retry_after_s(result) if result.status_code in _BUSY else None
        return after_s if after_s is not None and after_s <= LONGEST_PAUSE_S else None
    # Anyone who set a time limit does not want to wait for several of them.
    if isinstance(result, (httpx.TimeoutException, httpx.DecodingError)):
        return None
    return FIRST_PAUSE_S * 2**repeat


def _error(result: httpx.Response | httpx.RequestError) -> ClientError:
    if isinstance(result, httpx.Response):
        return refused(result)
    error = broken(result, result.request.url)
    error.__cause__ = result
    return error
