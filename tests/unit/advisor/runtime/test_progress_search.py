"""How jobs tell their progress in what they print."""

import os
import sys
from pathlib import Path

import pytest

from advisor.errors import JobError
from advisor.runtime.jobs.progress_search import counted_script, search, watch

TQDM = ["  1%|     | 12/1000 [00:01<01:10, 11.2it/s]", "  3%|3    | 33/1000 [00:03<01:08]"]
LIGHTNING = [
    "Epoch 0:  12%|█▏ | 12/100 [00:01<00:10, v_num=0]",
    "Epoch 0:  20%|█▏ | 20/100 [00:02<00:10, v_num=0]",
]
HUGGING_FACE = ["{'loss': 2.1, 'epoch': 0.1}", "{'loss': 2.0, 'epoch': 0.25}"]
EPOCHS = ["epoch 1 step 90/100", "epoch 2 step 10/100", "epoch 3 step 20/100"]


@pytest.mark.parametrize(
    ("lines", "unit", "last"),
    [
        (["step 120/10000 loss 2.1", "step 130/10000 loss 2.0"], "steps", "step 130"),
        (["step 999 of 5", "step 1,000 of 5"], "steps", "step 1,000"),
        (["epoch 0, global_step=7", "epoch 0, global_step=9"], "steps", "global_step=9"),
        (["Iter 10: 0.2", "Iter 20: 0.1"], "iterations", "Iter 20"),
        (TQDM, "steps", "33/1000"),
        (LIGHTNING, "steps", "20/100"),
        (HUGGING_FACE, "epochs", "0.25"),
        (EPOCHS, "epochs", "epoch 3"),
    ],
    ids=["step", "thousands", "global step", "iter", "tqdm", "lightning", "hugging face", "epochs"],
)
def test_what_rises_is_found(lines: list[str], unit: str, last: str) -> None:
    found = search(["loading", *lines])
    assert found
    assert found.progress.kind == "output"
    assert found.progress.unit == unit
    assert last in found.line


@pytest.mark.parametrize("lines", [[], ["loading weights"], ["step 5"], ["step 5", "step 5"]])
def test_what_does_not_rise_is_no_progress(lines: list[str]) -> None:
    assert search(lines) is None


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_script_that_prints_is_ended_when_it_has_shown_enough() -> None:
    code = "import time\nfor n in range(10**6): print('step', n, flush=True); time.sleep(0.01)"
    found = watch(python(code), os.environ)
    assert (found.progress.kind, found.progress.unit) == ("output", "steps")


def test_a_script_that_counts_in_the_file_needs_no_pattern() -> None:
    code = (
        "from advisor.progress import Progress\nimport time\np = Progress()\n"
        "while True: p.add(1); time.sleep(0.01)"
    )
    assert watch(python(code), os.environ).progress.kind == "counter"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('bad checkpoint'); raise SystemExit(3)", "exit code 3. its last lines: bad check"),
        ("print('hello')", "tells its progress. its last lines: hello"),
        ("pass", "it wrote nothing"),
    ],
)
def test_what_went_wrong_is_said_once_with_the_output(code: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        watch(python(code), os.environ, seconds=5)


def test_a_silent_script_of_pytorch_is_told_what_counts_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that does, with its options; the libraries are a stand-in's."""

    def loaded(_pids: object) -> str:
        return "torch 2.11.0"

    monkeypatch.setattr("advisor.runtime.jobs.progress_search.loaded_libraries", loaded)
    script = tmp_path / "train.py"
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(JobError, match=r"-u -m advisor.callbacks \S+train.py --lr 1 counts"):
        watch([sys.executable, "-u", str(script), "--lr", "1"], os.environ, seconds=0.5)


@pytest.mark.parametrize(
    ("command", "counted"),
    [
        ("python3 -u train.py --lr 1", "python3 -u -m advisor.callbacks train.py --lr 1"),
        ("python -m package.train", "python -m advisor.callbacks -m package.train"),
        ("python -m advisor.callbacks train.py", None),
        ("torchrun train.py", None),
    ],
)
def test_a_script_is_named_with_what_counts_it(command: str, counted: str | None) -> None:
    """Once, and only where Python itself is called."""
    assert counted_script(command.split()) == counted
