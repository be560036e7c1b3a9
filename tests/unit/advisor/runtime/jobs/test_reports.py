"""What the advisor reads of a job's results and latencies, as the job's side writes it."""

import math
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.job import Reported, ResultsSettings
from advisor.progress import FAULT_BYTES, FILE_BYTES, FIRST_VALUES, Progress, latency_bucket
from advisor.runtime.counting import (
    CounterFile,
    ReportedOutput,
    open_reports,
    percentile_ms,
    read_fault,
    read_latencies,
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A progress file, and a process that is told of it."""
    path = tmp_path / "progress"
    path.write_bytes(bytes(FILE_BYTES))
    (tmp_path / "output.log").touch()
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(path))
    return path


def read(file: Path) -> Reported:
    """All that was reported."""
    with closing(open_reports(ResultsSettings(), file, file.with_name("output.log"))) as reports:
        return reports.read()


def test_values_are_read_with_the_count_at_them(file: Path) -> None:
    """Warm-up values stand before the first counted step."""
    progress = Progress()
    progress.report(3.0)
    progress.add(48, value=2.5)
    progress.add(48)
    progress.add(48, value=2.0)
    assert read(file) == Reported(((0, 3.0), (48, 2.5), (144, 2.0)), 3, 0, 2.0)
    with closing(CounterFile(file)) as counter:
        assert counter.read() == 144


def test_only_the_first_values_are_kept_but_all_are_counted(file: Path) -> None:
    """A NaN is counted however late it comes."""
    progress = Progress()
    for step in range(20):
        progress.add(1, value=float(step))
    progress.add(1, value=math.nan)
    progress.add(1, value=7.0)
    seen = read(file)
    assert seen.first == tuple((n + 1, float(n)) for n in range(FIRST_VALUES))
    assert (seen.count, seen.not_finite, seen.last) == (22, 1, 7.0)


def test_a_job_that_reports_nothing_has_reported_nothing(file: Path) -> None:
    """Zeros in the file are no values."""
    Progress().add(5)
    assert read(file) == Reported()


def test_a_file_of_eight_bytes_takes_the_count_alone(file: Path) -> None:
    """As an advisor of before made it."""
    file.write_bytes(bytes(8))
    progress = Progress()
    progress.add(5, value=1.0, latency_s=0.1)
    assert read(file) == Reported()
    assert read_latencies(file) == ()
    with closing(CounterFile(file)) as counter:
        assert counter.read() == 5


def test_a_pattern_reads_the_output(tmp_path: Path) -> None:
    """Counted by match; what is not a number is not finite."""
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
    """What was answered before the window does not count."""
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
    """A shorter reason leaves nothing of a longer one, and a long one is cut between characters."""
    progress = Progress()
    assert read_fault(file) == ""
    progress.uncounted("no answer at http://127.0.0.1:8000")
    progress.uncounted("HTTP 500")
    assert read_fault(file) == "HTTP 500"
    progress.uncounted("x" * (FAULT_BYTES - 2) + "\N{GREEK SMALL LETTER MU}s")
    assert read_fault(file) == "x" * (FAULT_BYTES - 2)
    progress.took(1e-5)
    progress.uncounted("")
    assert read_fault(file) == ""
    assert read_latencies(file)[0] == 1, "the fault ends before the latencies begin"


def test_a_file_of_a_count_alone_has_no_fault(file: Path) -> None:
    """Earlier versions made it 8 bytes."""
    file.write_bytes(bytes(8))
    Progress().uncounted("HTTP 500")
    assert read_fault(file) == ""
