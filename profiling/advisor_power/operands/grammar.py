"""Reads the text of operands; every error names the line and the column.

    pair    = [ "a=" ] operand [ "; b=" operand ] [ "; align=" true|false ] [ "; seed=" number ]
    operand = source { "|" operation }

Without `b` both matrices are filled by the same operand, each with random numbers of its own.
"""

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.errors import InputError
from advisor_power.operands.expression import Argument, Call, Operand, OperandPair, Quoted
from advisor_power.operands.words import WORDS, Number, Parameter, Ratio, Stage, Text

TEXT_LIMIT = 2000
"""Characters of one text."""

OPERATIONS_LIMIT = 16
"""Operations of one operand."""

SEED_LIMIT = 2**32 - 1

_TOKEN = re.compile(
    r"(?P<ratio>\d{1,3}:\d{1,3})"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[a-z_][a-z0-9_-]*)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<mark>[|(),;=])"
    r"|(?P<odd>\S)"
)
_ORDER: tuple[Stage, ...] = ("source", "value", "cast", "bit")
_FIELDS = ("a", "b", "align", "seed")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def shown(self) -> str:
        return "the end of the text" if self.kind == "end" else repr(self.text)


def parse_operands(text: str) -> OperandPair:
    """Both matrices of a product.

    Raises:
        InputError: the text is too long, or no operands; says where.
    """
    if len(text) > TEXT_LIMIT:
        raise InputError(
            f"the operands are {len(text)} characters long",
            fix=f"use {TEXT_LIMIT} at most",
        )
    return _Reader(text).pair()


