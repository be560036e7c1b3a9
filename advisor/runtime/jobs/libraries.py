"""Which GPU libraries a job has loaded, and their versions, from what its processes have mapped.

A job may run in any environment, so nothing is asked of an interpreter. A file installed by the
system has its version in its name (`libcublas.so.13.1.0.3`); one from a wheel has it in the name of
the wheel's metadata (`nvidia_cublas-13.1.0.3.dist-info`). Written as `advisor check` writes them.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_NUMBERED = {"cublas": "nvidia_cublas*", "cudnn": "nvidia_cudnn*"}
"""Libraries whose version is one number, and how the metadata of their wheels begins."""

_MAPPED = re.compile(r"/lib(cublas|cudnn|torch)\.so[^/]*$")
_TRIPLE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_TORCH = re.compile(r"^__version__ = '([^'\s]+)'$", re.MULTILINE)


def loaded_libraries(pids: Iterable[int]) -> str | None:
    """Such as "cublas 130100, torch 2.11.0+cu130", by name; None where no version can be read."""
    found: dict[str, str] = {}
    for pid in pids:
        # It may have ended, or belong to somebody else.
        with suppress(OSError):
            found |= _of_process(pid)
    return ", ".join(f"{name} {found[name]}" for name in sorted(found)) or None


def _of_process(pid: int) -> dict[str, str]:
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in maps if "/lib" in line}
    found: dict[str, str] = {}
    for path in sorted(paths):
        # A container has files of its own.
        file = Path("/proc", str(pid), "root", path.removeprefix("/"))
        if (library := _MAPPED.search(path)) and (version := _version(library[1], file)):
            found[library[1]] = version
    return found


def _version(name: str, file: Path) -> str | None:
    if name == "torch":
        return _of_torch(file)
    wheels = (p.name for p in _packages(file).glob(f"{_NUMBERED[name]}.dist-info"))
    for text in (file.name, *sorted(wheels)):
        if numbers := _TRIPLE.search(text):
            major, minor, patch = map(int, numbers.groups())
            return str(major * 10000 + minor * 100 + patch)
    return None


def _of_torch(file: Path) -> str | None:
    with suppress(OSError):
        if found := _TORCH.search((file.parents[1] / "version.py").read_text("utf-8")):
            return found[1]
    return None


def _packages(file: Path) -> Path:
    """The folder that wheels were installed into; of a file that is of none, its own."""
    names = ("site-packages", "dist-packages")
    return next((folder for folder in file.parents if folder.name in names), file.parent)
