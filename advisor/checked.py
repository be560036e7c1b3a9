"""Values that Python lets into a question and a command line would not."""

import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from advisor.core.wording import shown
from advisor.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")

_KINDS = {
    float: "a number",
    int: "a whole number",
    str: "text",
    bool: "True or False",
    Path: "a path",
}

_NUMBERS: Mapping[Any, Any] = {float: numbers.Real, int: numbers.Integral}
"""Numpy's, too."""


_ANYTHING = (Any, inspect.Parameter.empty)

_UNSAID = {"token", "url"}
"""Parameters whose values may be secret."""


def checked_methods(kind: type[T]) -> type[T]:
    """The same class; what makes it, and each of its public methods, is `checked`."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name == "__init__" or not name.startswith("_"):
            setattr(kind, name, checked(method, kind.__name__))
    return kind


def checked(ask: Callable[P, T], of: str = "advisor") -> Callable[P, T]:
    """The same question, which refuses values that are not what its types say, as "500W" for W.

    Args:
        ask: Types in quotes are not looked at.
        of: Where it is found, for messages.

    Raises:
        InputError: such a value, or a number that is NaN.
    """
    signature = inspect.signature(ask)

    @functools.wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            are_many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            for one in value if are_many else (value,):
                if not _fits(one, parameter.annotation):
                    raise _refused(f"{of}.{ask.__name__}", parameter, one)
        return ask(*args, **kwargs)

    return asked


def _fits(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in _ANYTHING or isinstance(kind, str | TypeVar):
        return True
    if kind in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Literal:
        return isinstance(value, str) and value in parts
    if kind in _NUMBERS:
        is_number = isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
        return is_number and not math.isnan(value)
    if kind is Sequence:  # an array of numpy is none, and can be gone through like one
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            return False
        return all(_fits(one, parts[0]) for one in cast("Collection[Any]", value))
    return isinstance(value, kind)


def _refused(ask: str, parameter: inspect.Parameter, value: Any) -> InputError:
    name, fix = parameter.name, f"help({ask}) says what it means"
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL and hasattr(value, "__iter__"):
        fix = f"give each by itself: {ask}(*{name})"
    kinds = " or ".join(_words(parameter.annotation))
    told = f"a {type(value).__name__}" if name in _UNSAID else shown(value)
    return InputError(f"{name} is {told}", why=f"it takes {kinds}", fix=fix)


def _words(hint: Any) -> Iterator[str]:
    """What may be given; nothing of None, and of what holds values for several jobs."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        for part in parts:
            yield from _words(part)
    elif kind is Literal:
        yield from map(repr, parts)
    elif kind is Sequence:
        yield f"a list, each {' or '.join(_words(parts[0]))}"
    elif kind not in (types.NoneType, Iterable, Mapping):
        yield _KINDS.get(kind) or f"a {kind.__name__}"
