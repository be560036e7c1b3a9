import dataclasses
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from store_points import any_point, point

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor.core.records import FLAGS, SoloPoint
from advisor_profiling.campaign.campaign import Failure
from advisor_profiling.campaign.sweep import SweepResult
from advisor_profiling.reports import ConsoleReporter, plot, problems, requests, summary, table
from advisor_profiling.window.points import solo

FULL = point(
    share_percent=50.0,
    units_granted=66,
    rate=200.0,
    rate_unit="images",
    rate_stderr=1.0,
    power_w=400.0,
    power_stderr_w=2.0,
    counter_power_w=404.0,
    sm_active_percent=48.04,
    sm_occupancy_percent=21.5,
    dram_active_percent=33.3,
    sm_clock_mhz=1979.6,
    flags=("noisy-rate", "cpu-bound"),
)


def cells(result: Table) -> list[list[str]]:
    """The rows of a table, without its headings."""
    columns = ([str(cell) for cell in column.cells] for column in result.columns)
    return [list(row) for row in zip(*columns, strict=True)]


def rendered(result: Table) -> str:
    """The table as a terminal shows it."""
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        console.print(result)
    return capture.get()


def test_a_server_shows_what_it_answered_of_its_demand() -> None:
    enough = point(
        share_percent=50.0, rate=119.0, offered_rate=120.0, latency_p50_ms=4.04, latency_p99_ms=9.3
    )
    short = dataclasses.replace(enough, share_percent=10.0, rate=60.0, latency_p99_ms=2130.0)
    silent = point(share_percent=70.0, rate=120.0, offered_rate=120.0)
    result = requests([FULL, enough, short, silent])
    assert result is not None
    assert cells(result) == [
        ["10", "120", "60", "50.0", "4.04", "2130"],
        ["50", "120", "119", "99.2", "4.04", "9.3"],
        ["70", "120", "120", "100.0", "-", "-"],
    ]
    assert requests([FULL]) is None


def test_every_value_stands_under_its_heading() -> None:
    result = table([FULL])
    headings = [str(column.header) for column in result.columns]
    assert list(zip(headings, *cells(result), strict=True)) == [
        ("share%", "50"),
        ("units", "66"),
        ("rate", "200"),
        ("±%", "0.50"),
        ("W", "400.0"),
        ("±%", "0.50"),
        ("Δ%", "+1.0"),
        ("/kJ", "500"),
        ("SM%", "48.0"),
        ("DRAM%", "33.3"),
        ("MHz", "1980"),
        ("flags", "noisy-rate cpu-bound"),
    ]  # fmt: skip


def test_missing_reading_is_a_dash_and_not_a_zero() -> None:
    assert cells(table([point(rate=3.0)])) == [["50", "-", "3", *"--------", ""]]


def test_rows_are_in_the_order_of_shares_and_repeats() -> None:
    shuffled = [
        point(share_percent=share, repeat=repeat, rate=share + repeat)
        for share, repeat in [(100.0, 0), (10.0, 1), (50.0, 0), (10.0, 0)]
    ]
    assert [row[2] for row in cells(table(shuffled))] == ["10", "11", "50", "100"]


def test_table_fits_a_terminal() -> None:
    """All but the flags is within 80 columns."""
    assert max(map(len, rendered(table([dataclasses.replace(FULL, flags=())])).split("\n"))) <= 80


@settings(max_examples=25)
@given(st.lists(any_point, max_size=3))
def test_any_points_can_be_shown(points: list[SoloPoint]) -> None:
    """Imported points may hold any number and any text, brackets too."""
    assert rendered(table(points)).count("\n") >= 1
    assert f"{len(points)} points" in summary(points)
    assert len(problems(points)) >= len({flag for p in points for flag in p.flags})


def test_plot_has_both_axes() -> None:
    text = plot([point(share_percent=s, rate=s, power_w=100 + s) for s in (100.0, 10.0, 50.0)])
    assert "steps/s" in text
    assert "W (right)" in text
    assert "share of the GPU, %" in text
    assert max(map(len, text.splitlines())) <= 78
    assert "\x1b" not in text


@pytest.mark.parametrize(("powers", "shown"), [([None], 0), ([None] * 3, 0), ([None, 300.0], 1)])
def test_plot_leaves_out_only_the_missing_power(powers: list[float | None], shown: int) -> None:
    points = [point(share_percent=10.0 * (n + 1), power_w=w) for n, w in enumerate(powers)]
    assert plot(points).count("steps/s") == 1
    assert plot(points).count("W (right)") == shown


