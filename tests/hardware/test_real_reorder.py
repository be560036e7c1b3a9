"""`advisor power reorder --measure` on a real GPU."""

from pathlib import Path

import numpy as np
import pytest
from real_gpu import GPU, run_json
from safetensors_files import write_safetensors

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SIDE = 4096
UNITS = 34
"""Safe, and below the power limit."""


def test_both_orders_are_measured(tmp_path: Path) -> None:
    """Every second hidden unit has no weight: half of what switches need not."""
    random = np.random.default_rng(0)
    up, down = (random.standard_normal((SIDE, SIDE), dtype=np.float32) for _ in range(2))
    down[:, ::2] = 0
    tensors = {"fc1.weight": up.astype(np.float16), "fc2.weight": down.astype(np.float16)}
    path = write_safetensors(tmp_path / "net.safetensors", tensors)
    where = ("--measure", "--units", str(UNITS), "--gpu", GPU)
    answer = run_json("power", "reorder", str(path), *where)
    (layer,) = answer["layers"]
    assert layer["change"] < -0.4
    assert answer["verdict"] in ("confirmed", "refuted", "open")
    assert answer["saving"]["error"] < 0.01
    assert -0.05 < answer["saving"]["value"] < 0.5
