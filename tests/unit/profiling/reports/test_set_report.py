"""What sets of jobs did, in a table: speeds, tails, and energy against a GPU for each job."""

import io
from typing import Any

import pytest
from flat_records import from_flat
from rich.console import Console
from simple_pairs import solo

from advisor.core.records import PairPoint
from advisor_profiling.reports import SET_COLUMNS, WIDTH, SetResult, set_results, set_table

ALONE = [solo("a"), solo("b", rate=2.0, power_w=200.0)]


def three(**fields: Any) -> PairPoint:
    """Two of "a" at 0.5 and 0.6, "b" at 0.75 of its rate alone, on one card at 200 W."""
    values: dict[str, Any] = {
        "job_1": "a", "job_2": "a", "job_3": "b",
        "share_1_percent": 100.0, "share_2_percent": 100.0, "share_3_percent": 100.0,
        "rate_1": 0.5, "rate_2": 0.6, "rate_3": 1.5,
        "power_w": 200.0, "idle_power_w": 10.0, "mode": "uncapped",
        "gpu_model": "Card", "gpu_uuid": "GPU-1", "window_s": 5.0,
        "started_at": "2026-01-31T12:00:00Z", "run": "r1",
    }  # fmt: skip
    return from_flat(PairPoint, **{**values, **fields})


def printed(results: list[SetResult]) -> list[str]:
    console = Console(width=WIDTH, file=io.StringIO())
    with console.capture() as capture:
        console.print(set_table(results))
    return capture.get().splitlines()


def test_same_work_on_a_card_each() -> None:
    """(0.5 + 0.6) at 100 W and 0.75 at 200 W are 260 W; two cards become free, at 10 W each."""
    (found,) = set_results([three()], ALONE)
    assert [(p.job, p.speed) for p in found.parts] == [("a", 0.5), ("a", 0.6), ("b", 0.75)]
    assert (found.slowest, found.p99_ms, found.windows) == (0.5, None, 1)
    assert found.saved_off == pytest.approx(1 - 200 / 260)
    assert found.saved_idle == pytest.approx(1 - 220 / 260)
    (unread,) = set_results([three(idle_power_w=None)], ALONE)
    assert (unread.saved_off, unread.saved_idle) == (found.saved_off, None)


def test_a_server_does_no_more_than_is_asked_of_it() -> None:
    """Noise in its arrivals is no speed; its tail is the set's, the longest of several."""
    served = {"offered_rate_3": 2.0, "rate_3": 2.1, "latency_p99_3_ms": 40.0}
    tails = {**served, "offered_rate_1": 1.0, "latency_p99_1_ms": 7.0}
    (found,) = set_results([three(**tails)], ALONE)
    assert found.parts[2].speed == 1.0
    assert found.p99_ms == 40.0


def test_windows_of_one_set_and_card_are_averaged() -> None:
    """Those of other limits, cards and ways of sharing are lines of their own."""
    points = [
        three(),
        three(rate_1=0.7, power_w=220.0, latency_p99_3_ms=9.0),
        three(share_3_percent=50.0, mode="mps"),
        three(gpu_uuid="GPU-2"),
        three(mode="time-sliced"),
    ]
    found = set_results(points, ALONE)
    assert len(found) == 4
    mean = next(r for r in found if r.windows == 2)
    assert (mean.parts[0].speed, mean.power_w, mean.p99_ms) == (pytest.approx(0.6), 210.0, 9.0)


@pytest.mark.parametrize(
    "fields", [{"flags": ("failed",), "error": "gone"}, {"power_w": None}, {"rate_2": None}]
)
def test_what_failed_is_in_no_line(fields: dict[str, Any]) -> None:
    assert set_results([three(**fields)], ALONE) == []


def test_rates_that_never_get_flat_are_in_the_table() -> None:
    """Of sets, and of jobs alone: else most sets of small jobs would have no line."""
    moving = ("not-settled", "noisy-rate")
    (found,) = set_results([three(flags=moving)], [solo("a", flags=moving), ALONE[1]])
    assert found.parts[0].speed == 0.5


def test_set_of_a_job_that_was_not_measured_alone_is_in_no_line() -> None:
    assert set_results([three()], ALONE[:1]) == []


def test_table_names_copies_once_and_limits_with_their_job() -> None:
    limited = three(share_3_percent=50.0, mode="mps", latency_p99_3_ms=12.4)
    head, first, second = printed(set_results([three(), limited], ALONE))
    assert head.split() == " ".join(SET_COLUMNS).split()
    assert first.split("  ")[0] == "2 x a 0.50, 0.60 + b@50 0.75"
    assert first.split()[-8:] == ["limits", "200", "0.50", "12", "23.1", "%", "15.4", "%"]
    assert second.split("  ")[0] == "2 x a 0.50, 0.60 + b 0.75"
    assert second.split()[-8:] == ["uncapped", "200", "0.50", "-", "23.1", "%", "15.4", "%"]
