"""The words of the input language, with what each takes. The one place where they are declared.

Sources and operations are those of Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024),
section IV, and few more. docs/input-power.md describes them.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from advisor.errors import InputError

Stage: TypeAlias = Literal["source", "value", "cast", "bit"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
"""fp8 is e4m3. tf32 is stored as fp32; the tensor core drops its 13 lowest bits."""

WIDTHS = {"fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp8_e5m2": 8, "int8": 8}
"""Bits of an element as stored; fp8_e5m2 occurs in files only."""

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s,()|;"]*'


@dataclass(frozen=True, slots=True)
class _Parameter:
    """What a word takes.

    Attributes:
        text: What it must be, in words.
        canonical: The one text of a value, its key; raises ValueError where it is none.
        usage: How it is written, with its name for {}.
    """

    text: str
    canonical: Callable[[str], str]
    usage: str = "{}"

    @property
    def named(self) -> bool:
        """Whether it is written as `name="..."`, and may be left out."""
        return "=" in self.usage


@dataclass(frozen=True, slots=True)
class _Word:
    """A source or an operation.

    Attributes:
        stage: Where it stands: one source, then operations on values, a cast, operations on bits.
        parameters: By name, in order.
        pattern: What follows the word: a group for each parameter.
    """

    stage: Stage
    parameters: dict[str, _Parameter]
    pattern: re.Pattern[str]

    @property
    def usage(self) -> str:
        """The names of its parameters, in parentheses."""
        shown = (parameter.usage.format(name) for name, parameter in self.parameters.items())
        return f"({', '.join(shown)})" if self.parameters else ""


def number(low: float, high: float, *, whole: bool = False) -> _Parameter:
    """A number from `low` to `high`."""

    def canonical(text: str) -> str:
        # "-0" and "0" are the same operand, and have the same key.
        value = float(text) + 0.0 if _NUMBER.fullmatch(text) else math.nan
        if not low <= value <= high or (whole and not value.is_integer()):
            raise ValueError
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)

    kind = "a whole number" if whole else "a number"
    return _Parameter(f"{kind} from {low:.10g} to {high:.10g}", canonical)


def _choice(*words: str) -> _Parameter:
    """One of some words."""

    def canonical(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return _Parameter(" or ".join(words), canonical)


def _ratio(text: str) -> str:
    match = re.fullmatch(r"(\d{1,3}):(\d{1,3})", text)
    if match is None or not int(match[1]) < int(match[2]):
        raise ValueError
    return f"{int(match[1])}:{int(match[2])}"


def _quoted(text: str, usage: str, pattern: str = r"(?s).+") -> _Parameter:
    """A text in double quotes, written as a string of JSON, all of which matches the pattern."""

    def canonical(written: str) -> str:
        value = json.loads(written) if written.startswith('"') else ""
        value.encode()  # not half of a character
        if not re.fullmatch(pattern, value):
            raise ValueError
        return json.dumps(value, ensure_ascii=False)

    return _Parameter(f"{text} in double quotes", canonical, usage)


def _word(stage: Stage, **takes: _Parameter) -> _Word:
    parts = [
        rf"(?:,\s*{name}\s*=\s*(?P<{name}>{_VALUE})\s*)?"
        if parameter.named
        else rf"{',' if place else ''}\s*(?P<{name}>{_VALUE})\s*"
        for place, (name, parameter) in enumerate(takes.items())
    ]
    pattern = rf"\({''.join(parts)}\)\s*" if takes else r"(?!\()"
    return _Word(stage, takes, re.compile(pattern, re.DOTALL))


_ANY = number(-3e38, 3e38)
_SPREAD = number(0, 3e38)
_PART = number(0, 1)
_BITS = number(0, 32, whole=True)
_END = _choice("low", "high")

WORDS: dict[str, _Word] = {
    "normal": _word("source", mean=_ANY, sd=_SPREAD),
    "uniform": _word("source", low=_ANY, high=_ANY),
    "unique": _word("source", n=number(1, 1 << 20, whole=True), mean=_ANY, sd=_SPREAD),
    "constant": _word("source", value=_ANY),
    "zeros": _word("source"),
    "ones": _word("source"),
    "random_bits": _word("source"),
    "file": _word(
        "source",
        path=_quoted("the path of a file", '"{}"'),
        tensor=_quoted("the name of a tensor", '{}="..."'),
        sha256=_quoted("64 digits of a hash", '{}="..."', "[0-9a-f]{64}"),
    ),
    "sort": _word("value", order=_choice("rows", "columns", "within-rows"), fraction=_PART),
    "sparse": _word("value", fraction=_PART),
    "spoil": _word("value", **{"with": _choice("nan", "inf")}, fraction=_PART),
    "prune": _word("value", ratio=_Parameter("n:m with n below m, such as 2:4", _ratio)),
    "scale": _word("value", factor=_ANY),
    "shift": _word("value", by=_ANY),
    "permute": _word(
        "value", lines=_choice("rows", "columns"), key=number(0, 2**32 - 1, whole=True)
    ),
    "cast": _word("cast", dtype=_choice(*DTYPES)),
    "flip": _word("bit", bits=_BITS),
    "randomize": _word("bit", end=_END, bits=_BITS),
    "clear": _word("bit", end=_END, bits=_BITS),
}

TEXT_LIMIT = 2000
"""Characters of one text."""

OPERATIONS_LIMIT = 16
"""Operations of one operand."""

_SETTINGS = {"align": _choice("true", "false"), "seed": number(0, 2**32 - 1, whole=True)}
_FIELDS = ("a", "b", *_SETTINGS)
_ORDER: tuple[Stage, ...] = ("source", "value", "cast", "bit")

_FIELD = re.compile(r'\s*(?:([^\s=;|("]+)\s*=)?')
_SETTING = re.compile(r"\s*([^;]*?)\s*(?=;|\Z)")
_NAME = re.compile(r'\s*([^\s|;(),="]*)\s*')
_NEXT = re.compile(r"[\w.+-]+|\S")


@dataclass(frozen=True, slots=True)
class Call:
    """A source or an operation.

    Attributes:
        name: A key of `WORDS`.
        arguments: The canonical text of each.
    """

    name: str
    arguments: tuple[str, ...] = ()

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
    """Both matrices of a product A B.

    Attributes:
        aligned: B is filled as the transpose of its pattern, so that rows of the pattern of A meet
            rows of the pattern of B; else columns of the pattern of B.
        seed: Of the random numbers of both; A and B never draw the same ones.
    """

    a: Operand
    b: Operand
    aligned: bool = True
    seed: int = 0

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
            match = _SETTING.match(text, at)
            assert match is not None
            value = _canonical(text, match.start(1), match[1], name, _SETTINGS[name])
            settings[name], at = value, match.end()
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
    match = _FIELD.match(text, at)
    assert match is not None
    name, begin = match[1] or "a", match.start(1) if match[1] else match.end()
    if name not in _FIELDS:
        raise _unknown(text, begin, name, _FIELDS, "field")
    if name in before:
        raise _error(text, begin, f"{name} is there twice", "leave one of them out")
    return name, match.end()


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
    if word.stage not in stages and "source" in stages:
        fix = "an operand begins with one"
        raise _error(text, begin.start(1), f"{name} is no source", fix)
    if word.stage not in stages:
        why = {
            "source": "an operand has one source, its first word",
            "cast": "a matrix is cast once, before operations on bits",
        }.get(word.stage, "operations on values come before the cast, and not after random_bits")
        raise _error(text, begin.start(1), f"{name} cannot stand here", why)
    match = word.pattern.match(text, at)
    if match is None:
        takes = word.usage or "nothing"
        raise _error(text, at, f"{name} takes {takes}", f"write {name}{word.usage}")
    arguments = (
        (f"{name}=" if parameter.named else "")
        + _canonical(text, match.start(name), match[name], f"{name} of {begin[1]}", parameter)
        for name, parameter in word.parameters.items()
        if match[name] is not None
    )
    return Call(name, tuple(arguments)), match.end()


def _canonical(text: str, at: int, value: str, what: str, parameter: _Parameter) -> str:
    try:
        return parameter.canonical(value)
    except ValueError as error:
        shown = repr(value) if value else "missing"
        raise _error(text, at, f"{what} is {shown}", f"it is {parameter.text}") from error


def _value(argument: str) -> Any:
    if argument.startswith('"'):
        return json.loads(argument)
    return float(argument) if _NUMBER.fullmatch(argument) else argument


def _shown(text: str, at: int) -> str:
    """What stands at a place, for a message."""
    match = _NEXT.search(text, at)
    return repr(match.group()) if match else "the end of the text"


def _unknown(text: str, at: int, name: str, names: tuple[str, ...], kind: str) -> InputError:
    near = difflib.get_close_matches(name, names, n=1)
    fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
    shown = repr(name) if name else _shown(text, at)
    return _error(text, at, f"no {kind} is called {shown}", fix)


def _error(text: str, at: int, what: str, fix: str) -> InputError:
    before = text[:at]
    line = before.count("\n") + 1
    column = at - (before.rfind("\n") + 1) + 1
    return InputError(f"operands, line {line}, column {column}: {what}", fix=fix)


_NARROW = ("int8", "fp8")

_PARTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One experiment of the paper.

    Attributes:
        levels: By type; of bits up to all that the type has.
        text: The operands at a level, with `{x}` for it and `{sd}` for the usual deviation.
    """

    takeaway: int
    levels: Callable[[str], Sequence[float]]
    text: str

    def pairs(self, dtype: str) -> dict[float, OperandPair]:
        """The operands of each level."""
        sd = 32 if dtype in _NARROW else 1024
        return {x: parse_operands(self.text.format(x=f"{x:g}", sd=sd)) for x in self.levels(dtype)}


