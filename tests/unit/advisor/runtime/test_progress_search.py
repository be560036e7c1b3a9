"""How jobs tell their progress in what they print."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from log_shapes import SHAPES

from advisor.core.job import ProgressSettings
from advisor.errors import JobError
from advisor.runtime.counting import OutputLines, open_counter, plain
from advisor.runtime.progress_search import (
    CERTAIN_S,
    WATCHED_S,
    LogNumbers,
    ProgressMatch,
    counted_script,
    find_progress,
    search,
)

TQDM = ["  1%|     | 12/1000 [00:01<01:10, 11.2it/s]", "  3%|3    | 33/1000 [00:03<01:08]"]


LIGHTNING = [
    "Epoch 0:  12%|█▏ | 12/100 [00:01<00:10, v_num=0]",
    "Epoch 0:  20%|█▏ | 20/100 [00:02<00:10, v_num=0]",
]


@pytest.mark.parametrize(
    ("lines", "unit", "last"),
    [
        (["step 120/10000 loss 2.1", "step 130/10000 loss 2.0"], "steps", "step 130"),
        (["step 999 of 5", "step 1,000 of 5"], "steps", "step 1,000"),
        (["epoch 0, global_step=7", "epoch 0, global_step=9"], "steps", "global_step=9"),
        (["Iter 10: 0.2", "Iter 20: 0.1"], "iterations", "Iter 20"),
        (TQDM, "steps", "33/1000"),
        (LIGHTNING, "steps", "20/100"),
        (["{'loss': 2.1, 'epoch': 0.1}", "{'loss': 2.0, 'epoch': 0.25}"], "epochs", "0.25"),
        (["epoch 1 step 90/100", "epoch 2 step 10/100", "epoch 3 step 20/100"], "steps", "step 20"),
    ],
    ids=["step", "thousands", "global step", "iter", "tqdm", "lightning", "hugging face", "epochs"],
)
def test_what_rises_is_found(lines: list[str], unit: str, last: str) -> None:
    found = search(["loading", *lines])
    assert found
    assert (found.progress.kind, found.progress.unit) == ("output", unit)
    assert last in found.line


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture(autouse=True)
def soon_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"CERTAIN_S": 0.3, "_GATE_S": 0.5, "ASK_S": 0.3}.items():
        monkeypatch.setattr(f"advisor.runtime.progress_search.{name}", seconds)


def test_a_script_that_prints_is_ended_when_it_has_shown_enough() -> None:
    code = "import time\nfor n in range(10**6): print('step', n, flush=True); time.sleep(0.01)"
    found = find_progress(python(code), os.environ).match
    assert (found.progress.kind, found.progress.unit) == ("output", "steps")


@pytest.mark.parametrize("gate", [True, False])
def test_a_script_that_counts_in_the_file_needs_no_pattern(
    gate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gate:  # A job that comes to its gate ends the wait, on a busy machine later.
        monkeypatch.setattr("advisor.runtime.progress_search._GATE_S", 60.0)
    code = (
        ("" if gate else "import os; del os.environ['ADVISOR_GATE_FILE']\n")
        + "from advisor.progress import Progress\nimport time\np = Progress()\n"
        "while True: p.add(1); time.sleep(0.01)"
    )
    progress = find_progress(python(code), os.environ).match.progress
    assert (progress.kind, progress.gate) == ("counter", gate)


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
        find_progress(python(code), os.environ, seconds=5)


def test_a_server_is_not_told_to_print_steps() -> None:
    code = (
        "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\n"
        "print('ready'); time.sleep(60)"
    )
    with pytest.raises(
        JobError, match=r"listens at http://127.0.0.1:\d+: send it requests"
    ) as told:
        find_progress(python(code), os.environ, seconds=1.5)
    assert "step" not in str(told.value)


def loaded(_pids: object) -> str:
    return "torch 2.11.0"


def test_a_silent_script_of_pytorch_is_counted_by_its_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.runtime.progress_search.loaded_libraries", loaded)
    (tmp_path / "torch" / "optim").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(
        "import types\ncuda = types.SimpleNamespace(is_available=lambda: False)\n"
    )
    (tmp_path / "torch" / "optim" / "__init__.py").touch()
    (tmp_path / "torch" / "optim" / "optimizer.py").write_text(
        "hooks = []\nregister_optimizer_step_post_hook = hooks.append\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import time\nfrom torch.optim.optimizer import hooks\n"
        "class Optimizer: pass\nown = Optimizer()\n"
        "while True:\n    time.sleep(0.01)\n    for hook in hooks: hook(own)\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    }
    known = find_progress([sys.executable, str(script)], environment, seconds=1.5)
    assert known.command == (sys.executable, "-m", "advisor.callbacks", str(script))
    assert known.match.progress == ProgressSettings(kind="counter", gate=True)


def test_pytorch_without_advisor_is_told_what_counts_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.runtime.progress_search.loaded_libraries", loaded)

    def has_advisor(_interpreter: str, _environment: object) -> bool:
        return False

    monkeypatch.setattr("advisor.runtime.progress_search._has_advisor", has_advisor)
    script = tmp_path / "train.py"
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(JobError, match=r"-u -m advisor.callbacks \S+train.py --lr 1 counts"):
        find_progress([sys.executable, "-u", str(script), "--lr", "1"], os.environ, seconds=0.5)


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
    assert counted_script(command.split()) == counted


RECORDED = Path(__file__).parents[4] / "fixtures" / "logs"


SILENT = ("lightning_rich",)


"""A bar that is not drawn where no terminal is; its optimizer steps are counted."""


LINE_S, WHOLE_S = 0.05, 60.0


UNITS = {"frames": 65536.0}


"""Progress in a unit that a shape shows beside the one that it yields."""


def look(chunks: Iterable[tuple[float, str]], output: Path) -> ProgressMatch | None:
    output.touch()
    numbers, lines, now_s = LogNumbers(), OutputLines(output), 0.0
    for at_s, text in chunks:
        now_s = at_s
        with output.open("a", newline="") as job:
            job.write(text)
        numbers.add([*map(plain, lines.read())], now_s)
        if numbers.is_certain(now_s, CERTAIN_S) or now_s >= WATCHED_S:
            break
    lines.close()
    return numbers.match(now_s)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_progress_is_found_and_counted(name: str, tmp_path: Path) -> None:
    output, written = tmp_path / "output.log", SHAPES[name]()
    done: list[float] = []

    def chunks() -> Iterable[tuple[float, str]]:
        for n, (text, progress) in enumerate(written):
            done.append(progress)
            yield n * LINE_S, text

    found = look(chunks(), output)
    assert found
    counter = open_counter(found.progress, tmp_path, output)
    before, done_before = counter.read(), sum(done)
    for text, progress in written:
        with output.open("a", newline="") as job:
            job.write(text)
        done.append(progress)
        if len(done) * LINE_S > WHOLE_S:
            break
    after = counter.read(last=True)
    counter.close()
    true = (sum(done) - done_before) * UNITS.get(found.progress.unit, 1.0)
    assert after - before == pytest.approx(true, rel=0.03), found


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.log")))
def test_recorded_logs_of_real_programs_are_counted(name: str, tmp_path: Path) -> None:
    """The whole log, whose first line has the true count, within 3 %."""
    head, *chunks = map(json.loads, (RECORDED / f"{name}.log").read_text().splitlines())
    output = tmp_path / "output.log"
    found = look(((at_s, text) for at_s, text in chunks), output)
    if name in SILENT:
        assert found is None
        return
    assert found
    output.write_text("".join(text for _, text in chunks), newline="")
    counter = open_counter(found.progress, tmp_path, output)
    truth, unit = head["truth"], found.progress.unit
    each = {1.0, *truth["per_unit"].values()}
    total = counter.read(last=True)
    counter.close()
    assert any(total == pytest.approx(truth["total_end"] * one, rel=0.03) for one in each), unit


@pytest.mark.parametrize(
    "lines",
    [
        [f"elapsed {n} s, speed {90 + n} it/s, memory {400 + n} MiB" for n in range(99)],
        [f"progress: {n} %" for n in range(99)],
        [f"2026-03-02 10:00:{n % 60:02d} waiting" for n in range(99)],
        [f"Downloading shards: {n}%|##  | {n}/99 [00:01<00:05]" for n in range(99)],
        [f"Tokenizing: {n}%|##  | {n}/99 [00:01<00:05]" for n in range(99)],
        [f"loss {99 - n}" for n in range(99)],
        [],
        ["loading weights"],
        ["step 5"],
        ["step 5", "step 5"],
    ],
    ids=[
        "speeds",
        "percent",
        "dates",
        "download",
        "tokenizing",
        "loss",
        "none",
        "no number",
        "once",
        "the same",
    ],
)
def test_what_is_no_work_or_does_not_rise_is_not_counted(lines: list[str]) -> None:
    assert search(lines) is None
