"""OpenAPI of the dataclasses: what docstrings say of a field, and that requests are strict."""

import re
from collections.abc import Iterator
from typing import Any, cast

from fastapi import FastAPI

from advisor.formats.wire import key_of

_ATTRIBUTES = re.compile(r"\s*Attributes:\n", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
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
