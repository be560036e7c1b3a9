"""Matrices in safetensors and npy files, mapped into memory. Never a pickle.

What a header says has to fit the file: https://numpy.org/neps/nep-0001-npy-format.html and
https://github.com/huggingface/safetensors (README, "Format"). The library of safetensors does not
say where a file is broken, and its numpy flavour has no bfloat16.
"""

import hashlib
import io
import math
import mmap
import stat
import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pydantic
from numpy.typing import NDArray

from advisor.errors import InputError

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
        found = hashlib.sha256(f"{tensor.dtype} {tensor.shape} {tensor.by_columns}\n".encode())
        for begin in range(tensor.begin, tensor.end, _BLOCK):
            found.update(self.mapped[begin : min(begin + _BLOCK, tensor.end)])
        return found.hexdigest()


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
