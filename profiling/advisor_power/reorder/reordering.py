"""From files of a network to files with hidden units in another order, checked at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor_power.reorder.agreement import Agreement, agreement, check_finite, down_weight
from advisor_power.reorder.layers import HiddenLayer, find_layers
from advisor_power.reorder.orders import Found, find_order
from advisor_power.reorder.rewriting import drafts, edits_of, new_path
from advisor_power.tensors.tensor_file import TensorFile, open_tensors


@dataclass(frozen=True, slots=True, eq=False)
class Reordered:
    """What became of one layer.

    Attributes:
        agreement: Of old and new outputs; None where the old order stays.
    """

    layer: HiddenLayer
    found: Found
    agreement: Agreement | None


@dataclass(frozen=True, slots=True, eq=False)
class Reordering:
    """What became of a network.

    Attributes:
        files: New files by old ones; empty where no layer has a better order.
    """

    layers: tuple[Reordered, ...]
    files: dict[Path, Path]

    @property
    def best(self) -> Reordered:
        """The layer whose switching falls most."""
        return min(self.layers, key=lambda one: one.found.change)


def reorder(
    paths: Sequence[Path],
    asked: Sequence[str],
    to: Path | None,
    report: Callable[[int, int], object],
) -> Reordering:
    """Put hidden units into an order in which fewer bits switch, and write new files.

    Args:
        paths: As for `find_layers`.
        asked: As for `find_layers`.
        to: As for `new_path`; made where it is not there.
        report: Called with layers that are done, and all.

    Raises:
        InputError: as `find_layers`, or weights are not finite, a new file is there already or
            cannot be written, or outputs differ.
    """
    files = [open_tensors(path) for path in paths]
    layers = find_layers(files, asked)
    targets = [(file, new_path(file.path, to)) for file in files]
    if len({path for _, path in targets}) < len(targets):
        raise InputError("two files would get one name", fix="leave --to out, or rename one")
    found: dict[HiddenLayer, Found] = {}
    for layer in layers:
        report(len(found), len(layers))
        check_finite(layer)
        found[layer] = find_order(down_weight(layer, {}))
    report(len(found), len(layers))
    return _written(found, targets)


def _written(
    found: dict[HiddenLayer, Found], targets: Sequence[tuple[TensorFile, Path]]
) -> Reordering:
    better = {layer: one.order for layer, one in found.items() if one.change < 0}
    if not better:
        return Reordering(tuple(Reordered(layer, one, None) for layer, one in found.items()), {})
    edits = edits_of(better)
    with drafts(targets, edits) as made:
        new = {old: open_tensors(draft) for old, draft in made.items()}
        agreements = {layer: agreement(layer, new, edits) for layer in better}
    layers = (Reordered(layer, one, agreements.get(layer)) for layer, one in found.items())
    return Reordering(tuple(layers), {file.path: path for file, path in targets})
