"""Files that are there whole or not at all."""

import os
from pathlib import Path

from advisor.files.safe_files import PRIVATE_FILE

PUBLIC_FILE = 0o666
"""Less the umask: what people make to hand on."""


def replace_file(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> Path:
    """Write beside the file and swap, so that a full disk leaves the old one.

    Args:
        path: The file.
        data: What it is to hold.
        mode: Of the new file, whatever that of the old one was; the umask takes its part.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # What a killed process with this number left goes; a link in its place is not followed.
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
