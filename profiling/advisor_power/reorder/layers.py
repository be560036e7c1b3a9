"""Hidden units in files of weights: which tensors have an element, a row or a column for each.

Between two linear layers, with nothing but a function of each element in between, hidden units may
be in any order: rows of the first weight with its bias, and columns of the second one.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from advisor.errors import InputError
from advisor_power.tensors.tensor_file import TensorFile
from advisor_power.tensors.types import Tensor, fault, shape_text, shown

KNOWN: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gate_proj", "up_proj"), "down_proj"),
    (("w1", "w3"), "w2"),
    (("wi_0", "wi_1"), "wo"),
    (("wi",), "wo"),
    (("fc1",), "fc2"),
    (("fc_in",), "fc_out"),
    (("lin1",), "lin2"),
    (("linear1",), "linear2"),
    (("intermediate.dense",), "output.dense"),
    (("dense_h_to_4h",), "dense_4h_to_h"),
    (("c_fc",), "c_proj"),
)
"""Names of layers of well-known networks: those into hidden units, and the one out of them. Where
there are two into them, one is the gate of the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A tensor with something for each hidden unit.

    Attributes:
        axis: Which index of its shape counts them.
    """

    file: TensorFile
    tensor: Tensor
    axis: int

    @property
    def size(self) -> int:
        """Hidden units."""
        return self.tensor.shape[self.axis]


@dataclass(frozen=True, slots=True, eq=False)
class HiddenLayer:
    """Hidden units that may be in another order.

    Attributes:
        name: Of the layers into and out of them.
        ups: Weights into them; of a gated layer the gate first.
        biases: Of `ups`; None where there is none.
        down: The weight out of them.
    """

    name: str
    ups: tuple[Part, ...]
    biases: tuple[Part | None, ...]
    down: Part

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that is put into another order."""
        return (*self.ups, *(bias for bias in self.biases if bias is not None), self.down)


_Names: TypeAlias = Mapping[str, tuple[TensorFile, Tensor]]


def find_layers(files: Sequence[TensorFile], asked: Sequence[str]) -> tuple[HiddenLayer, ...]:
    """The hidden layers of a network's files.

    Args:
        files: Of safetensors, which are one network together; or of npy: the weight into hidden
            units, its bias if there is one, the weight out of them.
        asked: Layers as `fc1:fc2` or `gate,up:down`; empty: all with names that are known.

    Raises:
        InputError: a layer is not known, a tensor is missing, in two files or in two layers, shapes
            do not fit, or another tensor seems to belong to hidden units.
    """
    if not all(tensor.name for file in files for tensor in file.tensors):
        found = [_of_arrays(files, asked)]
    else:
        names = _by_name(files)
        wanted = [_asked(text) for text in asked] or list(_known(names))
        if not wanted:
            raise InputError(
                f"{', '.join(str(file.path) for file in files)}: no layers with known names",
                why="which tensors belong to the same hidden units is known by their names",
                fix="name two layers with an activation between: --layer fc1:fc2",
            )
        found = [_layer(names, *layer) for layer in wanted]
        ours = {part.tensor.name for layer in found for part in layer.parts}
        for layer, (ups, down) in zip(found, wanted, strict=True):
            _check_strangers(names, layer, (*ups, down), ours)
    _check_untied(found)
    return tuple(found)


def _by_name(files: Sequence[TensorFile]) -> dict[str, tuple[TensorFile, Tensor]]:
    names: dict[str, tuple[TensorFile, Tensor]] = {}
    for file in files:
        for tensor in file.tensors:
            if tensor.name in names:
                other = names[tensor.name][0].path
                raise fault(
                    str(file.path),
                    f"{shown(tensor.name)} is in {other}, too",
                    fix="give files of one network, each once",
                )
            names[tensor.name] = file, tensor
    return names


def _asked(text: str) -> tuple[tuple[str, ...], str]:
    ups, _, down = text.partition(":")
    names = tuple(ups.split(","))
    if not down or not all(names) or len(names) > 2:
        raise InputError(
            f"--layer {text} names no layers",
            fix="write --layer fc1:fc2, of a gated one --layer gate,up:down",
        )
    return names, down


def _known(names: _Names) -> Iterator[tuple[tuple[str, ...], str]]:
    """Layers with names that are known; a first one without its second one is an error later."""
    for name in names:
        for ups, down in KNOWN:
            prefix = name.removesuffix(f"{ups[0]}.weight")
            found = prefix != name and prefix[-1:] in ("", ".")
            if found and all(f"{prefix}{up}.weight" in names for up in ups):
                yield tuple(prefix + up for up in ups), prefix + down


