"""The headers of npy and safetensors files: which numbers lie where. Nothing that they say is run.

Both readers check that what a header says fits the file: https://numpy.org/neps/nep-0001-npy-format.html
and https://github.com/huggingface/safetensors (README, "Format").
"""

import io
import json
import math
import tokenize
import warnings
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, cast

import numpy as np

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
