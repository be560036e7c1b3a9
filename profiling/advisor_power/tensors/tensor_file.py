"""Opens a file of tensors, and maps it: only what is looked at is read from the disk."""

import hashlib
import math
import mmap
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor_power.tensors.headers import NPY_MAGIC, npy_in, safetensors_in
from advisor_power.tensors.types import TYPES, Matrix, Tensor, fault, shown

_PICKLE = (
    "reading a pickle runs code that the file brings, so it is not read. Where you trust the file, "
    "convert it: safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW)"
)
_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")

_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
"""How pickles begin since protocol 2."""

_BLOCK = 1 << 24
"""Bytes that are hashed at once."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorFile:
    """A file whose header was read and found to fit its length.

    While it is in use the file must not be made shorter: the system ends a process that reads a
    mapped page that is gone. Replacing the file by another one of the same name is fine.
    """

    path: Path
    tensors: tuple[Tensor, ...]
    """In the order of their bytes."""
    mapped: mmap.mmap

    def tensor(self, name: str | None = None) -> Tensor:
        """The tensor of a name; None: the only matrix that there is.

        Raises:
            InputError: there is none, or more than one.
        """
        if name is None:
            matrices = [tensor for tensor in self.tensors if not tensor.no_matrix]
            if len(matrices) == 1 or len(self.tensors) == 1:
                return (matrices or list(self.tensors))[0]
            raise fault(
                str(self.path), f"it has {len(matrices)} matrices", fix=f"name one: {self._names()}"
            )
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise fault(
            str(self.path), f"it has no tensor {shown(name)}", fix=f"it has {self._names()}"
        )

    def matrix(self, tensor: Tensor) -> Matrix:
        """The numbers of a tensor, (rows, columns); nothing is read before they are looked at.

        Raises:
            InputError: the tensor is no matrix, or of a type that no product computes with.
        """
        if why := tensor.no_matrix:
            raise fault(
                str(self.path),
                f"it is no operand of a product: {why}",
                tensor=tensor.name,
                byte=tensor.begin,
                fix="name a matrix of bf16, fp16, fp8, int8, fp32 or fp64",
            )
        number = np.dtype(TYPES[tensor.type_name].number)
        flat: Matrix = np.frombuffer(self.mapped, number, math.prod(tensor.shape), tensor.begin)
        return flat.reshape(tensor.shape, order="F" if tensor.by_columns else "C")

    def sha256(self, tensor: Tensor) -> str:
        """Of type, shape and bytes of a tensor, which are all read."""
        self.mapped.madvise(mmap.MADV_SEQUENTIAL)
        found = hashlib.sha256(f"{tensor.dtype} {tensor.shape} {tensor.by_columns}\n".encode())
        for begin in range(tensor.begin, tensor.end, _BLOCK):
            found.update(self.mapped[begin : min(begin + _BLOCK, tensor.end)])
        return found.hexdigest()

    def _names(self) -> str:
        names = [shown(tensor.name) for tensor in self.tensors if tensor.name]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return (", ".join(names[:5]) or "no names") + more


def open_tensors(path: Path) -> TensorFile:
    """The tensors of a safetensors or npy file.

    Raises:
        InputError: the file cannot be read, is neither of both, a pickle above all, or is broken.
    """
    mapped = _mapped(path)
    name = str(path)
    start = mapped[:64]
    if start.startswith(NPY_MAGIC):
        reader = npy_in
    else:
        _check_kind(name, path.suffix.lower(), start)
        reader = safetensors_in
    # The view is let go of, so that nothing but arrays keeps the file mapped.
    with memoryview(mapped) as data:
        return TensorFile(path, reader(name, data), mapped)


def _mapped(path: Path) -> mmap.mmap:
    name = str(path)
    try:
        # Opening a pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise fault(name, "it is no regular file", fix="name a .safetensors or .npy file")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise fault(name, "the file is empty", byte=0)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(name)} cannot be read", why=str(error)) from error
    mapped.madvise(mmap.MADV_RANDOM)  # a sample must not read what lies around it
    return mapped


def _check_kind(name: str, suffix: str, start: bytes) -> None:
    """Whether it may be safetensors; what it is where it is known to be something else."""
    if start[8:9] == b"{":
        return
    if start.startswith(b"PK\x03\x04"):
        fix = f"of npz save each array as npy. Of PyTorch: {_PICKLE}"
        raise fault(name, "it is an archive, of PyTorch (a pickle) or npz", fix=fix)
    if suffix in _PICKLE_SUFFIXES or start[:2] in _PICKLES:
        raise fault(name, "it is a pickle", fix=_PICKLE)
    if start.startswith(b"version https://git-lfs"):
        raise fault(name, "it is a pointer of Git LFS, not the file", fix="git lfs pull")
    if suffix == ".json":
        raise fault(name, "it is JSON, not tensors", fix="name a .safetensors file that it lists")
    if suffix not in (".safetensors", ".npy"):
        raise fault(name, "it is neither safetensors nor npy", fix="convert it to one of both")
