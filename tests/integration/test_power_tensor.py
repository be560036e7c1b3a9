"""`advisor power tensor`: fingerprints of the matrices of a file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Advisor
from reading import answer_of
from safetensors_files import write_safetensors

from advisor_power.data import predictor


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three matrices of fp16, one of int64, one bias."""
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        "[red]zeros": np.zeros((64, 32), np.float16),
        "dense": random.standard_normal((64, 32)).astype(np.float16),
        "pruned": np.where(random.random((64, 32)) < 0.5, 0, 1).astype(np.float16),
        "ids": np.zeros((4, 4), np.int64),
        "bias": np.zeros(64, np.float16),
    }
    return write_safetensors(tmp_path / "model.safetensors", tensors)


def test_keys_stay_and_what_switches_most_comes_first(advisor: Advisor, model: Path) -> None:
    """Programs read them; docs/tensor-files.md promises them."""
    said = advisor("power", "tensor", str(model), "--json")
    assert said.code == 0, said.err
    found = answer_of(said.out)
    assert set(found) == {"file", "model", "matrices", "left_out", "not_reached"}
    assert [one["tensor"] for one in found["matrices"]] == ["dense", "pruned", "[red]zeros"]
    for one in found["matrices"]:
        assert set(one) == {
            "tensor", "dtype", "shape", "weight", "along", "across", "signs", "zeros", "distinct",
            "expected", "why_not",
        }  # fmt: skip
        assert (one["dtype"], one["shape"]) == ("fp16", [64, 32])
    assert [one["zeros"] for one in found["matrices"]] == pytest.approx([0, 0.5, 1], abs=0.05)
    assert {one["tensor"]: set(one) for one in found["left_out"]} == {
        name: {"tensor", "dtype", "shape", "why"} for name in ("ids", "bias")
    }
    assert found["not_reached"] == 0


def test_a_person_reads_names_as_they_are_and_why_some_are_left_out(
    advisor: Advisor, model: Path
) -> None:
    out = advisor("power", "tensor", str(model)).out
    assert "[red]zeros" in out
    assert "toggle in row" in out
    assert "left out 1: 1-D, and a matrix is 2-D" in out
    assert "left out 1: numbers are int64" in out


def test_tensors_are_named_one_by_one(advisor: Advisor, model: Path) -> None:
    said = advisor(
        "power", "tensor", str(model), "--tensor", "pruned", "--tensor", "dense", "--json"
    )
    assert [one["tensor"] for one in json.loads(said.out)["matrices"]] == ["dense", "pruned"]
    said = advisor("power", "tensor", str(model), "--tensor", "prunde")
    assert said.code == 2
    assert "no tensor prunde" in said.err


def test_an_npy_file_has_one_matrix(advisor: Advisor, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 5), np.int8))
    found = json.loads(advisor("power", "tensor", str(tmp_path / "x.npy"), "--json").out)
    (one,) = found["matrices"]
    assert (one["along"], one["zeros"], one["weight"]) == (0, 0, 1 / 8)


def test_ctrl_c_shows_what_was_looked_at(
    advisor: Advisor, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = predictor.operand_print
    calls: list[int] = []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(predictor, "operand_print", interrupted)
    said = advisor("power", "tensor", str(model), "--json")
    assert said.code == 130
    found = answer_of(said.out)
    assert (len(found["matrices"]), found["not_reached"]) == (1, 2)
