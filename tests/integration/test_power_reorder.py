"""`advisor power reorder`: what it says, writes and measures."""

import itertools
import json
import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Advisor, in_this_process
from made_up_inputs import HereFilling, MadeUpBench
from safetensors_files import write_safetensors

from advisor.errors import BusyError
from advisor_power.inputs import opening
from advisor_power.inputs.bench import Measured
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.keeping import KeptInputs
from advisor_power.inputs.matrices import Matrices
from advisor_power.reorder import reordering, saving
from advisor_power.reorder.saving import Saving

HIDDEN, WIDTH = 64, 32


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """Two layers of fp16."""
    random = np.random.default_rng(0)
    shapes = {"up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
    tensors = {
        f"h.{n}.{name}_proj.weight": random.standard_normal(shape).astype(np.float16)
        for n in range(2)
        for name, shape in (*shapes.items(), ("gate", shapes["up"]))
    }
    return write_safetensors(tmp_path / "net.safetensors", tensors)


class OrderBench(MadeUpBench):
    """The new order draws another power."""

    new_w = 400.0
    scatter_w: Iterator[float] = itertools.repeat(0.0)

    def measure(self, case: InputCase, matrices: Matrices) -> Measured:
        is_new = "/a-new.npy" in case.operands
        self.watts[case.operands] = self.new_w + next(self.scatter_w) if is_new else 400.0
        return super().measure(case, matrices)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OrderBench:
    """What is measured on; products are of few tokens."""
    made = OrderBench()

    @contextmanager
    def opened(settings: Any, where: opening.Where) -> Generator[opening.Open]:
        (tmp_path / "filled").mkdir()
        filling: Any = HereFilling(tmp_path / "filled")
        keep = KeptInputs(tmp_path / "unused", "GPU-1")
        yield opening.Open(name="here", bench=made, filling=filling, keep=keep, knows_sensor=True)

    monkeypatch.setattr(opening, "open_inputs", opened)
    monkeypatch.setattr(saving, "TOKENS", 16)
    return made


def test_keys_stay(advisor: Advisor, net: Path) -> None:
    """Programs read them; docs/reorder.md promises them."""
    said = advisor("power", "reorder", str(net), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert set(found) == {"files", "layers", "saving", "verdict"}
    new = net.with_name("net.reordered.safetensors")
    assert found["files"] == [{"old": str(net), "new": str(new)}]
    assert new.stat().st_size == net.stat().st_size
    assert (found["saving"], found["verdict"]) == (None, "not-measured")
    for number, layer in enumerate(found["layers"]):
        assert set(layer) == {
            "layer", "hidden_units", "dtype", "switching_before", "switching_after", "change",
            "agreement",
        }  # fmt: skip
        assert layer["layer"] == f"h.{number}.gate_proj,h.{number}.up_proj:h.{number}.down_proj"
        assert (layer["hidden_units"], layer["dtype"]) == (HIDDEN, "fp16")
        assert layer["change"] == layer["switching_after"] / layer["switching_before"] - 1 < 0
        assert set(layer["agreement"]) == {"exact", "allowed", "rounding"}
        assert layer["agreement"]["exact"] <= layer["agreement"]["allowed"] < 1e-9
        assert 0 < layer["agreement"]["rounding"] < 1e-5


def test_layer_names_of_one_answer_are_those_of_the_option(advisor: Advisor, net: Path) -> None:
    """Only the layer that was named moves, and a person reads what was done."""
    said = advisor(
        "power", "reorder", str(net), "--layer", "h.1.gate_proj,h.1.up_proj:h.1.down_proj"
    )
    assert said.code == 0, said.err
    assert "h.1.down_proj.weight" in said.out
    assert "h.0." not in said.out
    assert "written: " in said.out
    assert "was not measured" in said.out


@pytest.mark.parametrize(
    ("new_w", "verdict"), [(380.0, "confirmed"), (398.0, "refuted"), (420.0, "refuted")]
)
def test_saving_is_claimed_where_it_is_measured(
    advisor: Advisor, net: Path, bench: OrderBench, new_w: float, verdict: str
) -> None:
    """From 1 % on; in turns, and each beside references."""
    bench.new_w = new_w
    said = advisor("power", "reorder", str(net), "--measure", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["verdict"] == verdict
    assert set(found["saving"]) == {"layer", "value", "error", "quantity", "by_clock"}
    assert found["saving"]["value"] == pytest.approx(1 - new_w / 400)
    assert found["saving"]["quantity"] == "ratio"
    orders = ["new" if "a-new" in text else "old" for text in bench.measured if "a-" in text]
    assert orders == ["old", "new", "new", "old", "old", "new"]


def test_rounds_that_differ_are_repeated_and_leave_it_open(
    advisor: Advisor, net: Path, bench: OrderBench
) -> None:
    """What they scatter by is the error, however exact each window is."""
    bench.scatter_w = itertools.cycle((8.0, -8.0))
    said = advisor("power", "reorder", str(net), "--measure", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["verdict"] == "open"
    assert found["saving"]["error"] == pytest.approx(0.02 * math.sqrt(80 / 72 / 9), rel=0.05)
    assert sum("a-new" in text for text in bench.measured) == saving.MOST_ROUNDS


def test_saving_is_said_with_its_error(advisor: Advisor, net: Path, bench: OrderBench) -> None:
    """And that it is one."""
    bench.new_w = 380.0
    said = advisor("power", "reorder", str(net), "--measure")
    assert "_proj saves +5.00 +-" in said.out
    assert said.out.strip().endswith("% of power, a saving")


def test_own_activations_are_measured_with(
    advisor: Advisor, net: Path, bench: OrderBench, tmp_path: Path
) -> None:
    """Of as many hidden units as the layer has, and for nothing but measuring."""
    random = np.random.default_rng(0)
    for name, columns in (("right", HIDDEN), ("wrong", 5)):
        np.save(tmp_path / f"{name}.npy", random.random((24, columns), np.float32))
    words = ("power", "reorder", str(net), "--activations")
    assert "add --measure" in advisor(*words, "right.npy").err
    said = advisor(*words, "wrong.npy", "--measure", "--to", "one")
    assert "activations have 5 columns" in said.err
    said = advisor(*words, "right.npy", "--measure", "--to", "two")
    assert said.code == 0, said.err
    assert "refuted: less than 1 %" in said.out


def test_gpu_in_use_leaves_the_new_file(
    advisor: Advisor, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is right, measured or not."""

    def busy(settings: Any, where: Any) -> None:
        raise BusyError("process 7 computes on the GPU")

    monkeypatch.setattr(opening, "open_inputs", busy)
    monkeypatch.setattr(saving, "TOKENS", 16)
    said = advisor("power", "reorder", str(net), "--measure")
    assert said.code == BusyError.exit_code
    assert net.with_name("net.reordered.safetensors").exists()


def test_stopped_search_writes_nothing(
    advisor: Advisor, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while orders are looked for."""

    def interrupted(down: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(reordering, "find_order", interrupted)
    said = advisor("power", "reorder", str(net))
    assert (said.code, said.err.strip()) == (130, "stopped: nothing was written")
    assert not net.with_name("net.reordered.safetensors").exists()


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [
        (0.02, 0.001, "confirmed"), (0.01, 0.001, "confirmed"), (0.009, 0.0001, "refuted"),
        (0.02, 0.01, "open"), (0.0099, 0.0001, "open"), (0.001, 0.04, "open"),
        (-0.05, 0.001, "refuted"),
    ],
)  # fmt: skip
def test_claim_takes_one_percent_and_four_errors(value: float, error: float, verdict: str) -> None:
    """Less is no saving."""
    assert Saving("a:b", value, error, "ratio").verdict == verdict
    slower = Saving("a:b", value, error, "ratio", by_clock=True).verdict
    assert slower == ("open" if verdict == "confirmed" else verdict)
