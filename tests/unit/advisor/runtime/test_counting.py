"""The lines of a job's output, read a piece at a time while the file is begun again."""

import math
import re
import signal
import struct
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from advisor.core.job import ProgressSettings, Reported
from advisor.errors import JobError
from advisor.progress import (
    FAULT_AT,
    FAULT_BYTES,
    FILE_BYTES,
    FIRST_VALUES,
    Progress,
    latency_bucket,
)
from advisor.runtime import counting
from advisor.runtime.counting import (
    LINE_BYTES,
    LOOK_BYTES,
    CounterFile,
    OutputCounter,
    OutputLines,
    ReportedOutput,
    Tally,
    open_counter,
    parse_fault,
    percentile_ms,
    read_latencies,
    read_reported,
)


def total(output: bytes, pattern: str, *, cumulative: bool = True) -> float:
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
    assert total(output, pattern, cumulative=cumulative) == expected


@pytest.mark.parametrize("word", ["fast", "nan", "inf", ""])
def test_group_that_catches_no_number_is_told(word: str) -> None:
    with pytest.raises(JobError, match=re.escape(f"caught '{word}', which is not a number")):
        total(f"rate {word};\n".encode(), "rate (.*);")


def test_pattern_that_tries_each_way_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MATCH_S", 0.1)
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


def test_emptied_counter_file_is_told(tmp_path: Path) -> None:
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
    counts, output = tmp_path / "progress", tmp_path / "output.log"
    counts.write_bytes(struct.pack("<q", 3))
    output.write_text("at 8\nat 9\n")
    with closing(open_counter(progress, counts, output)) as counter:
        assert counter.read() == expected


