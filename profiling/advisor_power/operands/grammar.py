"""What two matrices of a product are filled with, as values and as text.

    pair    = [ "a=" ] operand [ "; b=" operand ] [ "; align=" true|false ] [ "; seed=" number ]
    operand = source { "|" operation }

Without `b` both matrices are filled by the same operand, each with random numbers of its own. The
text of a pair is the key of its results; every error of one names the line and the column.
"""

import difflib
import json
import re
from dataclasses import dataclass
from typing import Any

from advisor.errors import InputError
from advisor_power.operands.words import NUMBER, WORDS, Parameter, Stage, choice, number

TEXT_LIMIT = 2000
"""Characters of one text."""

OPERATIONS_LIMIT = 16
"""Operations of one operand."""

_SETTINGS = {"align": choice("true", "false"), "seed": number(0, 2**32 - 1, whole=True)}
_FIELDS = ("a", "b", *_SETTINGS)
_ORDER: tuple[Stage, ...] = ("source", "value", "cast", "bit")

_FIELD = re.compile(r'\s*(?:([^\s=;|("]+)\s*=)?')
_SETTING = re.compile(r"\s*([^;]*?)\s*(?=;|\Z)")
_NAME = re.compile(r'\s*([^\s|;(),="]*)\s*')
_NEXT = re.compile(r"[\w.+-]+|\S")


@dataclass(frozen=True, slots=True)
class Call:
    """A source or an operation."""

    name: str
    """A key of `WORDS`."""
    arguments: tuple[str, ...] = ()
    """The canonical text of each."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The arguments: numbers, words, and what is in quotes; names stay in front of theirs."""
        return tuple(map(_value, self.arguments))

    def named(self, name: str) -> str | None:
        """What is in the quotes of the argument with a name; None: it is left out."""
        given = (a.removeprefix(f"{name}=") for a in self.arguments if a.startswith(f"{name}="))
        return next(map(json.loads, given), None)

    def __str__(self) -> str:
        return f"{self.name}({','.join(self.arguments)})" if self.arguments else self.name


