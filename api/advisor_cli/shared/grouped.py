"""Options of a command as one value: each field of a dataclass is an option of the command line.

So an option is declared once, where it is kept, and not as a parameter and a field.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")


def grouped(command: Callable[..., R]) -> Callable[..., R]:
    """A command that takes each of its dataclasses field by field, as Typer reads it."""
    kinds: dict[str, Any] = {}
    flat: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            kinds[parameter.name] = parameter.annotation
            flat |= {each.name: each for each in _options(parameter.annotation)}
        else:
            flat[parameter.name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(command)
    def taken(**given: Any) -> R:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in kinds.items()
        }
        return command(**given, **made)

    taken.__signature__ = inspect.Signature([*flat.values()])  # pyright: ignore[reportAttributeAccessIssue]
    taken.__annotations__ = {each.name: each.annotation for each in flat.values()}
    return taken


def _options(kind: Any) -> Iterator[inspect.Parameter]:
    """Its own fields before those that it has in common with others, as help lists them."""
    types, own = get_type_hints(kind, include_extras=True), kind.__annotations__
    for field in sorted(fields(kind), key=lambda field: field.name not in own):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
