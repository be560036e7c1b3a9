"""The number that tells progress is found in logs of many shapes, and counted by from then on."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from log_shapes import SHAPES

from advisor.runtime.counting import OutputLines, open_counter, plain
from advisor.runtime.progress_search import CERTAIN_S, WATCHED_S, FoundProgress, LogNumbers, search

RECORDED = Path(__file__).parents[4] / "fixtures" / "logs"
SILENT = ("lightning_rich",)
"""A bar that is not drawn where no terminal is; its optimizer steps are counted."""

LINE_S, WHOLE_S = 0.05, 60.0
UNITS = {"frames": 65536.0}
"""Progress in a unit that a shape shows beside the one that it yields."""


def look(chunks: Iterable[tuple[float, str]], output: Path) -> FoundProgress | None:
    """What is found in text written at these times, s."""
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
    return numbers.found(now_s)


@pytest.mark.parametrize("name", SHAPES)
def test_progress_is_found_and_counted(name: str, tmp_path: Path) -> None:
    """From the end of the look on, the count is what was done, within 3 %."""
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
    ],
    ids=["speeds", "percent", "dates", "download", "tokenizing", "loss"],
)
def test_what_is_no_work_is_not_counted(lines: list[str]) -> None:
    assert search(lines) is None


def test_what_counts_while_the_gpu_computes_goes_first() -> None:
    numbers = LogNumbers()
    for n in range(100):
        numbers.add([f"step {n}"], n * 0.1)
    for n in range(100):
        numbers.add([f"frames: {n}"], 10 + n * 0.1, busy=True)
    found = numbers.found(20.0)
    assert found
    assert found.progress.unit == "frames"
