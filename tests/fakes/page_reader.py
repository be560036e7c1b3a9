"""A reader's folder: the jobs and files of his own that the pages speak of."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from page_blocks import ROOT, blocks
from safetensors_files import write_safetensors

LIKE = {
    "train": "resnet50-train-b2",
    "infer": "bert-serve-30",
    "score": "vit-infer",
    "serve": "bert-serve-10",
}
"""Jobs whose profiles those of a reader have."""


def write_reader(folder: Path, write_job: Callable[[str], Path]) -> None:
    """Make the folder; `mine.jsonl` has his profiles, which `advisor data import` takes in."""
    (folder / "nightly").mkdir(parents=True)
    profiles = (ROOT / "data/advisor_data/bundled/solo.jsonl").read_text()
    mine = list[str]()
    for name, like in LIKE.items():
        file = write_job(name)
        for place in ("jobs", "nightly"):
            (folder / place).mkdir(exist_ok=True)
            shutil.copy(file, folder / place)
        mine += [
            line.replace(f'"{like}"', f'"{name}"')
            for line in profiles.splitlines()
            if f'"{like}"' in line and "H200" in line
        ]
    (folder / "mine.jsonl").write_text("\n".join(mine))
    made_up = [b.text for b in blocks(ROOT / "docs/schema.md") if b.language == "csv"]
    for file, text in zip(("points.csv", "pairs.csv"), made_up, strict=True):
        (folder / file).write_text(text)
    (folder / "from-elsewhere.csv").write_text(made_up[0])
    # A server has no work that ends.
    for file, first in (("tonight.txt", "bert-infer-b2:8 2h"), ("fleet.txt", "bert-serve-30:6")):
        (folder / file).write_text(f"{first}\nbert-infer-b2:8\ntriad:3\nvit-train:5\n")
    values = np.arange(256, dtype=np.float32).reshape(16, 16)
    np.save(folder / "activations.npy", values)
    tensors = {"lm_head.weight": values, "embed.weight": values}
    write_safetensors(folder / "model.safetensors", tensors)
