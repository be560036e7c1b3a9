"""Matrices of types of the GPU: where they come from, and what decides their product's power.

They are filled as the input language says, or lie in safetensors and npy files, which are mapped
into memory; a pickle is never read. What a header says has to fit the file:
https://numpy.org/neps/nep-0001-npy-format.html and https://github.com/huggingface/safetensors
(README, "Format"). The library of safetensors does not say where a file is broken, and its numpy
flavour has no bfloat16.

Power of a product follows the bits that change from one step to the next in operands, in the
products of significands and in the running sum (Gregersen et al., "Input-Dependent Power Usage in
GPUs" (2024), section V, names Hamming weight and alignment of bits). Signs count by themselves: to
add a negative product all of its bits are inverted. All are means over a sample, as a part of the
bits that there are, so that they compare between types.
"""

import functools
import hashlib
import io
import math
import mmap
import stat
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import pydantic
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor.predict.features import Float32s
from advisor.wire.power import InputFingerprint
from advisor_power.data.language import DTYPES, WIDTHS, WORDS, Call, Operand, OperandPair

Matrix: TypeAlias = NDArray[Any]

_NOT_COMPUTED = {
    "BOOL": ("bool", 8), "C64": ("complex64", 64), "F4": ("fp4", 4), "F6_E2M3": ("fp6_e2m3", 6),
    "F6_E3M2": ("fp6_e3m2", 6), "F8_E4M3FNUZ": ("fp8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("fp8_e5m2fnuz", 8), "F8_E8M0": ("fp8_e8m0", 8), "I16": ("int16", 16),
    "I32": ("int32", 32), "I64": ("int64", 64), "U8": ("uint8", 8), "U16": ("uint16", 16),
    "U32": ("uint32", 32), "U64": ("uint64", 64),
}  # fmt: skip
TYPES: MappingProxyType[str, tuple[str, int, Any]] = MappingProxyType(
    {
        "F64": ("fp64", 64, np.float64),
        "F32": ("fp32", 32, np.float32),
        "F16": ("fp16", 16, np.float16),
        "BF16": ("bf16", 16, ml_dtypes.bfloat16),
        "F8_E4M3": ("fp8", 8, ml_dtypes.float8_e4m3fn),
        "F8_E5M2": ("fp8_e5m2", 8, ml_dtypes.float8_e5m2),
        "I8": ("int8", 8, np.int8),
        **{name: (*of, None) for name, of in _NOT_COMPUTED.items()},
    }
)
"""Name here, bits, and numpy type (None: no product computes with it), by safetensors' name."""

_LONGEST = 80  # characters of a name that are repeated in a message
_BLOCK = 1 << 24  # bytes that are hashed at once
_NPY = b"\x93NUMPY"
_NPY_HEADER = 10_000  # bytes; numpy's own limit: longer ones may exhaust its parser
_LENGTH = 8  # bytes of the length of a safetensors header
_HEADER = 100_000_000  # bytes of such a header; the library's own limit
_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_CONVERT = (
    "reading a pickle runs code that the file brings, so it is not read. Where you trust the file, "
    "convert it: safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor's place in its file.

    Attributes:
        name: Empty in an npy file.
        type_name: A key of `TYPES`, or what the file says where that is none.
        begin: Its first byte in the file.
        end: The byte behind its last one.
        by_columns: Its first index runs fastest, as in Fortran.
    """

    name: str
    type_name: str
    shape: tuple[int, ...]
    begin: int
    end: int
    by_columns: bool = False

    @property
    def dtype(self) -> str:
        """Its type as the project calls it, or as the file does."""
        return TYPES[self.type_name][0] if self.type_name in TYPES else self.type_name

    @property
    def no_matrix(self) -> str:
        """Why it cannot be an operand; empty: it can."""
        if len(self.shape) != 2:
            return f"{len(self.shape)}-D, and a matrix is 2-D"
        if 0 in self.shape:
            return "it has no elements"
        if self.type_name not in TYPES or TYPES[self.type_name][2] is None:
            return f"numbers are {shown(self.dtype)}, which no matrix product here computes with"
        return ""

    def fits(self) -> bool:
        """Whether it has as many bytes as its type and shape take; True of an unknown type."""
        if self.type_name not in TYPES:
            return True
        bits = math.prod(self.shape) * TYPES[self.type_name][1]
        return -(-bits // 8) == self.end - self.begin


@dataclass(frozen=True, slots=True, eq=False)
class TensorFile:
    """A file whose header fits its length; `tensors` are in the order of their bytes.

    While it is in use the file must not be made shorter: the system ends a process that reads a
    mapped page that is gone. Replacing the file by another one of the same name is fine.
    """

    path: Path
    tensors: tuple[Tensor, ...]
    mapped: mmap.mmap

    def tensor(self, name: str | None = None) -> Tensor:
        """The tensor of a name; None: the only matrix that there is."""
        matrices = [tensor for tensor in self.tensors if not tensor.no_matrix]
        named = [tensor for tensor in self.tensors if tensor.name == name]
        if name is None and (len(matrices) == 1 or len(self.tensors) == 1):
            return (matrices or list(self.tensors))[0]
        if named:
            return named[0]
        names = [shown(tensor.name) for tensor in self.tensors if tensor.name]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        there = (", ".join(names[:5]) or "no names") + more
        if name is None:
            what = f"it has {len(matrices)} matrices"
            raise _fault(str(self.path), what, fix=f"name one: {there}")
        raise _fault(str(self.path), f"it has no tensor {shown(name)}", fix=f"it has {there}")

    def matrix(self, tensor: Tensor) -> Matrix:
        """The numbers of a tensor, (rows, columns); nothing is read before they are looked at."""
        if why := tensor.no_matrix:
            raise _fault(
                str(self.path),
                f"it is no operand of a product: {why}",
                tensor=tensor.name,
                byte=tensor.begin,
                fix="name a matrix of bf16, fp16, fp8, int8, fp32 or fp64",
            )
        number = np.dtype(TYPES[tensor.type_name][2])
        flat: Matrix = np.frombuffer(self.mapped, number, math.prod(tensor.shape), tensor.begin)
        return flat.reshape(tensor.shape, order="F" if tensor.by_columns else "C")

    def sha256(self, tensor: Tensor) -> str:
        """Hash of type, shape and bytes of a tensor, which are all read."""
        self.mapped.madvise(mmap.MADV_SEQUENTIAL)
        digest = hashlib.sha256(f"{tensor.dtype} {tensor.shape} {tensor.by_columns}\n".encode())
        for begin in range(tensor.begin, tensor.end, _BLOCK):
            digest.update(self.mapped[begin : min(begin + _BLOCK, tensor.end)])
        return digest.hexdigest()


def open_tensors(path: Path) -> TensorFile:
    """The tensors of a safetensors or npy file, mapped: only what is looked at is read."""
    name = str(path)
    try:
        # Opening a pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _fault(name, "it is no regular file", fix="name a .safetensors or .npy file")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise _fault(name, "the file is empty", byte=0)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(name)} cannot be read", why=str(error)) from error
    mapped.madvise(mmap.MADV_RANDOM)  # a sample must not read what lies around it
    is_npy = mapped[: len(_NPY)] == _NPY
    if not is_npy and mapped[8:9] != b"{":
        suffix, start = path.suffix.lower(), mapped[:64]
        _refuse(
            name,
            (
                start.startswith(b"PK\x03\x04"),
                "it is an archive, of PyTorch (a pickle) or npz",
                f"of npz save each array as npy. Of PyTorch: {_CONVERT}",
            ),
            (suffix in _PICKLE_SUFFIXES or start[:2] in _PICKLES, "it is a pickle", _CONVERT),
            (
                start.startswith(b"version https://git-lfs"),
                "it is a pointer of Git LFS, not the file",
                "git lfs pull",
            ),
            (
                suffix == ".json",
                "it is JSON, not tensors",
                "name a .safetensors file that it lists",
            ),
            (
                suffix not in (".safetensors", ".npy"),
                "it is neither safetensors nor npy",
                "convert it to one of both",
            ),
        )
    # The view is let go of, so that nothing but arrays keeps the file mapped.
    with memoryview(mapped) as data:
        return TensorFile(path, (npy_in if is_npy else safetensors_in)(name, data), mapped)


def npy_in(file: str, data: memoryview) -> tuple[Tensor, ...]:
    """The array of an npy file."""
    head, byte = io.BytesIO(bytes(data[: _NPY_HEADER + 12])), len(_NPY)
    try:
        version = np.lib.format.read_magic(head)
        # Version 3 has names of fields beyond Latin-1, and fields are refused anyway.
        if version not in ((1, 0), (2, 0)):
            fix = "save plain numbers: numpy.save writes version 1 or 2"
            raise _fault(file, f"npy of version {version[0]}", byte=byte, fix=fix)
        read: Any = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        with warnings.catch_warnings(action="ignore"):  # of what Python 2 wrote
            shape, by_columns, dtype = read(head, max_header_size=_NPY_HEADER)
    except InputError:
        raise
    except Exception as error:  # the header is parsed as Python: whatever that raises
        why = shown(str(error).partition("\n")[0])
        raise _fault(file, f"numpy cannot read the header: {why}", byte=byte) from error
    if not all(type(side) is int and side >= 0 for side in shape):
        raise _fault(file, "its shape is not whole numbers from 0", byte=byte)
    begin = head.tell()
    kind, end = _npy_type(file, dtype), len(data)
    tensor = Tensor(
        name="", type_name=kind, shape=shape, begin=begin, end=end, by_columns=by_columns
    )
    if math.prod(shape) * dtype.itemsize != len(data) - begin:
        needed = _count(math.prod(shape) * dtype.itemsize)
        what = f"{tensor.type_name} of shape {shape_text(shape)} takes {needed} bytes"
        raise _fault(file, f"{what}, and {len(data) - begin} follow", byte=begin)
    return (tensor,)


def _npy_type(file: str, dtype: np.dtype[Any]) -> str:
    _refuse(
        file,
        (
            dtype.hasobject,
            "it is a pickle: an array of Python objects",
            "reading a pickle runs code that the file brings, so it is not read. Save numbers: "
            "numpy.save(file, a.astype('float32'), allow_pickle=False)",
        ),
        (
            dtype.names is not None or dtype.subdtype is not None,
            "its elements have fields",
            "save one field: numpy.save(file, a['x'])",
        ),
        (
            dtype.str[0] == ">",
            f"its numbers are {dtype.str}, most significant byte first",
            "write it as little-endian, as GPUs have it: a.astype(a.dtype.newbyteorder('<'))",
        ),
        (
            dtype.str[1:] in ("V1", "V2"),
            f"its numbers are {dtype.str}, which npy writes for types it does not know",
            "write bf16 and fp8 as safetensors",
        ),
    )
    if dtype.kind == "b":
        return "BOOL"
    return f"{dtype.kind.upper()}{8 * dtype.itemsize}" if dtype.kind in "fiuc" else dtype.str


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class _Entry:
    """A tensor as a safetensors header has it."""

    dtype: str
    shape: tuple[pydantic.NonNegativeInt, ...]
    data_offsets: tuple[pydantic.NonNegativeInt, pydantic.NonNegativeInt]


_ENTRIES = pydantic.TypeAdapter(dict[str, _Entry | dict[str, str]])


def safetensors_in(file: str, data: memoryview) -> tuple[Tensor, ...]:
    """The tensors of a safetensors file, in the order of their bytes; an error names the byte."""
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or length > min(_HEADER, len(data) - _LENGTH):
        what = f"the header is said to have {length} bytes, and the file has {len(data)}"
        raise _fault(file, f"{what}; {_HEADER} are the most", byte=0)
    start = _LENGTH + length
    try:
        entries = _ENTRIES.validate_json(bytes(data[_LENGTH:start]), strict=True)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, *place = map(str, first["loc"] or ("",))
        where = shown(".".join(place))
        what = f"the header is not JSON of tensors: {where} {first['msg']}"
        raise _fault(file, what, tensor=name, byte=_LENGTH) from error
    tensors: list[Tensor] = []
    for name, entry in entries.items():
        if not isinstance(entry, _Entry):
            if name == "__metadata__":
                continue
            what = "it has not exactly dtype, shape and data_offsets"
            raise _fault(file, what, tensor=name or '""', byte=_LENGTH)
        begin, end = (start + offset for offset in entry.data_offsets)
        tensor = Tensor(name=name, type_name=entry.dtype, shape=entry.shape, begin=begin, end=end)
        if begin > end or not tensor.fits():
            kind = f"{shown(entry.dtype)} of shape {shape_text(entry.shape)}"
            span = f"{_count(end - begin)} bytes that its data_offsets span"
            what = f"{kind} does not take the {span}"
            raise _fault(file, what, tensor=name or '""', byte=_LENGTH)
        tensors.append(tensor)
    ordered = sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end))
    # Each tensor begins where the one before ends, and the last one ends with the file.
    first, behind = (
        Tensor(name="", type_name="", shape=(), begin=at, end=at) for at in (start, len(data))
    )
    for last, tensor in pairwise([first, *ordered, behind]):
        if tensor.end > len(data):
            what = f"it ends at byte {_count(tensor.end)}, the file at {len(data)}"
            at = min(tensor.begin, len(data))
            raise _fault(file, what, tensor=tensor.name, byte=at)
        if tensor.begin < last.end:
            what = f"it overlaps with tensor {shown(last.name)}, which ends at byte {last.end}"
            raise _fault(file, what, tensor=tensor.name, byte=tensor.begin)
        if tensor.begin > last.end:
            what = f"bytes up to {_count(tensor.begin)} belong to no tensor"
            raise _fault(file, what, byte=last.end)
    return tuple(ordered)


def shown(name: str) -> str:
    """A name from a file as one short line of printable characters."""
    text = _printable(name)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape from a file as short text, such as 4096x11008."""
    return shown("x".join(map(_count, shape))) or "()"


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

fp8_e5m2 is found in files; products here compute in e4m3, `words.DTYPES`.
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


def _random_bits(random: np.random.Generator, shape: tuple[int, int], dtype: str) -> Matrix:
    """Every pattern of bits as often as any other, NaN and infinity among them."""
    number, unsigned = STORAGE[dtype]
    size = shape[0] * shape[1] * np.dtype(unsigned).itemsize
    return np.frombuffer(random.bytes(size), dtype=number).reshape(shape)


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
    drawn = random.integers(0, 1 << of, bits.shape, dtype=bits.dtype)
    return (bits & ~mask) | (drawn & mask)


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
    axis = 0 if lines == "rows" else 1
    order = np.random.default_rng(int(key)).permutation(values.shape[axis])
    return np.take(values, order, axis=axis)


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

BYTES_LIMIT = 1 << 31
"""Of a tensor that fills a matrix: all of it is hashed."""

FILE = "file"


def pinned(pair: OperandPair) -> OperandPair:
    """The same operands, each file with the hash of its content, so that their text is a key."""
    hashed: dict[Call, Call] = {}

    def of(operand: Operand) -> Operand:
        if operand.source.name != FILE:
            return operand
        if operand.source not in hashed:
            file, tensor = _tensor(operand.source)
            sha256 = file.sha256(tensor)
            if (given := operand.source.named("sha256")) is not None:
                _check_hash(operand.source, given, sha256)
            hashed[operand.source] = _with_hash(operand.source, sha256)
        return replace(operand, source=hashed[operand.source])

    return replace(pair, a=of(pair.a), b=of(pair.b))


def _from_file(source: Call, shape: _Shape) -> Float32s:
    """The first rows and columns of a tensor, as float32; float64 is rounded.

    Raises:
        InputError: as `pinned`; the text has no hash, or the matrix is smaller than `shape`.
    """
    file, tensor = _tensor(source)
    given = source.named("sha256")
    if given is None:
        raise InputError(
            f"{source} does not say which content it means",
            why="a result must be of the numbers that were measured, whatever the file becomes",
            fix=f"write {_with_hash(source, file.sha256(tensor))}",
        )
    _check_hash(source, given, file.sha256(tensor))
    matrix = file.matrix(tensor)
    if matrix.shape[0] < shape[0] or matrix.shape[1] < shape[1]:
        raise InputError(
            f"{source} has {matrix.shape[0]} by {matrix.shape[1]} elements, "
            f"and {shape[0]} by {shape[1]} are needed",
            fix="ask for a smaller product; of a larger matrix the first rows and columns are used",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return matrix[: shape[0], : shape[1]].astype(np.float32)


def _tensor(source: Call) -> tuple[TensorFile, Tensor]:
    file = open_tensors(Path(source.values[0]))
    tensor = file.tensor(source.named("tensor"))
    file.matrix(tensor)  # raises where it is none
    if tensor.end - tensor.begin > BYTES_LIMIT:
        raise InputError(
            f"{source} has {tensor.end - tensor.begin} bytes",
            fix=f"use a tensor of {BYTES_LIMIT} bytes at most",
        )
    return file, tensor


def _check_hash(source: Call, given: str, sha256: str) -> None:
    if given != sha256:
        raise InputError(
            f"{shown(source.values[0])} is not what it was: sha256 is {sha256}, not {given}",
            fix="put the old content back, or leave sha256 out and measure the new one",
        )


def _with_hash(source: Call, sha256: str) -> Call:
    others = (a for a in source.arguments if not a.startswith("sha256="))
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
    if not pair.aligned:
        return a, fill(pair.b, (k, n), dtype, seed=pair.seed, side="b")
    b = fill(pair.b, (n, k), dtype, seed=pair.seed, side="b")
    return a, Filled(b.matrix.T, b.non_finite, b.saturated)


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
            changed: Any = _CHANGES[call.name](random, bits, WIDTHS[dtype], *call.values)
            matrix = changed.view(STORAGE[dtype][0])
    return Filled(matrix, _non_finite(matrix, dtype), saturated)


def _numbers(
    source: Call,
    shape: _Shape,
    dtype: str,
    first: np.random.Generator,
    steps: list[tuple[Call, np.random.Generator]],
) -> tuple[Matrix, int]:
    """The matrix as it is cast, and how many values its type could not hold."""
    if source.name == "random_bits":
        return _random_bits(first, shape, dtype), 0
    if source.name == FILE:
        values = _from_file(source, shape)
    else:
        values = _SOURCES[source.name](first, shape, *source.values)
    for call, random in steps:
        if call.name in _ARRANGED:
            values = _ARRANGED[call.name](random, values, *call.values)
    return cast(values, dtype)


def _non_finite(matrix: Matrix, dtype: str) -> int:
    if dtype == "int8":
        return 0
    with np.errstate(invalid="ignore"):  # of signalling NaN
        return matrix.size - int(np.isfinite(matrix).sum())


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
class OperandPrint:
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

    a: OperandPrint
    b: OperandPrint
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
        dtype: Of both, a key of `bits.STORAGE`.
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
        a=_operand(lines_a, beside_a, dtype),
        b=_operand(lines_b, beside_b, dtype),
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
    features = features_of(fingerprint(a.matrix, b.matrix, dtype))
    return InputFingerprint(dtype=dtype, operands=str(pair), features=features)


def features_of(fingerprint: Fingerprint) -> dict[str, float]:
    """A fingerprint as a model takes it: numbers of operands with their letter."""
    whole = asdict(fingerprint)
    sides = {side: whole.pop(side) for side in ("a", "b")}
    return {f"{side}_{name}": n for side, of in sides.items() for name, n in of.items()} | whole


def _count(number: int) -> str:
    return str(number) if abs(number) < 1 << 64 else "more than 2^64"


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _refuse(file: str, *faults: tuple[bool, str, str]) -> None:
    """Refuse a file by the first fault that it has: whether it has it, what it is, and the fix."""
    for is_so, what, fix in faults:
        if is_so:
            raise _fault(file, what, fix=fix)


def _fault(
    file: str, what: str, *, tensor: str | None = None, byte: int | None = None, fix: str = ""
) -> InputError:
    """The error of a file that is not what it should be, with the place."""
    place = _printable(file)
    if tensor:
        place += f", tensor {shown(tensor)}"
    if byte is not None:
        place += f", byte {byte}"
    return InputError(
        f"{place}: {what}", fix=fix or "the file is damaged or cut off: copy or write it again"
    )


def _operand(lines: Matrix, beside: Matrix, dtype: str) -> OperandPrint:
    bits, others = _bits(lines, dtype), _bits(beside, dtype)
    width = 8 * bits.dtype.itemsize - _DROPPED.get(dtype, 0)
    counted = bits.ravel()[: 1 << 15]  # counting takes the longest
    return OperandPrint(
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


def _bits(lines: Matrix, dtype: str) -> Matrix:
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
    bits = _bits(values, dtype).astype(np.uint64)
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
