"""The advisor's home, a folder for its owner alone."""

import re
from pathlib import Path

from advisor.files.safe_files import private_folder

_OURS = re.compile(
    r"advisor\.db.*|models|launches|logs|checks|sensors|kernels|inputs|input-model|jobs|fanout|id"
    r"|queues|audits|service\.lock|\..*",
    re.DOTALL,
)


def open_home(home: Path, *below: str) -> Path:
    """The home, or a folder in it, made where it is not there, and closed to others.

    Raises:
        UnsafeFileError: it belongs to another user, or is open to others and holds more than ours.
        OSError: it cannot be made.
    """
    return private_folder(home, *below, ours=_OURS)
