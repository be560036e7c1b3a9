"""The words of the input language, with what each takes. The one place where they are declared.

Sources and operations are those of Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024),
section IV, and few more. docs/input-power.md describes them.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["source", "value", "cast", "bit"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
"""fp8 is e4m3. tf32 is stored as fp32; the tensor core drops its 13 lowest bits."""

WIDEST_BITS = 32
UNIQUE_LIMIT = 1 << 20
"""Of different values in `unique`: more are as good as none."""

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s,()|;"]*'


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a word takes."""

    text: str
    """What it must be, in words."""
    canonical: Callable[[str], str]
    """The one text of a value, its key; raises ValueError where it is none."""
    usage: str = "{}"
    """How it is written, with its name for {}."""

    @property
    def named(self) -> bool:
        """Whether it is written as `name="..."`, and may be left out."""
        return "=" in self.usage


@dataclass(frozen=True, slots=True)
class Word:
    """A source or an operation."""

    stage: Stage
    """Where it stands: one source, then operations on values, a cast, operations on bits."""
    parameters: dict[str, Parameter]
    """By name, in order."""
    pattern: re.Pattern[str]
    """What follows the word: a group for each parameter."""

    @property
    def usage(self) -> str:
        """The names of its parameters, in parentheses."""
        shown = (parameter.usage.format(name) for name, parameter in self.parameters.items())
        return f"({', '.join(shown)})" if self.parameters else ""


def number(low: float, high: float, *, whole: bool = False) -> Parameter:
    """A number from `low` to `high`."""

    def canonical(text: str) -> str:
        # "-0" and "0" are the same operand, and have the same key.
        value = float(text) + 0.0 if NUMBER.fullmatch(text) else math.nan
        if not low <= value <= high or (whole and not value.is_integer()):
            raise ValueError
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)

    kind = "a whole number" if whole else "a number"
    return Parameter(f"{kind} from {low:.10g} to {high:.10g}", canonical)


def choice(*words: str) -> Parameter:
    """One of some words."""

    def canonical(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Parameter(" or ".join(words), canonical)


def _ratio(text: str) -> str:
    found = re.fullmatch(r"(\d{1,3}):(\d{1,3})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise ValueError
    return f"{int(found[1])}:{int(found[2])}"


def _quoted(text: str, usage: str, pattern: str = r"(?s).+") -> Parameter:
    """A text in double quotes, written as a string of JSON, all of which matches the pattern."""

    def canonical(written: str) -> str:
        found = json.loads(written) if written.startswith('"') else ""
        found.encode()  # not half of a character
        if not re.fullmatch(pattern, found):
            raise ValueError
        return json.dumps(found, ensure_ascii=False)

    return Parameter(f"{text} in double quotes", canonical, usage)


def _word(stage: Stage, **takes: Parameter) -> Word:
    parts = [
        rf"(?:,\s*{name}\s*=\s*(?P<{name}>{_VALUE})\s*)?"
        if parameter.named
        else rf"{',' if place else ''}\s*(?P<{name}>{_VALUE})\s*"
        for place, (name, parameter) in enumerate(takes.items())
    ]
    pattern = rf"\({''.join(parts)}\)\s*" if takes else r"(?!\()"
    return Word(stage, takes, re.compile(pattern, re.DOTALL))


_ANY = number(-3e38, 3e38)
_SPREAD = number(0, 3e38)
_PART = number(0, 1)
_BITS = number(0, WIDEST_BITS, whole=True)
_END = choice("low", "high")

WORDS: dict[str, Word] = {
    "normal": _word("source", mean=_ANY, sd=_SPREAD),
    "uniform": _word("source", low=_ANY, high=_ANY),
    "unique": _word("source", n=number(1, UNIQUE_LIMIT, whole=True), mean=_ANY, sd=_SPREAD),
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
    "sort": _word("value", order=choice("rows", "columns", "within-rows"), fraction=_PART),
    "sparse": _word("value", fraction=_PART),
    "spoil": _word("value", **{"with": choice("nan", "inf")}, fraction=_PART),
    "prune": _word("value", ratio=Parameter("n:m with n below m, such as 2:4", _ratio)),
    "scale": _word("value", factor=_ANY),
    "shift": _word("value", by=_ANY),
    "permute": _word(
        "value", lines=choice("rows", "columns"), key=number(0, 2**32 - 1, whole=True)
    ),
    "cast": _word("cast", dtype=choice(*DTYPES)),
    "flip": _word("bit", bits=_BITS),
    "randomize": _word("bit", end=_END, bits=_BITS),
    "clear": _word("bit", end=_END, bits=_BITS),
}