def _layer(names: _Names, ups: tuple[str, ...], down: str) -> HiddenLayer:
    into = _hidden_axis(names, ups[0])
    weights = tuple(_weight(names, up, into) for up in ups)
    biases = tuple(Part(*names[f"{up}.bias"], 0) if f"{up}.bias" in names else None for up in ups)
    layer = HiddenLayer(f"{','.join(ups)}:{down}", weights, biases, _weight(names, down, 1 - into))
    _check_shapes(layer)
    return layer


def _hidden_axis(names: _Names, up: str) -> int:
    """0 for weights of (outputs, inputs), as `torch.nn.Linear` has them; GPT-2 has the others.

    There a bias is as long as a row. A square one tells nothing, and GPT-2's names are both.
    """
    file, tensor = _weight(names, up, 0).file, names[f"{up}.weight"][1]
    bias = names.get(f"{up}.bias")
    if bias is None or tensor.no_matrix:
        return 0
    rows, columns = tensor.shape
    if rows == columns and up.endswith("c_fc"):
        raise fault(
            str(file.path),
            "whether its rows or its columns are hidden units cannot be told from a square",
            tensor=tensor.name,
            fix="store it under other names, (outputs, inputs), and name them with --layer",
        )
    return 1 if bias[1].shape == (columns,) != (rows,) else 0


def _of_arrays(files: Sequence[TensorFile], asked: Sequence[str]) -> HiddenLayer:
    dimensions = [len(file.tensors[0].shape) if file.tensors else 0 for file in files]
    if asked or dimensions not in ([2, 2], [2, 1, 2]):
        raise InputError(
            f"{', '.join(str(file.path) for file in files)}: of npy one layer is taken",
            fix="give the weight into hidden units, its bias if it has one, and the weight out of "
            "them, (outputs, inputs) each; put more layers into a safetensors file",
        )
    first, *bias, second = (Part(file, file.tensors[0], 0) for file in files)
    down = Part(second.file, second.tensor, 1)
    name = f"{first.file.path}:{down.file.path}"
    layer = HiddenLayer(name, (first,), (bias[0] if bias else None,), down)
    _check_shapes(layer)
    return layer


def _weight(names: _Names, layer: str, axis: int) -> Part:
    name = f"{layer}.weight"
    if name not in names:
        raise InputError(
            f"there is no tensor {shown(name)}",
            why="hidden units have another order only where all that belongs to them has it",
            fix="give all files of the network, and names of layers as the files have them",
        )
    return Part(*names[name], axis)


def _check_shapes(layer: HiddenLayer) -> None:
    for part in layer.parts:
        tensor, flat = part.tensor, part in layer.biases
        why = "" if flat else tensor.no_matrix
        if flat and len(tensor.shape) != 1:
            why = "a bias has one index"
        if not why and part.size != layer.down.size:
            why = f"it has {part.size} hidden units, and {layer.name} ends with {layer.down.size}"
        if why:
            raise fault(
                str(part.file.path),
                f"shape {shape_text(tensor.shape)}: {why}",
                tensor=tensor.name,
                byte=tensor.begin,
                fix="name a pair of linear layers with nothing but an activation between",
            )


def _check_strangers(
    names: _Names, layer: HiddenLayer, layers: tuple[str, ...], ours: Container[str]
) -> None:
    """Refuse what may belong to hidden units and is not known: scales, adapters, gates, norms.

    Args:
        names: Every tensor.
        layer: Where strangers would be.
        layers: The names it has.
        ours: Tensors of all layers that are put into another order.
    """
    steps = zip(*(name.split(".")[:-1] for name in layers), strict=False)
    place = "".join(f"{step[0]}." for step in takewhile(lambda step: len(set(step)) == 1, steps))
    outer = {part.tensor.shape[1 - part.axis] for part in (*layer.ups, layer.down)}
    for name, (file, tensor) in names.items():
        inside = name.startswith(tuple(f"{one}." for one in layers))
        alike = layer.down.size in tensor.shape and layer.down.size not in outer
        known = name in ours or name == f"{layers[-1]}.bias"
        if not known and (inside or (alike and name.startswith(place))):
            raise fault(
                str(file.path),
                f"shape {shape_text(tensor.shape)}: it may belong to hidden units of {layer.name}",
                tensor=name,
                fix="only weights and biases of linear layers are put into another order: fuse "
                "adapters and scales into them, or name the layers with --layer",
            )


def _check_untied(layers: Sequence[HiddenLayer]) -> None:
    taken: set[tuple[str, str, int]] = set()
    for layer in layers:
        for part in layer.parts:
            place = str(part.file.path.resolve()), part.tensor.name, part.axis
            if place in taken:
                raise fault(
                    str(part.file.path),
                    f"{layer.name} shares it with another layer",
                    tensor=part.tensor.name,
                    fix="tied hidden units have one order: leave such layers out with --layer",
                )
            taken.add(place)
