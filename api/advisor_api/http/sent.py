"""Bodies as routes take them: read by the one reader of JSON, long ones in a thread."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from advisor.errors import InputError
from advisor.formats.wire import read
from advisor_api.engine.long_work import in_thread
from advisor_api.http.body import LONG_BYTES

T = TypeVar("T")


class SentRoute(APIRoute):
    """A route whose body, if it has one, is a dataclass or a model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        if self.body_field is None:
            return answer
        kind = cast("type[Any]", self.body_field.field_info.annotation)

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
    """A request whose body was read already: FastAPI takes a value of the right class as it is."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = b"read", value


async def _read(kind: type[T], body: bytes) -> tuple[T | None, InputError | None]:
    try:
        if len(body) > LONG_BYTES:
            return await in_thread(read, kind, body, name="the body"), None
        return read(kind, body, name="the body"), None
    except InputError as fault:
        return None, fault