class _Reader:
    """Reads from left to right; no part of the grammar needs to look back."""

    def __init__(self, text: str) -> None:
        self._text = text
        found = _TOKEN.finditer(text)
        self._tokens = [_Token(str(m.lastgroup), m.group(), m.start()) for m in found]
        self._next = 0

    def pair(self) -> OperandPair:
        fields = dict(self._fields())
        a = fields.get("a")
        if not isinstance(a, Operand):
            raise self._error(_Token("end", "", 0), "there is no a=", "say what A is filled with")
        b = fields.get("b", a)
        aligned, seed = fields.get("align", True), fields.get("seed", 0)
        assert isinstance(b, Operand)
        assert isinstance(aligned, bool)
        assert isinstance(seed, int)
        return OperandPair(a=a, b=b, aligned=aligned, seed=seed)

    def _fields(self) -> Iterator[tuple[str, Operand | bool | int]]:
        seen: set[str] = set()
        while True:
            start = self._peek()
            name = start.text if self._peek(1).text == "=" else "a"
            if name not in _FIELDS:
                raise self._unknown(start, _FIELDS, "field")
            if name in seen:
                raise self._error(start, f"{name} is there twice", "leave one of them out")
            seen.add(name)
            if self._peek(1).text == "=":
                self._next += 2
            yield name, self._field(name)
            if self._peek().kind == "end":
                return
            self._expect(";", "end the operand, or part its operations by |")

    def _field(self, name: str) -> Operand | bool | int:
        token = self._peek()
        if name in ("a", "b"):
            return self._operand()
        self._next += 1
        if name == "align":
            if token.text not in ("true", "false"):
                raise self._error(token, f"align is {token.shown}", "write true or false")
            return token.text == "true"
        return int(self._number(token, "seed", Number(0, SEED_LIMIT, whole=True)))

    def _operand(self) -> Operand:
        source, _ = self._call(("source",))
        calls: list[Call] = []
        # Bits that are drawn are of the type already.
        stages = _ORDER[2:] if source.name == "random_bits" else _ORDER[1:]
        while self._peek().text == "|":
            bar = self._peek()
            self._next += 1
            if len(calls) == OPERATIONS_LIMIT:
                limit = f"use {OPERATIONS_LIMIT} at most"
                raise self._error(bar, "too many operations in one operand", limit)
            call, stage = self._call(stages)
            calls.append(call)
            # One cast at most; what stands before an operation on bits is cast by then.
            stages = _ORDER[_ORDER.index(stage) + (stage == "cast") :]
        return Operand(source, tuple(calls))

    def _call(self, stages: tuple[Stage, ...]) -> tuple[Call, Stage]:
        token = self._peek()
        self._next += 1
        word = WORDS.get(token.text)
        if word is None or token.kind != "name":
            names = tuple(name for name, word in WORDS.items() if word.stage in stages)
            raise self._unknown(token, names, "source" if "source" in stages else "operation")
        if word.stage not in stages:
            raise self._misplaced(token, word.stage, stages)
        arguments = tuple(self._arguments(token, word.parameters, word.usage))
        return Call(token.text, arguments), word.stage

    def _arguments(
        self, token: _Token, parameters: tuple[tuple[str, Parameter], ...], usage: str
    ) -> Iterator[Argument]:
        fix = f"write {token.text}{usage}"
        if not parameters:
            if self._peek().text == "(":
                raise self._error(self._peek(), f"{token.text} takes nothing", fix)
            return
        named: dict[str, Text] = {}
        for i, (name, parameter) in enumerate(parameters):
            if isinstance(parameter, Text) and parameter.named:
                named[name] = parameter
                continue
            self._expect("," if i else "(", fix)
            argument = self._peek()
            self._next += 1
            yield self._argument(argument, f"{name} of {token.text}", parameter)
        yield from self._named(token, named, fix)
        self._expect(")", fix)

    def _named(self, token: _Token, rules: dict[str, Text], fix: str) -> Iterator[Quoted]:
        """Those that are there, in the order of the rules, whatever the order of the text."""
        found: dict[str, Quoted] = {}
        while rules and self._peek().text == ",":
            self._next += 1
            name = self._peek()
            if name.text not in rules:
                raise self._unknown(name, tuple(rules), f"parameter of {token.text}")
            if name.text in found:
                raise self._error(name, f"{name.text} is there twice", "leave one of them out")
            self._next += 1
            self._expect("=", fix)
            value = self._peek()
            self._next += 1
            what = f"{name.text} of {token.text}"
            found[name.text] = Quoted(self._text_of(value, what, rules[name.text]), name.text)
        yield from (found[name] for name in rules if name in found)

    def _argument(self, token: _Token, name: str, parameter: Parameter) -> Argument:
        if isinstance(parameter, Number):
            return self._number(token, name, parameter)
        if isinstance(parameter, Ratio):
            n, _, m = token.text.partition(":")
            if token.kind != "ratio" or not int(n) < int(m):
                raise self._error(token, f"{name} is {token.shown}", f"it is {parameter.text}")
            return f"{int(n)}:{int(m)}"
        if isinstance(parameter, Text):
            return Quoted(self._text_of(token, name, parameter))
        if token.text not in parameter:
            known = " or ".join(parameter)
            raise self._error(token, f"{name} is {token.shown}", f"write {known}")
        return token.text

    def _text_of(self, token: _Token, name: str, rule: Text) -> str:
        wrong = self._error(token, f"{name} is {token.shown}", f"it is {rule.text}")
        if token.kind != "string":
            raise wrong
        try:
            found: str = json.loads(token.text)
            found.encode()  # not half of a character
        except ValueError as error:
            raise wrong from error
        if not re.fullmatch(rule.pattern, found):
            raise wrong
        return found

    def _number(self, token: _Token, name: str, rule: Number) -> float:
        # "-0" and "0" are the same operand, and have the same key.
        value = float(token.text) + 0.0 if token.kind == "number" else None
        fits = value is not None and rule.low <= value <= rule.high
        if value is None or not fits or (rule.whole and not value.is_integer()):
            raise self._error(token, f"{name} is {token.shown}", f"it is {rule.text}")
        return value

    def _expect(self, mark: str, fix: str) -> None:
        token = self._peek()
        if token.text != mark:
            raise self._error(token, f"{mark!r} was expected, not {token.shown}", fix)
        self._next += 1

    def _peek(self, ahead: int = 0) -> _Token:
        index = self._next + ahead
        end = _Token("end", "", len(self._text))
        return self._tokens[index] if index < len(self._tokens) else end

    def _unknown(self, token: _Token, names: tuple[str, ...], kind: str) -> InputError:
        near = difflib.get_close_matches(token.text, names, n=1)
        fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        return self._error(token, f"no {kind} is called {token.shown}", fix)

    def _misplaced(self, token: _Token, stage: Stage, stages: tuple[Stage, ...]) -> InputError:
        if "source" in stages:
            return self._error(token, f"{token.text} is no source", "an operand begins with one")
        why = {
            "source": "an operand has one source, its first word",
            "cast": "a matrix is cast once, before operations on bits",
        }.get(stage, "operations on values come before the cast, and not after random_bits")
        return self._error(token, f"{token.text} cannot stand here", why)

    def _error(self, token: _Token, what: str, fix: str) -> InputError:
        before = self._text[: token.at]
        line = before.count("\n") + 1
        column = token.at - (before.rfind("\n") + 1) + 1
        return InputError(f"operands, line {line}, column {column}: {what}", fix=fix)