def _parts(_: str) -> Sequence[float]:
    return _PARTS


def _bits(dtype: str) -> Sequence[float]:
    return tuple(sorted({round(part * WIDTHS[dtype]) for part in _PARTS}))


def _by_type(narrow: Sequence[float], wide: Sequence[float]) -> Callable[[str], Sequence[float]]:
    return lambda dtype: narrow if dtype in _NARROW else wide


SWEEPS: tuple[_Sweep, ...] = (
    _Sweep(1, _by_type((1, 2, 4, 8, 16, 32), (1, 8, 32, 128, 1024, 4096)), "normal(0,{x})"),
    _Sweep(2, _by_type((0, 8, 16, 32, 64, 120), (0, 16, 64, 256, 1024, 4096)), "normal({x},1)"),
    _Sweep(3, lambda _: (1, 2, 8, 32, 128, 512), "unique({x},0,{sd})"),
    _Sweep(4, _bits, "unique(1,0,{sd})|flip({x})"),
    _Sweep(5, _bits, "unique(1,0,{sd})|randomize(low,{x})"),
    _Sweep(6, _bits, "unique(1,0,{sd})|randomize(high,{x})"),
    _Sweep(7, lambda _: (0.0,), "normal(0,{sd})"),
    _Sweep(8, _parts, "normal(0,{sd})|sort(rows,{x}); align=false"),
    _Sweep(9, _parts, "normal(0,{sd})|sort(rows,{x})"),
    _Sweep(10, _parts, "normal(0,{sd})|sort(columns,{x})"),
    _Sweep(11, _parts, "normal(0,{sd})|sort(within-rows,{x})"),
    _Sweep(12, _parts, "normal(0,{sd})|sparse({x})"),
    _Sweep(13, _parts, "normal(0,{sd})|sort(rows,1)|sparse({x})"),
    _Sweep(14, _bits, "normal(0,{sd})|clear(low,{x})"),
    _Sweep(15, _bits, "normal(0,{sd})|clear(high,{x})"),
)
"""By takeaway."""

USUAL = SWEEPS[6]
"""Normal random numbers with the usual deviation."""