def test_summary_tells_the_median_error() -> None:
    """One noisy share does not hide how exact the others are; unknown errors do not count."""
    points = [point(rate=100.0, rate_stderr=e, window_s=2.5) for e in (0.2, 0.4, 30.0, None)]
    assert summary(points) == (
        "4 points; median standard error of the rate 0.40 %; 10 s of windows"
    )
    assert "unknown" in summary([point()])


def test_flags_are_explained_with_their_shares() -> None:
    points = [point(share_percent=s, flags=("throttled",)) for s in (90.0, 20.0)]
    assert problems([*points, point()]) == [f"throttled at 20, 90 %: {FLAGS['throttled']}"]


@pytest.mark.parametrize(("used", "said"), [(71_000.0, 0), (72_000.0, 1), (None, 0)])
def test_job_too_big_to_pair_is_told(used: float | None, said: int) -> None:
    """More than half of the memory leaves no room for a second job like it."""
    found = problems([point(memory_used_mib=used)], memory_mib=143_771)
    assert len([line for line in found if "too big to pair" in line]) == said
    assert problems([point(memory_used_mib=used)]) == []


def result(
    before: float | None, after: float | None, failures: tuple[Failure, ...] = ()
) -> SweepResult:
    return SweepResult("r1", (), failures, before, after, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(76.0, 80.0, 0), (76.0, 90.0, 1), (90.0, 76.0, 1), (None, 90.0, 0), (76.0, None, 0)],
)
def test_idle_power_that_moved_is_told(
    before: float | None, after: float | None, said: int
) -> None:
    """Something else may have used the card; a missing reading says nothing."""
    assert len(problems([point()], result(before, after))) == said


def test_missing_shares_are_told() -> None:
    failure = Failure(solo(Job(name="gemm", command=("x",)), Share(30)), "x ended with exit code 3")
    assert problems([], result(None, None, (failure,))) == [
        "no point of gemm at 30 %: x ended with exit code 3"
    ]


def test_progress_lines_hold_numbers_flags_and_time_to_go() -> None:
    file = io.StringIO()
    reporter = ConsoleReporter(Console(file=file, width=20))
    reporter.phase("measuring idle power [of 2]")
    reporter.point(FULL, 2, 10, 125.9)
    reporter.point(point(), 3, 10, 0.0)
    target = solo(Job(name="gemm", command=("x",)), Share(30))
    reporter.failure(Failure(target, "bad [/checkpoint]"))
    idle, first, second, failure = file.getvalue().splitlines()
    assert idle == "  measuring idle power [of 2] ..."
    assert first == (
        "  2/10  gemm 50 % = 66 units  200 images/s ±0.50 %  400.0 W ±0.50 %  eta 2:05"
        "  [noisy-rate, cpu-bound]"
    )
    assert second == "  3/10  gemm 50 % = - units  100 steps/s  - W  eta 0:00"
    assert failure == "  failed: gemm at 30 %: bad [/checkpoint]"


def test_a_log_without_unicode_tells_errors_in_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ConsoleReporter(Console(file=file)).point(FULL, 1, 1, 0.0)
    file.seek(0)
    assert "200 images/s +-0.50 %" in file.read()


def test_a_replay_tells_no_error_that_nobody_measured() -> None:
    """Within one recording nothing varies: 0.00 % would read as perfect data."""
    file = io.StringIO()
    ConsoleReporter(Console(file=file), replayed=True).point(FULL, 1, 1, 0.0)
    assert "200 images/s  400.0 W  eta" in file.getvalue()
    assert "one recording each" in summary([FULL], replayed=True)


def test_a_job_that_is_never_the_same_twice_is_told_what_to_do() -> None:
    """Where every share differs it is the job's seed; where one is right, it is that share."""
    whole = point(share_percent=100.0, results="right")
    shares = [point(share_percent=percent, results="differ") for percent in (10.0, 50.0)]
    assert any("fix the job's seed" in text for text in problems([*shares, whole]))
    right = point(share_percent=90.0, results="right")
    assert not any("seed" in text for text in problems([*shares, right, whole]))
    assert not any("seed" in text for text in problems([*shares[:1], whole]))
