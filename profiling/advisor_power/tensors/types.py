"""Types of numbers in files, and a tensor's place in its file."""

import math
from dataclasses import dataclass
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
