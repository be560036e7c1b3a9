"""Prints what advisor answers to the questions of docs/measurements/answers.md, by bundled data.

    .venv/bin/python docs/measurements/answers.py             # about a minute; no GPU
    .venv/bin/python docs/measurements/answers.py --first     # the first line of each alone

Eighteen queries as people type them, then eighteen pairs. Nothing is stored and nothing of yours is
read: the home is a folder that goes with the script. The queue of query 15 is drawn from the
bundled jobs on H200, each as likely as any other.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from advisor_data.bundled import GPU_MODEL, bundled_solo_points

PAIR = "bert-infer-b2 vit-train"

QUERIES = (
    f"recommend {PAIR}",
    "recommend bert-train vit-infer",
    "recommend mobilenet-train-b2 triad",
    "recommend bert-train bert-train",
    "recommend llm-decode llm-prefill",
    "recommend llm-decode matmul-bf16",
    "recommend dit-step whisper-infer",
    "recommend vit-infer vit-infer",
    "recommend mobilenet-train-b2 mobilenet-train-b2",
    "recommend reduction triad",
    "recommend bert-serve-30 vit-train",
    f"recommend {PAIR} --min-speed 0.8",
    f"recommend {PAIR} --max-power 400",
    f"recommend {PAIR} --work bert-infer-b2=3h --work vit-train=5h",
    "recommend bert-train",
    "place --jobs tonight.txt --gpus 40",
    "recommend mytrain vit-train",
    f"recommend {PAIR} --gpu-model H100",
    f"recommend {PAIR} --gpu-model NVIDIA_A100-SXM4-80GB",
    f"recommend {PAIR} --gpu-model AMD_Instinct_MI300X",
)
"""An underscore in a GPU model is a space."""

PAIRS = (
    "mobilenet-train-b2 triad",
    "bert-train vit-infer",
    "bert-train bert-train",
    "llm-decode llm-prefill",
    "mobilenet-infer resnet50-train",
    "matmul-bf16 triad",
    "dit-step whisper-infer",
    PAIR,
    "bert-train embedding",
    "fft gemm",
    "fft resnet50-train-b2",
    "llm-decode matmul-bf16",
    "transpose walsh",
    "mobilenet-train-b2 mobilenet-train-b2",
    "vit-infer vit-infer",
    "llm-decode llm-decode",
    "reduction triad",
    "matmul-bf16 wav2vec2-infer-b2",
)


def main() -> None:
    """Print the answers."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--first", action="store_true", help="the first line of each alone")
    first = options.parse_args().first
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tonight.txt").write_text("\n".join(queue()))
        for number, query in enumerate((*QUERIES, *(f"recommend {p}" for p in PAIRS)), start=1):
            answer = answered(query, Path(folder))
            print(f"{number}. advisor {query.replace('_', ' ')}")
            print("\n".join(head(answer) if first else answer), end="\n\n", flush=True)


def queue() -> Iterator[str]:
    """Names of 200 jobs."""
    names = sorted({p.job for p in bundled_solo_points() if p.gpu_model == GPU_MODEL})
    dice = random.Random(1)
    return (dice.choice(names) for _ in range(200))


def answered(query: str, folder: Path) -> list[str]:
    """The lines of an answer, whether it is one or says why there is none."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
    done = subprocess.run(
        [sys.executable, "-m", "advisor_cli", *(word.replace("_", " ") for word in query.split())],
        cwd=folder,
        env={**kept, "ADVISOR_HOME": f"{folder}/home", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    return [f"    {line}" for line in (done.stdout + done.stderr).splitlines()]


def head(lines: list[str]) -> list[str]:
    """The headline, however often it wraps."""
    end = next((n for n, line in enumerate(lines) if n and line.startswith("      ")), len(lines))
    return lines[:end]


if __name__ == "__main__":
    main()
