"""What a job does alone: references and classes."""

from typing import Any

import pytest
from simple_pairs import solo

from advisor.core.records import SoloPoint
from advisor_training.pairs import (
    MEMORY_COUNTERS,
    SoloReference,
    job_classes,
    solo_reference,
    whole_gpu,
)

HERE, CARD, ELSEWHERE = (
    solo(rate=6, power_w=100, run="r1"),
    solo(rate=7, power_w=110, run="r0"),
    solo(rate=8, power_w=120, run="r1", gpu_uuid="GPU-2"),
)
REPEATED = [solo(rate=r, power_w=w, run="r1") for r, w in ((10, 90), (11, 100), (99, 5))]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([ELSEWHERE, CARD, HERE], SoloReference(6, 100, 0.25)),
        ([ELSEWHERE, CARD], SoloReference(7, 110, 0.125)),
        ([ELSEWHERE], SoloReference(8, 120, 0.0)),
        ([*REPEATED, CARD], SoloReference(11, 90, 0.0)),
        ([HERE, *REPEATED], SoloReference(10.5, 95, 0.0)),
        ([], None),
    ],
)
def test_the_nearest_solo_points_count(
    points: list[SoloPoint], expected: SoloReference | None
) -> None:
    """By the median of their repeats, and with how much slower that is than the fastest run's."""
    assert solo_reference(points, None, "Card", "GPU-1", "r1") == expected


def test_another_model_is_no_reference() -> None:
    assert solo_reference([solo()], None, "Other card", "GPU-1", "r1") is None


@pytest.mark.parametrize(
    ("of_pair", "of_solo", "fits"),
    [("x", "x", True), ("x", "y", False), (None, "y", True), ("x", None, True)],
)
def test_another_definition_of_the_job_is_no_reference(
    of_pair: str | None, of_solo: str | None, fits: bool
) -> None:
    """A job that was changed under the same name is another job."""
    found = solo_reference([solo(job_hash=of_solo)], of_pair, "Card", "GPU-1", "r1")
    assert (found is not None) == fits


@pytest.mark.parametrize(
    "fields", [{"share_percent": 90.0}, {"rate": 0.0}, {"power_w": None}, {"power_w": 0.0}]
)
def test_what_cannot_be_divided_by_is_no_reference(fields: dict[str, Any]) -> None:
    assert whole_gpu([solo(**fields)]) == []
    assert len(whole_gpu([solo()])) == 1


@pytest.mark.parametrize("counter", MEMORY_COUNTERS)
@pytest.mark.parametrize(
    ("compute", "memory", "code"),
    [(50, 50, "HH"), (99, 49.9, "HL"), (49.9, 80, "LH"), (3, 1, "LL"), (None, 80, None)],
)
def test_classes_are_cut_at_50_percent(
    compute: float | None, memory: float, code: str | None, counter: str
) -> None:
    """50 % or more is high, as in the paper; without a counter there is no class."""
    fields: dict[str, Any] = {"sm_active_percent": compute, counter: memory}
    point = solo(**fields)
    assert job_classes([point]).get(("Card", "a")) == code


@pytest.mark.parametrize(
    ("busy", "active", "code"), [(60, 45, "HL"), (45, None, "HL"), (None, None, None)]
)
def test_bandwidth_counts_where_it_was_read_else_busy_time(
    busy: float | None, active: float | None, code: str | None
) -> None:
    """A missing counter is not 0 %."""
    counters: dict[str, Any] = {"memory_busy_percent": busy, "dram_active_percent": active}
    points = [solo(sm_active_percent=percent, **counters) for percent in (20.0, 80.0, 90.0)]
    assert job_classes([*points, solo("b")]).get(("Card", "a")) == code


@pytest.mark.parametrize(
    ("rate", "expected"), [(101.0, 100.0), (99.0, 100.0), (90.0, 90.0), (110.0, 110.0)]
)
def test_a_server_is_divided_by_what_arrives(rate: float, expected: float) -> None:
    """Where it served all of it but for chance; else by what was measured."""
    served = solo(rate=rate, offered_rate=100.0, rate_stderr=1.0)
    found = solo_reference([served], None, "Card", "GPU-1", "r1")
    assert found is not None
    assert found.rate == expected
