"""Hidden units in another order: the function stays, bits switch less, and doubt is refused."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors_files import write_safetensors

from advisor.errors import InputError
from advisor_power.operands.fingerprint import operand_print
from advisor_power.reorder import orders, rewriting
from advisor_power.reorder.orders import bits_of, distances, find_order, switching
from advisor_power.reorder.reordering import Reordering, reorder
from advisor_power.tensors.tensor_file import open_tensors

TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8]
SHAPED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
RANDOM = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = np.float32, seed: int | None = None) -> Any:
    random = RANDOM if seed is None else np.random.default_rng(seed)
    return (8 * random.standard_normal(shape)).astype(dtype)


def network(changed: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """12 hidden units; what is changed to None is not there."""
    tensors = {
        "mlp.fc1.weight": drawn(12, 5),
        "mlp.fc1.bias": drawn(12),
        "mlp.fc2.weight": drawn(5, 12),
        "mlp.fc2.bias": drawn(5),
    }
    return {name: value for name, value in (tensors | dict(changed)).items() if value is not None}


def values(path: Path) -> dict[str, Any]:
    file = open_tensors(path)
    return {tensor.name: file.numbers(tensor).astype(np.float64) for tensor in file.tensors}


def reorder_in(folder: Path, tensors: Mapping[str, Any], *asked: str) -> Reordering:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    path = write_safetensors(folder / "net.safetensors", tensors, format="pt")
    return reorder([path], asked, None, lambda done, total: None)


# the function


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


@SHAPED
@given(
    st.sampled_from(TYPES), st.integers(2, 30), st.integers(1, 9), st.booleans(), st.integers(0, 99)
)
def test_function_is_unchanged(
    tmp_path: Path, dtype: Any, hidden: int, width: int, biased: bool, seed: int
) -> None:
    """Of any type and shape; what is no part of the layer keeps its bytes, and the header too."""
    tensors = {
        "x": drawn(3, 3, seed=seed),
        "fc1.weight": drawn(hidden, width, dtype=dtype, seed=seed),
        "fc2.weight": drawn(width, hidden, dtype=dtype, seed=seed + 1),
    }
    if biased:
        tensors["fc1.bias"] = drawn(hidden, dtype=dtype, seed=seed + 2)
    if hidden == 3 != width:
        tensors.pop("x")  # it would look like a part of hidden units
    found = reorder_in(tmp_path, tensors)
    (one,) = found.layers
    assert one.found.after <= one.found.before
    assert sorted(one.found.order) == list(range(hidden))
    if not found.files:
        assert one.found.change == 0
        return
    (paths,) = found.files.items()
    old, new = map(values, paths)
    x = np.random.default_rng(1).standard_normal((4, width))
    y, now = (
        relu(x @ of["fc1.weight"].T + of.get("fc1.bias", 0)) @ of["fc2.weight"].T
        for of in (old, new)
    )
    assert now == pytest.approx(y, rel=1e-9, abs=1e-6)
    assert np.array_equal(new.get("x", 0), old.get("x", 0))
    start = min(tensor.begin for tensor in open_tensors(paths[0]).tensors)
    assert paths[1].read_bytes()[:start] == paths[0].read_bytes()[:start]


def test_gates_move_with_what_they_gate(tmp_path: Path) -> None:
    """As in Llama; each block has an order of its own, and embeddings stay."""
    blocks = {
        f"layers.{n}.mlp.{name}.weight": drawn(*shape)
        for n in range(2)
        for name, shape in (("gate_proj", (16, 6)), ("up_proj", (16, 6)), ("down_proj", (6, 16)))
    }
    found = reorder_in(tmp_path, {"embed.weight": drawn(16, 6)} | blocks)
    assert len(found.layers) == 2
    ((old, new),) = found.files.items()
    before, after = values(old), values(new)
    assert np.array_equal(after["embed.weight"], before["embed.weight"])
    x = RANDOM.standard_normal((4, 6))
    for n in range(2):
        y, now = (
            (relu(x @ gate.T) * (x @ up.T)) @ down.T
            for of in (before, after)
            for gate, up, down in [
                [of[f"layers.{n}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")]
            ]
        )
        assert now == pytest.approx(y)
        assert not np.array_equal(
            before[f"layers.{n}.mlp.up_proj.weight"], after[f"layers.{n}.mlp.up_proj.weight"]
        )


def test_chain_of_layers_has_two_orders(tmp_path: Path) -> None:
    """The weight in the middle moves by rows and by columns."""
    sizes = {"a": (9, 4), "b": (7, 9), "c": (3, 7)}
    tensors = {f"{name}.weight": drawn(*shape) for name, shape in sizes.items()}
    tensors |= {"a.bias": drawn(9), "b.bias": drawn(7)}
    found = reorder_in(tmp_path, tensors, "a:b", "b:c")
    ((old, new),) = found.files.items()
    x = RANDOM.standard_normal((4, 4))
    y, now = (
        relu(relu(x @ of["a.weight"].T + of["a.bias"]) @ of["b.weight"].T + of["b.bias"])
        @ of["c.weight"].T
        for of in map(values, (old, new))
    )
    assert now == pytest.approx(y)


def test_weights_of_gpt2_are_inputs_by_outputs(tmp_path: Path) -> None:
    """Known by the bias, which is as long as a row."""
    tensors = {
        "mlp.c_fc.weight": drawn(5, 20), "mlp.c_fc.bias": drawn(20),
        "mlp.c_proj.weight": drawn(20, 5), "mlp.c_proj.bias": drawn(5),
    }  # fmt: skip
    found = reorder_in(tmp_path, tensors)
    ((old, new),) = found.files.items()
    x = RANDOM.standard_normal((4, 5))
    y, now = (
        relu(x @ of["mlp.c_fc.weight"] + of["mlp.c_fc.bias"]) @ of["mlp.c_proj.weight"]
        for of in map(values, (old, new))
    )
    assert now == pytest.approx(y)
    assert found.layers[0].layer.down.size == 20


@pytest.mark.parametrize("by_columns", [False, True])
def test_arrays_of_npy_by_rows_and_by_columns(tmp_path: Path, by_columns: bool) -> None:
    """One layer of three files; they go to a folder that is made."""
    arrays = {"w1": drawn(9, 4), "b1": drawn(9), "w2": drawn(4, 9)}
    paths = [tmp_path / f"{name}.npy" for name in arrays]
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, np.asfortranarray(array) if by_columns else array)
    found = reorder(paths, (), tmp_path / "new", lambda done, total: None)
    w1, b1, w2 = (np.load(path) for path in found.files.values())
    x = RANDOM.standard_normal((4, 4))
    y = relu(x @ arrays["w1"].T + arrays["b1"]) @ arrays["w2"].T
    assert relu(x @ w1.T + b1) @ w2.T == pytest.approx(y, rel=1e-4)
    assert not np.array_equal(w1, arrays["w1"])
    assert list(found.files.values()) == [tmp_path / "new" / path.name for path in paths]


# orders


@given(st.sampled_from(TYPES), st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_distances_are_bits_that_differ(dtype: Any, rows: int, columns: int, seed: int) -> None:
    """As counted one by one."""
    bits = bits_of(drawn(rows, columns, dtype=dtype, seed=seed))
    found = distances(bits)
    for i, j in itertools.product(range(columns), repeat=2):
        assert found[i, j] == sum((int(a) ^ int(b)).bit_count() for a, b in bits[:, [i, j]])


@given(st.sampled_from(TYPES), st.integers(2, 64), st.integers(0, 99))
def test_switching_is_that_of_fingerprints(dtype: Any, side: int, seed: int) -> None:
    """A matrix that a fingerprint takes in whole has the same toggles along rows."""
    matrix = drawn(side, side, dtype=dtype, seed=seed)
    names = {"bfloat16": "bf16", "float8_e4m3fn": "fp8", "int8": "int8"}
    names |= {"float32": "fp32", "float16": "fp16"}
    along = operand_print(matrix, names[np.dtype(dtype).name]).along
    assert switching(bits_of(matrix), np.arange(side)) == pytest.approx(along)


def test_alike_columns_come_together() -> None:
    """Two kinds of columns, mixed: one change between them is left."""
    kinds = np.array([[1.0, -3.5]] * 6, np.float32)
    mixed = kinds[:, [0, 1, 0, 1, 0, 1, 1, 0]]
    found = find_order(mixed)
    assert found.before == pytest.approx(6 * found.after)


def test_no_better_order_writes_nothing(tmp_path: Path) -> None:
    """Zeros switch nowhere."""
    zeros = network({"mlp.fc2.weight": np.zeros((5, 12), np.float32)})
    found = reorder_in(tmp_path, zeros)
    assert not found.files
    assert found.layers[0].agreement is None
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


# what is refused

BAD: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "nothing known": ({"a.weight": drawn(4, 4)}, (), "no layers with known names"),
    "second weight": (network({"mlp.fc2.weight": None}), (), "no tensor mlp.fc2.weight"),
    "shape": (network({"mlp.fc2.weight": drawn(5, 11)}), (), "it has 12 hidden units"),
    "bias": (network({"mlp.fc1.bias": drawn(7)}), (), "it has 7 hidden units"),
    "bias of two": (network({"mlp.fc1.bias": drawn(12, 1)}), (), "a bias has one index"),
    "experts": (network({"mlp.fc1.weight": drawn(2, 12, 5)}), (), "3-D, and a matrix is 2-D"),
    "norm between": (network({"mlp.ln.weight": drawn(12)}), (), "may belong to hidden units"),
    "gate": (network({"mlp.gate.weight": drawn(12, 5)}), (), "may belong to hidden units"),
    "adapter": (network({"mlp.fc1.lora_a": drawn(2, 5)}), (), "may belong to hidden units"),
    "scale": (network({"mlp.fc2.weight_scale": drawn(1)}), (), "may belong to hidden units"),
    "bytes": (
        network({"mlp.fc1.weight": np.zeros((12, 5), np.uint8)}), (), "no matrix product here"
    ),
    "integers": (network({"mlp.fc1.bias": np.zeros(12, np.int64)}), (), "are not known here"),
    "tied": (network(), ("mlp.fc1:mlp.fc2",) * 2, "shares it with another layer"),
    "square": (
        {f"{n}.weight": drawn(4, 4) for n in ("c_fc", "c_proj")} | {"c_fc.bias": drawn(4)},
        (),
        "cannot be told from a square",
    ),
    "no layer": (network(), ("mlp.fc1",), "names no layers"),
    "unknown": (network(), ("mlp.up:mlp.fc2",), "no tensor mlp.up.weight"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_sure_is_refused(tmp_path: Path, name: str) -> None:
    """And nothing is written."""
    tensors, asked, said = BAD[name]
    with pytest.raises(InputError, match=said):
        reorder_in(tmp_path, tensors, *asked)
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


@pytest.mark.parametrize("name", ["mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, name: str, bad: float) -> None:
    """Nothing could be compared."""
    tensors = network()
    tensors[name].flat[3] = bad
    with pytest.raises(InputError, match="1 of its numbers are NaN or infinite"):
        reorder_in(tmp_path, tensors)


def test_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    """Which one would count?"""
    paths = [write_safetensors(tmp_path / f"{n}.safetensors", network()) for n in range(2)]
    with pytest.raises(InputError, match=r"is in .*, too"):
        reorder(paths, (), None, lambda done, total: None)


def test_shards_are_one_network(tmp_path: Path) -> None:
    """A layer may be in two files; what is in no layer is copied."""
    whole = network()
    parts = [{"mlp.fc1.weight"}, set(whole) - {"mlp.fc1.weight"}]
    paths = [
        write_safetensors(tmp_path / f"{n}.safetensors", {k: whole[k] for k in sorted(part)})
        for n, part in enumerate(parts)
    ]
    with pytest.raises(InputError, match=r"no tensor mlp\.fc2\.weight"):
        reorder(paths[:1], (), None, lambda done, total: None)
    found = reorder(paths, (), tmp_path / "new", lambda done, total: None)
    assert len(found.files) == 2
    assert found.layers[0].agreement is not None


@pytest.mark.parametrize("count", [1, 4])
def test_npy_is_one_layer(tmp_path: Path, count: int) -> None:
    """Two matrices, or a bias between."""
    paths = [tmp_path / f"{n}.npy" for n in range(count)]
    for path in paths:
        np.save(path, drawn(4, 4))
    with pytest.raises(InputError, match="of npy one layer is taken"):
        reorder(paths, (), None, lambda done, total: None)


def test_no_file_is_written_over(tmp_path: Path) -> None:
    """Neither the old one nor one that was made before."""
    path = write_safetensors(tmp_path / "net.safetensors", network())
    (tmp_path / "net.reordered.safetensors").write_text("mine")
    for to in (None, tmp_path):
        with pytest.raises(InputError, match="is there already"):
            reorder([path], (), to, lambda done, total: None)
    assert (tmp_path / "net.reordered.safetensors").read_text() == "mine"


def test_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A file is in its place."""
    path = write_safetensors(tmp_path / "net.safetensors", network())
    (tmp_path / "to").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        reorder([path], (), tmp_path / "to", lambda done, total: None)


def test_file_that_computes_something_else_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were a weight written as it was: outputs are compared from the written file."""
    whole = rewriting.reordered

    def forgetful(part: Any, edits: Any) -> Any:
        return whole(part, {} if part.tensor.name == "mlp.fc1.bias" else edits)

    monkeypatch.setattr(rewriting, "reordered", forgetful)
    with pytest.raises(InputError, match="outputs differ by"):
        reorder_in(tmp_path, network())
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


def test_too_many_hidden_units_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their distances would not fit into memory."""
    monkeypatch.setattr(orders, "MOST_UNITS", 3)
    with pytest.raises(InputError, match="4 hidden units"):
        find_order(drawn(2, 4))