def test_a_comma_that_the_pattern_leaves_out_is_named(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("step 950/9000\nstep 1,000/9000\n")
    with (
        closing(OutputCounter(output, r"step (\d+)", cumulative=True)) as counter,
        pytest.raises(JobError, match=r"'step 1,000/9000'. it stops at the comma. let it take"),
    ):
        counter.read()
    with closing(OutputCounter(output, r"step ([\d,]+)", cumulative=True)) as counter:
        assert counter.read() == 1000


def test_the_end_of_a_long_output_is_read_at_once(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("".join(f"step {n} {'x' * 9000}\n" for n in range(1, 401)))
    with closing(OutputCounter(output, r"step (\d+)", cumulative=True)) as counter:
        assert counter.read() < 400
        assert counter.read(last=True) == 400


def test_a_fault_of_the_reading_is_told_until_it_is_over(tmp_path: Path) -> None:
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


def begin_again(path: Path) -> None:
    path.rename(f"{path}.1")
    path.touch()


# What is written, whether a look follows, and whether the file is begun again after that.
@given(st.lists(st.tuples(st.binary(max_size=9), st.booleans(), st.booleans()), max_size=30))
def test_lines_are_those_of_the_whole_output(
    pieces: list[tuple[bytes, bool, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "output.log")
        path.touch()
        lines, found, aside = OutputLines(path), list[bytes](), False
        for data, looked, again in pieces:
            with path.open("ab") as file:
                file.write(data)
            if looked:
                found += lines.read()
                aside = False
            if again and not aside:
                begin_again(path)
                aside = True
        for _ in range(3):
            found += lines.read()
        lines.close()
    assert found == re.split(rb"[\r\n]", b"".join(data for data, _, _ in pieces))[:-1]


def test_look_is_bounded(tmp_path: Path) -> None:
    """A job that floods its output cannot make its supervisor grow; what is left comes later."""
    path = tmp_path / "output.log"
    path.write_bytes(b"x" * 99 + b"\n" + b"." * (3 * LOOK_BYTES) + b"step 7\nstep 8\n")
    lines = OutputLines(path)
    assert [len(line) for line in lines.read()] == [99]
    found = [line for _ in range(4) for line in lines.read()]
    assert [line[-6:] for line in found] == [b"step 7", b"step 8"]
    assert len(found[0]) <= LINE_BYTES + LOOK_BYTES
    lines.close()


def test_output_that_was_lost_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"step 1\n")
    lines = OutputLines(path)
    assert lines.read() == [b"step 1"]
    begin_again(path)
    begin_again(path)
    with pytest.raises(JobError, match="faster than it can be read"):
        lines.read()
    lines.close()


def test_file_that_is_just_being_begun_again_is_waited_for(tmp_path: Path) -> None:
    """Between the two steps of its shim there is no file of this name."""
    path = tmp_path / "output.log"
    path.write_bytes(b"step 1\n")
    lines = OutputLines(path)
    path.rename(f"{path}.1")
    assert lines.read() == [b"step 1"]
    path.write_bytes(b"step 2\n")
    assert lines.read() == [b"step 2"]
    lines.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress"
    path.write_bytes(bytes(FILE_BYTES))
    (tmp_path / "output.log").touch()
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(path))
    return path


def read(file: Path) -> Reported:
    return read_reported(file)


def test_values_are_read_with_the_count_at_them(file: Path) -> None:
    progress = Progress()
    progress.report(3.0)
    progress.add(48, value=2.5)
    progress.add(48)
    progress.add(48, value=2.0)
    assert read(file) == Reported(((0, 3.0), (48, 2.5), (144, 2.0)), 3, 0, 2.0)
    with closing(CounterFile(file)) as counter:
        assert counter.read() == 144


def test_only_the_first_values_are_kept_but_all_are_counted(file: Path) -> None:
    progress = Progress()
    for step in range(20):
        progress.add(1, value=float(step))
    progress.add(1, value=math.nan)
    progress.add(1, value=7.0)
    seen = read(file)
    assert seen.first == tuple((n + 1, float(n)) for n in range(FIRST_VALUES))
    assert (seen.count, seen.not_finite, seen.last) == (22, 1, 7.0)


def test_a_file_of_eight_bytes_takes_the_count_alone(file: Path) -> None:
    file.write_bytes(bytes(8))
    Progress().add(5, value=1.0, latency_s=0.1)
    assert (read(file), read_latencies(file)) == (Reported(), ())
    with closing(CounterFile(file)) as counter:
        assert counter.read() == 5


def test_a_pattern_reads_the_output(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text("step 1 loss 2.5\nnothing\nstep 2 loss nan\nstep 3 loss n/a\nloss 1,000.5\n")
    with closing(ReportedOutput(path, r"loss (\S+)")) as reports:
        seen = reports.read()
        assert [at for at, _ in seen.first] == [1, 2, 3, 4]
        assert (seen.count, seen.not_finite, seen.last) == (4, 2, 1000.5)
        with path.open("a") as more:
            more.write("loss 3")
        assert reports.read() == seen, "the line is not over"


@given(st.floats(1e-5, 59, exclude_min=True))
def test_a_latency_comes_back_within_a_bucket(latency_s: float) -> None:
    """Buckets are 5 % apart, and their middle is told."""
    counts = [0] * 320
    counts[latency_bucket(latency_s)] = 1
    seen_ms = percentile_ms((0,) * 320, tuple(counts), 50)
    assert seen_ms == pytest.approx(1000 * latency_s, rel=0.026)


@pytest.mark.parametrize("latency_s", [math.nan, -1.0, 0.0, 1e-9])
def test_a_latency_that_cannot_be_is_in_the_first_bucket(latency_s: float) -> None:
    """A clock that went back must not end a server."""
    assert latency_bucket(latency_s) == 0


def test_percentiles_are_of_the_time_between_two_readings(file: Path) -> None:
    progress = Progress()
    progress.add(1000, latency_s=5.0)
    before = read_latencies(file)
    for _ in range(98):
        progress.add(latency_s=0.010)
    for _ in range(2):
        progress.add(latency_s=0.200)
    after = read_latencies(file)
    assert percentile_ms(before, after, 50) == pytest.approx(10, rel=0.03)
    assert percentile_ms(before, after, 99) == pytest.approx(200, rel=0.03)
    assert percentile_ms(after, after, 50) is None


def test_a_fault_of_the_count_is_read_until_it_is_cleared(file: Path) -> None:
    progress = Progress()
    assert parse_fault(file.read_bytes()) == ""
    progress.uncounted("no answer at http://127.0.0.1:8000")
    progress.uncounted("HTTP 500")
    assert parse_fault(file.read_bytes()) == "HTTP 500"
    progress.uncounted("x" * (FAULT_BYTES - 2) + "\N{GREEK SMALL LETTER MU}s")
    assert parse_fault(file.read_bytes()) == "x" * (FAULT_BYTES - 2)
    progress.took(1e-5)
    progress.uncounted("")
    assert parse_fault(file.read_bytes()) == ""
    assert read_latencies(file)[0] == 1, "the fault ends before the latencies begin"


RISES = st.lists(st.integers(2, 4), min_size=6, max_size=40)


def total_of(numbers: Sequence[float], of: float | None = None) -> float:
    tally = Tally()
    for number in numbers:
        tally.add(number, of)
    return tally.total


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1, 2, 3], 3),
        ([100, 200, 100, 200, 100, 200], 600),
        ([8, 9, 1, 2, 3], 12),
        ([8, 9, 1], 9),
        ([10, 9, 10, 11, 9, 10, 12], 12),
        ([30, 1, 31, 2, 32, 3, 33], 33),
        ([5000, 5001, 5002], 5002),
        ([100, 70, 80, 90, 95], 195),
    ],
    ids=[
        "no restart",
        "epochs",
        "restart",
        "one smaller number",
        "ranks out of step",
        "two counters by turns",
        "resumed",
        "restart whose first half was not seen",
    ],
)
def test_a_smaller_number_counts_once_it_rises(numbers: list[float], total: float) -> None:
    assert total_of(numbers) == total


