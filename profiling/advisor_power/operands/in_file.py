"""The fingerprints of all matrices of a file, one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor_power.operands.bits import STORAGE
from advisor_power.operands.fingerprint import OperandPrint, operand_print
from advisor_power.tensors.tensor_file import TensorFile, open_tensors
from advisor_power.tensors.types import Tensor


@dataclass(frozen=True, slots=True)
class MatrixPrint:
    """A matrix of a file."""

    tensor: str
    """Its name; empty in an npy file."""
    dtype: str
    """As the project calls it."""
    shape: tuple[int, ...]
    """Rows, which are along the contraction, and columns."""
    found: OperandPrint

    def as_json(self) -> dict[str, Any]:
        """With the numbers of the fingerprint beside the others."""
        return {
            "tensor": self.tensor,
            "dtype": self.dtype,
            "shape": list(self.shape),
            **asdict(self.found),
        }


@dataclass(frozen=True, slots=True)
class LeftOutTensor:
    """A tensor that has no fingerprint, and why."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What of a file is looked at."""

    file: TensorFile
    matrices: tuple[Tensor, ...]
    """Tensors that have a fingerprint."""
    left_out: tuple[LeftOutTensor, ...]
    """The others."""

    def prints(self) -> Iterator[MatrixPrint]:
        """Of each matrix, read when it is asked for."""
        for tensor in self.matrices:
            found = operand_print(self.file.matrix(tensor), tensor.dtype)
            yield MatrixPrint(tensor.name, tensor.dtype, tensor.shape, found)


def chosen_in(path: Path, names: Sequence[str] = ()) -> Chosen:
    """The tensors of a file by name, or all.

    Raises:
        InputError: the file cannot be read, or has no tensor of a name.
    """
    file = open_tensors(path)
    tensors = [file.tensor(name) for name in dict.fromkeys(names)] or file.tensors
    why = {tensor: tensor.no_matrix or _no_print(tensor) for tensor in tensors}
    return Chosen(
        file,
        tuple(tensor for tensor in tensors if not why[tensor]),
        tuple(
            LeftOutTensor(t.name, t.dtype, t.shape, reason) for t, reason in why.items() if reason
        ),
    )


def _no_print(tensor: Tensor) -> str:
    if tensor.dtype in STORAGE:
        return ""
    return f"no fingerprint is made of {tensor.dtype}: cast it, for instance to fp32"
