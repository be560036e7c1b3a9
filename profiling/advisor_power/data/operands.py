"""Matrices of types of the GPU: the language that says what fills them, and what decides power.

`parse_operands` reads the language. `WORDS` is the one place where its words are declared, with
what each takes: sources and operations of Gregersen et al., "Input-Dependent Power Usage in GPUs"
(2024), section IV, and few more. docs/input-power.md describes them.

Matrices are filled as the language says, or lie in safetensors and npy files, which are mapped
into memory; a pickle is never read. The header of safetensors is read here
(https://github.com/huggingface/safetensors, README, "Format"): the numpy flavour of the library has
no bfloat16.

Power of a product follows the bits that change from one step to the next in operands, in the
products of significands and in the running sum (section V of the paper names Hamming weight and
alignment of bits). Signs count by themselves: to add a negative product all of its bits are
inverted. All are means over a sample, as a part of the bits that there are, so that they compare
between types.
"""

import difflib
import functools
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import pydantic
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor.predict.profiles import Float32s
from advisor.wire.power import InputFingerprint

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
        usage: The names of its parameters, in parentheses.
    """

    stage: Stage
    parameters: dict[str, _Parameter]
    pattern: re.Pattern[str]
    usage: str


def _number(low: float, high: float, *, whole: bool = False) -> _Parameter:
    def canonical(text: str) -> str:
        # "-0" and "0" are the same operand, and have the same key.
        value = float(text) + 0.0 if _NUMBER.fullmatch(text) else math.nan
        if not low <= value <= high or (whole and not value.is_integer()):
            raise ValueError
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)

    kind = "a whole number" if whole else "a number"
    return _Parameter(f"{kind} from {low:.10g} to {high:.10g}", canonical)


def _choice(*words: str) -> _Parameter:
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
    usage = ", ".join(parameter.usage.format(name) for name, parameter in takes.items())
    return _Word(stage, takes, re.compile(pattern, re.DOTALL), f"({usage})" if takes else "")


_ANY = _number(-3e38, 3e38)
_SPREAD = _number(0, 3e38)
_PART = _number(0, 1)
_BITS = _number(0, 32, whole=True)
_END = _choice("low", "high")

WORDS: dict[str, _Word] = {
    "normal": _word("source", mean=_ANY, sd=_SPREAD),
    "uniform": _word("source", low=_ANY, high=_ANY),
    "unique": _word("source", n=_number(1, 1 << 20, whole=True), mean=_ANY, sd=_SPREAD),
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
        "value", lines=_choice("rows", "columns"), key=_number(0, 2**32 - 1, whole=True)
    ),
    "cast": _word("cast", dtype=_choice(*DTYPES)),
    "flip": _word("bit", bits=_BITS),
    "randomize": _word("bit", end=_END, bits=_BITS),
    "clear": _word("bit", end=_END, bits=_BITS),
}

TEXT_LIMIT = 2000  # characters of one text

OPERATIONS_LIMIT = 16  # operations of one operand

_SETTINGS = {"align": _choice("true", "false"), "seed": _number(0, 2**32 - 1, whole=True)}
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
        return next((call.arguments[0] for call in self.operations if call.name == "cast"), None)

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
        return f"a={self.a}; b={self.b}; align={str(self.aligned).lower()}; seed={self.seed}"


def parse_operands(text: str) -> OperandPair:
    """Both matrices of a product.

    Raises:
        InputError: the text is too long, or no operands; says where.
    """
    if len(text) > TEXT_LIMIT:
        raise InputError(
            f"the operands are {len(text)} characters long", fix=f"use {TEXT_LIMIT} at most"
        )
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
            settings[name] = _canonical(text, match.start(1), match[1], name, _SETTINGS[name])
            at = match.end()
        if text[at:] and text[at] != ";":
            raise _error(
                text,
                at,
                f"';' was expected, not {_text_at(text, at)}",
                "end the operand, or part its operations by |",
            )
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
            raise _error(
                text, at, "too many operations in one operand", f"use {OPERATIONS_LIMIT} at most"
            )
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
        raise _error(text, begin.start(1), f"{name} is no source", "an operand begins with one")
    if word.stage not in stages:
        why = {
            "source": "an operand has one source, its first word",
            "cast": "a matrix is cast once, before operations on bits",
        }.get(word.stage, "operations on values come before the cast, and not after random_bits")
        raise _error(text, begin.start(1), f"{name} cannot stand here", why)
    match = word.pattern.match(text, at)
    if match is None:
        raise _error(
            text, at, f"{name} takes {word.usage or 'nothing'}", f"write {name}{word.usage}"
        )
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
        raise _error(
            text,
            at,
            f"{what} is {repr(value) if value else 'missing'}",
            f"it is {parameter.text}",
        ) from error


def _value(argument: str) -> Any:
    if argument.startswith('"'):
        return json.loads(argument)
    return float(argument) if _NUMBER.fullmatch(argument) else argument


def _text_at(text: str, at: int) -> str:
    match = _NEXT.search(text, at)
    return repr(match.group()) if match else "the end of the text"


def _unknown(text: str, at: int, name: str, names: tuple[str, ...], kind: str) -> InputError:
    near = difflib.get_close_matches(name, names, n=1)
    fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
    return _error(
        text, at, f"no {kind} is called {repr(name) if name else _text_at(text, at)}", fix
    )


def _error(text: str, at: int, what: str, fix: str) -> InputError:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
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
        return {
            x: parse_operands(self.text.format(x=f"{x:g}", sd=32 if dtype in _NARROW else 1024))
            for x in self.levels(dtype)
        }


def _parts(_: str) -> Sequence[float]:
    return _PARTS


def _bits(dtype: str) -> Sequence[float]:
    return sorted({round(part * WIDTHS[dtype]) for part in _PARTS})


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


Matrix: TypeAlias = NDArray[Any]

# Name here and numpy type, by safetensors' name, of all that a product computes with.
_FILE_TYPES: dict[str, tuple[str, Any]] = {
    "F64": ("fp64", np.float64),
    "F32": ("fp32", np.float32),
    "F16": ("fp16", np.float16),
    "BF16": ("bf16", ml_dtypes.bfloat16),
    "F8_E4M3": ("fp8", ml_dtypes.float8_e4m3fn),
    "F8_E5M2": ("fp8_e5m2", ml_dtypes.float8_e5m2),
    "I8": ("int8", np.int8),
}
_NAMES = {np.dtype(number): name for name, number in _FILE_TYPES.values()}

_LONGEST = 80  # characters of a name that are repeated in a message
_LENGTH = 8  # bytes of the length of a safetensors header
_HEADER = 100_000_000  # bytes of such a header; the library's own limit
_PICKLES = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))
_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_CONVERT = (
    "reading a pickle runs code that a file brings, so it is not read. Where you trust the file, "
    "convert it: safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW); of npz, "
    "save each array as npy"
)


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class _Entry:
    """A tensor as a safetensors header has it."""

    dtype: str
    shape: tuple[pydantic.NonNegativeInt, ...]
    data_offsets: tuple[pydantic.NonNegativeInt, pydantic.NonNegativeInt]


_ENTRIES = pydantic.TypeAdapter(dict[str, _Entry | dict[str, str]])


def open_matrix(path: Path, name: str | None = None) -> Matrix:
    """A matrix of a safetensors or npy file, mapped: nothing is read before it is looked at.

    While it is in use the file must not be made shorter: the system ends a process that reads a
    mapped page that is gone. Replacing the file by another one of the same name is fine.

    Args:
        path: Of the file.
        name: Of the tensor; None: the only matrix that there is.

    Raises:
        InputError: the file, or the tensor, is none.
    """
    if not path.is_file():
        raise _fault(path, "there is no such file", fix="name a .safetensors or .npy file")
    with InputError.instead_of(OSError, f"{_printable(str(path))} cannot be read"):
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(b"\x93NUMPY"):
            if name is not None:
                raise _fault(
                    path, f"it has no tensor {shown(name)}", fix="an npy file has one array"
                )
            try:
                found: Matrix = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
            except Exception as error:  # the header is parsed as Python: whatever that raises
                raise _fault(
                    path, f"numpy cannot map it: {shown(str(error).partition(chr(10))[0])}"
                ) from error
            _check_matrix(path, name, str(found.dtype), found.dtype in _NAMES, found.shape)
            return found
        if start[_LENGTH : _LENGTH + 1] == b"{":
            return _safetensors_matrix(path, name)
    if start.startswith(b"version https://git-lfs"):
        raise _fault(path, "it is a pointer of Git LFS, not the file", fix="git lfs pull")
    if start.startswith(_PICKLES) or path.suffix.lower() in _PICKLE_SUFFIXES:
        raise _fault(path, "it is a pickle, or an archive of some", fix=_CONVERT)
    raise _fault(
        path, "it is neither safetensors nor npy, or cut off", fix="convert it, or copy it"
    )


def _safetensors_matrix(path: Path, name: str | None) -> Matrix:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = _LENGTH + int.from_bytes(file.read(_LENGTH), "little")
        if start > min(_LENGTH + _HEADER, size):
            raise _fault(
                path,
                f"the header is said to end at byte {_count(start)}, and the file has {size}; "
                f"{_HEADER} bytes are the most",
            )
        text = file.read(start - _LENGTH)
    try:
        entries = _ENTRIES.validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = shown(".".join(map(str, first["loc"])))
        raise _fault(path, f"the header is not JSON of tensors: {where} {first['msg']}") from error
    tensors = {key: entry for key, entry in entries.items() if isinstance(entry, _Entry)}
    if name is None:
        of = {k for k, e in tensors.items() if len(e.shape) == 2 and e.dtype in _FILE_TYPES}
        (name,) = of if len(of) == 1 else tensors if len(tensors) == 1 else (None,)
    if name not in tensors:
        names = [shown(each) for each in tensors]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        what = "it has not one matrix" if name is None else f"it has no tensor {shown(name)}"
        raise _fault(path, what, fix=f"name one: {', '.join(names[:5]) or 'there are none'}{more}")
    entry = tensors[name]
    _check_matrix(path, name, entry.dtype, entry.dtype in _FILE_TYPES, entry.shape)
    number = _FILE_TYPES[entry.dtype][1]
    begin, end = entry.data_offsets
    if end - begin != math.prod(entry.shape) * np.dtype(number).itemsize or start + end > size:
        sides = shown("x".join(map(_count, entry.shape)))
        raise _fault(
            path,
            f"{entry.dtype} of shape {sides} is not bytes {_count(begin)} to {_count(end)} of "
            f"{size - start}",
            tensor=name,
        )
    return np.asarray(np.memmap(path, number, "r", start + begin, entry.shape))


def _check_matrix(
    path: Path, name: str | None, dtype: str, is_number: bool, shape: tuple[int, ...]
) -> None:
    faults = {
        f"it is {len(shape)}-D, and a matrix is 2-D": len(shape) != 2,
        "it has no elements": 0 in shape,
        f"numbers are {shown(dtype)}, which no matrix product here computes with": not is_number,
    }
    if why := next((why for why, is_so in faults.items() if is_so), ""):
        raise _fault(
            path,
            f"it is no operand of a product: {why}",
            tensor=name,
            fix="name a matrix of bf16, fp16, fp8, int8, fp32 or fp64; npy has no bf16 and fp8",
        )


def _sha256(matrix: Matrix) -> str:
    """Hash of type, shape and bytes of a matrix, which are all read."""
    by_columns = matrix.flags.f_contiguous and not matrix.flags.c_contiguous
    found = hashlib.sha256(f"{_NAMES[matrix.dtype]} {matrix.shape} {by_columns}\n".encode())
    data: Any = matrix.ravel(order="K").view(np.uint8)
    found.update(data)
    return found.hexdigest()


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def shown(name: str) -> str:
    """A name from a file as one short line of printable characters."""
    text = _printable(name)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


STORAGE: dict[str, tuple[Any, Any]] = {
    "fp32": (np.float32, np.uint32),
    "tf32": (np.float32, np.uint32),
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "fp16": (np.float16, np.uint16),
    "fp8": (ml_dtypes.float8_e4m3fn, np.uint8),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, np.uint8),
    "int8": (np.int8, np.uint8),
}
"""The numpy type of a type of the GPU, and the unsigned integers of its bits.

