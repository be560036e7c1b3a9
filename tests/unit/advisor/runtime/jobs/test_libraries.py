"""Which GPU libraries a job has loaded, by what its processes have mapped."""

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from advisor.runtime.processes import loaded_libraries


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def load(stack: ExitStack, file: Path) -> None:
    """Map a file into this process, as the loader does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"library")
    opened = stack.enter_context(file.open("rb"))
    stack.enter_context(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def test_a_library_of_the_system_has_its_version_in_its_name(
    tmp_path: Path, mapped: ExitStack
) -> None:
    """As cublasGetVersion writes it."""
    load(mapped, tmp_path / "lib/libcublas.so.13.1.0.3")
    assert loaded_libraries([os.getpid()]) == "cublas 130100"


def test_libraries_of_wheels_have_theirs_in_the_metadata(tmp_path: Path, mapped: ExitStack) -> None:
    """Of PyTorch in its own file, which knows the build; by name, whatever was loaded first."""
    packages = tmp_path / "venv/lib/python3.12/site-packages"
    (packages / "nvidia_cudnn_cu13-9.15.1.9.dist-info").mkdir(parents=True)
    (packages / "nvidia_cublas-13.1.0.3.dist-info").mkdir()
    load(mapped, packages / "torch/lib/libtorch.so")
    (packages / "torch/version.py").write_text("__version__ = '2.11.0+cu130'\ndebug = False\n")
    load(mapped, packages / "nvidia/cudnn/lib/libcudnn.so.9")
    load(mapped, packages / "nvidia/cu13/lib/libcublas.so.13")
    assert loaded_libraries([os.getpid()]) == "cublas 130100, cudnn 91501, torch 2.11.0+cu130"


def test_what_cannot_be_read_is_not_known(tmp_path: Path, mapped: ExitStack) -> None:
    """Neither a version that is nowhere, nor the libraries of a process that has ended."""
    load(mapped, tmp_path / "site-packages/torch/lib/libtorch.so")
    load(mapped, tmp_path / "lib/libcublas.so.13")
    load(mapped, tmp_path / "lib/libcublasLt.so.13.1.0.3")
    assert loaded_libraries([os.getpid()]) is None
    assert loaded_libraries([2**22 + 1]) is None
    assert loaded_libraries([]) is None
