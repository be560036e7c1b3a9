"""Operands from files: the numbers of the file, tied to its content by a hash."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors_files import write_safetensors

from advisor.errors import InputError
from advisor_power.data.fill import STORAGE, fill_pair, pinned
from advisor_power.data.language import OperandPair, parse_operands

NAMES = {
    "fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn, "int8": np.int8,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pair_of(text: str) -> OperandPair:
    return pinned(parse_operands(text))


@given(st.sampled_from(sorted(NAMES)), st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_finite_numbers_of_the_same_type_are_filled_bit_by_bit(
    folder: Path, dtype: str, seed: int
) -> None:
    kind: Any = NAMES[dtype]
    random = np.random.default_rng(seed)
    numbers = np.clip(random.standard_normal((6, 8)) * 100, -120, 120).astype(kind)
    write_safetensors(folder / "w.safetensors", {"w": numbers})
    a, b = fill_pair(pair_of('file("w.safetensors")'), (6, 6, 8), dtype)
    bits = STORAGE[dtype][1]
    assert np.array_equal(a.matrix.view(bits), numbers.view(bits))
    assert np.array_equal(b.matrix.T.view(bits), numbers.view(bits))


def test_a_weight_of_a_linear_layer_is_b_as_it_lies(folder: Path) -> None:
    """PyTorch keeps (out, in): with align=true B is its transpose, without it the matrix."""
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_safetensors(folder / "w.safetensors", {"w": weight})
    _, b = fill_pair(pair_of('a=ones; b=file("w.safetensors")'), (2, 3, 4), "bf16")
    assert np.array_equal(b.matrix.astype(np.float32), weight.T)
    _, b = fill_pair(pair_of('a=ones; b=file("w.safetensors"); align=false'), (2, 4, 3), "bf16")
    assert np.array_equal(b.matrix.astype(np.float32), weight)


def test_of_a_larger_matrix_the_first_rows_and_columns_are_used(folder: Path) -> None:
    np.save(folder / "w.npy", np.arange(20.0).reshape(4, 5))
    a, _ = fill_pair(pair_of('file("w.npy")|scale(2)'), (2, 2, 3), "fp32")
    assert a.matrix.tolist() == [[0, 2, 4], [10, 12, 14]]


def test_other_types_are_rounded_and_what_does_not_fit_is_counted(folder: Path) -> None:
    np.save(folder / "w.npy", np.array([[1e300, 1.0], [300.0, -1e39]]))
    pair = pair_of('file("w.npy")')
    found = [fill_pair(pair, (2, 2, 2), dtype)[0] for dtype in ("fp32", "fp8", "int8")]
    assert [one.non_finite for one in found] == [2, 2, 0]
    assert found[2].saturated == 3
    e5m2 = np.array([[1.25, -3.5]], dtype=ml_dtypes.float8_e5m2)
    write_safetensors(folder / "e.safetensors", {"w": e5m2})
    a, _ = fill_pair(pair_of('file("e.safetensors",tensor="w")'), (1, 1, 2), "fp8")
    assert a.matrix.astype(np.float32).tolist() == [[1.25, -3.5]]


def test_the_key_follows_the_content_and_can_be_read_again(folder: Path) -> None:
    numbers = np.ones((2, 2), np.float32)
    np.save(folder / "w.npy", numbers)
    first = pair_of('a=file("w.npy"); b=ones')
    assert pair_of(str(first)) == first
    np.save(folder / "w.npy", numbers * 2)
    assert str(pair_of('a=file("w.npy"); b=ones')) != str(first)
    for use in (lambda: pinned(first), lambda: fill_pair(first, (2, 2, 2), "bf16")):
        with pytest.raises(InputError, match=r"w\.npy is not what it was"):
            use()


def test_nothing_is_filled_without_the_hash_and_the_message_has_it(folder: Path) -> None:
    np.save(folder / "w.npy", np.ones((2, 2), np.float32))
    with pytest.raises(InputError) as caught:
        fill_pair(parse_operands('file("w.npy")'), (2, 2, 2), "bf16")
    assert str(pair_of('file("w.npy")').a) in caught.value.fix


def test_reading_text_opens_no_file(folder: Path) -> None:
    """A service may be sent any text."""
    assert str(parse_operands('file("/nowhere/w.npy")').a) == 'file("/nowhere/w.npy")'


def test_other_sources_need_no_pin() -> None:
    pair = parse_operands("a=normal(0,1); b=zeros")
    assert pinned(pair) == pair


def test_tensors_that_do_not_fit_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(folder / "w.npy", np.ones((2, 3), np.float32))
    np.save(folder / "line.npy", np.ones(6, np.float32))
    with pytest.raises(InputError, match="2 by 3 elements, and 2 by 4 are needed"):
        fill_pair(pair_of('file("w.npy")'), (2, 2, 4), "bf16")
    with pytest.raises(InputError, match="no tensor x"):
        pair_of('file("w.npy",tensor="x")')
    with pytest.raises(InputError, match="1-D"):
        pair_of('file("line.npy")')
    monkeypatch.setattr("advisor_power.data.fill.BYTES_LIMIT", 23)
    with pytest.raises(InputError, match="has 24 bytes"):
        pair_of('file("w.npy")')
