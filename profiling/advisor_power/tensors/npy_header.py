"""The header of an npy file: magic, version, length, and a Python literal with type and shape.

NEP 1 (https://numpy.org/neps/nep-0001-npy-format.html). Arrays of Python objects are pickles behind
such a header; they are refused.
"""

import ast
from typing import Any, cast

from advisor.errors import InputError
from advisor_power.tensors.types import (
    TYPES,
    Tensor,
    count_text,
    fault,
    shape_text,
    shown,
    size_in_bytes,
    whole_numbers,
)

MAGIC = b"\x93NUMPY"

HEADER_LIMIT = 10_000
"""Characters, as numpy has it: longer ones may exhaust the parser."""

_LENGTHS = {1: 2, 2: 4, 3: 4}
"""Bytes of the header's length by version."""

_FIELDS = {"descr", "fortran_order", "shape"}

_TYPES = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i1": "I8", "u1": "U8", "b1": "BOOL",
    "i2": "I16", "i4": "I32", "i8": "I64", "u2": "U16", "u4": "U32", "u8": "U64", "c8": "C64",
}  # fmt: skip


def npy_in(file: str, data: memoryview) -> tuple[Tensor]:
    """The array of a file.

    Args:
        file: Its name, for messages.
        data: All of its bytes.

    Raises:
        InputError: the header is no header, the array is pickled, or the file has another length.
    """
    fields, start = _fields(file, data)
    type_name = _type_name(file, fields["descr"])
    shape = _shape(file, fields["shape"])
    end = len(data)
    if type_name in TYPES:
        needed = size_in_bytes(TYPES[type_name], shape)
        if start + needed != end:
            what = f"{type_name} of shape {shape_text(shape)} takes {count_text(needed)} bytes"
            raise fault(file, f"{what}, and {end - start} follow", byte=start)
    by_columns = fields["fortran_order"]
    if not isinstance(by_columns, bool):
        raise fault(file, "fortran_order is neither True nor False", byte=len(MAGIC) + 2)
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


def _fields(file: str, data: memoryview) -> tuple[dict[str, Any], int]:
    """The header, and the first byte behind it."""
    at = len(MAGIC) + 2
    count = _LENGTHS.get(data[len(MAGIC)]) if len(data) >= at else 0
    if count is None:
        raise fault(file, f"npy of version {data[len(MAGIC)]}", byte=6, fix="versions 1 to 3 exist")
    length = int.from_bytes(data[at : at + count], "little")
    start = at + count + length
    if not count or start > len(data):
        raise fault(file, f"the header ends behind the file, which has {len(data)} bytes", byte=at)
    if length > HEADER_LIMIT:
        what = f"the header has {length} bytes, and {HEADER_LIMIT} are the most"
        raise fault(file, what, byte=at)
    wrong = fault(file, "the header has not exactly descr, fortran_order and shape", byte=at)
    try:
        fields: Any = ast.literal_eval(bytes(data[at + count : start]).decode().strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise wrong from error
    if not isinstance(fields, dict) or set(cast("dict[Any, Any]", fields)) != _FIELDS:
        raise wrong
    return cast("dict[str, Any]", fields), start


def _type_name(file: str, descr: Any) -> str:
    if not isinstance(descr, str) or "O" in descr:
        raise _not_plain(file, descr)
    order, kind = descr[:1], descr[1:]
    if order == ">":
        raise fault(
            file,
            f"its numbers are {shown(descr)}, most significant byte first",
            fix="GPUs have the least significant byte first: write it as little-endian, "
            "a.astype(a.dtype.newbyteorder('<'))",
        )
    if kind in ("V1", "V2"):
        raise fault(
            file,
            f"its numbers are {shown(descr)}, which npy writes for types it does not know",
            fix="write bf16 and fp8 as safetensors",
        )
    return _TYPES.get(kind, descr)


def _not_plain(file: str, descr: Any) -> InputError:
    if isinstance(descr, str):
        return fault(
            file,
            "it is a pickle: an array of Python objects",
            fix="reading a pickle runs code that the file brings, so it is not read. Save numbers: "
            "numpy.save(file, a.astype('float32'), allow_pickle=False)",
        )
    return fault(file, "its elements have fields", fix="save one field: numpy.save(file, a['x'])")


def _shape(file: str, value: Any) -> tuple[int, ...]:
    shape = whole_numbers(value) if isinstance(value, tuple) else None
    if shape is None:
        raise fault(file, "its shape is not whole numbers from 0", byte=len(MAGIC) + 2)
    return shape