fp8_e5m2 is found in files; products here compute in e4m3, `DTYPES`.
"""


def cast(values: NDArray[np.float32], dtype: str) -> tuple[Matrix, int]:
    """Values rounded to the nearest of a type, and how many became an end of the range of int8.

    What is too large for another type becomes infinite, in e4m3 NaN.
    """
    if dtype == "int8":
        rounded = np.rint(np.nan_to_num(values))
        saturated = int(((rounded < -128) | (rounded > 127)).sum())
        return np.clip(rounded, -128, 127).astype(np.int8), saturated
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(STORAGE[dtype][0]), 0


def _flip(random: np.random.Generator, bits: Matrix, of: int, n: float) -> Matrix:
    """Different bits of each element: Knuth, volume 2, section 3.4.2, algorithm S."""
    flipped = bits.copy()
    left = np.full(bits.shape, int(n), dtype=np.int8)
    for i in range(of):
        chosen = random.random(bits.shape, dtype=np.float32) * (of - i) < left
        flipped ^= chosen.astype(bits.dtype) << bits.dtype.type(i)
        left -= chosen
    return flipped


def _randomize(random: np.random.Generator, bits: Matrix, of: int, end: str, n: float) -> Matrix:
    mask = _mask(bits, of, end, n)
    return (bits & ~mask) | (random.integers(0, 1 << of, bits.shape, dtype=bits.dtype) & mask)


def _clear(_: np.random.Generator, bits: Matrix, of: int, end: str, n: float) -> Matrix:
    return bits & ~_mask(bits, of, end, n)


def _mask(bits: Matrix, of: int, end: str, n: float) -> Any:
    low = (1 << int(n)) - 1
    return bits.dtype.type(low if end == "low" else low << (of - int(n)))


_CHANGES: dict[str, Callable[..., Matrix]] = {
    "flip": _flip,
    "randomize": _randomize,
    "clear": _clear,
}

_Shape: TypeAlias = tuple[int, int]


def _normal(random: np.random.Generator, shape: _Shape, mean: float, sd: float) -> Float32s:
    drawn = random.standard_normal(shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        return drawn * np.float32(sd) + np.float32(mean)


def _uniform(random: np.random.Generator, shape: _Shape, low: float, high: float) -> Float32s:
    return (low + random.random(shape, dtype=np.float32) * (high - low)).astype(np.float32)


def _unique(
    random: np.random.Generator, shape: _Shape, n: float, mean: float, sd: float
) -> Float32s:
    return _normal(random, (1, int(n)), mean, sd)[0][random.integers(0, int(n), shape)]


def _constant(_: np.random.Generator, shape: _Shape, value: float) -> Float32s:
    return np.full(shape, value, dtype=np.float32)


def _sort(_: np.random.Generator, values: Float32s, order: str, fraction: float) -> Float32s:
    """The lowest part of all values comes first, in order; the others keep theirs."""
    if order == "columns":
        return _sort(_, values.T, "rows", fraction).T
    lines = values if order == "within-rows" else values.reshape(1, -1)
    count = int(fraction * lines.shape[1])
    ranks = np.argsort(lines, axis=1, kind="stable")
    taken = np.concatenate([ranks[:, :count], np.sort(ranks[:, count:], axis=1)], axis=1)
    return np.take_along_axis(lines, taken, axis=1).reshape(values.shape)


def _spoil(random: np.random.Generator, values: Float32s, to: str, fraction: float) -> Float32s:
    return _replaced(random, values, fraction, float(to))


def _replaced(
    random: np.random.Generator, values: Float32s, fraction: float, value: float
) -> Float32s:
    chosen = random.permutation(values.size)[: round(fraction * values.size)]
    flat = values.ravel().copy()
    flat[chosen] = value
    return flat.reshape(values.shape)


def _prune(_: np.random.Generator, values: Float32s, ratio: str) -> Float32s:
    """In each group of m along a row all but the n largest become 0, as for sparse tensor cores."""
    kept, of = map(int, ratio.split(":"))
    groups = values.reshape(-1, of)
    smallest = np.argsort(np.abs(groups), axis=1, kind="stable")[:, : of - kept]
    pruned = groups.copy()
    np.put_along_axis(pruned, smallest, np.float32(0), axis=1)
    return pruned.reshape(values.shape)


def _permute(_: np.random.Generator, values: Float32s, lines: str, key: float) -> Float32s:
    return np.random.default_rng(int(key)).permutation(values, axis=0 if lines == "rows" else 1)


def _scale(_: np.random.Generator, values: Float32s, factor: float) -> Float32s:
    with np.errstate(over="ignore", invalid="ignore"):
        return values * np.float32(factor)


def _shift(_: np.random.Generator, values: Float32s, by: float) -> Float32s:
    with np.errstate(over="ignore"):
        return values + np.float32(by)


# By name: (random, shape, arguments) -> values.
_SOURCES: dict[str, Callable[..., Float32s]] = {
    "normal": _normal,
    "uniform": _uniform,
    "unique": _unique,
    "constant": _constant,
    "zeros": functools.partial(_constant, value=0.0),
    "ones": functools.partial(_constant, value=1.0),
}

# By name: (random, values, arguments) -> values.
_ARRANGED: dict[str, Callable[..., Float32s]] = {
    "sort": _sort,
    "sparse": functools.partial(_replaced, value=0.0),
    "spoil": _spoil,
    "prune": _prune,
    "scale": _scale,
    "shift": _shift,
    "permute": _permute,
}

BYTES_LIMIT = 1 << 31  # of a tensor that fills a matrix: all of it is hashed

FILE = "file"


def pinned(pair: OperandPair) -> OperandPair:
    """The same operands, each file with the hash of its content, so that their text is a key."""

    @functools.cache  # both operands may name one file
    def hashed(source: Call) -> Call:
        if source.name != FILE:
            return source
        sha256 = _sha256(_matrix(source))
        _check_hash(source, sha256)
        return _with_hash(source, sha256)

    a, b = (replace(operand, source=hashed(operand.source)) for operand in (pair.a, pair.b))
    return replace(pair, a=a, b=b)


def _from_file(source: Call, shape: _Shape) -> Float32s:
    """The first rows and columns of a tensor, as float32; float64 is rounded.

    Raises:
        InputError: as `pinned`; the text has no hash, or the matrix is smaller than `shape`.
    """
    matrix = _matrix(source)
    sha256 = _sha256(matrix)
    if source.named("sha256") is None:
        raise InputError(
            f"{source} does not say which content it means",
            why="a result must be of the numbers that were measured, whatever the file becomes",
            fix=f"write {_with_hash(source, sha256)}",
        )
    _check_hash(source, sha256)
    if matrix.shape[0] < shape[0] or matrix.shape[1] < shape[1]:
        raise InputError(
            f"{source} has {matrix.shape[0]} by {matrix.shape[1]} elements, "
            f"and {shape[0]} by {shape[1]} are needed",
            fix="ask for a smaller product; of a larger matrix the first rows and columns are used",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return matrix[: shape[0], : shape[1]].astype(np.float32)


def _matrix(source: Call) -> Matrix:
    found = open_matrix(Path(source.values[0]), source.named("tensor"))
    if found.nbytes > BYTES_LIMIT:
        raise InputError(
            f"{source} has {found.nbytes} bytes", fix=f"use a tensor of {BYTES_LIMIT} bytes at most"
        )
    return found


def _check_hash(source: Call, sha256: str) -> None:
    if (given := source.named("sha256")) not in (None, sha256):
        raise InputError(
            f"{shown(source.values[0])} is not what it was: sha256 is {sha256}, not {given}",
            fix="put the old content back, or leave sha256 out and measure the new one",
        )


def _with_hash(source: Call, sha256: str) -> Call:
    others = [a for a in source.arguments if not a.startswith("sha256=")]
    return Call(source.name, (*others, f'sha256="{sha256}"'))


# Of one matrix: 1 GiB of float32.
_ELEMENTS_LIMIT = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A matrix, and what its type could not hold.

    Attributes:
        matrix: In the numpy type of its type; `tf32` as float32.
        saturated: Values that were beyond the range of int8, and became its ends.
    """

    matrix: Matrix
    non_finite: int
    saturated: int


