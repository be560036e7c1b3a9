"""Files of tensors: what is in them, and clear errors for what is broken, hostile or a pickle."""

import hashlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors_files import write_safetensors

from advisor.errors import InputError
from advisor_power.data.operands import (
    STORAGE,
    OperandPair,
    fill_pair,
    open_matrix,
    parse_operands,
    pinned,
)

NUMBERS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "I8": np.int8,
}  # fmt: skip


def file_of(entries: dict[str, Any] | str, data: bytes = b"") -> bytes:
    """A safetensors file, well made or not."""
    header = (entries if isinstance(entries, str) else json.dumps(entries)).encode()
    return len(header).to_bytes(8, "little") + header + data


def entry(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def one(dtype: Any = "I8", shape: Any = (2, 3), begin: Any = 0, end: Any = 6) -> dict[str, Any]:
    return {"w": entry(dtype, shape, begin, end)}


def read(path: Path, content: bytes, name: str | None = None) -> Any:
    path.write_bytes(content)
    return open_matrix(path, name)


@given(st.sampled_from(sorted(NUMBERS)), st.integers(0, 9), st.integers(0, 9), st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_come_back_bit_by_bit_wherever_they_begin(
    tmp_path: Path, name: str, rows: int, columns: int, padding: int
) -> None:
    """Headers of any length: numbers need not begin at a multiple of their size."""
    random = np.random.default_rng(rows * 100 + columns)
    numbers = np.frombuffer(
        random.bytes(rows * columns * np.dtype(NUMBERS[name]).itemsize), NUMBERS[name]
    ).reshape(rows, columns)
    text = json.dumps({"w": entry(name, numbers.shape, 0, numbers.nbytes)}) + " " * padding
    content = file_of(text, numbers.tobytes())
    if numbers.size:
        found = read(tmp_path / "x.safetensors", content)
        assert (found.shape, found.dtype) == (numbers.shape, numbers.dtype)
        assert found.tobytes() == numbers.tobytes()
    else:
        with pytest.raises(InputError, match="no elements"):
            read(tmp_path / "x.safetensors", content)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", "<f2", "|i1", "<f8"])
def test_npy_as_numpy_writes_it(tmp_path: Path, dtype: str, order: Any) -> None:
    numbers = np.arange(12).reshape(3, 4).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", numbers)
    assert np.array_equal(open_matrix(tmp_path / "x.npy"), numbers)


def test_a_tensor_is_found_by_name_or_as_the_only_matrix(tmp_path: Path) -> None:
    entries = {
        "__metadata__": {"format": "pt"},
        "late": entry("F16", [2, 1], 6, 10),
        "early": entry("I8", [2, 3], 0, 6),
        "none": entry("F32", [0], 6, 6),
    }
    path, content = tmp_path / "x.safetensors", file_of(entries, bytes(10))
    assert read(path, content, "late").shape == (2, 1)
    with pytest.raises(InputError, match=r"not one matrix.*late, early, none"):
        read(path, content)
    with pytest.raises(InputError, match="no tensor lat"):
        read(path, content, "lat")
    del entries["late"]
    assert read(path, file_of(entries, bytes(10))).shape == (2, 3)
    with pytest.raises(InputError, match="there are none"):
        read(path, file_of({}))


@pytest.mark.parametrize(
    ("shape", "why"),
    [((), "0-D"), ((6,), "1-D"), ((1, 2, 3), "3-D"), ((1, 2, 3, 1), "4-D"), ((6, 1), "I64")],
)
def test_what_is_no_matrix_says_why(tmp_path: Path, shape: tuple[int, ...], why: str) -> None:
    dtype, size = ("I64", 48) if why == "I64" else ("I8", int(np.prod(shape)))
    with pytest.raises(InputError, match=rf"x\.safetensors, tensor w: .*{why}"):
        read(tmp_path / "x.safetensors", file_of(one(dtype, shape, 0, size), bytes(size)))


BROKEN = {
    "not a whole length": (b"\1\0\0", "cut off"),
    "a length behind the file": ((99).to_bytes(8, "little") + b"{}", "byte 107, .*has 10"),
    "a header too large": ((1 << 62).to_bytes(8, "little") + b"{}", "100000000 bytes are"),
    "no JSON": (file_of('{"w": [}'), "not JSON.*column 8"),
    "no UTF-8": ((2).to_bytes(8, "little") + b"{\xff", "not JSON"),
    "no object": (file_of("[1]"), "cut off"),
    "brackets without end": (file_of("{" + '"a":[' + "[" * 100_000), "header"),
    "a number without end": (file_of('{"w": ' + "1" * 9999 + "}"), "header"),
    "no fields": (file_of({"w": {}}), "there are none"),
    "dtype a number": (file_of(one(dtype=3), bytes(6)), r"w\._Entry\.dtype"),
    "a broken side": (file_of(one(shape=[2.0, 3]), bytes(6)), r"w\._Entry\.shape"),
    "a true side": (file_of(one(shape=[True, 6]), bytes(6)), r"w\._Entry\.shape"),
    "no list of sides": (file_of(one(shape=6), bytes(6)), r"w\._Entry\.shape"),
    "a negative offset": (file_of(one(begin=-6, end=0), bytes(6)),
        "data_offsets.*greater than or equal to 0"),
    "offsets the wrong way": (file_of(one(begin=6, end=0), bytes(6)), "not bytes 6 to 0"),
    "too few bytes of its shape": (file_of(one(end=5), bytes(5)), "not bytes 0 to 5"),
    "a side that wraps around": (file_of(one(shape=[1 << 63, 2], end=0)), "not bytes 0 to 0"),
    "cut off": (file_of(one(), bytes(5)), "tensor w: I8 of shape 2x3 is not bytes 0 to 6 of 5"),
    "beyond the file": (file_of(one(begin=1 << 70, end=(1 << 70) + 6)), "more than 2.64 of 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, name: str) -> None:
    content, what = BROKEN[name]
    with pytest.raises(InputError, match=what) as caught:
        read(tmp_path / "x.safetensors", content)
    assert "x.safetensors" in caught.value.what
    assert len(str(caught.value)) < 600


def test_a_type_that_is_not_known_leaves_the_others_readable(tmp_path: Path) -> None:
    entries = {"new": entry("F7_ODD", [3], 0, 4), "w": entry("I8", [1, 2], 4, 6)}
    found = read(tmp_path / "x.safetensors", file_of(entries, bytes(4) + b"\1\2"))
    assert found.tolist() == [[1, 2]]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_change_of_a_header_gets_past_the_errors(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever bytes are changed, cut or added: the tensors lie in the file, or it is refused."""
    entries = {"a": entry("BF16", [2, 2], 0, 8), "b": entry("I8", [3], 8, 11)}
    whole = bytearray(file_of(entries, bytes(11)))
    for _ in range(data.draw(st.integers(0, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(
            st.sampled_from(b'0123456789-.eE,:[]{}"abF\xff\0')
        )
    kept = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.sampled_from([bytes(whole), bytes(whole[:kept]), bytes(whole) + b"\0"]))
    assert _readable_or_refused(tmp_path, cut)


NUMBER = st.one_of(st.integers(-9, 99), st.integers(), st.floats(), st.booleans(), st.none())
ENTRY = st.dictionaries(
    st.sampled_from(["dtype", "shape", "data_offsets"]),
    st.one_of(st.sampled_from(sorted(NUMBERS)), st.lists(NUMBER, max_size=3), NUMBER),
)


@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.text(max_size=3), ENTRY, max_size=4), st.binary(max_size=40))
def test_any_header_of_json_is_read_or_refused(
    tmp_path: Path, entries: dict[str, Any], data: bytes
) -> None:
    assert _readable_or_refused(tmp_path, file_of(entries, data))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    assert _readable_or_refused(tmp_path, content)
    assert _readable_or_refused(tmp_path, b"\x93NUMPY" + content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_change_of_an_npy_gets_past_the_errors(tmp_path: Path, data: st.DataObject) -> None:
    held = io.BytesIO()
    np.save(held, np.zeros((2, 3), np.float32))
    whole = bytearray(held.getvalue())
    for _ in range(data.draw(st.integers(0, 6))):
        whole[data.draw(st.integers(6, 90))] = data.draw(st.sampled_from(b"0123456789()',{}<>|fOV"))
    assert _readable_or_refused(tmp_path, bytes(whole[: data.draw(st.integers(6, len(whole)))]))


def _readable_or_refused(folder: Path, content: bytes) -> bool:
    """Whether all of a matrix can be looked at, as of a file that holds it, or it is refused."""
    try:
        found = read(folder / "x.safetensors", content)
    except InputError:
        return True
    return found.ndim == 2 and 0 < len(found.tobytes()) < len(content)


class Harmful:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def _pickled(kind: str, harm: Harmful) -> bytes:
    held = io.BytesIO()
    if kind == "npy":
        np.save(held, np.array([harm], dtype=object), allow_pickle=True)
    elif kind == "archive":
        with zipfile.ZipFile(held, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(harm))
    else:
        pickle.dump(harm, held, protocol=int(kind))
    return held.getvalue()


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("npy", ".npy"), ("archive", ".pt"), ("archive", ".npz"), ("2", ".bin"), ("4", ".pkl"),
        ("5", ".safetensors"), ("0", ".ckpt"), ("0", ".other"),
    ],
)  # fmt: skip
def test_a_pickle_is_never_read(tmp_path: Path, kind: str, suffix: str) -> None:
    content = _pickled(kind, Harmful(tmp_path / "harm"))
    with pytest.raises(InputError) as caught:
        read(tmp_path / f"x{suffix}", content)
    assert caught.value.fix
    assert suffix == ".other" or "pickle" in str(caught.value)
    assert not (tmp_path / "harm").exists()


def _saved(numbers: Any) -> bytes:
    held = io.BytesIO()
    np.save(held, numbers)
    return held.getvalue()


NUMBERS_NPY = _saved(np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("x.npy", NUMBERS_NPY[:-1], "numpy cannot map it: mmap length is greater"),
        ("x.npy", NUMBERS_NPY[:60], "expected 118 bytes got 50"),
        ("x.npy", b"\x93NUMPY", "expected 8 bytes got 6"),
        ("x.npy", b"\x93NUMPY\x09\x00\x00\x00", r"\(9, 0\)"),
        ("x.npy", b"\x93NUMPY\x02\x00" + b"\xff" * 20_000, "numpy cannot map it"),
        ("x.npy", _saved(np.ones((2, 3), ">f4")), "numbers are >f4"),
        ("x.npy", _saved(np.ones((2, 3), ml_dtypes.bfloat16)), "V2, .*npy has no bf16"),
        ("x.npy", _saved(np.ones((2, 3), [("a", "<f4")])), "numbers are"),
        ("x.safetensors", b"", "cut off"),
        ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("model.safetensors.index.json", b'{"weight_map": {}}', "neither safetensors nor npy"),
        ("x.gguf", b"GGUF\3\0\0\0", "neither safetensors nor npy"),
    ],
)
def test_a_broken_npy_and_other_files_say_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        read(tmp_path / name, content)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    for name in ("pipe.npy", "", "missing.npy", "a\0b.npy"):
        with pytest.raises(InputError):
            open_matrix(tmp_path / name)


def test_names_of_a_file_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    entries = {"\x1b[2J" + "w" * 999: entry("I8", [9], 0, 9)}
    with pytest.raises(InputError) as caught:
        read(tmp_path / "x.safetensors", file_of(entries))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_hash_is_of_type_shape_and_bytes(folder: Path) -> None:
    def of(dtype: str, shape: list[int], data: bytes, text: str = "") -> str:
        content = file_of(json.dumps(one(dtype, shape, 0, len(data))) + text, data)
        read(folder / "x.safetensors", content)
        return str(pair_of('file("x.safetensors")'))

    first = of("I8", [2, 3], bytes(6))
    assert hashlib.sha256(b"int8 (2, 3) False\n" + bytes(6)).hexdigest() in first
    assert first == of("I8", [2, 3], bytes(6), text="   ")
    others = [of("I8", [3, 2], bytes(6)), of("F16", [3, 1], bytes(6)), of("I8", [2, 3], b"123456")]
    assert len({first, *others}) == 4


def test_a_file_larger_than_memory_is_opened_for_nothing(tmp_path: Path) -> None:
    """A terabyte of a file without blocks on the disk."""
    side = 1 << 20
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of(one(shape=[side, side], end=side * side)))
    os.truncate(path, path.stat().st_size + side * side)
    assert open_matrix(path)[side - 1, side - 1] == 0


# operands from files: the numbers of the file, tied to its content by a hash


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
    assert ([one.non_finite for one in found], found[2].saturated) == ([2, 2, 0], 3)
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


def test_tensors_that_do_not_fit_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(folder / "w.npy", np.ones((2, 3), np.float32))
    np.save(folder / "line.npy", np.ones(6, np.float32))
    with pytest.raises(InputError, match="2 by 3 elements, and 2 by 4 are needed"):
        fill_pair(pair_of('file("w.npy")'), (2, 2, 4), "bf16")
    with pytest.raises(InputError, match="no tensor x"):
        pair_of('file("w.npy",tensor="x")')
    with pytest.raises(InputError, match="1-D"):
        pair_of('file("line.npy")')
    monkeypatch.setattr("advisor_power.data.operands.BYTES_LIMIT", 23)
    with pytest.raises(InputError, match="has 24 bytes"):
        pair_of('file("w.npy")')
