import dataclasses
import io
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console
from rich.table import Table
from store_points import any_point, point

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor.core.records import FLAGS, SoloPoint
from advisor.errors import JobError
from advisor_cli.console import show_chart
from advisor_profiling.campaign.campaign import Failure, SweepResult
from advisor_profiling.reports import ConsoleReporter, curves, problems, requests, summary, table
from advisor_profiling.window import solo

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
    columns = ([str(cell) for cell in column.cells] for column in result.columns)
    return [list(row) for row in zip(*columns, strict=True)]


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


def test_rows_are_in_the_order_of_shares_and_repeats() -> None:
    """A missing reading is a dash and not a zero."""
    shuffled = [
        point(share_percent=share, repeat=repeat, rate=share + repeat)
        for share, repeat in [(100.0, 0), (10.0, 1), (50.0, 0), (10.0, 0)]
    ]
    assert cells(table(shuffled)) == [
        [share, "-", rate, *"--------", ""]
        for share, rate in (("10", "10"), ("10", "11"), ("50", "50"), ("100", "100"))
    ]


@settings(max_examples=25)
@given(st.lists(any_point, max_size=3))
def test_any_points_can_be_shown(points: list[SoloPoint]) -> None:
    """Imported points may hold any number and any text, brackets too."""
    Console(file=io.StringIO(), width=200).print(table(points))
    assert f"{len(points)} points" in summary(points)
    assert len(problems(points)) >= len({flag for p in points for flag in p.flags})


@pytest.mark.parametrize(("powers", "shown"), [([None] * 3, 0), ([None, 300.0, 101.0], 1)])
def test_plot_has_both_axes(
    powers: list[float | None], shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without power only the axis of the rate."""
    points = [point(share_percent=10.0 * n, power_w=w) for n, w in enumerate(powers, 1)]
    show_chart(curves(points), below="share of the GPU, %")
    text = capsys.readouterr().out
    said = [text.count(word) for word in ("steps/s", "W (right)", "share of the GPU, %", "\x1b")]
    assert said == [1, shown, 1, 0]
    assert max(map(len, text.splitlines())) <= 78


def test_summary_tells_the_median_error() -> None:
    """One noisy share does not hide how exact the others are; unknown errors do not count."""
    points = [point(rate=100.0, rate_stderr=e, window_s=2.5) for e in (0.2, 0.4, 30.0, None)]
    assert summary(points) == (
        "4 points; median standard error of the rate 0.40 %; 10 s of windows"
    )
    assert "unknown" in summary([point()])
    assert summary([point(kernels_per_unit=12.6)]).endswith("; 12.6 kernels per unit of work")
    assert "one recording each" in summary([FULL], replayed=True)


THROTTLED = [point(share_percent=share, flags=("throttled",)) for share in (90.0, 20.0)]
CAUSE = JobError("x ended with exit code 3")
FAILURE = Failure(solo(Job(name="gemm", command=("x",)), Share(30)), CAUSE.what, CAUSE)


def result(before: float | None, after: float | None, *failures: Failure) -> SweepResult:
    return SweepResult("r1", (), failures, before, after, 1.0)


@pytest.mark.parametrize(
    ("points", "more", "said"),
    [
        ([*THROTTLED, point()], {}, f"throttled at 20, 90 %: {FLAGS['throttled']}"),
        ([], {"result": result(None, None, FAILURE)}, "no point of gemm at 30 %: x ended with"),
        # More than half of the memory leaves no room for a second job like it.
        ([point(memory_used_mib=72_000.0)], {"memory_mib": 143_771}, "too big to pair"),
        ([point(memory_used_mib=71_000.0)], {"memory_mib": 143_771}, None),
        ([point()], {"memory_mib": 143_771}, None),
        ([point(memory_bound="XLA_PYTHON_CLIENT_PREALLOCATE=false", mps_clients=1)], {}, None),
        ([point(memory_bound="--gpu-memory-utilization")], {}, "it may hold memory that it does"),
        ([point(memory_bound="--gpu-memory-utilization 0.4")], {}, "--gpu-memory-utilization 0.4"),
        ([point(mps_clients=2)], {}, "2 clients of MPS, and its 50 % are of each: together they"),
        ([point(mps_clients=2, share_percent=100.0)], {}, None),
        # Something else may have used the card; a missing reading says nothing.
        ([point()], {"result": result(76.0, 80.0)}, None),
        ([point()], {"result": result(76.0, 90.0)}, "idle power"),
        ([point()], {"result": result(90.0, 76.0)}, "idle power"),
        ([point()], {"result": result(None, 90.0)}, None),
        ([point()], {"result": result(76.0, None)}, None),
    ],
)
def test_problems_are_told(points: list[SoloPoint], more: dict[str, Any], said: str | None) -> None:
    found = problems(points, **more)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_progress_lines_hold_numbers_flags_and_time_to_go() -> None:
    """A log without Unicode has ASCII; in a replay nothing varies, and no error is shown."""
    file = io.StringIO()
    reporter = ConsoleReporter(Console(file=file, width=20))
    reporter.phase("measuring idle power [of 2]")
    reporter.point(FULL, 2, 10, 125.9)
    reporter.point(point(), 3, 10, 0.0)
    reporter.failure(dataclasses.replace(FAILURE, cause=JobError("bad [/checkpoint]")))
    ConsoleReporter(Console(file=file), replayed=True).point(FULL, 1, 1, 0.0)
    assert file.getvalue().splitlines() == [
        "  measuring idle power [of 2] ...",
        "  2/10  gemm 50 % = 66 units  200 images/s ±0.50 %  400.0 W ±0.50 %  eta 2:05"
        "  [noisy-rate, cpu-bound]",
        "  3/10  gemm 50 % = - units  100 steps/s  - W  eta 0:00",
        "  failed: gemm at 30 %: bad [/checkpoint].",
        "  1/1  gemm 50 % = 66 units  200 images/s  400.0 W  eta 0:00  [noisy-rate, cpu-bound]",
    ]
    ascii_file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ConsoleReporter(Console(file=ascii_file)).point(FULL, 1, 1, 0.0)
    ascii_file.seek(0)
    assert "200 images/s +-0.50 %" in ascii_file.read()


WHOLE, RIGHT = (point(share_percent=share, results="right") for share in (100.0, 90.0))
DIFFER = [point(share_percent=share, results="differ") for share in (10.0, 50.0)]


@pytest.mark.parametrize(
    ("points", "is_told"),
    [([*DIFFER, WHOLE], True), ([*DIFFER, RIGHT, WHOLE], False), ([DIFFER[0], WHOLE], False)],
)
def test_a_job_that_is_never_the_same_twice_is_told_what_to_do(
    points: list[SoloPoint], is_told: bool
) -> None:
    """Where every share differs it is the job's seed; where one is right, it is that share."""
    assert any("fix the job's seed" in text for text in problems(points)) is is_told
