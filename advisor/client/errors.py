"""What can go wrong between a program and the service, and what to do about each."""

from collections.abc import Mapping
from typing import Any, cast

import httpx

from advisor.errors import AdvisorError


class ClientError(AdvisorError):
    """The service could not be asked, or gave no answer that can be used."""

    code = "client"


class UnreachableError(ClientError):
    """There is no service at this address, or the connection to it broke."""

    code = "unreachable"


class TooSlowError(ClientError):
    """There was no answer in time. What was asked for may have been done all the same."""

    code = "too-slow"


class AnswerError(ClientError):
    """An answer that is none of this service, or of another version of it."""

    code = "bad-answer"


class ApiError(ClientError):
    """The service refused, or failed.

    Attributes:
        message: What the service said.
        request_id: Finds the request in the service's log; empty: the service gave none.
        retry_after_s: When it may be asked again, where it said so.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int,
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self._code, self.message, self.status = code, message, status
        self.request_id, self.retry_after_s = request_id, retry_after_s
        super().__init__(message, why=f"{code}, HTTP {status}, request {request_id or 'unknown'}")

    @property
    def code(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Stable name of what went wrong, by the service: docs/api.md has all of them."""
        return self._code  # elsewhere a class has one code; the service has one for each error


def refused(response: httpx.Response) -> ClientError:
    """The error that an answer without success stands for."""
    error = _error_of(response)
    if error is None:
        return AnswerError(
            f"the answer has HTTP status {response.status_code} and no error code of advisor",
            why="something else listens there, or a proxy in between answers",
            fix="check the address",
        )
    return ApiError(
        error["code"],
        error["message"],
        status=response.status_code,
        request_id=str(error.get("request_id") or ""),
        retry_after_s=retry_after_s(response),
    )


def broken(error: httpx.RequestError, url: httpx.URL) -> ClientError:
    """The error that a failed exchange stands for. Names the host, never what was sent."""
    place = f"{url.scheme}://{url.netloc.decode()}"
    if isinstance(error, httpx.TimeoutException):
        return TooSlowError(
            f"no answer in time from {place}",
            why="the service is busy or hangs, or something on the way drops what is sent",
            fix="ask again, with a larger timeout_s where much is asked for",
        )
    if isinstance(error, httpx.DecodingError):
        return AnswerError(
            f"the answer of {place} cannot be read",
            why=str(error),
            fix="check the address: something else listens there, or a proxy in between answers",
        )
    certificate = "CERTIFICATE_VERIFY_FAILED" in str(error)
    return UnreachableError(
        f"cannot reach {place}",
        why=str(error) or type(error).__name__,
        fix="give the certificate that signed the service's: verify='ca.pem'"
        if certificate
        else "check the address, and that `advisor serve` runs there",
    )


def retry_after_s(response: httpx.Response) -> float | None:
    """After how many seconds the service wants to be asked again; None: it did not say."""
    text = response.headers.get("Retry-After", "")
    # The other form is a date, which proxies send. ASCII: isdecimal takes other digits too.
    return float(text) if text.isascii() and text.isdecimal() else None


def _error_of(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        body: Any = response.json()
    except (ValueError, RecursionError):
        return None
    match body:
        case {"error": {"code": str(), "message": str()} as error}:
            return cast("Mapping[str, Any]", error)
        case _:
            return None
