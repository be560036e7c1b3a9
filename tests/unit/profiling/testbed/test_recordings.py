"""Which recorded window is found for jobs at shares, and what is said where there is none."""

import pytest
from pair_points import pair_point
from store_points import point

from advisor.core.gpu import Share
from advisor.core.records import PairPoint
from advisor.errors import InputError
from advisor_profiling.testbed.replay import Recordings

SPLITS = ((30.0, 70.0), (50.0, 50.0), (70.0, 30.0), (100.0, 100.0))
SOLO = [
    point(job=job, share_percent=share, units_granted=int(share))
    for job in ("triad", "gemm")
    for share in (100.0, 30.0, 70.0)
]


def campaign(run: str, day: int, *splits: tuple[float, float], **fields: object) -> list[PairPoint]:
    """Windows of a run, one a minute."""
    return [
        pair_point(a, b, run=run, started_at=f"2026-01-{day:02}T00:{minute:02}:00Z", **fields)
        for minute, (a, b) in enumerate(splits)
    ]


def preferred(pairs: list[PairPoint], mode: str = "mps") -> dict[tuple[float, float], PairPoint]:
    """The window of each split that a replay shows."""
    recordings = Recordings(SOLO, pairs, mode)
    found = {
        (a, b): recordings.find([("gemm", a), ("triad", b)])
        for a, b in {p.shares_percent for p in pairs}
    }
    points = {split: windows[0].point for split, windows in found.items() if windows}
    return {split: p for split, p in points.items() if isinstance(p, PairPoint)}


WHOLE = campaign("whole", 1, *SPLITS)


FAILED = campaign("tried", 9, *SPLITS[:3], rate_1=None, rate_2=None, flags=("failed",))


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (campaign("newer", 9, *SPLITS[:2]), "whole"),
        ([p for _ in range(3) for p in campaign("again", 9, *SPLITS[:2])], "whole"),
        (campaign("new", 2, *SPLITS), "new"),
        # A pair that was begun on one card and finished on another is whole on that one.
        (campaign("whole", 9, *SPLITS[:3], gpu_uuid="GPU-2"), "whole"),
        (FAILED + campaign("tried", 8, SPLITS[3]), "whole"),
    ],
)
def test_run_that_has_most_splits_is_preferred_then_the_newest(
    other: list[PairPoint], shown: str
) -> None:
    """Splits of a pair are compared with each other; the same split again is no other split."""
    for found in (preferred(other + WHOLE), preferred(WHOLE + other)):
        assert {(p.run, p.gpu_uuid) for p in found.values()} == {(shown, WHOLE[0].gpu_uuid)}
        assert found.keys() == set(SPLITS)
    assert preferred(FAILED) == {}
    # The preferred run hides nothing.
    assert preferred(WHOLE + campaign("fine", 2, (31.0, 69.0)))[31.0, 69.0].run == "fine"


def test_runs_side_by_side_are_not_mixed() -> None:
    """Two cards of a host that measured a pair in turns are still two cards."""
    first, second = campaign("one", 1, *SPLITS), campaign("two", 1, *reversed(SPLITS))
    for points in (first + second, second + first):
        assert len({found.run for found in preferred(points).values()}) == 1


@pytest.mark.parametrize(
    ("mode", "modes"),
    [
        ("mps", {"mps", "uncapped"}),
        ("cu_mask", {"cu_mask", "uncapped"}),
        ("uncapped", {"time-sliced"}),
    ],
)
def test_only_windows_of_the_way_of_sharing_are_found(mode: str, modes: set[str]) -> None:
    """At 100/100 a pair may have been measured with MPS and without: those are two results."""
    pairs = [
        pair_point(share, 100 - share, mode=recorded)
        for share, recorded in ((30, "mps"), (40, "cu_mask"), (50, "uncapped"), (60, "time-sliced"))
    ]
    found = preferred(pairs, mode).values()
    assert {p.mode for p in found} == modes


@pytest.mark.parametrize("mode", ["mps", "uncapped"])
def test_job_alone_is_found_as_it_was_with_or_without_mps(mode: str) -> None:
    """The way of sharing counts more than the day; only what has no window of it has another."""
    other = "mps" if mode == "uncapped" else "uncapped"
    asked = point(share_percent=100.0, mode=mode, started_at="2026-01-01T00:00:00Z")
    newer = point(share_percent=100.0, mode=other, started_at="2026-02-01T00:00:00Z")
    for points, found in (([newer, asked], mode), ([newer], other)):
        (one,) = Recordings(points, [], mode).find([("gemm", 100)])
        assert one.point.mode == found


def test_parts_are_in_the_order_of_the_seats() -> None:
    """Whichever job is named first, each gets its own rate, memory and CPU time."""
    values = {"memory_used_1_mib": 1.0, "memory_used_2_mib": 2.0, "cpu_1_percent": 3.0}
    recordings = Recordings(SOLO, [pair_point(30, 70, rate_1_stderr=0.5, **values)], "mps")
    (found,) = recordings.find([("triad", 70), ("gemm", 30)])
    assert recordings.find([("gemm", 30), ("triad", 70)]) == [found]
    assert [(p.rate, p.rate_stderr, p.memory_used_mib, p.cpu_percent) for p in found.parts] == [
        (30, 0.5, 1, 3), (700, None, 2, None)
    ]  # fmt: skip
    assert recordings.find([("gemm", 70), ("triad", 30)]) == []
    # Of a job beside itself parts are in the order of shares; a table may have them otherwise.
    uneven = pair_point(70, 30, job_2="gemm", rate_1=7.0, rate_2=3.0)
    (found,) = Recordings(SOLO, [uneven], "mps").find([("gemm", 70), ("gemm", 30)])
    assert [part.rate for part in found.parts] == [3, 7]


def test_share_that_only_pairs_have_can_be_started() -> None:
    """Exact counts of units are measured in pairs, not in profiles."""
    recordings = Recordings(SOLO, [pair_point(29, 71, units_1=38, units_2=92)], "mps")
    asked = (("gemm", 29), ("triad", 71), ("gemm", 30))
    assert [recordings.granted(job, Share(s)).units for job, s in asked] == [38, 92, 30]
    for mode in ("mps", "uncapped", "cu_mask"):  # as the live back-end reads it back
        assert Recordings(SOLO, [], mode).granted("gemm", Share(30)).mps is (mode == "mps")


def test_what_was_not_recorded_is_refused_with_what_there_is() -> None:
    recordings = Recordings(SOLO, [pair_point(5, 95)], "mps")
    with pytest.raises(InputError, match=r"gemm at 40 %.*are: 5 %, 30 %, 70 %, 100 %"):
        recordings.granted("gemm", Share(40))
    with pytest.raises(InputError, match=r"of sort at 30 %.*are: gemm, triad"):
        recordings.granted("sort", Share(30))
