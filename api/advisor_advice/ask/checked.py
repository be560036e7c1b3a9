"""Values that Python lets into a question and a command line would not."""

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from advisor.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")

_KINDS = {float: "a number", int: "a whole number", str: "text", bool: "True or False"}


def checked(ask: Callable[P, T]) -> Callable[P, T]:
    """The same question, which refuses values that are not what its types say, as "500W" for W.

    Raises:
        InputError: such a value; the jobs of `*jobs` are for the question itself.
    """
    kinds = {name: _kinds(hint) for name, hint in get_type_hints(ask).items()}
    signature = inspect.signature(ask)

    @functools.wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            is_one = signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL
            if is_one and not isinstance(value, kinds[name]):
                told = [_KINDS[kind] for kind in kinds[name] if kind in _KINDS]
                raise InputError(
                    f"{name} is {value!r}",
                    why=f"it takes {' or '.join(told)}",
                    fix=f"help(advisor.{ask.__name__}) says the unit of each",
                )
        return ask(*args, **kwargs)

    return asked


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The classes of a hint; any real number, as numpy has some, is a float."""
    kinds = tuple(get_origin(kind) or kind for kind in get_args(hint) or [hint])
    return (*kinds, numbers.Real) if float in kinds else kinds
