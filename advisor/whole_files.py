"""Files that are there whole or not at all."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> Path:
    """Write beside the file and swap, so that a full disk leaves the old one.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
