"""The workload that multiplies matrices: its commands and answers, and its checks of outputs."""

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from workload_scripts import load


@pytest.fixture(scope="module")
def script() -> Any:
    return load("input_power")


class Player:
    """Counts its steps; one command may fail."""

    def __init__(self, error: Exception | None = None, *, usable: bool = True) -> None:
        self.error, self.is_usable = error, usable
        self.running, self.steps, self.stopped = False, 0, 0

    def ready(self) -> dict[str, Any]:
        return {"units": 66}

    def load(self, command: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.running = True
        return {"of": command}

    def step(self) -> None:
        self.steps += 1

    def stop(self) -> dict[str, Any]:
        self.running, self.stopped = False, self.stopped + 1
        return {}

    def usable(self) -> bool:
        return self.is_usable


def answers(script: Any, player: Player, lines: list[str | None]) -> list[dict[str, Any]]:
    said, waits = io.StringIO(), list[bool]()

    def next_line(*, wait: bool) -> str | None:
        waits.append(wait)
        return lines.pop(0)

    script.serve(player, SimpleNamespace(next=next_line), said)
    assert waits[0]  # nothing runs yet
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_runs_what_was_loaded_until_the_next_command(script: Any) -> None:
    player = Player()
    lines = [json.dumps({"load": {"x": 1}}), None, None, json.dumps({"stop": True}), ""]
    assert answers(script, player, lines) == [
        {"ready": {"units": 66}}, {"loaded": {"of": {"x": 1}}}, {"stopped": {}},
    ]  # fmt: skip
    assert (player.steps, player.running) == (2, False)


def test_one_pair_that_fails_is_refused(script: Any) -> None:
    player = Player(RuntimeError("CUDA out of memory. Tried"))
    _, said = answers(script, player, [json.dumps({"load": {}}), ""])
    assert said["refused"]["memory"]
    assert player.stopped == 1


def test_device_that_is_lost_ends_the_program(script: Any) -> None:
    player = Player(RuntimeError("an illegal memory access"), usable=False)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        answers(script, player, [json.dumps({"load": {}})])


def test_commands_are_asked_for_without_waiting(script: Any) -> None:
    """A line may come in parts, and several at once."""
    read, write = os.pipe()
    commands = script.Commands(read)
    assert commands.next(wait=False) is None
    os.write(write, b'{"a": 1}\n{"b"')
    assert commands.next(wait=False) == '{"a": 1}'
    assert commands.next(wait=False) is None
    os.write(write, b": 2}\n")
    assert commands.next(wait=True) == '{"b": 2}'
    os.close(write)
    assert commands.next(wait=True) == ""
    os.close(read)


# where PyTorch is installed


@pytest.fixture
def multiplier(script: Any) -> Any:
    pytest.importorskip("torch")
    return script.Player("cpu")


def loaded(multiplier: Any, script: Any, folder: Path, dtype: str, a: Any, b: Any) -> Any:
    torch: Any = pytest.importorskip("torch")
    for name, values in (("a", a), ("b", b)):
        data = values.contiguous().view(torch.uint8).flatten().tolist()
        (folder / name).write_bytes(bytes(data))
    shape = (a.shape[0], b.shape[0], a.shape[1])
    asked = {"a": str(folder / "a"), "b": str(folder / "b"), "shape": shape, "dtype": dtype}
    return script.answer(multiplier, {"load": asked})["loaded"]["outputs"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8", "int8", "tf32", "fp32"])
def test_products_are_right_and_nan_is_counted(
    multiplier: Any, script: Any, tmp_path: Path, dtype: str
) -> None:
    torch: Any = pytest.importorskip("torch")
    kind = script.torch_type(dtype)
    a, b = ((3 * torch.randn(size, 96)).round().to(kind) for size in (64, 48))
    found = loaded(multiplier, script, tmp_path, dtype, a, b)
    assert found["error"] <= found["allowed"]
    assert (found["nan"], found["infinite"], found["unwritten"], found["compared"]) == (
        0,
        0,
        0,
        8 * 48,
    )
    if dtype not in ("int8", "fp8"):
        a[0, 0] = float("nan")
        found = loaded(multiplier, script, tmp_path, dtype, a, b)
        assert (found["nan"], found["compared"]) == (48, 7 * 48)