def fill_pair(pair: OperandPair, shape: tuple[int, int, int], dtype: str) -> tuple[Filled, Filled]:
    """Both matrices of a product of `shape` (m, n, k): A is m by k, B is k by n."""
    m, n, k = shape
    a = fill(pair.a, (m, k), dtype, seed=pair.seed, side="a")
    b = fill(pair.b, (n, k) if pair.aligned else (k, n), dtype, seed=pair.seed, side="b")
    return a, replace(b, matrix=b.matrix.T) if pair.aligned else b


def fill(
    operand: Operand, shape: _Shape, dtype: str, *, seed: int, side: Literal["a", "b"]
) -> Filled:
    """One matrix. Its first values stay the same whatever operations follow."""
    _check(operand, shape, dtype)
    calls = [call for call in operand.operations if call.name != "cast"]
    seeds = np.random.SeedSequence([seed, zlib.crc32(side.encode())]).spawn(len(calls) + 1)
    first, *others = map(np.random.default_rng, seeds)
    steps = list(zip(calls, others, strict=True))
    matrix, saturated = _numbers(operand.source, shape, dtype, first, steps)
    for call, random in steps:
        if WORDS[call.name].stage == "bit":
            bits = np.ascontiguousarray(matrix).view(STORAGE[dtype][1])
            changed = _CHANGES[call.name](random, bits, WIDTHS[dtype], *call.values)
            matrix = changed.view(STORAGE[dtype][0])
    with np.errstate(invalid="ignore"):  # of signalling NaN
        non_finite = matrix.size - int(np.isfinite(matrix).sum())
    return Filled(matrix, non_finite, saturated)


