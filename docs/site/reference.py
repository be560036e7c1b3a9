"""Pages of reference that are made from the code itself: commands, Python, HTTP, keys of files."""

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from advisor.core.job import InputData, Job, ProgressSettings, ResultsSettings
from advisor.settings import KEYS, Retention, Settings, variable_of
from advisor_cli import app as command_line, power

ROOT = Path(__file__).parents[2]
MODULES = ("advisor", "advisor.client", "advisor.progress", "advisor.callbacks")
"""What others may import; everything else may change with any version."""


def pages() -> dict[str, str]:
    """Markdown by name of page, in the order of the site."""
    return {"cli": commands(), "python": python(), "http": http(), "keys": keys()}


def commands() -> str:
    """Every command with its options, as its own help has them."""
    names = [str(command.name) for command in command_line.app.registered_commands]
    parts = (text for name in names for text in _command(command_line.load(name), name))
    return "# Commands\n\n" + "".join(parts)


def _command(command: Any, name: str) -> Iterator[str]:
    context = typer.Context(command, info_name=f"advisor {name}")
    yield f"## advisor {name}\n\n" + "".join(
        f"    {part.removeprefix('Example: ')}\n\n"
        if part.startswith("Example: ")
        else f"{_text(part)}\n\n"
        for part in (command.help or "").split("\n\n")
    )
    parts = getattr(command, "commands", {})
    if not parts:
        records = [option.get_help_record(context) for option in command.get_params(context)]
        yield _table(
            ("argument or option", "meaning"),
            (
                (f"`{record[0]}`".replace("|", "\\|"), _text(record[1]))
                for record in records
                if record
            ),
        )
    for part, own in parts.items():
        yield from _command(power.load(part) if name == "power" else own, f"{name} {part}")


def python() -> str:
    """What each public module offers, by its docstrings."""
    text = "# Python\n\n"
    for name in MODULES:
        module = importlib.import_module(name)
        inner = f".. automodule:: {name}\n   :no-members:\n\n"
        for member in getattr(module, "__all__", None) or _own(module):
            value = getattr(module, member)
            if inspect.isclass(value):
                # Methods that scikit-learn puts there point into its own pages.
                made = (
                    n for n, x in vars(value).items() if type(x).__module__.startswith("sklearn")
                )
                left_out = ", ".join(made)
                inner += f".. autoclass:: {name}.{member}\n   :members:\n"
                inner += f"   :exclude-members: {left_out}\n\n" if left_out else "\n"
            elif callable(value):
                inner += f".. autofunction:: {name}.{member}\n\n"
        text += f"## {name}\n\n```{{eval-rst}}\n{inner}```\n\n"
    return text


def _own(module: Any) -> list[str]:
    there = inspect.getmembers(module, lambda x: inspect.isclass(x) or inspect.isfunction(x))
    return [n for n, x in there if x.__module__ == module.__name__ and not n.startswith("_")]


def http() -> str:
    """Routes and bodies, from the OpenAPI file that is kept with the service."""
    api = json.loads((ROOT / "api/openapi.json").read_text())
    refused = api["components"]["responses"]
    routes = (
        _route(f"{method.upper()} {path}", route, refused)
        for path, methods in api["paths"].items()
        for method, route in methods.items()
    )
    bodies = (_body(name, schema) for name, schema in api["components"]["schemas"].items())
    about = f"OpenAPI {api['openapi']}, version {api['info']['version']} of the service, which has"
    return f"# HTTP\n\n{about} it at `/v1/openapi.json`.\n\n{''.join([*routes, *bodies])}"


def _route(name: str, route: Mapping[str, Any], refused: Mapping[str, Any]) -> str:
    text = f"## {name}\n\n{route['summary']}: {_text(route.get('description', ''))}\n\n"
    text += _table(
        ("parameter", "in", "type", "meaning"),
        (
            (f"`{p['name']}`", p["in"], _kind(p["schema"]), _text(p.get("description", "")))
            for p in route.get("parameters", ())
        ),
    )
    if body := route.get("requestBody"):
        text += f"Body: {_content(body)}\n\n"
    for code, said in route["responses"].items():
        answer = refused[code] if "$ref" in said else said
        text += f"- {code}: {_text(answer['description'])}. {_content(answer)}\n"
    return text + "\n"


def _content(part: Mapping[str, Any]) -> str:
    kinds = part.get("content", {}).items()
    return ", ".join(f"{_kind(content.get('schema', {}))} as `{kind}`" for kind, content in kinds)


def _body(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    return f"## {name}\n\n{_text(schema.get('description', ''))}\n\n" + _table(
        ("field", "type", "needed", "meaning"),
        (
            (f"`{key}`", _kind(of), "yes" if key in needed else "", _meaning(of))
            for key, of in schema.get("properties", {}).items()
        ),
    )


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a value, with a link where it is an object of its own."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return f"[{name}](#{name.lower()})"
    if both := schema.get("allOf"):  # what is answered, and the number of its keys
        return _kind(both[0])
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_kind, several))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{x}`" for x in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    low, high = schema.get("minimum", ""), schema.get("maximum", "")
    return f"{kind} {low}..{high}" if (low, high) != ("", "") else kind


def _meaning(schema: Mapping[str, Any]) -> str:
    told = (part.get("description") for part in (schema, *schema.get("anyOf", ())))
    default = schema.get("default")
    after = "" if default is None else f" (default `{json.dumps(default)}`)"
    return _text(next(filter(None, told), "") + after)


def keys() -> str:
    """Keys of job files and of the file of settings, by the docstrings of what they become."""
    text = "# Job files and settings\n\n## A job file\n\n"
    text += "All fields and kinds of progress, with examples: [job files](../docs/job-file.md).\n\n"
    text += _fields(Job)
    for name, kind in (
        ("progress", ProgressSettings), ("results", ResultsSettings), ("input", InputData)
    ):  # fmt: skip
        text += f"### `{name}`\n\n{_fields(kind)}"
    text += "## Settings\n\nA line of a file, or a variable, which goes before it: "
    text += "[settings](../docs/launch.md#folders-and-settings).\n\n"
    means = [*_attributes(Settings).values(), *_attributes(Retention).values()]
    return text + _table(
        ("key of the file", "variable", "meaning"),
        (
            (
                f"`{key}`",
                f"`{variable_of(key)}`",
                _text(next(m for m in means if variable_of(key) in m)),
            )
            for key in KEYS
        ),
    )


def _fields(kind: Any) -> str:
    meanings = _attributes(kind)
    return _table(
        ("key", "default", "meaning"),
        (
            (f"`{field.name}`", _default(field), _text(meanings.get(field.name, "")))
            for field in dataclasses.fields(kind)
            if field.name != "input_fingerprint"  # no key: the command that measures sets it
        ),
    )


def _default(field: dataclasses.Field[Any]) -> str:
    plain = isinstance(field.default, str | int | float) and field.default != ""
    return f"`{field.default}`" if plain else ""


def _attributes(kind: type) -> dict[str, str]:
    """What the docstring of a class says of each of its attributes."""
    said = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", said, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Nothing where there is no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*head, *lines, "", ""]) if lines else ""


def _text(text: str) -> str:
    """On one line, with marks that mean themselves, but for code between backticks."""
    parts = " ".join(text.split()).split("`")
    return "`".join(
        re.sub(r"([|])" if place % 2 else r"([\\|<*_\[#])", r"\\\1", part)
        for place, part in enumerate(parts)
    )
