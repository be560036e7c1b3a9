"""Random data for the programs of this folder, which are clones in `checkouts`.

cd docs/measurements/own/public && mkdir -p checkouts && cd checkouts
git clone https://github.com/pytorch/examples     # measured at 77f55b91
git clone https://github.com/karpathy/nanoGPT     # measured at 3adf61e1
python ../prepare.py
"""

import pickle
import struct
from pathlib import Path

import numpy as np

CHECKOUTS = Path(__file__).parent / "checkouts"
dice = np.random.default_rng(57)

mnist = CHECKOUTS / "examples/data/MNIST/raw"
mnist.mkdir(parents=True, exist_ok=True)
for name, count in {"train": 60_000, "t10k": 10_000}.items():
    images = dice.integers(0, 256, (count, 28, 28), np.uint8).tobytes()
    labels = dice.integers(0, 10, count, np.uint8).tobytes()
    header = struct.pack(">IIII", 0x803, count, 28, 28)
    (mnist / f"{name}-images-idx3-ubyte").write_bytes(header + images)
    (mnist / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)

text = CHECKOUTS / "nanoGPT/data/shakespeare_char"
for name, count in {"train": 1_000_000, "val": 100_000}.items():
    dice.integers(0, 65, count, np.uint16).tofile(text / f"{name}.bin")
(text / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))
