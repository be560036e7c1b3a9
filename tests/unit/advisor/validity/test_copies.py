"""Copies of one window, sent by others than who measured it."""

from dataclasses import replace

import pytest
from launched_pairs import launched

from advisor.core.observations import Record
from advisor.validity.copies import undisputed
from advisor_data.bundled import bundled_pair_points, bundled_solo_points

RECORDS: list[Record] = [
    bundled_solo_points({"fft"})[0],
    bundled_pair_points()[0],
    launched([1])[0],
]
KINDS = [type(record).__name__ for record in RECORDS]


@pytest.mark.parametrize("true", RECORDS, ids=KINDS)
@pytest.mark.parametrize("forger", ["a", "z"])
def test_of_unlike_copies_none_counts(true: Record, forger: str) -> None:
    """Whoever is first, and however the moment is written; others count as before."""
    same = true.started_at.replace("Z", "+00:00")
    forged = replace(true, written_by=forger, started_at=same, power_w=(true.power_w or 0) * 0.7)
    other = replace(true, started_at="2026-01-02T03:04:05Z")
    assert undisputed([true, other, forged]) == [other]
    assert undisputed([forged, true]) == []


@pytest.mark.parametrize("true", RECORDS, ids=KINDS)
def test_what_is_sent_again_as_it_was_still_counts(true: Record) -> None:
    """Nobody takes a window away by a copy that says the same."""
    again = replace(true, written_by="a")
    assert undisputed([true, again]) == [true, again]


def test_what_was_measured_at_one_moment_elsewhere_is_no_copy() -> None:
    """Of another card, or of another job: with rates of its own."""
    true = bundled_solo_points({"fft"})[0]
    others = [replace(true, gpu_uuid="GPU-2", rate=1.0), replace(true, job="b", rate=1.0)]
    assert undisputed([true, *others]) == [true, *others]