def _numbers(
    source: Call,
    shape: _Shape,
    dtype: str,
    first: np.random.Generator,
    steps: list[tuple[Call, np.random.Generator]],
) -> tuple[Matrix, int]:
    """The matrix as it is cast, and how many values its type could not hold."""
    if source.name == "random_bits":
        # Every pattern of bits as often as any other, NaN and infinity among them.
        number, unsigned = STORAGE[dtype]
        size = shape[0] * shape[1] * np.dtype(unsigned).itemsize
        return np.frombuffer(first.bytes(size), dtype=number).reshape(shape), 0
    if source.name == FILE:
        values = _from_file(source, shape)
    else:
        values = _SOURCES[source.name](first, shape, *source.values)
    for call, random in steps:
        if call.name in _ARRANGED:
            values = _ARRANGED[call.name](random, values, *call.values)
    return cast(values, dtype)


def _check(operand: Operand, shape: _Shape, dtype: str) -> None:
    rows, columns = shape
    if min(shape) < 1 or rows * columns > _ELEMENTS_LIMIT:
        raise InputError(
            f"a matrix of {rows} by {columns} elements",
            fix=f"each side is 1 at least, and a matrix has {_ELEMENTS_LIMIT} elements at most",
        )
    if operand.dtype not in (None, dtype):
        raise InputError(
            f"{operand} is cast to {operand.dtype}, and the product computes in {dtype}",
            fix="name the same type in both places, or leave the cast out",
        )
    for call in operand.operations:
        if WORDS[call.name].stage == "bit" and call.values[-1] > WIDTHS[dtype]:
            raise InputError(
                f"{call} changes more bits than {dtype} has", fix=f"it has {WIDTHS[dtype]}"
            )
        if call.name == "prune":
            of = int(call.arguments[0].partition(":")[2])
            if columns % of:
                raise InputError(
                    f"{call} needs groups of {of}, and a row has {columns} elements",
                    fix=f"use a multiple of {of}",
                )


