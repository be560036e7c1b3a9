"""What a job does alone: references and classes."""

from typing import Any

import pytest
from simple_pairs import solo

from advisor_training.dataset.solo import (
    MEMORY_COUNTERS,
    JobClass,
    job_classes,
    solo_reference,
    whole_gpu,
)


def test_the_nearest_solo_point_counts() -> None:
    """Same card and run come before the card's other runs, those before other cards."""
    here = solo(rate=1, run="r1")
    card = solo(rate=2, run="r0")
    elsewhere = solo(rate=3, gpu_uuid="GPU-2", run="r1")
    for points, expected in (
        ([elsewhere, card, here], (1, "same run")),
        ([elsewhere, card], (2, "same card")),
        ([elsewhere], (3, "same model")),
    ):
        found = solo_reference(points, None, "Card", "GPU-1", "r1")
        assert found is not None
        assert (found.rate, found.source) == expected


def test_repeats_give_their_median() -> None:
    """One odd repeat does not move the reference."""
    points = [solo(rate=rate, power_w=power_w) for rate, power_w in ((10, 90), (11, 100), (99, 5))]
    found = solo_reference(points, None, "Card", "GPU-1", "r1")
    assert found is not None
    assert (found.rate, found.power_w) == (11, 90)


def test_another_model_is_no_reference() -> None:
    """Relative speed is against the same model of card."""
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
    """A part of the GPU, no progress or no power makes no relative speed."""
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
    assert job_classes([point])["Card", "a"].code == code


@pytest.mark.parametrize(
    ("busy", "active", "expected"),
    [
        (60, 45, ("HL", 45, "dram_active_percent", "HH")),
        (45, None, ("HL", 45, "memory_busy_percent", None)),
        (None, None, (None, None, None, None)),
    ],
)
def test_the_memory_counter_is_told(
    busy: float | None, active: float | None, expected: tuple[Any, ...]
) -> None:
    """Bandwidth counts where it was read, else busy time; a missing counter is not 0 %."""
    counters: dict[str, Any] = {"memory_busy_percent": busy, "dram_active_percent": active}
    points = [solo(sm_active_percent=percent, **counters) for percent in (20.0, 80.0, 90.0)]
    code, memory, counter, other = expected
    assert job_classes([*points, solo("b")])["Card", "a"] == JobClass(
        job="a", gpu_model="Card", code=code, sm_active_percent=80.0, memory_percent=memory,
        memory_counter=counter, code_by_other_counter=other,
    )  # fmt: skip


def test_a_slower_run_is_told() -> None:
    """The fastest run tells what the job can do; what it does beside the pair is compared to it."""
    points = [solo(rate=rate, run="quiet") for rate in (99, 100, 101)]
    points += [solo(rate=70, run="disturbed"), solo(rate=80, gpu_uuid="GPU-2", run="r3")]
    for run, slowdown in (("quiet", 0.0), ("disturbed", 0.3)):
        found = solo_reference(points, None, "Card", "GPU-1", run)
        assert found is not None
        assert found.slowdown == pytest.approx(slowdown)
