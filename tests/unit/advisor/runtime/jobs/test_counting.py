import re
import signal
import struct
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.job import ProgressSettings
from advisor.errors import JobError
from advisor.progress import FAULT_AT, FILE_BYTES
from advisor.runtime import counting
from advisor.runtime.counting import LINE_BYTES, CounterFile, OutputCounter, open_counter


def total(output: bytes, pattern: str, *, cumulative: bool = True) -> float:
    """Progress after all of `output`."""
    with (
        output_file() as path,
        closing(OutputCounter(path, pattern, cumulative=cumulative)) as seen,
    ):
        path.write_bytes(output)
        return seen.read()


@contextmanager
def output_file() -> Generator[Path]:
    """An empty file; its own folder, since hypothesis runs a test many times."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "output.log")
        path.touch()
        yield path


@pytest.mark.parametrize(
    ("output", "pattern", "cumulative", "expected"),
    [
        (b"step 3/9 ok\nnothing here\nstep 7/9 ok\n", r"step (\d+)/", True, 7),
        (b"read 3 rows\nread 4.5 rows\n", r"read (\S+) rows", False, 7.5),
        # Without a group matching lines are counted.
        (b"done a\nskipped b\ndone c\ndone done d\n", "done", True, 3),
        (b"done a\nskipped b\ndone c\ndone done d\n", "done", False, 3),
        (b"12,345,678 tokens\n", r"([\d,]+) tokens", True, 12_345_678),
        # A bar ends its line when it is drawn again; until then its number may be cut.
        (b"\r 10/90 it\r 20/90 it\r 30/90 i", r"(\d+)/90", True, 30),
        (b"\r 10/90 it\r 20/90 it\r 3", r" (\d+)", True, 20),
        (b"read 3 rows\rread 4", r"read (\d)", False, 3),
        # A job may print anything.
        (b"\xff\xfe step 1\nstep 2 \x80\n", r"step (\d+)", True, 2),
        (b"step 5\nstep \n", r"step (\d+)?", True, 5),
    ],
)
def test_output_is_counted(output: bytes, pattern: str, cumulative: bool, expected: float) -> None:
    """The newest number is the total, or each line brings its own."""
    assert total(output, pattern, cumulative=cumulative) == expected


@pytest.mark.parametrize("word", ["fast", "nan", "inf", ""])
def test_group_that_catches_no_number_is_told(word: str) -> None:
    """A pattern around the wrong word ends the job's measurement, with the word."""
    with pytest.raises(JobError, match=re.escape(f"caught '{word}', which is not a number")):
        total(f"rate {word};\n".encode(), "rate (.*);")


