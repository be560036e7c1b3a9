"""Every error: `{"error": {"code", "message", "request_id"}}`."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Match

from advisor.core.wording import shown
from advisor.errors import AdvisorError
from advisor.formats.wire import as_answer, told_faults

LOG = logging.getLogger("advisor.service")

METHOD_NOT_ALLOWED = 405

_UNSAID = ("Not Found", "Method Not Allowed")
"""What the library says of a path or a method that no route has."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_STATUS_OF_CODE = {
    "bad-input": 422,
    "busy": 409,
    "idempotency-conflict": 409,
    "job": 409,
    "launching-off": 403,
    "limit-broken": 409,
    "limit-not-proven": 409,
    "model": 503,
    "no-split": 422,
    "not-ready": 503,
    "other-host": 409,
    "partition": 503,
    "process-ended": 503,
    "source": 503,
    "store": 503,
    "survivors": 409,
    "unsafe-count": 422,
}
"""The status of our own errors by their code; others are internal errors."""

_CODE_OF_STATUS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    409: "conflict",
    413: "body-too-large",
    414: "path-too-long",
    415: "not-json",
    421: "wrong-host",
    422: "bad-input",
    429: "too-many-requests",
    431: "head-too-large",
    503: "overloaded",
}
"""The code of what HTTP itself refuses, by its status."""

_TYPE = re.compile(r"constrained-|(dict|list|tuple|union|function-[a-z]+)\[")
"""How the library names the types of which a value may be one."""

_LONGEST = 80
"""Characters of a name out of a body that are repeated."""


class ErrorFields(BaseModel):
    """What went wrong.

    Attributes:
        code: Stable name of the kind of error.
        message: What happened, why, and what to do next.
        request_id: The same as in the header `X-Request-Id` and in the server's log.
    """

    code: str
    message: str
    request_id: str


class ErrorAnswer(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorFields


ERROR_ANSWERS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorAnswer, "description": "Why there is no answer"}
}
"""How the description of a route says so."""

REFUSALS: Mapping[int, str] = {
    401: "No token where one is needed, or a wrong, expired or revoked one",
    403: "The token lacks the scope, or the service does not launch",
    404: "There is none of that name",
    409: "Not now, or not here",
    413: "The body is too large",
    422: "A field, job or limit that cannot be meant, or nothing that keeps every limit",
    429: "Too many requests; the header `Retry-After` says when to come back",
    503: "A part of the server does not work, or it has too much to do",
}
"""What routes say of themselves: when there is no answer, by status."""


def may_refuse(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route, with what it refuses beside that which all routes of its kind do."""
    return {status: {"description": REFUSALS[status]} for status in statuses}


def codes_of(status: int) -> list[str]:
    """The codes that errors of a status may have."""
    ours = [code for code, of in _STATUS_OF_CODE.items() if of == status]
    return sorted({_CODE_OF_STATUS[status], *ours})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error as a caller sees it; `headers` are those that its status asks for."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str]


def fault_of(error: Exception) -> Fault:
    """How an error is reported to a caller; causes that are none of theirs stay in the log."""
    match error:
        case RequestValidationError():
            return Fault(status=422, code="bad-input", message=_faults_of_input(error), headers={})
        case HTTPException():
            return Fault(
                status=error.status_code,
                code=_CODE_OF_STATUS.get(error.status_code, f"http-{error.status_code}"),
                message=str(error.detail),
                headers=error.headers or {},
            )
        case AdvisorError():
            return _fault_of_ours(error)
        case OSError():
            return _hidden(503, "disk", "the server cannot read or write its files")
        case _:
            return _hidden(500, "internal", "the server has a fault of its own")


def error_body(fault: Fault, request_id: str) -> bytes:
    """The JSON of a fault; ASCII, as a body may have held half a character."""
    fields = {"code": fault.code, "message": fault.message, "request_id": request_id}
    return as_answer(json.dumps({"error": fields}).encode())


def answer_errors(app: Starlette) -> None:
    """Let the application tell the errors of its routes in our own way."""
    for kind in (RequestValidationError, HTTPException, AdvisorError):
        app.add_exception_handler(kind, _answer)


def log_fault(error: Exception, fault: Fault, request_id: str) -> None:
    """Keep what the caller does not see: the cause of every fault that is not the caller's."""
    if fault.code == "internal":
        LOG.error("%s: an internal error", request_id, exc_info=error)
    elif fault.status >= 500 and not isinstance(error, HTTPException):
        LOG.error("%s: %s: %s", request_id, fault.code, error)


async def _answer(request: Request, error: Exception) -> Response:
    request_id = cast("str", request.scope["advisor.request_id"])
    fault = fault_of(error)
    if fault.message in _UNSAID:
        asked = f"{request.method} {shown(request.url.path)}"
        fault = replace(
            fault, message=f"there is no {asked} here. GET /openapi.json says what there is."
        )
    log_fault(error, fault, request_id)
    headers = dict(fault.headers)
    if fault.status == METHOD_NOT_ALLOWED:
        # All methods of a path (RFC 9110, section 15.5.6); a route knows its own alone.
        headers["Allow"] = ", ".join(
            method
            for method in _METHODS
            if any(
                route.matches({**request.scope, "method": method})[0] is Match.FULL
                for route in request.app.routes
            )
        )
    return Response(
        error_body(fault, request_id),
        status_code=fault.status,
        headers=headers,
        media_type="application/json",
    )


def _fault_of_ours(error: AdvisorError) -> Fault:
    if error.code == "store":
        return _hidden(503, "store", "the database did not answer as it should")
    if error.code == "unsafe-file":
        return _hidden(503, error.code, "files of the server are open to other users of its host")
    status = _STATUS_OF_CODE.get(error.code, 500)
    return Fault(status=status, code=error.code, message=str(error), headers={})


def _hidden(status: int, code: str, what: str) -> Fault:
    """A fault whose cause may name files, hosts and users of the server."""
    fix = "Try again later; the server's log has the cause under this request_id"
    return Fault(status=status, code=code, message=f"{what}. {fix}.", headers={})


def _faults_of_input(error: RequestValidationError) -> str:
    places: dict[str, list[Mapping[str, Any]]] = {}
    for fault in cast("Sequence[Mapping[str, Any]]", error.errors()):
        # Without the names that the library has for types.
        names = [str(name) for name in fault["loc"] if not _TYPE.match(str(name))]
        places.setdefault(".".join(name[:_LONGEST] for name in names), []).append(fault)
    return f"{told_faults(places)}."


def not_found(what: str, fix: str) -> HTTPException:
    """404 with what is not there, and where to look."""
    return HTTPException(404, f"{what}. {fix}.")
