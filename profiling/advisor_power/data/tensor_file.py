"""Types of numbers in files, and a tensor's place in its file."""

import hashlib
import io
import json
import math
import mmap
import stat
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError

Matrix: TypeAlias = NDArray[Any]

_LONGEST = 80
"""Characters of a name that are repeated in a message."""


@dataclass(frozen=True, slots=True)
class FileType:
    """A type of numbers."""

    dtype: str
    """As the project calls it."""
    bits: int
    number: Any = None
    """The numpy type; None: no matrix product computes with such numbers."""


_OTHERS = {
    "BOOL": ("bool", 8),
    "C64": ("complex64", 64),
    "F4": ("fp4", 4),
    "F6_E2M3": ("fp6_e2m3", 6),
    "F6_E3M2": ("fp6_e3m2", 6),
    "F8_E4M3FNUZ": ("fp8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("fp8_e5m2fnuz", 8),
    "F8_E8M0": ("fp8_e8m0", 8),
    "I16": ("int16", 16),
    "I32": ("int32", 32),
    "I64": ("int64", 64),
    "U8": ("uint8", 8),
    "U16": ("uint16", 16),
    "U32": ("uint32", 32),
    "U64": ("uint64", 64),
}

TYPES = MappingProxyType(
    {
        "F64": FileType("fp64", 64, np.float64),
        "F32": FileType("fp32", 32, np.float32),
        "F16": FileType("fp16", 16, np.float16),
        "BF16": FileType("bf16", 16, ml_dtypes.bfloat16),
        "F8_E4M3": FileType("fp8", 8, ml_dtypes.float8_e4m3fn),
        "F8_E5M2": FileType("fp8_e5m2", 8, ml_dtypes.float8_e5m2),
        "I8": FileType("int8", 8, np.int8),
    }
    | {name: FileType(*of) for name, of in _OTHERS.items()}
)
"""By the name that safetensors has: `Dtype` in its tensor.rs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor's place in its file."""

    name: str
    """Of it; empty in an npy file, which has only one."""
    type_name: str
    """A key of `TYPES`, or what the file says where that is none."""
    shape: tuple[int, ...]
    begin: int
    """Its first byte in the file."""
    end: int
    """The byte behind its last one."""
    by_columns: bool = False
    """Its first index runs fastest, as in Fortran."""

    @property
    def dtype(self) -> str:
        """As the project calls it, or as the file does."""
        known = TYPES.get(self.type_name)
        return self.type_name if known is None else known.dtype

    @property
    def no_matrix(self) -> str:
        """Why it cannot be an operand; empty: it can."""
        if len(self.shape) != 2:
            return f"{len(self.shape)}-D, and a matrix is 2-D"
        if 0 in self.shape:
            return "it has no elements"
        known = TYPES.get(self.type_name)
        if known is None or known.number is None:
            return f"numbers are {shown(self.dtype)}, which no matrix product here computes with"
        return ""


def size_in_bytes(tensor_type: FileType, shape: tuple[int, ...]) -> int:
    """Of so many numbers; types of less than a byte are packed."""
    return -(-math.prod(shape) * tensor_type.bits // 8)


def whole_numbers(value: Any) -> tuple[int, ...] | None:
    """A list or tuple of whole numbers from 0, else None; True is no number."""
    if not isinstance(value, (list, tuple)):
        return None
    numbers = tuple(cast("list[Any]", value))
    return numbers if all(type(n) is int and n >= 0 for n in numbers) else None


def count_text(number: int) -> str:
    """A number from a file as text; it may have thousands of digits."""
    return str(number) if number < 1 << 64 else "more than 2^64"


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape from a file as short text, such as 4096x11008."""
    return shown("x".join(map(count_text, shape))) or "()"


def shown(name: str) -> str:
    """A name from a file as one short line of printable characters."""
    text = _printable(name)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def fault(
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


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


NPY_MAGIC = b"\x93NUMPY"

_NPY_LIMIT = 10_000
"""Bytes of a header of npy; numpy's own limit: longer ones may exhaust the parser."""

_NPY_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""By version. Version 3 has names of fields beyond Latin-1, and fields are refused anyway."""

_NPY_KINDS = {"f": "F", "i": "I", "u": "U", "c": "C"}

_SAFETENSORS_LIMIT = 100_000_000
"""Bytes of a header of safetensors; the library's own limit."""

_LENGTH_BYTES = 8


def npy_in(file: str, data: memoryview) -> tuple[Tensor]:
    """The array of an npy file.

    Raises:
        InputError: the header is no header, the array is pickled, or the file has another length.
    """
    head = io.BytesIO(bytes(data[: _NPY_LIMIT + 12]))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _NPY_READERS:
            fix = "save plain numbers: numpy.save writes version 1 or 2"
            raise fault(file, f"npy of version {version[0]}", byte=len(NPY_MAGIC), fix=fix)
        with warnings.catch_warnings(action="ignore"):  # of what Python 2 wrote
            sizes, by_columns, dtype = _NPY_READERS[version](head, max_header_size=_NPY_LIMIT)
    except (
        *(ValueError, TypeError, SyntaxError, KeyError, tokenize.TokenError),
        *(MemoryError, RecursionError, OverflowError),
    ) as error:
        why = shown(str(error).partition("\n")[0])
        raise fault(file, f"numpy cannot read the header: {why}", byte=len(NPY_MAGIC)) from error
    shape = whole_numbers(sizes)
    if shape is None:
        raise fault(file, "its shape is not whole numbers from 0", byte=len(NPY_MAGIC))
    type_name, start, end = _npy_type(file, dtype), head.tell(), len(data)
    if (needed := math.prod(shape) * dtype.itemsize) != end - start:
        what = f"{type_name} of shape {shape_text(shape)} takes {count_text(needed)} bytes"
        raise fault(file, f"{what}, and {end - start} follow", byte=start)
    return (
        Tensor(
            name="",
            type_name=type_name,
            shape=shape,
            begin=start,
            end=end,
            by_columns=by_columns,
        ),
    )


def _npy_type(file: str, dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        fix = (
            "reading a pickle runs code that the file brings, so it is not read. Save numbers: "
            "numpy.save(file, a.astype('float32'), allow_pickle=False)"
        )
        raise fault(file, "it is a pickle: an array of Python objects", fix=fix)
    if dtype.names is not None or dtype.subdtype is not None:
        raise fault(
            file, "its elements have fields", fix="save one field: numpy.save(file, a['x'])"
        )
    if dtype.str[0] == ">":
        fix = (
            "GPUs have the least significant byte first: write it as little-endian, "
            "a.astype(a.dtype.newbyteorder('<'))"
        )
        raise fault(file, f"its numbers are {dtype.str}, most significant byte first", fix=fix)
    if dtype.str[1:] in ("V1", "V2"):
        what = f"its numbers are {dtype.str}, which npy writes for types it does not know"
        raise fault(file, what, fix="write bf16 and fp8 as safetensors")
    if dtype.kind == "b":
        return "BOOL"
    return (
        f"{_NPY_KINDS[dtype.kind]}{8 * dtype.itemsize}" if dtype.kind in _NPY_KINDS else dtype.str
    )


def safetensors_in(file: str, data: memoryview) -> tuple[Tensor, ...]:
    """The tensors of a safetensors file, in the order of their bytes.

    The library says of a broken file that it is broken, not where, and its numpy flavour has no
    bfloat16 of its own.

    Raises:
        InputError: the header is no header, or its tensors do not fill the file; says where.
    """
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if len(data) < _LENGTH_BYTES or length > min(_SAFETENSORS_LIMIT, len(data) - _LENGTH_BYTES):
        what = f"the header is said to have {length} bytes, and the file has {len(data)}"
        raise fault(file, f"{what}; {_SAFETENSORS_LIMIT} are the most", byte=0)
    start = _LENGTH_BYTES + length
    try:
        text = bytes(data[_LENGTH_BYTES:start]).decode()
        entries: Any = json.loads(text, object_pairs_hook=_each_name_once)
    except (ValueError, RecursionError) as error:
        what = f"the header is not JSON of tensors: {shown(str(error))}"
        raise fault(file, what, byte=_LENGTH_BYTES) from error
    if not isinstance(entries, dict):
        raise fault(file, "the header is JSON, but no object", byte=_LENGTH_BYTES)
    named = cast("dict[str, Any]", entries).items()
    tensors = [_tensor(file, name, of, start) for name, of in named if name != "__metadata__"]
    ordered = sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end))
    _check_filled(file, ordered, start, len(data))
    return tuple(ordered)


def _each_name_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is there twice")
        found[key] = value
    return found


def _tensor(file: str, name: str, entry: Any, start: int) -> Tensor:
    def wrong(what: str) -> InputError:
        return fault(file, what, tensor=name or '""', byte=_LENGTH_BYTES)

    known: dict[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    if set(known) != {"dtype", "shape", "data_offsets"}:
        raise wrong("it has not exactly dtype, shape and data_offsets")
    type_name = known["dtype"]
    shape, offsets = whole_numbers(known["shape"]), whole_numbers(known["data_offsets"])
    if not isinstance(type_name, str):
        raise wrong("its dtype is no text")
    if shape is None:
        raise wrong("its shape is not a list of whole numbers from 0")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong("its data_offsets are not two whole numbers from 0, the first no larger")
    begin, end = offsets
    needed = size_in_bytes(TYPES[type_name], shape) if type_name in TYPES else end - begin
    if needed != end - begin:
        raise wrong(
            f"{shown(type_name)} of shape {shape_text(shape)} takes {count_text(needed)} bytes, "
            f"its data_offsets span {count_text(end - begin)}"
        )
    return Tensor(name=name, type_name=type_name, shape=shape, begin=start + begin, end=start + end)


def _check_filled(file: str, ordered: list[Tensor], start: int, size: int) -> None:
    """Each tensor begins where the one before ends, and the last one ends with the file."""
    first, behind = (
        Tensor(name="", type_name="", shape=(), begin=at, end=at) for at in (start, size)
    )
    for last, tensor in pairwise([first, *ordered, behind]):
        if tensor.end > size:
            what = f"it ends at byte {count_text(tensor.end)}, the file at {size}"
            raise fault(file, what, tensor=tensor.name, byte=min(tensor.begin, size))
        if tensor.begin < last.end:
            what = f"it overlaps with tensor {shown(last.name)}, which ends at byte {last.end}"
            raise fault(file, what, tensor=tensor.name, byte=tensor.begin)
        if tensor.begin > last.end:
            what = f"bytes up to {count_text(tensor.begin)} belong to no tensor"
            raise fault(file, what, byte=last.end)


_PICKLE = (
    "reading a pickle runs code that the file brings, so it is not read. Where you trust the file, "
    "convert it: safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW)"
)
_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")

_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
"""How pickles begin since protocol 2."""

_BLOCK = 1 << 24
"""Bytes that are hashed at once."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorFile:
    """A file whose header was read and found to fit its length.

    While it is in use the file must not be made shorter: the system ends a process that reads a
    mapped page that is gone. Replacing the file by another one of the same name is fine.
    """

    path: Path
    tensors: tuple[Tensor, ...]
    """In the order of their bytes."""
    mapped: mmap.mmap

    def tensor(self, name: str | None = None) -> Tensor:
        """The tensor of a name; None: the only matrix that there is.

        Raises:
            InputError: there is none, or more than one.
        """
        if name is None:
            matrices = [tensor for tensor in self.tensors if not tensor.no_matrix]
            if len(matrices) == 1 or len(self.tensors) == 1:
                return (matrices or list(self.tensors))[0]
            raise fault(
                str(self.path), f"it has {len(matrices)} matrices", fix=f"name one: {self._names()}"
            )
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise fault(
            str(self.path), f"it has no tensor {shown(name)}", fix=f"it has {self._names()}"
        )

    def matrix(self, tensor: Tensor) -> Matrix:
        """The numbers of a tensor, (rows, columns); nothing is read before they are looked at.

        Raises:
            InputError: the tensor is no matrix, or of a type that no product computes with.
        """
        if why := tensor.no_matrix:
            raise fault(
                str(self.path),
                f"it is no operand of a product: {why}",
                tensor=tensor.name,
                byte=tensor.begin,
                fix="name a matrix of bf16, fp16, fp8, int8, fp32 or fp64",
            )
        number = np.dtype(TYPES[tensor.type_name].number)
        flat: Matrix = np.frombuffer(self.mapped, number, math.prod(tensor.shape), tensor.begin)
        return flat.reshape(tensor.shape, order="F" if tensor.by_columns else "C")

    def sha256(self, tensor: Tensor) -> str:
        """Of type, shape and bytes of a tensor, which are all read."""
        self.mapped.madvise(mmap.MADV_SEQUENTIAL)
        found = hashlib.sha256(f"{tensor.dtype} {tensor.shape} {tensor.by_columns}\n".encode())
        for begin in range(tensor.begin, tensor.end, _BLOCK):
            found.update(self.mapped[begin : min(begin + _BLOCK, tensor.end)])
        return found.hexdigest()

    def _names(self) -> str:
        names = [shown(tensor.name) for tensor in self.tensors if tensor.name]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return (", ".join(names[:5]) or "no names") + more


def open_tensors(path: Path) -> TensorFile:
    """The tensors of a safetensors or npy file.

    Raises:
        InputError: the file cannot be read, is neither of both, a pickle above all, or is broken.
    """
    mapped = _mapped(path)
    name = str(path)
    start = mapped[:64]
    if start.startswith(NPY_MAGIC):
        reader = npy_in
    else:
        _check_kind(name, path.suffix.lower(), start)
        reader = safetensors_in
    # The view is let go of, so that nothing but arrays keeps the file mapped.
    with memoryview(mapped) as data:
        return TensorFile(path, reader(name, data), mapped)


def _mapped(path: Path) -> mmap.mmap:
    name = str(path)
    try:
        # Opening a pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise fault(name, "it is no regular file", fix="name a .safetensors or .npy file")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise fault(name, "the file is empty", byte=0)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(name)} cannot be read", why=str(error)) from error
    mapped.madvise(mmap.MADV_RANDOM)  # a sample must not read what lies around it
    return mapped


def _check_kind(name: str, suffix: str, start: bytes) -> None:
    """Whether it may be safetensors; what it is where it is known to be something else."""
    if start[8:9] == b"{":
        return
    if start.startswith(b"PK\x03\x04"):
        fix = f"of npz save each array as npy. Of PyTorch: {_PICKLE}"
        raise fault(name, "it is an archive, of PyTorch (a pickle) or npz", fix=fix)
    if suffix in _PICKLE_SUFFIXES or start[:2] in _PICKLES:
        raise fault(name, "it is a pickle", fix=_PICKLE)
    if start.startswith(b"version https://git-lfs"):
        raise fault(name, "it is a pointer of Git LFS, not the file", fix="git lfs pull")
    if suffix == ".json":
        raise fault(name, "it is JSON, not tensors", fix="name a .safetensors file that it lists")
    if suffix not in (".safetensors", ".npy"):
        raise fault(name, "it is neither safetensors nor npy", fix="convert it to one of both")
