"""New files beside the old ones: everything as it was but the order of hidden units."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from advisor.errors import InputError
from advisor.files.whole_files import PUBLIC_FILE, sync_folder
from advisor_power.operands.bits import Matrix
from advisor_power.reorder.layers import HiddenLayer, Part
from advisor_power.reorder.orders import Order
from advisor_power.tensors.tensor_file import TensorFile
from advisor_power.tensors.types import Tensor

Edits: TypeAlias = Mapping[str, Mapping[int, Order]]
"""Of one file: by tensor and axis the new order of what that index counts."""


def new_path(path: Path, to: Path | None) -> Path:
    """Where the new file goes.

    Args:
        path: The old one.
        to: Folder for files of the same names; None: beside the old one, with `.reordered`.

    Raises:
        InputError: there is a file already.
    """
    name = f"{path.stem}.reordered{path.suffix}" if to is None else path.name
    found = (path.parent if to is None else to) / name
    if found.exists():
        raise InputError(
            f"{found} is there already",
            why="no file is written over",
            fix="move it away, or name another folder: --to FOLDER",
        )
    return found


def edits_of(layers: Mapping[HiddenLayer, Order]) -> dict[Path, dict[str, dict[int, Order]]]:
    """What is done to each file."""
    found: dict[Path, dict[str, dict[int, Order]]] = {}
    for layer, order in layers.items():
        for part in layer.parts:
            of_file = found.setdefault(part.file.path, {})
            of_file.setdefault(part.tensor.name, {})[part.axis] = order
    return found


@contextmanager
def drafts(
    files: Sequence[tuple[TensorFile, Path]], edits: Mapping[Path, Edits]
) -> Generator[dict[Path, Path]]:
    """New files under other names, by old path; they get theirs at the end of the block.

    Where the block fails they are removed, so that no file is there in half or unchecked.

    Raises:
        InputError: they cannot be written.
    """
    with ExitStack() as cleaning:
        made: dict[Path, Path] = {}
        try:
            for file, path in files:
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_name(f".{path.name}.{os.getpid()}.part")
                cleaning.callback(draft.unlink, missing_ok=True)
                _write(file, edits.get(file.path, {}), draft)
                made[file.path] = draft
        except OSError as error:
            raise InputError(
                "the new file cannot be written",
                why=str(error),
                fix="make room, or name another folder: --to FOLDER",
            ) from error
        yield made
        for file, path in files:
            made[file.path].rename(path)
            sync_folder(path.parent)


def reordered(part: Part, edits: Edits) -> Matrix:
    """The numbers of a part as its new file has them."""
    numbers = part.file.numbers(part.tensor)
    for axis, order in edits.get(part.tensor.name, {}).items():
        numbers = np.take(numbers, order, axis)
    return numbers


def _write(file: TensorFile, edits: Edits, path: Path) -> None:
    """Header and what belongs to no edit are the same bytes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PUBLIC_FILE)
    with os.fdopen(descriptor, "wb") as new, memoryview(file.mapped) as old:
        end = 0
        for tensor in file.tensors:
            if tensor.name in edits:
                new.write(old[end : tensor.begin])
                new.write(_bytes(file, tensor, edits))
                end = tensor.end
        new.write(old[end:])
        new.flush()
        os.fsync(new.fileno())


def _bytes(file: TensorFile, tensor: Tensor, edits: Edits) -> bytes:
    numbers = reordered(Part(file, tensor, 0), edits)
    return (numbers.T if tensor.by_columns else numbers).tobytes()
