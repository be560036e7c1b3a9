"""Bodies as routes take them: long ones are read in a thread, and few of many faults are named."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

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
            value, fault = None, None
            try:
                value = await _read(kind, body)
            except RequestValidationError as error:
                fault = error
            try:
                return await answer(_Sent(request, value))
            except RequestValidationError as other:
                # Only now: who may not ask at all is told that, and nothing of the body.
                raise fault or other from None

        return handler


class DirectRoute(APIRoute):
    """A route that calls its endpoint itself, with the body and what its dependencies give.

    To find the parameters of an endpoint takes FastAPI longer than all else that an answer takes
    which is kept as bytes. Such a route is described, found and refused as any other; its endpoint
    is a coroutine that has a body, no parameters of the path, the query or the head, and no
    dependencies that have some.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] not in self.methods:
            await super().handle(scope, receive, send)  # refused
            return
        values = await self._given(Request(scope, receive))
        [field] = self.dependant.body_params
        kind = cast("type[BaseModel]", field.field_info.annotation)
        values[field.name] = await _read(kind, await _whole(receive))
        response: Response = await self.endpoint(**values)
        await response(scope, receive, send)

    async def _given(self, request: Request) -> dict[str, Any]:
        """What the dependencies give, by the names of parameters."""
        values: dict[str, Any] = {}
        for wanted in self.dependant.dependencies:
            value = await cast("Callable[[Request], Awaitable[Any]]", wanted.call)(request)
            if wanted.name:
                values[wanted.name] = value
        return values


async def _whole(receive: Receive) -> bytes:
    """The body, which the gate hands over in one piece."""
    body: bytes = (await receive()).get("body", b"")
    if not body:
        raise RequestValidationError([{"loc": ("body",), "msg": "Field required"}])
    return body


class _Sent(Request):
    """A request whose body was read already: FastAPI takes a model as it is."""

    def __init__(self, request: Request, value: BaseModel | None) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = b"read", value


async def _read(kind: type[M], body: bytes) -> M:
    if len(body) > LONG_BYTES:
        return await in_thread(parsed, kind, body)
    return parsed(kind, body)


def parsed(kind: type[M], body: bytes) -> M:
    """The model that a body holds.

    Raises:
        RequestValidationError: it is no JSON, or not what the model asks for.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise faults_of(error) from error


def faults_of(error: ValidationError) -> RequestValidationError:
    """The faults of a model as those of a request; of very many only their number."""
    if (count := error.error_count()) > MOST_LISTED:
        return RequestValidationError([{"loc": ("body",), "msg": f"it has {count} faults"}])
    listed = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in listed])
