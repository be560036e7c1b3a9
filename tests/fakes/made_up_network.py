"""Files as docs/measurements/power/network_tensors.py writes them, of random numbers."""

import json
from pathlib import Path

import numpy as np

SIDE = 32
FLOATS = (
    "layernorm", "gelu", "relu", "softmax", "queries", "keys", "values-transposed",
    "weight-up", "weight-gelu", "weight-relu", "weight-up-dequantised",
)  # fmt: skip
QUANTISED = ("layernorm", "gelu", "relu", "weight-up", "weight-gelu", "weight-relu")


def make(folder: str) -> None:
    """A folder of tensors; one that is there already is refused."""
    path, random = Path(folder), np.random.default_rng(0)
    path.mkdir()
    for when in ("before", "after"):
        for name in FLOATS:
            matrix = random.standard_normal((SIDE, SIDE), dtype=np.float32)
            if name == "relu":
                matrix = np.maximum(matrix, 0)
            np.save(path / f"{name}-{when}.npy", matrix)
        for name in QUANTISED:
            numbers = random.integers(-127, 128, (SIDE, SIDE), dtype=np.int8)
            np.save(path / f"{name}-int8-{when}.npy", numbers)
    (path / "tensors.json").write_text(json.dumps({"loss_before": 5.6, "loss_after": 1.5}) + "\n")
