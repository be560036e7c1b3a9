"""The header of a safetensors file: eight bytes of length, JSON, and behind it the numbers.

The rules are those of https://github.com/huggingface/safetensors (README, "Format"): tensors fill
what is behind the header without gap or overlap, and no name is there twice. The library tells of a
broken file that it is broken, not where, and its numpy flavour has no bfloat16 of its own.
"""

import json
from collections.abc import Iterable
from itertools import pairwise
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

LENGTH_BYTES = 8

HEADER_LIMIT = 100_000_000
"""Bytes; the library's own limit."""

_METADATA = "__metadata__"


def safetensors_in(file: str, data: memoryview) -> tuple[Tensor, ...]:
    """The tensors of a file, in the order of their bytes.

    Args:
        file: Its name, for messages.
        data: All of its bytes.

    Raises:
        InputError: the header is no header, or its tensors do not fill the file; says where.
    """
    size = len(data)
    if size < LENGTH_BYTES:
        raise fault(file, f"it has {size} bytes, and a header begins with 8", byte=0)
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > HEADER_LIMIT:
        raise fault(
            file,
            f"the header is said to have {length} bytes, and {HEADER_LIMIT} are the most",
            byte=0,
            fix="is it a safetensors file? Else it is damaged",
        )
    start = LENGTH_BYTES + length
    if start > size:
        raise fault(file, f"the header is said to end at byte {start}, the file at {size}", byte=0)
    header = bytes(data[LENGTH_BYTES:start])
    found = [
        _tensor(file, name, entry, header, start)
        for name, entry in _entries(file, header).items()
        if name != _METADATA
    ]
    ordered = sorted(found, key=lambda tensor: (tensor.begin, tensor.end))
    _check_filled(file, ordered, start, size)
    return tuple(ordered)


def _entries(file: str, header: bytes) -> dict[str, Any]:
    try:
        text = header.decode()
    except UnicodeDecodeError as error:
        byte = LENGTH_BYTES + error.start
        raise fault(file, "the header is not UTF-8", byte=byte) from error

    def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise fault(
                    file,
                    f"{shown(key)} is in the header twice",
                    byte=_place(header, key, last=True),
                )
            found[key] = value
        return found

    try:
        entries: Any = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        byte = LENGTH_BYTES + len(text[: error.pos].encode())
        raise fault(file, f"the header is not JSON: {error.msg}", byte=byte) from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # numbers or brackets without end
        raise fault(file, "the header is not that of tensors", byte=LENGTH_BYTES) from error
    if not isinstance(entries, dict):
        raise fault(file, "the header is JSON, but no object", byte=LENGTH_BYTES)
    return cast("dict[str, Any]", entries)


def _tensor(file: str, name: str, entry: Any, header: bytes, start: int) -> Tensor:
    def wrong(what: str) -> InputError:
        return fault(file, what, tensor=name or '""', byte=_place(header, name))

    known: dict[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    if set(known) != {"dtype", "shape", "data_offsets"}:
        raise wrong("it has not exactly dtype, shape and data_offsets")
    type_name = known["dtype"]
    if not isinstance(type_name, str):
        raise wrong("its dtype is no text")
    shape, offsets = whole_numbers(known["shape"]), whole_numbers(known["data_offsets"])
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
    before = Tensor(name="", type_name="", shape=(), begin=start, end=start)
    for last, tensor in pairwise([before, *ordered]):
        if tensor.end > size:
            what = f"it ends at byte {count_text(tensor.end)}, the file at {size}"
            raise fault(file, what, tensor=tensor.name, byte=min(tensor.begin, size))
        if tensor.begin < last.end:
            raise fault(
                file,
                f"it overlaps with tensor {shown(last.name)}, which ends at byte "
                f"{count_text(last.end)}",
                tensor=tensor.name,
                byte=tensor.begin,
            )
        if tensor.begin > last.end:
            what = f"bytes up to {count_text(tensor.begin)} belong to no tensor"
            raise fault(file, what, byte=last.end)
    if (end := ordered[-1].end if ordered else start) < size:
        raise fault(file, f"{size - end} bytes at the end belong to no tensor", byte=end)


def _place(header: bytes, name: str, *, last: bool = False) -> int:
    """The byte of a name; of one that is written in another way, that of the header."""
    written = json.dumps(name, ensure_ascii=False).encode(errors="replace")
    found = header.rfind(written) if last else header.find(written)
    return LENGTH_BYTES + max(found, 0)
