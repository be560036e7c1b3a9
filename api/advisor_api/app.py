"""The application: routes behind one gate, and the service opened and closed with it."""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import FastAPI

import advisor
from advisor.formats.wire import key_of
from advisor.settings import Settings
from advisor_api.http.errors import answer_errors
from advisor_api.http.gate import Gate
from advisor_api.http.options import ServeOptions
from advisor_api.http.routing import add_routes
from advisor_api.launches.drift_watch import watching_drift
from advisor_api.launches.reconciler import reconciling
from advisor_api.routes import (
    audit,
    health,
    launches,
    models,
    observations,
    pages,
    placements,
    power,
    profiles,
    recommendations,
)
from advisor_api.service.metrics import Metrics
from advisor_api.service.service import open_service

OPENAPI = "/v1/openapi.json"

_ROUTES = (
    recommendations,
    placements,
    profiles,
    models,
    observations,
    power,
    launches,
    audit,
    health,
    pages,
)
"""In the order of the pages of the API."""


def create_app(settings: Settings, options: ServeOptions) -> FastAPI:
    """The application; its lifespan opens the database, and raises what `open_service` raises."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        with (
            open_service(settings, options, metrics) as service,
            reconciling(service),
            watching_drift(service),
        ):
            app.state.service = service
            await service.engine.warm_up()
            yield

    app = FastAPI(
        title="advisor",
        summary="How should two to seven jobs share one GPU?",
        version=advisor.__version__,
        lifespan=lifespan,
        openapi_url=OPENAPI,
        # Pages of other hosts, which the usual ones load, are refused by the browser and by us.
        docs_url=None,
        redoc_url=None,
        # A redirect is made of the Host header and the path, so both could choose where it leads.
        redirect_slashes=False,
        # Our own metrics say it all; nothing is sent to whatever the environment names.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.metrics = metrics
    app.add_middleware(Gate, options=options, metrics=metrics)
    answer_errors(app)
    add_routes(app, (module.router for module in _ROUTES))
    describe(app)
    return app


_ATTRIBUTES = re.compile(r"\s*Attributes:\n", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_PROMISE = "Raised when a key goes or comes to mean another thing, not when one is added"
_REFERENCE = "#/components/schemas/"


def describe(app: FastAPI) -> None:
    """Let the application's OpenAPI say all that is known of its requests and answers."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            contract = plain()
            schemas: dict[str, Any] = contract["components"]["schemas"]
            for schema in schemas.values():
                _describe_fields(schema)
                _name_keys(schema)
            for name in _sent(contract):
                schemas[name].setdefault("additionalProperties", False)
            _number_answers(contract)
        return plain()

    app.openapi = openapi


def _describe_fields(schema: dict[str, Any]) -> None:
    """Moves what a docstring says of its attributes to the properties that they are."""
    about, *listed = _ATTRIBUTES.split(schema.get("description", ""), maxsplit=1)
    for name, text in _ENTRY.findall(listed[0] if listed else ""):
        if field := schema.get("properties", {}).get(name):
            field.setdefault("description", re.sub(r"\s+", " ", text).rstrip("."))
    if listed:
        schema["description"] = about


def _name_keys(schema: dict[str, Any]) -> None:
    """Names the properties as they stand in JSON."""
    if "properties" in schema:
        schema["properties"] = {key_of(name): p for name, p in schema["properties"].items()}
    if "required" in schema:
        schema["required"] = [*map(key_of, schema["required"])]


def _number_answers(contract: dict[str, Any]) -> None:
    """Says of every answer that it has `schema`; it is added to what routes give, as it leaves."""
    contract["components"]["schemas"]["Answer"] = {
        "description": "Every answer",
        "type": "object",
        "properties": {"schema": {"type": "integer", "description": _PROMISE}},
        "required": ["schema"],
    }
    for operation in (o for path in contract["paths"].values() for o in path.values()):
        for response in operation["responses"].values():
            if content := response.get("content", {}).get("application/json"):
                content["schema"] = {"allOf": [content["schema"], {"$ref": f"{_REFERENCE}Answer"}]}


def _sent(contract: dict[str, Any]) -> set[str]:
    """Names of the schemas of which bodies are made."""
    schemas = contract["components"]["schemas"]
    found: set[str] = set()
    left = list(
        _references([o.get("requestBody") for m in contract["paths"].values() for o in m.values()])
    )
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left.extend(_references(schemas[name]))
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            if key == "$ref":
                yield inner.removeprefix(_REFERENCE)
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _references(inner)
