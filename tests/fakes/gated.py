"""An application that is not ours behind the gate, asked in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from advisor_api.http.access import WHOLE, ServeOptions
from advisor_api.http.routing import Gate, answer_errors
from advisor_api.service import Metrics


def behind_gate(**options: Any) -> tuple[FastAPI, Metrics]:
    """An application with a gate, some routes, and the numbers that the gate counts."""
    metrics = Metrics()
    app = FastAPI(redirect_slashes=False)  # as the service
    app.add_middleware(Gate, options=ServeOptions(**options), metrics=metrics)
    answer_errors(app)

    @app.post("/length")
    async def length(request: Request) -> int:  # pyright: ignore[reportUnusedFunction]
        return len(await request.body())

    @app.get("/fault")
    async def fault() -> None:  # pyright: ignore[reportUnusedFunction]
        raise ZeroDivisionError("a secret")

    @app.get("/half")
    async def half() -> StreamingResponse:  # pyright: ignore[reportUnusedFunction]
        async def pieces() -> AsyncIterator[bytes]:
            yield b"half"
            raise ZeroDivisionError("a secret")

        return StreamingResponse(pieces())

    @app.get("/seen")
    async def seen(request: Request) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        peer = request.scope.get("advisor.peer")
        return {
            "host": request.headers["host"],
            "from": request.client and request.client.host,
            "caller": request.scope["advisor.caller"].name,
            "peer": peer and peer.uid,
            "whole": WHOLE in request.scope,
        }

    @app.get("/large")
    async def large() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(b"x" * 30_000_000)

    @app.get("/slow")
    @app.get("/healthz")
    async def slow() -> str:  # pyright: ignore[reportUnusedFunction]
        await asyncio.sleep(0.3)
        return "done"

    kept = JSONResponse("kept", headers={"Cache-Control": "max-age=60"})

    @app.get("/kept")
    async def same_each_time() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return kept

    return app, metrics


def clients(app: FastAPI, *peers: str) -> list[httpx.AsyncClient]:
    """One at each address."""
    every = [httpx.ASGITransport(app, client=(peer, 1)) for peer in peers]
    return [httpx.AsyncClient(transport=one, base_url="http://localhost") for one in every]


def run(app: FastAPI, ask: Callable[[httpx.AsyncClient], Any]) -> Any:
    async def main() -> Any:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await ask(client)

    return asyncio.run(main())