_STRETCH = 512  # neighbouring elements of a line, along the contraction
_ELEMENTS = 1 << 18  # of each operand that are looked at, each with the one beside it
# Bits behind the leading one.
_SIGNIFICANDS = {"fp32": 23, "tf32": 10, "bf16": 7, "fp16": 10, "fp8": 3, "fp8_e5m2": 2}

_DROPPED = {"tf32": 13}  # lowest bits of the stored number that the tensor core does not see


@dataclass(frozen=True, slots=True, kw_only=True)
class _OperandPrint:
    """One matrix, in parts from 0 to 1.

    Attributes:
        weight: Bits that are set.
        along: Bits that differ between neighbours along the contraction.
        across: Bits that differ between neighbours of two lines.
        signs: Neighbours along the contraction of which one is negative and the other is not.
        zeros: Elements that are 0.
        distinct: Different values, of 32,768 elements or of all that there are.
    """

    weight: float
    along: float
    across: float
    signs: float
    zeros: float
    distinct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A product, in parts from 0 to 1.

    Attributes:
        product_weight: Bits that are set in products of significands; of int8 in products.
        product_switching: Bits of them that differ from one step of the contraction to the next.
        product_signs: Products of which the next one has the other sign; 0 is positive.
        zero_products: Products that are 0.
        sum_switching: Bits of the running sum, float32 or of int8 int32, that differ from step to
            step.
        sum_non_finite: Steps after which the sum is NaN or infinite.
    """

    a: _OperandPrint
    b: _OperandPrint
    product_weight: float
    product_switching: float
    product_signs: float
    zero_products: float
    sum_switching: float
    sum_non_finite: float


@np.errstate(invalid="ignore", over="ignore")  # NaN among the data is no fault of this
def fingerprint(a: Matrix, b: Matrix, dtype: str, *, seed: int = 0) -> Fingerprint:
    """The fingerprint of a product.

    Args:
        a: m by k, in the numpy type of `dtype`.
        b: k by n.
        dtype: Of both, a key of `STORAGE`.
        seed: Of the sample.
    """
    random = np.random.default_rng(seed)
    starts = _starts(a.shape[1], random)
    lines_a, beside_a = _sample(a, starts, dtype, random)
    lines_b, beside_b = _sample(b.T, starts, dtype, random)
    count = min(len(lines_a), len(lines_b))
    x, y = lines_a[:count], lines_b[:count]
    products, product_bits = _products(x, y, dtype)
    zero = np.logical_or(x == 0, y == 0)
    sums = _sums(x, y, dtype)
    return Fingerprint(
        a=_operand_print(lines_a, beside_a, dtype),
        b=_operand_print(lines_b, beside_b, dtype),
        product_weight=_set_bits(products, product_bits),
        product_switching=_set_bits(products[:, 1:] ^ products[:, :-1], product_bits),
        product_signs=_switching_signs((_negative(x) ^ _negative(y)) & ~zero),
        zero_products=_part(zero),
        sum_switching=_set_bits(sums.view(np.uint32)[:, 1:] ^ sums.view(np.uint32)[:, :-1], 32),
        sum_non_finite=_part(~np.isfinite(sums)),
    )


def _starts(steps: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Where each stretch begins along the contraction, for lines of both operands alike."""
    if steps <= _STRETCH:
        return np.zeros(_ELEMENTS // steps, np.int64)
    return random.permutation(_spread(_ELEMENTS // _STRETCH, steps, random))


def _spread(count: int, end: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers below `end`, one in each of `count` equal parts, at random within it.

    Data is often alike in whole blocks of rows or columns; so no block is missed by bad luck.
    """
    return ((np.arange(count) + random.random(count)) * (end / count)).astype(np.int64) % end


def _sample(
    lines: Matrix, starts: NDArray[np.int64], dtype: str, random: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Stretches of lines, and of the line behind each; behind the last comes the first.

    Of what is small enough every line is taken once.
    """
    count, steps = lines.shape
    few = steps <= _STRETCH and count <= len(starts)
    lots = np.arange(count, dtype=np.int64) if few else _spread(len(starts), count, random)
    chosen = random.permutation(lots)
    places = (starts[: len(chosen), None] + np.arange(min(_STRETCH, steps))) % steps
    number, unsigned = STORAGE[dtype]
    # Numbers of a file need not begin at a multiple of their size: bits are copied, then numbers.
    bits: Matrix = lines.view(unsigned)
    beside = (chosen + 1) % count
    return bits[chosen[:, None], places].view(number), bits[beside[:, None], places].view(number)


def product_fingerprint(
    pair: OperandPair, shape: tuple[int, int, int], dtype: str
) -> InputFingerprint:
    """What the matrices of a product of `shape` (m, n, k) hold, by operands that are pinned."""
    if dtype not in DTYPES:
        raise InputError(
            f"products do not compute in {dtype}", fix=f"there are {', '.join(DTYPES)}"
        )
    a, b = fill_pair(pair, shape, dtype)
    found = fingerprint(a.matrix, b.matrix, dtype)
    return InputFingerprint(dtype=dtype, operands=str(pair), features=features_of(found))


def features_of(fingerprint: Fingerprint) -> dict[str, float]:
    """A fingerprint as a model takes it: numbers of operands with their letter."""
    whole = asdict(fingerprint)
    return {f"{side}_{name}": n for side in "ab" for name, n in whole.pop(side).items()} | whole


def _count(number: int) -> str:
    return str(number) if abs(number) < 1 << 64 else "more than 2^64"


def _fault(path: Path, what: str, *, tensor: str | None = None, fix: str = "") -> InputError:
    place = _printable(str(path)) + (f", tensor {shown(tensor)}" if tensor else "")
    return InputError(
        f"{place}: {what}", fix=fix or "the file is damaged or cut off: copy or write it again"
    )


def _operand_print(lines: Matrix, beside: Matrix, dtype: str) -> _OperandPrint:
    bits, others = _stored_bits(lines, dtype), _stored_bits(beside, dtype)
    width = 8 * bits.dtype.itemsize - _DROPPED.get(dtype, 0)
    counted = bits.ravel()[: 1 << 15]  # counting takes the longest
    return _OperandPrint(
        weight=_set_bits(bits, width),
        along=_set_bits(bits[:, 1:] ^ bits[:, :-1], width),
        across=_set_bits(bits ^ others, width),
        signs=_switching_signs(_negative(lines)),
        zeros=_part(lines == 0),
        distinct=len(np.unique(counted)) / counted.size,
    )


def _negative(lines: Matrix) -> NDArray[np.bool_]:
    """By the highest bit, which NaN and -0 have as well."""
    bits = lines.view(f"u{lines.dtype.itemsize}")
    return (bits >> (8 * bits.dtype.itemsize - 1)).astype(np.bool_)


def _switching_signs(negative: NDArray[np.bool_]) -> float:
    return _part(negative[:, 1:] ^ negative[:, :-1])


def _stored_bits(lines: Matrix, dtype: str) -> Matrix:
    bits: Matrix = lines.view(STORAGE[dtype][1])
    return bits >> bits.dtype.type(_DROPPED.get(dtype, 0))


def _products(x: Matrix, y: Matrix, dtype: str) -> tuple[NDArray[np.uint64], int]:
    """Products of significands, of int8 the 16 bits of the product; and their number of bits."""
    if dtype == "int8":
        return (x.astype(np.int16) * y.astype(np.int16)).view(np.uint16).astype(np.uint64), 16
    return _significands(x, dtype) * _significands(y, dtype), 2 * (_SIGNIFICANDS[dtype] + 1)


def _significands(values: Matrix, dtype: str) -> NDArray[np.uint64]:
    """With the leading one, which numbers next to 0 and 0 itself do not have."""
    kept = _SIGNIFICANDS[dtype]
    bits = _stored_bits(values, dtype).astype(np.uint64)
    low = bits & np.uint64((1 << kept) - 1)
    exponents = 8 * values.dtype.itemsize - _DROPPED.get(dtype, 0) - 1 - kept
    exponent = (bits >> np.uint64(kept)) & np.uint64((1 << exponents) - 1)
    return np.where(exponent > 0, low | np.uint64(1 << kept), low)


def _sums(x: Matrix, y: Matrix, dtype: str) -> NDArray[Any]:
    """The running sum of each pair of lines, as a tensor core accumulates it."""
    if dtype == "int8":
        return np.cumsum(x.astype(np.int32) * y.astype(np.int32), axis=1, dtype=np.int32)
    products = x.astype(np.float32) * y.astype(np.float32)
    # The sum begins at 0, which -0 does not change.
    return np.cumsum(products, axis=1, dtype=np.float32) + np.float32(0)


def _part(holds: Any) -> float:
    return int(np.count_nonzero(holds)) / max(holds.size, 1)


def _set_bits(bits: NDArray[Any], width: int) -> float:
    return float(np.mean(np.bitwise_count(bits))) / width if bits.size else 0.0
