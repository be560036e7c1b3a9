"""Files that are read and written as a whole, and are there whole or not at all."""

import errno
import os
import stat
from pathlib import Path

from advisor.files.safe_files import PRIVATE_FILE

PUBLIC_FILE = 0o666
"""Less the umask: what people make to hand on."""


def replace_file(
    path: Path, data: bytes, mode: int = PRIVATE_FILE, *, durable: bool = True
) -> Path:
    """Write next to the file and swap, so that a full disk or a power cut leaves the old one.

    Its mode is that of the new file, whatever the old one was; the umask takes its part. Where it
    is durable it is on disk when this returns. Waiting for the disk is too slow for what is written
    each second and means nothing after a power cut.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # What a killed process with this number left goes; a link in its place is not followed.
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
        if durable:
            sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    return path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut.

    Raises:
        OSError: they cannot be written.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(path: Path, most_bytes: int) -> bytes:
    """What a regular file holds; links are followed, since nothing but its content is used.

    Raises:
        OSError: it cannot be read, is not a regular file, or larger than `most_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        # Read to the limit, whatever its size is said to be: it may grow.
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return data
