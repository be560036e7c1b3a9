"""The words of the input language, with what each takes. The one place where they are declared.

Sources and operations are those of Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024),
section IV, and few more. docs/input-power.md describes them.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["source", "value", "cast", "bit"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
"""fp8 is e4m3. tf32 is stored as fp32; the tensor core drops its 13 lowest bits."""

WIDEST_BITS = 32
UNIQUE_LIMIT = 1 << 20
"""Of different values in `unique`: more are as good as none."""


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter that is a number, from `low` to `high`."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    @property
    def text(self) -> str:
        """What it must be, in words."""
        kind = "a whole number" if self.whole else "a number"
        return kind if math.isinf(self.low) else f"{kind} from {self.low:.10g} to {self.high:.10g}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A parameter `n:m`, n of each m, with n below m."""

    text = "n:m with n below m, such as 2:4"


@dataclass(frozen=True, slots=True)
class Text:
    """A parameter in double quotes, written as a string of JSON.

    Attributes:
        text: What it must be, in words.
        pattern: What all of it matches.
        named: It is written as `name="..."`, and may be left out.
    """

    text: str
    pattern: str = r"(?s).+"
    named: bool = False


Choice: TypeAlias = tuple[str, ...]
Parameter: TypeAlias = Number | Ratio | Text | Choice


@dataclass(frozen=True, slots=True)
class Word:
    """A source or an operation.

    Attributes:
        stage: Where it stands: one source, then operations on values, a cast, operations on bits.
        parameters: By name, in order.
    """

    stage: Stage
    parameters: tuple[tuple[str, Parameter], ...] = ()

    @property
    def usage(self) -> str:
        """The names of its parameters, in parentheses."""
        shown = (_shown(name, parameter) for name, parameter in self.parameters)
        return f"({', '.join(shown)})" if self.parameters else ""


def _shown(name: str, parameter: Parameter) -> str:
    if not isinstance(parameter, Text):
        return name
    return f'{name}="..."' if parameter.named else f'"{name}"'


_ANY = Number(-3e38, 3e38)
_SPREAD = Number(0, 3e38)
_PART = Number(0, 1)
_BITS = Number(0, WIDEST_BITS, whole=True)
_LINES = ("rows", "columns")
_ENDS = ("low", "high")

WORDS: dict[str, Word] = {
    "normal": Word("source", (("mean", _ANY), ("sd", _SPREAD))),
    "uniform": Word("source", (("low", _ANY), ("high", _ANY))),
    "unique": Word(
        "source", (("n", Number(1, UNIQUE_LIMIT, whole=True)), ("mean", _ANY), ("sd", _SPREAD))
    ),
    "constant": Word("source", (("value", _ANY),)),
    "zeros": Word("source"),
    "ones": Word("source"),
    "random_bits": Word("source"),
    "file": Word(
        "source",
        (
            ("path", Text("the path of a file in double quotes")),
            ("tensor", Text("the name of a tensor in double quotes", named=True)),
            ("sha256", Text("64 digits of a hash in double quotes", "[0-9a-f]{64}", named=True)),
        ),
    ),
    "sort": Word("value", (("order", (*_LINES, "within-rows")), ("fraction", _PART))),
    "sparse": Word("value", (("fraction", _PART),)),
    "spoil": Word("value", (("with", ("nan", "inf")), ("fraction", _PART))),
    "prune": Word("value", (("ratio", Ratio()),)),
    "scale": Word("value", (("factor", _ANY),)),
    "shift": Word("value", (("by", _ANY),)),
    "permute": Word("value", (("lines", _LINES), ("key", Number(0, 2**32 - 1, whole=True)))),
    "cast": Word("cast", (("dtype", DTYPES),)),
    "flip": Word("bit", (("bits", _BITS),)),
    "randomize": Word("bit", (("end", _ENDS), ("bits", _BITS))),
    "clear": Word("bit", (("end", _ENDS), ("bits", _BITS))),
}
