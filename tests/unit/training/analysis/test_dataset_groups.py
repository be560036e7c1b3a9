"""The paper's groups, and ours next to them."""

import pytest
from simple_pairs import nine, solo

from advisor.core.objectives import OBJECTIVES
from advisor_training.analysis.groups import GroupRow, group_of, group_rows, group_text
from advisor_training.dataset.pairs import make_pairs
from advisor_training.dataset.paper import FIGURES, GROUPS
from advisor_training.dataset.solo import job_classes

FLAT = dict.fromkeys(range(10, 100, 10), 1.0)
JOBS = {"hh": (90, 80), "hl": (90, 20), "lh": (20, 80), "ll": (5, 1), "early": (6, 2)}
SOLOS = [
    solo(name, sm_active_percent=compute, dram_active_percent=memory)
    for name, (compute, memory) in JOBS.items()
]
CLASSES = job_classes(SOLOS)
THROUGHPUT = OBJECTIVES["throughput"]


def rows(*couples: tuple[str, str, int, float]) -> dict[tuple[str, str], GroupRow]:
    """Rows by group, of pairs with one split that is worth more."""
    points = [
        point
        for job_a, job_b, share_a, value in couples
        for point in nine({**FLAT, share_a: value}, job_1=job_a, job_2=job_b)
    ]
    pairs, left_out = make_pairs(points, SOLOS)
    assert left_out == []
    return {row.classes: row for row in group_rows(pairs, CLASSES, THROUGHPUT)}


def test_all_groups_of_the_paper_have_a_row() -> None:
    """A group that we have no pairs of is shown as empty, with the paper's number."""
    found = rows(("hl", "hl", 30, 1.0))
    assert [*found] == [group.classes for group in GROUPS]
    empty = found["LL", "LL"]
    assert (empty.pairs, empty.paper_gain_percent, empty.paper_number) == (0, 0.8, 5)
    assert (empty.mean_percent, empty.of_means_percent, empty.at_90_10_percent) == (None,) * 3


def test_a_group_by_hand() -> None:
    """Mean and median of gains, the paper's way of averaging, and who gets 90 %."""
    row = rows(("hl", "ll", 10, 2.0), ("early", "hl", 10, 1.5))["HL", "LL"]
    assert (row.pairs, row.paper_number, row.paper_gain_percent) == (2, 4, None)
    assert row.mean_percent == pytest.approx(75)
    assert row.median_percent == pytest.approx(75)
    assert row.of_means_percent == pytest.approx(100 * (1 / ((1 / 2 + 1 / 1.5) / 2) - 1))
    # Both best splits are 10/90, but "early", the light job of its pair, is written first.
    assert (row.at_90_10_percent, row.second_gets_90_percent) == (100, 50)


def test_a_class_that_the_paper_lacks_has_a_row_without_its_number() -> None:
    """Low compute with high memory is no group of the paper."""
    found = rows(("lh", "lh", 30, 1.1), ("hh", "lh", 30, 1.1))
    assert [*found][-2:] == [("HH", "LH"), ("LH", "LH")]
    assert found["HH", "LH"].paper_number is None
    assert not found["HH", "LH"].paper_certain
    assert found["LH", "LH"].second_gets_90_percent is None


def test_a_pair_without_classes_is_in_no_group() -> None:
    """A job without counters is not guessed into a group."""
    solos = [solo("bare"), *SOLOS]
    pairs, _ = make_pairs(nine(job_1="bare", job_2="hh"), solos)
    assert group_of(pairs[0], job_classes(solos)) is None
    assert all(row.pairs == 0 for row in group_rows(pairs, job_classes(solos), THROUGHPUT))


def test_groups_in_words() -> None:
    """Groups read as sentences use them."""
    assert group_text(("LL", "LL")) == "two jobs of low compute and low memory"
    assert group_text(("HH", "LL")) == (
        "a job of high compute and high memory beside one of low compute and low memory"
    )


def test_the_papers_numbers_have_their_places() -> None:
    """Every number of the paper says where it stands; guessed classes are marked."""
    assert all(group.place for group in GROUPS)
    assert all(figure.place for figure in FIGURES)
    assert {g.number: g.gain_percent for g in GROUPS} == {
        1: 65.7,
        2: 38.0,
        3: None,
        4: None,
        5: 0.8,
    }
    assert {group.number for group in GROUPS if group.certain} == {2, 4, 5}
    assert [figure.percent for figure in FIGURES] == [35.0, 60.6, 12.0, 1.5]
