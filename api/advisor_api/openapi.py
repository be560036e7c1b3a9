"""The contract of the service: what OpenAPI says beyond FastAPI, with examples that were answered.

python -m advisor_api.openapi > api/openapi.json
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

from fastapi import FastAPI

from advisor.formats.wire import key_of
from advisor.settings import read_settings
from advisor_api.http.access import ServeOptions
from advisor_api.http.routing import REFUSALS, codes_of

EXAMPLES = Path(__file__).with_name("examples.json")
"""Requests, and what a service answered them; tests/integration/test_api_examples.py writes it."""

_ATTRIBUTES = re.compile(r"\s*Attributes:\n", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_PROMISE = "Raised when a key goes or comes to mean another thing, not when one is added"
_REFERENCE = "#/components/schemas/"
_ERROR = {"allOf": [{"$ref": f"{_REFERENCE}ErrorAnswer"}, {"$ref": f"{_REFERENCE}Answer"}]}

Operation: TypeAlias = dict[str, Any]


def describe(app: FastAPI) -> None:
    """Let the application's OpenAPI say all that is known of its requests and answers."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            contract = plain()
            schemas: dict[str, Any] = contract["components"]["schemas"]
            for schema in schemas.values():
                _describe_fields(schema)
                if "properties" in schema:
                    schema["properties"] = {
                        key_of(name): p for name, p in schema["properties"].items()
                    }
                if "required" in schema:
                    schema["required"] = [*map(key_of, schema["required"])]
            for name in _sent(contract):
                schemas[name].setdefault("additionalProperties", False)
            _number_answers(contract)
            _name_errors(contract)
            _show_examples(contract)
        return plain()

    app.openapi = openapi


def operations(contract: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    """Path, method and description of all that can be asked."""
    return (
        (path, method, operation)
        for path, methods in contract["paths"].items()
        for method, operation in methods.items()
    )


def _describe_fields(schema: dict[str, Any]) -> None:
    """Moves what a docstring says of its attributes to the properties that they are."""
    about, *listed = _ATTRIBUTES.split(schema.get("description", ""), maxsplit=1)
    for name, text in _ENTRY.findall(listed[0] if listed else ""):
        if field := schema.get("properties", {}).get(name):
            field.setdefault("description", re.sub(r"\s+", " ", text).rstrip("."))
    if listed:
        schema["description"] = about


def _number_answers(contract: dict[str, Any]) -> None:
    """Says of every answer that it has `schema`; it is added to what routes give, as it leaves."""
    contract["components"]["schemas"]["Answer"] = {
        "description": "Every answer",
        "type": "object",
        "properties": {"schema": {"type": "integer", "description": _PROMISE}},
        "required": ["schema"],
    }
    for _path, _method, operation in operations(contract):
        operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
        for response in operation["responses"].values():
            if content := response.get("content", {}).get("application/json"):
                content["schema"] = {"allOf": [content["schema"], {"$ref": f"{_REFERENCE}Answer"}]}


def _name_errors(contract: dict[str, Any]) -> None:
    """Says at each operation which errors are to be expected, each described in one place."""
    contract["components"]["responses"] = {
        str(status): {
            "description": f"{text}: {', '.join(f'`{code}`' for code in codes_of(status))}",
            "content": {"application/json": {"schema": _ERROR}},
        }
        for status, text in REFUSALS.items()
    }
    for path, _method, operation in operations(contract):
        responses = operation["responses"]
        named = {int(status) for status in responses if status.isdecimal()} & REFUSALS.keys()
        for status in sorted(named | set(_refused(path, operation))):
            responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
        responses["default"] = responses.pop("default")


def _refused(path: str, operation: Operation) -> Iterator[int]:
    if tokens := operation.get("security"):
        yield 401
        if {} not in tokens:
            yield 403
    if "{" in path:
        yield 404
    if "requestBody" in operation:
        yield 413
    if path.startswith("/v1/"):
        yield from (422, 429)
    if path != "/healthz":
        yield 503


def _show_examples(contract: dict[str, Any]) -> None:
    """Puts requests and answers of a real service where they belong; the first of each counts."""
    by_id = {operation["operationId"]: operation for _, _, operation in operations(contract)}
    refused = contract["components"]["responses"]
    for example in json.loads(EXAMPLES.read_bytes()):
        operation, status = by_id[example["operation"]], str(example["status"])
        answer = (refused if status in refused else operation["responses"])[status]
        answer["content"]["application/json"].setdefault("example", example.get("answer"))
        if status in refused:
            continue
        if "body" in example:
            operation["requestBody"]["content"]["application/json"].setdefault(
                "example", example["body"]
            )
        for parameter in operation.get("parameters", ()):
            if (value := example.get("parameters", {}).get(parameter["name"])) is not None:
                parameter["example"] = value


def _sent(contract: dict[str, Any]) -> set[str]:
    schemas = contract["components"]["schemas"]
    schema_names: set[str] = set()
    left = list(
        _references([operation.get("requestBody") for _, _, operation in operations(contract)])
    )
    while left:
        if (name := left.pop()) not in schema_names:
            schema_names.add(name)
            left.extend(_references(schemas[name]))
    return schema_names


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            if key == "$ref":
                yield inner.removeprefix(_REFERENCE)
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _references(inner)


def openapi_text() -> str:
    """OpenAPI of every route, as it is checked in."""
    from advisor_api.app import create_app

    app = create_app(read_settings({}), ServeOptions())
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