def test_pattern_that_tries_each_way_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such patterns are written by accident, too; the limit is gone with the look."""
    monkeypatch.setattr(counting, "MATCH_S", 0.1)
    with (
        output_file() as path,
        closing(OutputCounter(path, r"(?:^(?:a+)+$|step )(\d+)", cumulative=True)) as counter,
    ):
        path.write_bytes(b"a" * 60 + b"b\n")
        began_s = time.process_time()
        for _ in range(50):  # it is tried once alone, as each try takes the time of other jobs
            with pytest.raises(JobError, match=r"took more than 0.1 s of processor time"):
                counter.read()
        assert time.process_time() - began_s < 5
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert total(b"step 3\n", r"step (\d+)") == 3


def test_of_a_line_without_an_end_its_last_64_kib_are_matched() -> None:
    """A pattern that looks at each part of a line takes sixteen times as long for four times it."""
    line = b"step 1 " + b"x" * LINE_BYTES
    assert total(line + b"\n", r"step (\d+)") == 0
    assert total(line + b" step 2\n", r"step (\d+)") == 2


@given(st.lists(st.integers(0, 10**6), max_size=8), st.sets(st.integers(0, 80)))
def test_reading_at_any_moment_loses_and_doubles_nothing(
    numbers: list[int], cuts: set[int]
) -> None:
    """Half a line waits for its rest, wherever the reads fall."""
    output = "".join(f"did {number} rows\n" for number in numbers).encode()
    marks = [0, *sorted(cut for cut in cuts if cut < len(output)), len(output)]
    with (
        output_file() as path,
        closing(OutputCounter(path, r"did (\d+)", cumulative=False)) as counter,
        path.open("ab", buffering=0) as job,
    ):
        seen = 0.0
        for first, last in pairwise(marks):
            job.write(output[first:last])
            seen = counter.read()
            assert seen == sum(numbers[: output[:last].count(b"\n")])
    assert seen == sum(numbers)


@given(st.integers(0, 2**40), st.integers(1, 512))
def test_counter_file_is_scaled(count: int, per_run: int) -> None:
    """For short runs each count is worth what one run does."""
    with output_file() as path:
        path.write_bytes(struct.pack("<q", count))
        with closing(CounterFile(path, per_run)) as counter:
            assert counter.read() == count * per_run
            path.write_bytes(struct.pack("<q", count + 1))
            assert counter.read() == (count + 1) * per_run


def test_emptied_counter_file_is_told(tmp_path: Path) -> None:
    """A job that opens the file for writing again gets the reason, not a stack trace."""
    path = tmp_path / "progress"
    path.write_bytes(bytes(8))
    with closing(CounterFile(path)) as counter:
        path.write_bytes(b"12")
        with pytest.raises(JobError, match="has 2 bytes, not 8"):
            counter.read()


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (ProgressSettings(kind="counter", per_run=5), 3),
        (ProgressSettings(kind="runs", per_run=5), 15),
        (ProgressSettings(kind="output", pattern=r"at (\d+)"), 9),
        (ProgressSettings(kind="output", pattern=r"at (\d+)", cumulative=False), 17),
    ],
)
def test_each_kind_reads_its_own_file(
    tmp_path: Path, progress: ProgressSettings, expected: float
) -> None:
    """`per_run` is for runs alone; output is read from the output."""
    counts, output = tmp_path / "progress", tmp_path / "output.log"
    counts.write_bytes(struct.pack("<q", 3))
    output.write_text("at 8\nat 9\n")
    with closing(open_counter(progress, counts, output)) as counter:
        assert counter.read() == expected


def test_a_comma_that_the_pattern_leaves_out_is_named(tmp_path: Path) -> None:
    """1 after 950 is no epoch that starts again."""
    output = tmp_path / "output.log"
    output.write_text("step 950/9000\nstep 1,000/9000\n")
    with (
        closing(OutputCounter(output, r"step (\d+)", cumulative=True)) as counter,
        pytest.raises(JobError, match=r"'step 1,000/9000'. it stops at the comma. let it take"),
    ):
        counter.read()
    with closing(OutputCounter(output, r"step ([\d,]+)", cumulative=True)) as counter:
        assert counter.read() == 1000


def test_a_count_that_starts_again_adds_to_the_total(tmp_path: Path) -> None:
    """Also where a look ends between the epochs."""
    output = tmp_path / "output.log"
    output.write_text("epoch 1 step 8\nepoch 1 step 9\nepoch 2 step 1\n")
    with closing(OutputCounter(output, r"step (\d+)", cumulative=True)) as counter:
        assert counter.read() == 9
        with output.open("a") as job:
            job.write("epoch 2 step 2\nepoch 2 step 3")
        assert counter.read() == 12


def test_bars_are_told_apart_by_their_totals(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    bars = [f"{n}/{of} [" for of, shown in ((40, 40), (3, 3), (40, 9)) for n in range(1, shown + 1)]
    output.write_text("\r".join(bars))
    with closing(OutputCounter(output, r"(\d+)/\d+ \[", cumulative=True)) as counter:
        assert counter.read(last=True) == 49


def test_the_end_of_a_long_output_is_read_at_once(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("".join(f"step {n} {'x' * 9000}\n" for n in range(1, 401)))
    with closing(OutputCounter(output, r"step (\d+)", cumulative=True)) as counter:
        assert counter.read() < 400
        assert counter.read(last=True) == 400


def test_colours_are_no_part_of_a_line(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("\x1b[31mstep: 12 \x1b[0m\x1b[38;2;1;2;3mloss 7\n")
    with closing(OutputCounter(output, r"\bstep: (\d+) loss", cumulative=True)) as counter:
        assert counter.read() == 12


def test_a_fault_of_the_reading_is_told_until_it_is_over(tmp_path: Path) -> None:
    """What writes the file says why it cannot count, as where a metrics page is gone."""
    path = tmp_path / "progress"
    path.write_bytes(bytes(FILE_BYTES))
    with closing(CounterFile(path)) as counter:
        written = bytearray(struct.pack("<q", 5).ljust(FILE_BYTES, b"\0"))
        written[FAULT_AT : FAULT_AT + 4] = b"gone"
        path.write_bytes(written)
        with pytest.raises(JobError, match="gone"):
            counter.read()
        written[FAULT_AT] = 0
        path.write_bytes(written)
        assert counter.read() == 5
