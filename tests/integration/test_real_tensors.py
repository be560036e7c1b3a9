"""The campaign on tensors of a network: its files are made up, the driver is fake."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host import FAKES, UUID, FakeHost
from made_up_kernel import FAST, record
from made_up_network import SIDE, make

from advisor.validity.sensor_record import keep_record
from advisor_power.inputs.case import InputCase

SCRIPTS = Path(__file__).parents[2] / "docs/measurements/power"
FIRST = """
import functools, sys
from advisor_power.inputs import live
live.open_inputs = functools.partial(live.open_inputs, window_s=0.5)
sys.path.insert(0, sys.argv[1])
import real_tensors
every, kept = real_tensors.products, sys.argv[2].split(",")
real_tensors.products = lambda: [p for p in every() if f"{p[0]} {p[1]} {p[2]}" in kept]
sys.argv[:3] = ["real_tensors.py"]
real_tensors.main()
"""
MAKES = f"""#!{sys.executable}
import sys
sys.path[:0] = [{str(FAKES)!r}, {str(Path(__file__).parent)!r}]
if sys.argv[1].endswith("network_tensors.py"):
    from made_up_network import make
    make(sys.argv[2])
else:
    import runpy
    sys.argv[0] = {str(FAKES / "fake_input_worker.py")!r}
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def campaign(host: FakeHost, products: str, *words: str) -> subprocess.CompletedProcess[str]:
    """With so few of the products, each as its type, moment and name."""
    return script(host, FIRST, str(SCRIPTS), products, str(host.folder / "tensors"), *words)


def script(host: FakeHost, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """With a Python that makes networks up and computes nothing."""
    python = host.folder / "python"
    python.write_text(MAKES)
    python.chmod(0o755)
    keep_record(record(FAST, gpu_uuid=UUID), host.folder / "home")
    return subprocess.run(
        [sys.executable, "-c", code, *words, "--python", str(python)],
        env=host.environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def kept(host: FakeHost) -> list[dict[str, Any]]:
    """What is kept of the card, without references."""
    file = host.folder / "home/inputs" / f"{UUID.lower()}.jsonl"
    lines = map(json.loads, file.read_text().splitlines())
    return [line for line in lines if not line["is_reference"]]


def test_tensors_are_made_once_and_measured(host: FakeHost) -> None:
    """Half of ReLU's outputs are zeros, which draw less; the next run measures what is missing."""
    done = campaign(host, "bf16 after ReLU x weights")
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| bf16 | ReLU")]
    cells = row.split(" | ")
    assert float(cells[3]) < -50
    assert float(cells[4]) >= 0  # readings of a fake may agree to less than is printed
    assert "a_zeros 0.5" in row
    tensors = (host.folder / "tensors/tensors.json").stat().st_mtime_ns
    both = "bf16 after ReLU x weights,fp8 before GELU x weights,int8 after normal x weights"
    done = campaign(host, both)
    assert done.returncode == 0, done.stderr
    assert (host.folder / "tensors/tensors.json").stat().st_mtime_ns == tensors
    relu, *others = kept(host)
    assert [line["case"]["dtype"] for line in others] == ["int8", "fp8"]
    assert relu["case"]["operands"].startswith('a=file("relu-after.npy",sha256=')
    assert all(line["a"] == {"non_finite": 0, "saturated": 0} for line in (relu, *others))
    printed = campaign(host, both, "--minutes", "0", "--gpu", UUID)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.count("| weights") + printed.stdout.count(" x weights, ") == 3


def test_whole_list_has_its_files(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product is one of files that the network's program writes, of sizes that fit."""
    make(str(host.folder / "tensors"))
    monkeypatch.chdir(host.folder)
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    real_tensors: Any = importlib.import_module("real_tensors")
    cases: dict[InputCase, str] = real_tensors.real_cases(host.folder / "tensors")
    assert len(cases) == len(list(real_tensors.products())) == 30
    assert {case.dtype for case in cases} == {"bf16", "fp8", "int8"}
    assert all(case.shape == (SIDE, SIDE, SIDE) for case in cases)


def test_network_that_fails_is_said(host: FakeHost) -> None:
    """With what to do; a half folder is no folder of tensors."""
    done = campaign(host, "", "--minutes", "0", "--gpu", UUID)
    assert "has no tensors.json" in done.stderr
    (host.folder / "tensors").mkdir()
    done = campaign(host, "bf16 after ReLU x weights")
    assert done.returncode != 0
    assert "--python must be a Python with PyTorch" in done.stderr


def test_network_learns_and_is_written(tmp_path: Path) -> None:
    """Its own program, small and on the CPU."""
    pytest.importorskip("torch")
    command = [sys.executable, str(SCRIPTS / "network_tensors.py"), str(tmp_path / "made")]
    options = ["--side", "64", "--seconds", "15", "--device", "cpu"]
    subprocess.run([*command, *options], check=True, timeout=110)
    said = json.loads((tmp_path / "made/tensors.json").read_text())
    assert said["loss_after"] < said["loss_before"] - 0.5
    relu = np.load(tmp_path / "made/relu-after.npy")
    assert relu.shape == (64, 64)
    assert 0 < (relu == 0).mean() < 1