@dataclass(frozen=True, slots=True)
class Operand:
    """One matrix: a source, operations on values, at most one cast, operations on bits."""

    source: Call
    operations: tuple[Call, ...] = ()

    @property
    def dtype(self) -> str | None:
        """What it is cast to; None: to what the product computes in."""
        casts = (str(call.arguments[0]) for call in self.operations if call.name == "cast")
        return next(casts, None)

    def __str__(self) -> str:
        return "|".join(map(str, (self.source, *self.operations)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandPair:
    """Both matrices of a product A B."""

    a: Operand
    b: Operand
    aligned: bool = True
    """B is filled as the transpose of its pattern, so that rows of the pattern of A meet rows of
    the pattern of B; else columns of the pattern of B."""
    seed: int = 0
    """Of the random numbers of both; A and B never draw the same ones."""

    def __str__(self) -> str:
        align = "true" if self.aligned else "false"
        return f"a={self.a}; b={self.b}; align={align}; seed={self.seed}"


def parse_operands(text: str) -> OperandPair:
    """Both matrices of a product.

    Raises:
        InputError: the text is too long, or no operands; says where.
    """
    if len(text) > TEXT_LIMIT:
        what = f"the operands are {len(text)} characters long"
        raise InputError(what, fix=f"use {TEXT_LIMIT} at most")
    operands: dict[str, Operand] = {}
    settings: dict[str, str] = {}
    at = -1
    while at < len(text):
        name, at = _field(text, at + 1, {*operands, *settings})
        if name in ("a", "b"):
            operands[name], at = _operand(text, at)
        else:
            settings[name], at = _setting(text, at, name)
        if text[at:] and text[at] != ";":
            what = f"';' was expected, not {_shown(text, at)}"
            raise _error(text, at, what, "end the operand, or part its operations by |")
    if "a" not in operands:
        raise _error(text, 0, "there is no a=", "say what A is filled with")
    return OperandPair(
        a=operands["a"],
        b=operands.get("b", operands["a"]),
        aligned=settings.get("align", "true") == "true",
        seed=int(settings.get("seed", "0")),
    )


def _field(text: str, at: int, before: set[str]) -> tuple[str, int]:
    """The name of the field that begins here, and where its value does."""
    found = _FIELD.match(text, at)
    assert found is not None
    name, begin = found[1] or "a", found.start(1) if found[1] else found.end()
    if name not in _FIELDS:
        raise _unknown(text, begin, name, _FIELDS, "field")
    if name in before:
        raise _error(text, begin, f"{name} is there twice", "leave one of them out")
    return name, found.end()


def _setting(text: str, at: int, name: str) -> tuple[str, int]:
    found = _SETTING.match(text, at)
    assert found is not None
    return _canonical(text, found.start(1), found[1], name, _SETTINGS[name]), found.end()


def _operand(text: str, at: int) -> tuple[Operand, int]:
    source, at = _call(text, at, ("source",))
    calls: list[Call] = []
    # Bits that are drawn are of the type already.
    stages = _ORDER[2:] if source.name == "random_bits" else _ORDER[1:]
    while text[at : at + 1] == "|":
        if len(calls) == OPERATIONS_LIMIT:
            limit = f"use {OPERATIONS_LIMIT} at most"
            raise _error(text, at, "too many operations in one operand", limit)
        call, at = _call(text, at + 1, stages)
        calls.append(call)
        # One cast at most; what stands before an operation on bits is cast by then.
        stage = WORDS[call.name].stage
        stages = _ORDER[_ORDER.index(stage) + (stage == "cast") :]
    return Operand(source, tuple(calls)), at


def _call(text: str, at: int, stages: tuple[Stage, ...]) -> tuple[Call, int]:
    begin = _NAME.match(text, at)
    assert begin is not None
    name, at = begin[1], begin.end()
    word = WORDS.get(name)
    if word is None:
        names = tuple(name for name, word in WORDS.items() if word.stage in stages)
        kind = "source" if "source" in stages else "operation"
        raise _unknown(text, begin.start(1), name, names, kind)
    if word.stage not in stages:
        raise _misplaced(text, begin.start(1), name, stages)
    found = word.pattern.match(text, at)
    if found is None:
        takes = word.usage or "nothing"
        raise _error(text, at, f"{name} takes {takes}", f"write {name}{word.usage}")
    arguments = (
        (f"{name}=" if parameter.named else "")
        + _canonical(text, found.start(name), found[name], f"{name} of {begin[1]}", parameter)
        for name, parameter in word.parameters.items()
        if found[name] is not None
    )
    return Call(name, tuple(arguments)), found.end()


def _canonical(text: str, at: int, value: str, what: str, parameter: Parameter) -> str:
    try:
        return parameter.canonical(value)
    except ValueError as error:
        shown = repr(value) if value else "missing"
        raise _error(text, at, f"{what} is {shown}", f"it is {parameter.text}") from error


def _value(argument: str) -> Any:
    if argument.startswith('"'):
        return json.loads(argument)
    return float(argument) if NUMBER.fullmatch(argument) else argument


def _shown(text: str, at: int) -> str:
    """What stands at a place, for a message."""
    found = _NEXT.search(text, at)
    return repr(found.group()) if found else "the end of the text"


def _unknown(text: str, at: int, name: str, names: tuple[str, ...], kind: str) -> InputError:
    near = difflib.get_close_matches(name, names, n=1)
    fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
    shown = repr(name) if name else _shown(text, at)
    return _error(text, at, f"no {kind} is called {shown}", fix)


def _misplaced(text: str, at: int, name: str, stages: tuple[Stage, ...]) -> InputError:
    if "source" in stages:
        return _error(text, at, f"{name} is no source", "an operand begins with one")
    why = {
        "source": "an operand has one source, its first word",
        "cast": "a matrix is cast once, before operations on bits",
    }.get(WORDS[name].stage, "operations on values come before the cast, and not after random_bits")
    return _error(text, at, f"{name} cannot stand here", why)


def _error(text: str, at: int, what: str, fix: str) -> InputError:
    before = text[:at]
    line = before.count("\n") + 1
    column = at - (before.rfind("\n") + 1) + 1
    return InputError(f"operands, line {line}, column {column}: {what}", fix=fix)