@given(st.lists(RISES, min_size=1, max_size=6), st.integers(1, 3))
def test_restarts_gaps_and_repeats_lose_nothing(epochs: list[list[int]], repeats: int) -> None:
    numbers = [n for rises in epochs for n in accumulate(rises) for _ in range(repeats)]
    assert total_of(numbers) == sum(map(sum, epochs))


@given(st.lists(st.sets(st.integers(1, 50), min_size=1), min_size=1, max_size=6))
def test_a_full_bar_starts_again_at_any_number(epochs: list[set[int]]) -> None:
    numbers = [float(n) for shown in epochs for n in sorted({*shown, 50})]
    assert total_of(numbers, 50) == 50 * len(epochs)


def test_a_bar_that_stops_a_step_short_was_full() -> None:
    """`Train Epoch: 1 [5952/6000]` is the last line of 6000 images, of which each tells 64."""
    epoch = [float(n) for n in range(0, 6000, 64)]
    tally = Tally()
    for number in epoch * 3:
        tally.add(number, 6000)
    assert tally.total == 2 * 6000 + epoch[-1]
    tally.finish()
    assert tally.total == 3 * 6000


@given(
    st.lists(st.lists(st.integers(1, 60), max_size=3, unique=True), min_size=1, max_size=5),
    st.integers(2, 15),
)
def test_another_bar_between_adds_nothing(epochs: list[list[int]], checks: int) -> None:
    tally = Tally()
    for cuts in epochs:
        for n in range(1, 61):
            tally.add(n, 60)
            if n in cuts or n == 60:
                for check in range(1, checks + 1):
                    tally.add(check, checks)
    assert tally.total == 60 * len(epochs)


@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from([None, 5, 60, 100])), max_size=60))
def test_no_sequence_makes_the_total_fall(shown: list[tuple[int, float | None]]) -> None:
    tally, before = Tally(), 0.0
    for number, of in shown:
        tally.add(number, of)
        assert tally.total >= before
        before = tally.total
