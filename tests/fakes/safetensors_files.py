"""Writes safetensors files without the library, whose numpy flavour has no bfloat16."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES = {
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "int8": "I8", "uint8": "U8", "int64": "I64",
}  # fmt: skip


def write_safetensors(path: Path, tensors: Mapping[str, Any], **metadata: str) -> Path:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, numbers in tensors.items():
        header[name] = {
            "dtype": NAMES[numbers.dtype.name],
            "shape": numbers.shape,
            "data_offsets": [len(data), len(data) + numbers.nbytes],
        }
        data += numbers.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path
