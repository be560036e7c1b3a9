"""Bodies as routes take them: long ones are read in a thread, and few of many faults are named."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from advisor_api.engine.long_work import in_thread
from advisor_api.http.body import LONG_BYTES

M = TypeVar("M", bound=BaseModel)

MOST_LISTED = 1000
"""Faults of a body that are looked at; listing a hundred thousand takes seconds."""


class SentRoute(APIRoute):
    """A route whose body, if it has one, is a model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        if self.body_field is None:
            return answer
        kind = cast("type[BaseModel]", self.body_field.field_info.annotation)

        async def handler(request: Request) -> Response:
            body = await request.body()
            if not body:  # told as a field that is missing
                return await answer(request)
            value, fault = await _read(kind, body)
            try:
                return await answer(_Sent(request, value))
            except RequestValidationError as other:
                # Only now: who may not ask at all is told that, and nothing of the body.
                raise fault or other from None

        return handler


class _Sent(Request):
    """A request whose body was read already: FastAPI takes a model as it is."""

    def __init__(self, request: Request, value: BaseModel | None) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = b"read", value


async def _read(kind: type[M], body: bytes) -> tuple[M | None, RequestValidationError | None]:
    try:
        if len(body) > LONG_BYTES:
            return await in_thread(parsed, kind, body), None
        return parsed(kind, body), None
    except RequestValidationError as fault:
        return None, fault


def parsed(kind: type[M], body: bytes) -> M:
    """The model that a body holds.

    Raises:
        RequestValidationError: it is no JSON, or not what the model asks for.
    """
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        raise faults_of(error) from error
    except (ValueError, RecursionError) as error:
        fault = {"loc": ("body",), "msg": f"it is no JSON that can be read: {error}"}
        raise RequestValidationError([fault]) from error


def faults_of(error: ValidationError) -> RequestValidationError:
    """The faults of a model as those of a request; of very many only their number."""
    if (count := error.error_count()) > MOST_LISTED:
        return RequestValidationError([{"loc": ("body",), "msg": f"it has {count} faults"}])
    listed = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in listed])
