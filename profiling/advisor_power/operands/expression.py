"""What two matrices of a product are filled with, as values; their text is the key of a result."""

import json
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Quoted:
    """A text in double quotes; with a name, `name="..."`."""

    text: str
    name: str = ""

    def __str__(self) -> str:
        written = json.dumps(self.text, ensure_ascii=False)
        return f"{self.name}={written}" if self.name else written


Argument: TypeAlias = float | str | Quoted
"""A number, one of the words or ratios that a parameter takes, or a text."""


@dataclass(frozen=True, slots=True)
class Call:
    """A source or an operation with its arguments."""

    name: str
    arguments: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        arguments = ",".join(map(argument_text, self.arguments))
        return f"{self.name}({arguments})" if self.arguments else self.name


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


def argument_text(argument: Argument) -> str:
    """The shortest text that is read as the same argument."""
    if isinstance(argument, (str, Quoted)):
        return str(argument)
    number = float(argument)
    whole = number.is_integer() and abs(number) < 1e15
    return str(int(number)) if whole else repr(number)
